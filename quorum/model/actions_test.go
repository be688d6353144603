package model

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// TestActionsCiteCode looks for each function that an action names.
func TestActionsCiteCode(t *testing.T) {
	packages := map[string]map[string]bool{}
	for a := range NumActions {
		for _, name := range a.Info().Code {
			dir, function := name, ""
			if i := strings.IndexByte(name[strings.LastIndexByte(name, '/')+1:], '.'); i >= 0 {
				i += strings.LastIndexByte(name, '/') + 1
				dir, function = name[:i], name[i+1:]
			}
			if packages[dir] == nil {
				packages[dir] = functions(t, dir)
			}
			if !packages[dir][function] {
				t.Errorf("%q is carried out by %s: there is no such function", a.Info().Form, name)
			}
		}
	}
}

// functions is the functions of a package, and the methods as type.method. "raft" is the library.
func functions(t *testing.T, dir string) map[string]bool {
	t.Helper()
	path := filepath.Join(root, dir)
	if dir == "raft" {
		out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/hashicorp/raft").Output()
		if err != nil {
			t.Fatal(err)
		}
		path = strings.TrimSpace(string(out))
	}
	files, err := filepath.Glob(filepath.Join(path, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no files: %v", dir, err)
	}
	found := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				found[receiver(fn)+fn.Name.Name] = true
			}
		}
	}
	return found
}

// receiver is the type of a method with a dot behind it.
func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return ""
	}
	of := fn.Recv.List[0].Type
	if p, ok := of.(*ast.StarExpr); ok {
		of = p.X
	}
	if name, ok := of.(*ast.Ident); ok {
		return name.Name + "."
	}
	return ""
}

var (
	page     = regexp.MustCompile(`^(\d{3})(?:, (.*))?$`)
	upstream = regexp.MustCompile(`^UPSTREAM\.md, (.*)$`)
	promise  = regexp.MustCompile(`^C[1-9]$`)
	thesis   = regexp.MustCompile(`^thesis, `)
)

// TestSourcesExist looks for each page and item that an action or a rule names.
func TestSourcesExist(t *testing.T) {
	sources := map[string]string{}
	for a := range NumActions {
		sources[a.Info().Form] = a.Info().Source
	}
	for r := range NumRules {
		sources[r.String()] = r.Info().Page
	}
	for of, list := range sources {
		for source := range strings.SplitSeq(list, "; ") {
			switch {
			case source == environment || promise.MatchString(source) || thesis.MatchString(source):
			case page.MatchString(source):
				m := page.FindStringSubmatch(source)
				checkItems(t, of, filepath.Join(root, "docs/decisions", m[1]+"-*.md"), m[2], "\n", ". ")
			case upstream.MatchString(source):
				checkItems(t, of, "../UPSTREAM.md", upstream.FindStringSubmatch(source)[1], "\n## ", ". ")
			default:
				t.Errorf("%q: %q is no source", of, source)
			}
		}
	}
}

// checkItems looks for items, "1 and 2", each between before and behind, in the file of a pattern.
func checkItems(t *testing.T, of, pattern, items, before, behind string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) != 1 {
		t.Errorf("%q: %d pages %s: %v", of, len(files), pattern, err)
		return
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for item := range strings.SplitSeq(items, " and ") {
		if item == "" {
			continue
		}
		head := regexp.MustCompile(regexp.QuoteMeta(before) + ` *` + item + regexp.QuoteMeta(behind))
		if !head.Match(text) {
			t.Errorf("%q: %s has no item %s", of, files[0], item)
		}
	}
}

// TestForms: each action and each rule is described, under a name of its own.
func TestForms(t *testing.T) {
	names := map[string]bool{}
	once := func(name string) {
		if name == "" || names[name] {
			t.Errorf("%q is missing, or there twice", name)
		}
		names[name] = true
	}
	for a := range NumActions {
		once(a.Info().Form)
	}
	for r := range NumRules {
		once(r.String())
	}
	for i := range NumInvariants {
		once(i.Name())
	}
}
