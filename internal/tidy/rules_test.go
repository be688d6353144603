package tidy

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Every package says in doc.go what it is.
func TestDoc(t *testing.T) {
	for dir, p := range packages(t) {
		documented := false
		name := ""
		for _, f := range p.files {
			if f.test {
				continue
			}
			name = f.ast.Name.Name
			if path.Base(f.path) == "doc.go" {
				documented = strings.TrimSpace(f.ast.Doc.Text()) != ""
			} else if f.ast.Doc != nil {
				t.Errorf("%s has a package comment: it belongs into doc.go", f.path)
			}
		}
		if name == "" {
			continue // only tests
		}
		if !documented {
			t.Errorf("package %s has no doc.go with a package comment", dir)
		}
	}
}

// The state machine and the protocol start no goroutine.
func TestNoGoroutines(t *testing.T) {
	for _, dir := range []string{"wire", "znode"} {
		p := packages(t)[dir]
		if p == nil {
			t.Errorf("there is no package %s", dir)
			continue
		}
		for _, f := range p.files {
			if f.test {
				continue
			}
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if g, ok := n.(*ast.GoStmt); ok {
					t.Errorf("%v: a go statement", fset.Position(g.Pos()))
				}
				return true
			})
		}
	}
}

// layoutLiteral is a string that names the nodes of a lock: a layout, or the queue of a semaphore.
var layoutLiteral = regexp.MustCompile(`__(r?lock|READ|WRIT)__|(^|[/-])(lock|lease|latch)-$|^/(leases|locks)/?$|/(leases|locks)/$`)

// clientSide are the packages that make locks, or play programs that do.
var clientSide = []string{"recipes", "bench", "jepsen", "cmd/jepsen"}

// Only package locknode knows how the nodes of locks are called: there is one judge of who holds.
func TestLayoutsAreInLocknode(t *testing.T) {
	for dir, p := range packages(t) {
		if dir == "locknode" || slices.ContainsFunc(clientSide, func(c string) bool { return dir == c || strings.HasPrefix(dir, c+"/") }) {
			continue
		}
		for _, f := range p.files {
			if f.test {
				continue
			}
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					if text, err := strconv.Unquote(lit.Value); err == nil && layoutLiteral.MatchString(text) {
						t.Errorf("%v: %s is a name of package locknode", fset.Position(lit.Pos()), lit.Value)
					}
				}
				return true
			})
		}
	}
}
