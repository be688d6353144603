package tidy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// root is the module's directory, seen from this one.
const root = "../.."

// module is the name in go.mod, which rename-module changes.
var module = readModule()

func readModule() string {
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		panic(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimPrefix(line, "module ")
}

// A pkg is one directory with Go files.
type pkg struct {
	dir   string // from the root, as "cmd/lockkeeper"
	files []file
}

// A file is one parsed Go file.
type file struct {
	path string // from the root
	test bool
	ast  *ast.File
}

var (
	fset = token.NewFileSet()
	// load parses every Go file of the module, once.
	load = sync.OnceValues(func() (map[string]*pkg, error) {
		pkgs := make(map[string]*pkg)
		err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			base := d.Name()
			if d.IsDir() {
				if name != root && (base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")) {
					return filepath.SkipDir
				}
				return nil
			}
			if !strings.HasSuffix(base, ".go") {
				return nil
			}
			parsed, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(root, name)
			if err != nil {
				return err
			}
			rel = filepath.ToSlash(rel)
			dir := path.Dir(rel)
			if pkgs[dir] == nil {
				pkgs[dir] = &pkg{dir: dir}
			}
			pkgs[dir].files = append(pkgs[dir].files, file{rel, strings.HasSuffix(base, "_test.go"), parsed})
			return nil
		})
		return pkgs, err
	})
)

// packages are all packages of the module, by directory.
func packages(t *testing.T) map[string]*pkg {
	t.Helper()
	pkgs, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return pkgs
}

// imports are the import paths of the package's files, of its tests or of the
// others.
func (p *pkg) imports(t *testing.T, test bool) map[string]bool {
	t.Helper()
	found := make(map[string]bool)
	for _, f := range p.files {
		if f.test != test {
			continue
		}
		for _, spec := range f.ast.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatalf("%s: %v", f.path, err)
			}
			found[name] = true
		}
	}
	return found
}

// exists says whether a file or directory exists, named from the root.
func exists(name string) bool {
	_, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
	return err == nil
}
