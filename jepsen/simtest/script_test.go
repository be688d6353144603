package simtest

import (
	"embed"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/quorum/model"
)

var updateScripts = flag.Bool("update", false, "write the scripts in testdata, from the model")

//go:embed testdata/*.txt
var scriptFiles embed.FS

// script is a script of the model that is played with members.
type script struct {
	name                  string
	led, parallel, change bool
	members               int
	lines                 []string // a step each
	steps                 []model.Step
	states                []model.State // before each step, and after the last
	goal                  func(*player) bool
}

// origin is where a script comes from: a goal of the model, or rules that are taken away.
type origin struct {
	name    string
	without []model.Rule
	bounds  model.Bounds
	follows int // the least number of steps that the members follow, of a counterexample
}

// counterexamples are the rules of which the members can be led to a counterexample: those of Raft
// that need no session. They begin with a leader, and have a client's entry, where they can.
var counterexamples = []origin{
	{"held-acks", []model.Rule{model.HeldAcks},
		model.Bounds{Members: 3, Terms: 2, Entries: 1, Parallel: true, Led: true}, 4},
	{"notice-behind-disk", []model.Rule{model.NoticeBehindDisk},
		model.Bounds{Members: 3, Terms: 2, Entries: 1, Parallel: true, Early: true, Led: true}, 6},
	{"vote-transaction", []model.Rule{model.VoteTransaction},
		model.Bounds{Members: 3, Terms: 3, Led: true}, 9},
	{"rising-terms", []model.Rule{model.RisingTerms},
		model.Bounds{Members: 3, Terms: 2, Led: true, Entries: 1, Find: model.NothingLost}, 4},
	{"up-to-date-votes", []model.Rule{model.UpToDateVotes},
		model.Bounds{Members: 3, Terms: 2, Entries: 1, Led: true}, 4},
	{"durable-acks", []model.Rule{model.DurableAcks},
		model.Bounds{Members: 3, Terms: 2}, 7},
	{"new-beats-in-loop", []model.Rule{model.NewBeatsInLoop},
		model.Bounds{Members: 3, Terms: 2, Entries: 1, Led: true}, 4},
	{"own-term-commits", []model.Rule{model.OwnTermCommits},
		model.Bounds{Members: 3, Terms: 4, Lemmas: true, Led: true}, 11},
	{"previous-entry", []model.Rule{model.PreviousEntry},
		model.Bounds{Members: 3, Terms: 2, Entries: 2, Lemmas: true, Led: true}, 5},
	{"one-change-remove", []model.Rule{model.OneChange},
		model.Bounds{Members: 3, Terms: 2, Changes: 2, Remove: true, Lemmas: true, Led: true}, 1},
	{"disk-in-votes", []model.Rule{model.DiskInVotes},
		model.Bounds{Members: 3, Terms: 2, Lost: 1, Led: true}, 4},
}

// write writes the script into testdata.
func (o origin) write(t *testing.T) {
	help, bounds, without := "counterexample", o.bounds, model.Without(o.without...)
	wanted := func(*model.Model, *model.State) bool { return false }
	if g, ok := model.GoalNamed(o.name); ok {
		wanted, help = g.Reached, g.Help
		if bounds == (model.Bounds{}) {
			bounds = g.Bounds
		}
	}
	m := model.New(without, bounds)
	r, err := model.Reach(t.Context(), m, wanted)
	if err != nil || !r.Reached && r.Broken == model.Kept {
		t.Fatalf("%s: %v, nothing is found in %d states", o.name, err, r.States)
	}
	text := fmt.Sprintf("# %s: %s, after %d steps, from\n"+
		"# go test ./jepsen/simtest -run TestScriptsAreTheModels -update\n\n%s", o.name, help, len(r.Script),
		m.Text(r.Script))
	if err := os.WriteFile(filepath.Join("testdata", o.name+".txt"), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// origins are those of all scripts.
func origins() (list []origin) {
	for _, g := range model.Goals {
		o := origin{name: g.Name}
		if g.Name == "changed-twice" {
			// A leader goes on with the change of the one before, so both change the same member.
			o.bounds = model.Bounds{Members: 4, Voters: 3, Terms: 2, Changes: 1, Led: true}
		}
		list = append(list, o)
	}
	return append(list, counterexamples...)
}

// loadScript reads a script, and plays it in the model.
func loadScript(name string) (s script, err error) {
	text, err := scriptFiles.ReadFile("testdata/" + name + ".txt")
	if err != nil {
		return s, err
	}
	out, m, steps, err := model.Play(string(text))
	if err != nil {
		return s, err
	}
	if out != string(text) {
		return s, fmt.Errorf("the model gives\n%s", out)
	}
	s = script{name: name, steps: steps, goal: goals[name]}
	for line := range strings.Lines(string(text)) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "> ")
		flags, start := strings.CutPrefix(command, "start ")
		switch {
		case start:
			s.led, s.parallel = strings.Contains(flags, "-led"), strings.Contains(flags, "-parallel")
			if _, err := fmt.Sscanf(flags, "-members %d", &s.members); err != nil {
				return s, err
			}
		case ok && command != "members" && command != "contract":
			s.lines = append(s.lines, command)
		}
	}
	for i := range len(steps) + 1 {
		state, err := m.Follow(steps[:i])
		if err != nil {
			return s, err
		}
		s.states = append(s.states, state)
	}
	for _, step := range steps {
		switch step.Action {
		case model.Add, model.Remove, model.Promote:
			s.change = true
		}
	}
	if g, ok := model.GoalNamed(name); ok && !g.Reached(m, &s.states[len(steps)]) {
		return s, fmt.Errorf("the script does not reach: %s", g.Help)
	}
	return s, nil
}

// The scripts in testdata are the model's: with the steps and answers that it gives now, to the
// goals that it has now.
func TestScriptsAreTheModels(t *testing.T) {
	if *updateScripts {
		for _, o := range origins() {
			o.write(t)
		}
		return
	}
	names := map[string]bool{}
	for _, o := range origins() {
		names[o.name+".txt"] = true
		if _, err := loadScript(o.name); err != nil {
			t.Errorf("%s: %v", o.name, err)
		}
	}
	files, err := scriptFiles.ReadDir("testdata")
	for _, f := range files {
		delete(names, f.Name())
	}
	if err != nil || len(files) != len(origins()) || len(names) > 0 {
		t.Errorf("scripts without an origin, or without a file: %d files, %v, %v", len(files),
			slices.Collect(maps.Keys(names)), err)
	}
}

// scriptShape is a cluster for scripts: a long heartbeat timeout, and members that change.
var scriptShape = shape{voters: 3, tick: 4 * time.Second, snapCount: 3000, trailing: 10_000, rest: 1, changes: true}

// playScript plays a script in a cluster of its own. Afterwards the members must be well.
func playScript(t *testing.T, name string, f func(p *player)) {
	s, err := loadScript(name)
	if err != nil {
		t.Fatal(err)
	}
	seed := scenarioSeed()
	seedRuntime(t, seed)
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(&recorder{T: t}, scriptShape, seed, newJournal(t, *simJournal))
		c.awaitLeader()
		p, ok := c.play(s, rand.New(rand.NewPCG(seed, 2)))
		if ok {
			t.Logf("%d of %d steps followed; not: %s", p.steps(), len(s.steps), p.missed())
			f(p)
		} else {
			c.t.Errorf("the script cannot be begun")
		}
		time.Sleep(5 * time.Second)
		n := &nemesis{c: c, members: c.machines(), rng: rand.New(rand.NewPCG(seed, 3))}
		n.restoreMembers()
		c.settled(30 * time.Second)
		c.shutdown()
	})
}

// The members are led to each rare state that the model has a name for, by the script of the model.
func TestRareStatesAreReached(t *testing.T) {
	for _, g := range model.Goals {
		t.Run(g.Name, func(t *testing.T) {
			playScript(t, g.Name, func(p *player) {
				if p.reached < 0 || p.steps() < len(p.s.steps) {
					t.Errorf("not reached: %s. Not followed: %s", g.Help, p.missed())
				}
			})
		})
	}
}

// The members are led along the model's shortest way to a broken promise, without one of the rules
// that they have. They follow as far as that rule lets them, and keep the promise.
func TestCounterexamples(t *testing.T) {
	plant(t)
	for _, o := range counterexamples {
		t.Run(o.name, func(t *testing.T) {
			playScript(t, o.name, func(p *player) {
				if got := p.steps(); got < o.follows {
					t.Errorf("%d steps are followed, of %d that the protocol has. Not followed: %s", got, o.follows, p.missed())
				}
			})
		})
	}
}

// scripts are all scripts; they are read before a bubble begins.
var scripts = func() (list []script) {
	for _, o := range origins() {
		s, err := loadScript(o.name)
		if err != nil {
			continue // TestScriptsAreTheModels says so
		}
		list = append(list, s)
	}
	return list
}

// scriptFor draws the script that a simulation begins with, if it is to, and its members fit one.
func scriptFor(sh shape, seed uint64) script {
	if !*simScripts || sh.voters != 3 || sh.observers > 0 || sh.neighbour {
		return script{}
	}
	rng := rand.New(rand.NewPCG(seed, 1<<36))
	list := slices.DeleteFunc(scripts(), func(s script) bool { return s.change && !sh.changes })
	return list[rng.IntN(len(list))]
}
