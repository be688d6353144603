package tidy

import (
	"fmt"
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Everything that a page puts into backticks and that looks like a file or a
// symbol of this module exists.
func TestPages(t *testing.T) {
	d := declared(t)
	for _, page := range []string{"ARCHITECTURE.md", "docs/compatibility.md", "docs/membership.md", "docs/disk-failures.md", "quorum/UPSTREAM.md"} {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		claims := 0
		for _, c := range findClaims(string(text)) {
			ok, known := d.check(c.what)
			if known {
				claims++
			}
			if known && !ok {
				t.Errorf("%s:%d: there is no `%s`", page, c.line, c.what)
			}
		}
		if claims == 0 {
			t.Errorf("%s names no file and no symbol: is the test looking at the right text?", page)
		}
	}
}

// A claim is one word that stood between backticks.
type claim struct {
	line int
	what string
}

var (
	fence = regexp.MustCompile("(?ms)^```.*?^```")
	span  = regexp.MustCompile("`([^`\n]+)`")
)

// findClaims finds the words between single backticks. Blocks of code are left
// out: they show commands and pictures.
func findClaims(text string) []claim {
	// The lines must keep their numbers.
	text = fence.ReplaceAllStringFunc(text, func(block string) string {
		return strings.Repeat("\n", strings.Count(block, "\n"))
	})
	var claims []claim
	for i, line := range strings.Split(text, "\n") {
		for _, m := range span.FindAllStringSubmatch(line, -1) {
			for _, word := range strings.Fields(m[1]) {
				claims = append(claims, claim{i + 1, strings.Trim(word, ",;:")})
			}
		}
	}
	return claims
}

// declarations are the names that the module declares.
type declarations struct {
	// names has "pkg.Name" and "pkg.Type.Member" for every package name, and
	// "Name", "Type.Member" without.
	names map[string]bool
	pkgs  map[string]bool // package names
	files map[string]bool // base names of all files
}

var (
	// pathLike is a file or directory as this repository names them.
	pathLike = regexp.MustCompile(`^(\./)?[\w.-]+(/[\w.*-]+)*/?(\.\.\.)?$`)
	// fileLike is a single file of a kind that this repository has.
	fileLike = regexp.MustCompile(`^[\w-]+\.(go|py|java|md|mod|sum)$`)
	// symbolLike is an identifier that may be qualified: Name, pkg.Name,
	// Type.Member, pkg.Type.Member.
	symbolLike = regexp.MustCompile(`^[A-Za-z_]\w*(\.[A-Za-z_]\w*){0,2}$`)
	receiver   = regexp.MustCompile(`^\(\*?([\w.]+)\)`)
)

// check says whether what is something that this module should have (known),
// and whether it does.
func (d *declarations) check(what string) (ok, known bool) {
	if fileLike.MatchString(what) {
		return d.files[what], true
	}
	if first, _, slash := strings.Cut(strings.TrimPrefix(what, "./"), "/"); slash && pathLike.MatchString(what) {
		if !exists(first) {
			return false, false // a path of something else
		}
		name := strings.TrimSuffix(strings.TrimSuffix(what, "..."), "/")
		matches, err := filepath.Glob(filepath.Join(root, name))
		return err == nil && len(matches) > 0, true
	}
	// A call, a method expression, a pointer: what counts is the name.
	name, _, _ := strings.Cut(receiver.ReplaceAllString(what, "$1"), "(")
	name = strings.TrimLeft(name, "*&[]")
	if !symbolLike.MatchString(name) {
		return false, false
	}
	first, _, qualified := strings.Cut(name, ".")
	switch {
	case qualified && d.pkgs[first]:
		return d.names[name], true
	case qualified && !ast.IsExported(first):
		return false, false // of another module, or a file such as raft.db
	case ast.IsExported(first) && strings.ToUpper(first) != first:
		return d.names[name], true
	}
	return false, false // an ordinary word, or a constant of a protocol
}

// declared collects what the module declares.
func declared(t *testing.T) *declarations {
	d := &declarations{
		names: make(map[string]bool),
		pkgs:  make(map[string]bool), files: make(map[string]bool),
	}
	for dir, p := range packages(t) {
		for _, f := range p.files {
			name := strings.TrimSuffix(f.ast.Name.Name, "_test")
			if name == "main" {
				name = path.Base(dir)
			}
			d.pkgs[name] = true
			for _, s := range fileNames(f.ast) {
				d.names[s] = true
				d.names[name+"."+s] = true
			}
		}
	}
	err := filepath.WalkDir(root, func(name string, e os.DirEntry, err error) error {
		if err == nil && e.IsDir() && e.Name() == ".git" {
			return filepath.SkipDir
		}
		d.files[filepath.Base(name)] = true
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// fileNames are the names that one file declares: Name and Type.Member.
func fileNames(f *ast.File) []string {
	var names []string
	for _, decl := range f.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			name := decl.Name.Name
			if decl.Recv != nil {
				names = append(names, typeName(decl.Recv.List[0].Type)+"."+name)
			}
			names = append(names, name)
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					for _, id := range spec.Names {
						names = append(names, id.Name)
					}
				case *ast.TypeSpec:
					names = append(names, spec.Name.Name)
					for _, member := range members(spec.Type) {
						names = append(names, spec.Name.Name+"."+member, member)
					}
				}
			}
		}
	}
	return names
}

// typeName is the name of a receiver's type.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return fmt.Sprintf("%T", e)
}

// members are the fields of a struct and the methods of an interface.
func members(e ast.Expr) []string {
	var fields *ast.FieldList
	switch e := e.(type) {
	case *ast.StructType:
		fields = e.Fields
	case *ast.InterfaceType:
		fields = e.Methods
	default:
		return nil
	}
	var names []string
	for _, field := range fields.List {
		for _, id := range field.Names {
			names = append(names, id.Name)
		}
	}
	return names
}

// The test of the test: it must see what is not there, and leave alone what is
// none of its business.
func TestClaims(t *testing.T) {
	text := "See `tidy.pkg`, `(*declarations).check` and `internal/tidy/doc.go`.\n" +
		"```\n`not.This`\n```\n" +
		"Not: `tidy.Nonsense`, `internal/tidy/nonsense.go`, `nonsense.go`, `TestNonsense`.\n" +
		"Elsewhere: `raft.db`, `zoo.cfg`, `/zookeeper/config`, `raft.Log`, `PR_SET_PDEATHSIG`, `go run ./cmd/lockkeeper`.\n"
	var missing []string
	d := declared(t)
	for _, c := range findClaims(text) {
		if ok, known := d.check(c.what); known && !ok {
			missing = append(missing, fmt.Sprintf("%d %s", c.line, c.what))
		}
	}
	want := []string{"5 tidy.Nonsense", "5 internal/tidy/nonsense.go", "5 nonsense.go", "5 TestNonsense"}
	if !slices.Equal(missing, want) {
		t.Errorf("missing = %q, want %q", missing, want)
	}
}
