package tidy

import (
	"go/ast"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"testing"
)

// layered are the packages with files in layers: no file uses a name of a file above it.
var layered = []string{"quorum", "session"}

// TestFilesAreLayered: there is an order of the files of each package in layered in which every use
// of a name points downwards. It follows the names that need no type of another package.
func TestFilesAreLayered(t *testing.T) {
	for _, dir := range layered {
		arrows := fileArrows(packages(t)[dir])
		for found := true; found; { // takes the lowest and the highest files away
			used := make(map[string]bool)
			for _, below := range arrows {
				maps.DeleteFunc(below, func(to, _ string) bool { return arrows[to] == nil })
				for to := range below {
					used[to] = true
				}
			}
			before := len(arrows)
			maps.DeleteFunc(arrows, func(file string, below map[string]string) bool { return len(below) == 0 || !used[file] })
			found = len(arrows) < before
		}
		for _, file := range slices.Sorted(maps.Keys(arrows)) {
			for to, name := range arrows[file] {
				t.Errorf("%s/%s uses %s of %s, in a cycle of files", dir, file, name, to)
			}
		}
	}
}

// fileArrows returns, by the name of each product file of p, the files that it uses, each with one
// of the names.
func fileArrows(p *pkg) map[string]map[string]string {
	var files []*ast.File
	arrows := make(map[string]map[string]string)
	for _, f := range p.files {
		if !f.test {
			files = append(files, f.ast)
			arrows[filepath.Base(f.path)] = make(map[string]string)
		}
	}
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	ignore := types.Config{Error: func(error) {}} // imports are not there
	checked, _ := ignore.Check(p.dir, fset, files, info)
	for id, object := range info.Uses {
		if object.Pkg() != checked {
			continue
		}
		from, to := fset.Position(id.Pos()).Filename, fset.Position(object.Pos()).Filename
		if from != to {
			arrows[filepath.Base(from)][filepath.Base(to)] = id.Name
		}
	}
	return arrows
}
