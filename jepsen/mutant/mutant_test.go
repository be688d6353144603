package mutant

import (
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The table has every mutation once. Each has its lines where the table says, and these lines are
// in the product once.
func TestTable(t *testing.T) {
	if len(Table) != int(end)-1 {
		t.Errorf("%d mutations, %d in the table", end-1, len(Table))
	}
	texts, err := changed(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	// The simulated disks forget: nothing is replaced.
	const disks = "jepsen/simtest/mutation_test.go"
	text, err := os.ReadFile(filepath.Join("..", "..", disks))
	if err != nil {
		t.Fatal(err)
	}
	texts[disks] = string(text)
	for name, text := range texts {
		if _, err := parser.ParseFile(token.NewFileSet(), name, text, 0); err != nil {
			t.Error(err)
		}
	}
	names := make(map[string]bool)
	constants := constants(t)
	for i, e := range Table {
		if int(e.Mutation) != i+1 || names[e.Name] {
			t.Errorf("%s: not in the order of the constants, or twice", e.Name)
		}
		names[e.Name] = true
		if hook := "mutant.On(mutant." + constants[i] + ")"; !strings.Contains(texts[e.Where], hook) {
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

// The schedules of each recipe find the bugs that are planted in it.
func TestRecipes(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles the recipes and plays thousands of schedules; not with -short")
	}
	overlay, err := Overlay(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "test", "-overlay", overlay, "-run", "TestPlantedBugs", "-v", "lockkeeper/recipes").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestPlantedBugs") {
		t.Errorf("%v\n%s", err, out)
	}
}
