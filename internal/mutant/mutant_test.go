package mutant

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The table has every mutation once, and each has its hook where the table says.
func TestTable(t *testing.T) {
	if len(Table) != int(end)-1 {
		t.Errorf("%d mutations, %d in the table", end-1, len(Table))
	}
	names := make(map[string]bool)
	constants := constants(t)
	for i, e := range Table {
		if int(e.Mutation) != i+1 || names[e.Name] {
			t.Errorf("%s: not in the order of the constants, or twice", e.Name)
		}
		names[e.Name] = true
		text, err := os.ReadFile(filepath.Join("..", "..", e.Where))
		if err != nil {
			t.Errorf("%s: %v", e.Name, err)
			continue
		}
		if hook := "mutant.On(mutant." + constants[i] + ")"; !strings.Contains(string(text), hook) {
			t.Errorf("%s: no %s in %s", e.Name, hook, e.Where)
		}
	}
}

// constants are the names of the constants, in order.
func constants(t *testing.T) (names []string) {
	text, err := os.ReadFile("mutant.go")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "None Mutation = iota\n")
	list, _, _ = strings.Cut(list, "\tend\n")
	return strings.Fields(list)
}

// A usual build has no mutations.
func TestUse(t *testing.T) {
	defer func() { active = None }()
	err := Use("gap-taken")
	if (err == nil) != Compiled || On(GapTaken) != Compiled {
		t.Errorf("compiled %v, but on is %v: %v", Compiled, On(GapTaken), err)
	}
	if Use("no-such-thing") == nil {
		t.Error("a mutation that does not exist was switched on")
	}
	if err := Use(""); err != nil || On(GapTaken) {
		t.Errorf("not switched off: %v", err)
	}
}
