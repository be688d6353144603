package wire

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// declared returns the names of the constants that file declares with the given type.
func declared(t *testing.T, file, typ string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			if id, ok := v.Type.(*ast.Ident); ok && id.Name == typ {
				names = append(names, v.Names[0].Name)
			}
		}
		return true
	})
	return names
}

func TestEveryCodeHasItsText(t *testing.T) {
	names := declared(t, "code.go", "Code")
	if len(names) < 30 || len(names) != len(codeTexts) {
		t.Errorf("%d codes, %d texts", len(names), len(codeTexts))
	}
	texts := map[string]bool{}
	for _, text := range codeTexts {
		texts[strings.ToLower("Code"+text)] = true
	}
	for _, name := range names {
		if !texts[strings.ToLower(name)] {
			t.Errorf("%s has no text of its own", name)
		}
	}
}

func TestEveryOpHasItsName(t *testing.T) {
	names := declared(t, "op.go", "Op")
	if len(names) < 30 || len(names) != len(opNames) {
		t.Errorf("%d ops, %d names", len(names), len(opNames))
	}
	texts := map[string]bool{}
	for _, text := range opNames {
		texts[strings.ToLower("Op"+text)] = true
	}
	for _, name := range names {
		if !texts[strings.ToLower(name)] {
			t.Errorf("%s has no name of its own", name)
		}
	}
}

func TestStrings(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{CodeNoNode.Error(), "NoNode"},
		{Code(-42).Error(), "code-42"},
		{fmt.Sprint(CodeOK.Err()), "<nil>"},
		{fmt.Sprint(CodeNoAuth.Err()), "NoAuth"},
		{OpGetData.String(), "getData"},
		{Op(10).String(), "op10"},
		{SessionID(-1).String(), "0xffffffffffffffff"},
		{SessionID(0x1000007).String(), "0x1000007"},
		{Zxid(1 << 32).String(), "0x100000000"},
		{Zxid(0).String(), "0x0"},
		{EventNodeCreated.String(), "NodeCreated"},
		{EventType(9).String(), "event9"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

func TestCreateMode(t *testing.T) {
	const e, s, c, l = 1, 2, 4, 8 // ephemeral, sequential, container, TTL
	want := map[CreateMode]int{0: 0, 1: e, 2: s, 3: e | s, 4: c, 5: l, 6: l | s}
	bit := func(v bool, b int) int {
		if v {
			return b
		}
		return 0
	}
	for m := CreateMode(-3); m < 10; m++ {
		w, valid := want[m]
		got := bit(m.Ephemeral(), e) | bit(m.Sequential(), s) | bit(m.Container(), c) | bit(m.TTL(), l)
		if got != w || m.Valid() != valid {
			t.Errorf("mode %d: %b, valid %v", m, got, m.Valid())
		}
	}
}
