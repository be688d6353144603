package model

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var (
	long   = flag.Bool("model.long", false, "explore larger bounds, for some minutes")
	update = flag.Bool("update", false, "write the counterexamples to testdata")
)

// explore explores and logs the size.
func explore(t *testing.T, without Rules, b Bounds) (*Model, Result) {
	t.Helper()
	if err := b.Validate(); err != nil {
		t.Fatal(err)
	}
	m := New(without, b)
	start := time.Now()
	r, err := Explore(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %d states, %d steps deep, %.1f s", Flags(without, b), r.States, r.Depth, time.Since(start).Seconds())
	return m, r
}

// protocols are the bounds of TestProtocol: each mechanism with those that it needs.
var protocols = []Bounds{
	{Members: 3, Terms: 2, Entries: 1, Lost: 1, Changes: 3, Lemmas: true},
	{Members: 3, Terms: 2, Entries: 1, Lost: 1, Changes: 3, Blank: true},
	{Members: 3, Terms: 1, Entries: 1, Lost: 3, Changes: 9},
	{Members: 3, Terms: 1, Entries: 2, Words: 2, Lost: 1, Blank: true},
	{Members: 3, Terms: 3, Lemmas: true},
	{Members: 2, Terms: 2, Entries: 1, Lost: 1, Returns: 1, Changes: 3, Words: 1, Blank: true},
	{Members: 4, Voters: 3, Terms: 1, Changes: 3, Remove: true, Lemmas: true},
	{Members: 3, Terms: 2, Changes: 2, Remove: true, Parallel: true, Early: true, Lemmas: true},
	{Members: 3, Terms: 2, Entries: 1, Parallel: true, Early: true, Lemmas: true},
	{Members: 3, Terms: 2, Snapshots: true, Parallel: true, Early: true},
	{Members: 3, Terms: 1, Import: 2, Blank: true},
	{Members: 3, Terms: 2, Entries: 2, Commands: 2},
	{Members: 3, Terms: 1, Lease: 3, Errors: 1, Suspends: 1},
	{Members: 3, Terms: 1, Lease: 3, Parallel: true, Early: true},
	{Members: 3, Terms: 2, Led: true, Lease: 3},
	{Members: 3, Terms: 2, Led: true, Lease: 3, Steady: true, Errors: 1},
	{Members: 3, Terms: 1, Led: true, Lease: 3, Moves: 1, Parallel: true, Early: true},
	{Members: 3, Terms: 2, Led: true, Lease: 3, Steady: true, Suspends: 1},
	{Members: 3, Terms: 2, Led: true, Lease: 3, Steady: true, Changes: 1, Remove: true},
}

// larger are the bounds of TestProtocol with -model.long.
var larger = []Bounds{
	{Members: 3, Terms: 2, Entries: 1, Lost: 2, Changes: 6, Lemmas: true},
	{Members: 3, Terms: 2, Entries: 1, Lost: 1, Returns: 1, Changes: 3},
	{Members: 3, Terms: 1, Entries: 2, Lost: 1, Changes: 3, Words: 1, Blank: true},
	{Members: 3, Terms: 2, Entries: 2, Lost: 2, Changes: 3, Blank: true},
	{Members: 3, Terms: 3, Lost: 1, Changes: 3, Lemmas: true},
	{Members: 3, Terms: 3, Entries: 1, Lemmas: true},
	{Members: 3, Terms: 2, Lost: 1, Changes: 3, Parallel: true, Early: true, Lemmas: true},
	{Members: 3, Terms: 2, Led: true, Lease: 3, Steady: true, Parallel: true, Early: true},
	{Members: 3, Terms: 2, Led: true, Lease: 3, Steady: true, Moves: 1},
}

// TestProtocol explores the protocol that is built. No state breaks the contract.
func TestProtocol(t *testing.T) {
	bounds := protocols
	if *long {
		bounds = larger
	}
	if testing.Short() {
		bounds = bounds[:1]
	}
	for _, b := range bounds {
		t.Run(name(Flags(0, b)), func(t *testing.T) {
			t.Parallel()
			if m, r := explore(t, 0, b); r.Broken != Kept {
				t.Errorf("%v\n%s", r.Broken, m.Text(r.Script))
			}
		})
	}
}

func name(flags string) string {
	return strings.ReplaceAll(strings.ReplaceAll(flags, " -", " "), " ", "_")
}

// mutation is the protocol without some rules. The script that shows why it needs them is in
// testdata, under the name.
type mutation struct {
	name   string
	rules  Rules
	bounds Bounds
	broken Invariant // Kept: the contract does not depend on it
	steps  int       // of a shortest counterexample
	large  bool      // explored with -model.long only
}

// TestMutations takes parts of the protocol away. The explorer finds a counterexample for each that
// the contract needs, as short as it can be.
func TestMutations(t *testing.T) {
	if testing.Short() {
		t.Skip("explores millions of states; not with -short")
	}
	for _, u := range mutations {
		t.Run(u.name, func(t *testing.T) {
			t.Parallel()
			if u.large && !*long {
				return // TestScripts plays it
			}
			m, r := explore(t, u.rules, u.bounds)
			if r.Broken != u.broken || len(r.Script) != u.steps {
				t.Errorf("broken: %v, in %d steps; want %v, in %d", r.Broken, len(r.Script), u.broken, u.steps)
			}
			if r.Broken != Kept {
				golden(t, filepath.Join("testdata", u.name+".txt"), heading(u, r)+m.Text(r.Script))
			}
		})
	}
}

func heading(u mutation, r Result) string {
	return fmt.Sprintf("# %s, %s after %d steps: a shortest counterexample, from\n# go run ./cmd/jepsen model %s\n\n",
		u.name, r.Broken, len(r.Script), Flags(u.rules, u.bounds))
}

// golden compares text with a file of testdata.
func golden(t *testing.T, file, text string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil || string(want) != text {
		t.Errorf("%s differs (%v); -update writes\n%s", file, err, text)
	}
}

// TestEveryRuleIsTakenAway compares the mutations with the rules, and testdata with the mutations.
func TestEveryRuleIsTakenAway(t *testing.T) {
	var taken Rules
	files := map[string]bool{}
	for _, u := range mutations {
		taken |= u.rules
		if u.broken != Kept {
			files[u.name+".txt"] = true
		}
	}
	for r := range NumRules {
		if !taken.has(r) {
			t.Errorf("no mutation is without %v", r)
		}
	}
	found, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if !files[f.Name()] {
			t.Errorf("testdata/%s is of no mutation", f.Name())
		}
	}
}

// TestScripts plays the scripts of testdata. With all rules the protocol has no such behaviour.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		out, m, script, err := Play(string(text))
		if err != nil || out != string(text) {
			t.Errorf("%s: %v; it gives\n%s", file, err, out)
			continue
		}
		if s, err := m.Follow(script); err != nil || s.Broken == Kept {
			t.Errorf("%s: breaks nothing: %v", file, err)
		}
		if s, err := New(0, m.bounds).Follow(script); err == nil && s.Broken != Kept {
			t.Errorf("%s: the protocol with all rules has this behaviour", file)
		}
	}
}

// TestSymmetry compares the numbers of states with and without the symmetry of the members.
func TestSymmetry(t *testing.T) {
	for _, b := range []Bounds{
		{Members: 3, Terms: 1, Entries: 1, Lost: 1, Changes: 3},
		{Members: 3, Terms: 1, Lease: 3},
		{Members: 3, Terms: 1, Parallel: true, Early: true, Snapshots: true},
	} {
		_, with := explore(t, 0, b)
		m := New(0, b)
		m.asymmetric = true
		without, err := Explore(context.Background(), m)
		if err != nil {
			t.Fatal(err)
		}
		least := 4 // of 6 orders; with a client, of 2
		if b.Lease > 0 {
			least = 1
		}
		if without.Depth != with.Depth || without.States < least*with.States || without.States > 6*with.States {
			t.Errorf("%+v: %d states, %d deep with the symmetry, %d and %d without", b, with.States, with.Depth,
				without.States, without.Depth)
		}
	}
	blank := Bounds{Members: 3, Terms: 1, Blank: true, Words: 1}
	if n := New(0, blank).fixed(); n != 3 {
		t.Errorf("%d members are fixed where the operator decides which one begins; want 3", n)
	}
}

// TestFrontier returns the states of a frontier as they were pushed.
func TestFrontier(t *testing.T) {
	m := New(0, Bounds{Members: 3, Terms: 2, Entries: 1, Lost: 1, Changes: 3, Lease: 3})
	s := m.First()
	want := []State{s}
	for i := 0; i < len(want) && len(want) < 40000; i++ {
		s := want[i]
		m.Next(&s, func(n *State, _ Step) { want = append(want, *n) })
	}
	var f frontier
	for i := range want {
		f.push(&want[i])
	}
	i := 0
	f.drain(func(s *State) bool {
		if *s != want[i] {
			t.Fatalf("state %d of %d differs", i, len(want))
		}
		i++
		return true
	})
	if i != len(want) || len(f.chunks) < 2 {
		t.Errorf("%d states of %d, in %d chunks", i, len(want), len(f.chunks))
	}
}

// TestWalks takes random walks beyond the bounds of TestProtocol, and finds a planted fault.
func TestWalks(t *testing.T) {
	walks := 150
	if testing.Short() {
		walks = 10
	}
	b := Bounds{Members: 4, Voters: 3, Terms: 4, Entries: 3, Lost: 2, Returns: 2, Changes: 5, Remove: true, Parallel: true,
		Early: true, Snapshots: true, Lemmas: true}
	all := Bounds{Members: 4, Voters: 3, Terms: 3, Entries: 3, Lost: 2, Returns: 2, Changes: 4, Remove: true, Parallel: true,
		Early: true, Snapshots: true, Lemmas: true, Led: true, Lease: 3, Errors: 1, Suspends: 1, Moves: 1}
	for seed := range uint64(2 * walks) {
		m := New(0, [2]Bounds{b, all}[seed%2])
		if script, broken := Walk(m, seed, 200); broken != Kept {
			t.Fatalf("seed %d: %v\n%s", seed, broken, m.Text(Shorten(m, script)))
		}
	}
	for seed := range uint64(10000) {
		m := New(Without(HeldAcks), b)
		script, broken := Walk(m, seed, 200)
		if broken == Kept {
			continue
		}
		short := Shorten(m, script)
		if s, err := m.Follow(short); err != nil || s.Broken != broken || len(short) > len(script) {
			t.Errorf("seed %d: shortened from %d steps to %d: %v, %v", seed, len(script), len(short), err, s.Broken)
		}
		t.Logf("seed %d, %d steps, shortened to %d", seed, len(script), len(short))
		return
	}
	t.Error("no walk finds an acknowledgement that is not held back")
}
