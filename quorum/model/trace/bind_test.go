package trace

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockkeeper/quorum/model"
)

// wholes are the bounds of the walks: the mechanisms that can be together.
var wholes = []model.Bounds{
	{Members: 4, Voters: 3, Terms: 4, Entries: 3, Lost: 2, Returns: 2, Changes: 5, Remove: true},
	{Members: 4, Terms: 4, Entries: 3, Changes: 5, Remove: true, Parallel: true, Early: true},
	{Members: 4, Voters: 3, Terms: 4, Entries: 3, Lost: 2, Returns: 2, Changes: 5, Remove: true, Parallel: true,
		Early: true, Snapshots: true},
	{Members: 3, Terms: 3, Entries: 3, Lost: 2, Returns: 2, Changes: 6, Words: 1, Blank: true},
	{Members: 3, Terms: 3, Entries: 3, Parallel: true, Import: 3, Blank: true},
	{Members: 3, Terms: 3, Entries: 6, Commands: 3},
	{Members: 4, Voters: 3, Terms: 3, Entries: 3, Lost: 2, Returns: 2, Changes: 4, Remove: true, Parallel: true,
		Early: true, Snapshots: true, Led: true, Lease: 3, Errors: 1, Suspends: 1, Moves: 1},
	{Members: 3, Terms: 3, Led: true, Lease: 3, Errors: 1, Moves: 1, Parallel: true, Early: true},
}

// TestModelIsExplained: the Checker explains behaviours of the model, written as events: random
// walks, ways of the explorer, and the ways to rare states.
func TestModelIsExplained(t *testing.T) {
	const walks = 8 // 3,000 of each have been explained
	for _, b := range wholes {
		for seed := range uint64(walks) {
			m := model.New(0, b)
			script, broken := model.Walk(m, seed, 150)
			if broken != model.Kept {
				t.Fatalf("seed %d: %v", seed, broken)
			}
			mustExplain(t, m, script)
		}
		for _, states := range []int{50, 300, 2000} {
			m := model.New(0, b)
			r, err := model.Reach(t.Context(), m, func(*model.Model, *model.State) bool {
				states--
				return states == 0
			})
			if err != nil || !r.Reached {
				t.Fatalf("%d states: %v", r.States, err)
			}
			mustExplain(t, m, r.Script)
		}
	}
}

// mustExplain has a Checker explain the events of a script.
func mustExplain(t *testing.T, m *model.Model, script []model.Step) {
	t.Helper()
	events, steps, err := written(m, script)
	if err != nil {
		t.Fatal(err)
	}
	c := NewChecker()
	for i, e := range events {
		if err := c.Add(e); err != nil {
			n := slices.IndexFunc(steps, func(upTo int) bool { return upTo > i })
			t.Fatalf("%v\n%s\n%s", err, m.Text(script[:n+1]), lines(events[:i+1]))
		}
	}
	if err := c.Finish(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, m.Text(script), lines(events))
	}
}

func lines(events []Event) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString(e.String() + "\n")
	}
	return b.String()
}

// TestCounterexamplesAreRefused: the Checker refuses each counterexample of the model, at the step
// at which an invariant of the model breaks or before it.
func TestCounterexamplesAreRefused(t *testing.T) {
	files, err := filepath.Glob("../testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, m, script, err := model.Play(string(text))
		if err != nil {
			t.Fatal(err)
		}
		events, _, err := written(m, script)
		if err != nil {
			t.Fatal(err)
		}
		if err := check(events); err == nil {
			t.Errorf("%s is explained:\n%s", file, lines(events))
		} else {
			t.Logf("%s: %v", filepath.Base(file), err)
		}
	}
}
