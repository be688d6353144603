package tidy

import (
	"flag"
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/promises.md")

var (
	defends = regexp.MustCompile(`(?m)^Defends: (.*)\.$`)
	// promised is the heading of a promise in ARCHITECTURE.md.
	promised = regexp.MustCompile(`(?m)^- \*\*(C\d)\.\*\* `)
)

// fuzzed is the promise of every fuzz target: bad input stops no member.
const fuzzed = "C9"

// TestPromises: every promise of ARCHITECTURE.md has a test with the line "Defends: C1." in its doc
// comment, and docs/promises.md lists these tests. With -update the test writes that page.
func TestPromises(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range promised.FindAllStringSubmatch(string(text), -1) {
		names = append(names, m[1])
	}
	if len(names) == 0 {
		t.Fatal("ARCHITECTURE.md has no promises: does this test look for the right lines?")
	}
	tests := make(map[string]map[string][]string) // by promise and file
	for _, p := range packages(t) {
		for _, f := range p.files {
			if !f.test {
				continue
			}
			for name, promises := range defenders(f.ast) {
				for _, promise := range promises {
					if !slices.Contains(names, promise) {
						t.Errorf("%s: %s defends %s, which is no promise of ARCHITECTURE.md", f.path, name, promise)
					}
					if tests[promise] == nil {
						tests[promise] = make(map[string][]string)
					}
					tests[promise][f.path] = append(tests[promise][f.path], name)
				}
			}
		}
	}
	for _, name := range names {
		if len(tests[name]) == 0 {
			t.Errorf("no test defends %s", name)
		}
	}
	comparePage(t, "docs/promises.md", promisesPage(names, tests))
}

// defenders returns the tests of a file that defend promises, each with their names.
func defenders(f *ast.File) map[string][]string {
	found := make(map[string][]string)
	for _, decl := range f.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Recv != nil {
			continue
		}
		if strings.HasPrefix(fn.Name.Name, "Fuzz") {
			found[fn.Name.Name] = []string{fuzzed}
		}
		if m := defends.FindStringSubmatch(fn.Doc.Text()); m != nil {
			found[fn.Name.Name] = strings.Split(m[1], ", ")
		}
	}
	return found
}

// promisesPage is the page that lists the tests of each promise, by file.
func promisesPage(names []string, tests map[string]map[string][]string) string {
	var page strings.Builder
	page.WriteString("# The promises and their tests\n\n" +
		"This page lists the tests that defend each promise.\n\n" +
		"[ARCHITECTURE.md](../ARCHITECTURE.md#what-it-promises) states the promises. A test that fails when\n" +
		"one is broken has the line `Defends: C1.` in its comment; every fuzz target defends " + fuzzed + ".\n" +
		"`go test ./internal/tidy -run TestPromises -update` writes this page.\n")
	for _, name := range names {
		fmt.Fprintf(&page, "\n## %s\n\n", name)
		for _, file := range slices.SortedFunc(maps.Keys(tests[name]), byFolder) {
			slices.Sort(tests[name][file])
			line := "- " + file + ":"
			for i, test := range tests[name][file] {
				word := " `" + test + "`"
				if i < len(tests[name][file])-1 {
					word += ","
				}
				if len(line)+len(word) > maxProseColumns {
					page.WriteString(line + "\n")
					line = " "
				}
				line += word
			}
			page.WriteString(line + "\n")
		}
	}
	return page.String()
}

// byFolder orders files by folder, then by name.
func byFolder(a, b string) int {
	if c := strings.Compare(path.Dir(a), path.Dir(b)); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}

// comparePage compares a generated page with its file, or writes the file with -update.
func comparePage(t *testing.T, page, want string) {
	t.Helper()
	file := filepath.Join(root, page)
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not up to date: go test ./internal/tidy -run TestPromises -update", page)
	}
}
