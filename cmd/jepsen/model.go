package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"lockkeeper/quorum/model"
)

const modelAbout = `Explores the protocol between members as a model: all states within the bounds, breadth first, or
random walks through larger ones. The first state that breaks a promise ends it, with a shortest
script of the steps to it. -without takes rules of the protocol away, to see why it has them.
docs/model.md describes the model, the bounds and the rules.
`

const modelExits = `Exit status: 0 every state keeps the contract; 1 one does not, or there were more than -states;
2 a wrong command line.
`

type modelFlags struct {
	bounds        model.Bounds
	without       model.Rules
	names, find   string
	script, reach string
	walks, length int
	seed          uint64
}

// define adds the flags to a command line.
func (f *modelFlags) define(c *commandLine) {
	f.bounds = model.Bounds{Members: 3, Terms: 2, Entries: 1}
	for _, k := range f.bounds.Knobs() {
		if k.Bool != nil {
			c.BoolVar(k.Bool, k.Name, false, k.Help)
		} else {
			c.IntVar(k.Int, k.Name, *k.Int, k.Help)
		}
	}
	c.StringVar(&f.names, "without", "", "the rules to take away, a `list` of those below")
	c.StringVar(&f.find, "find", model.Kept.Name(), "the only promise to look for, its `name` or any")
	c.StringVar(&f.script, "script", "", "play the script in this `file` instead, and print it with its answers")
	c.StringVar(&f.reach, "reach", "", "the shortest way to a rare state instead, its `name`; it has bounds of its own")
	c.IntVar(&f.walks, "walks", 0, "random walks instead of all states")
	c.IntVar(&f.length, "length", 200, "steps of a walk")
	c.Uint64Var(&f.seed, "seed", 1, "the first walk's seed; the others follow")
}

// check validates the flags.
func (f *modelFlags) check() (err error) {
	var ok bool
	if f.bounds.Find, ok = model.InvariantNamed(f.find); !ok {
		return fmt.Errorf("there is no promise %q", f.find)
	}
	if f.without, err = model.ParseRules(f.names); err != nil {
		return err
	}
	if _, ok := model.GoalNamed(f.reach); f.reach != "" && !ok {
		return fmt.Errorf("there is no state %q", f.reach)
	}
	return f.bounds.Validate()
}

// modelRules is the list of rules for the help.
func modelRules() string {
	var b strings.Builder
	b.WriteString("\nRules, the protocol without each, and the argument for it (a page of docs/decisions, or other):\n")
	for r := range model.NumRules {
		i := r.Info()
		fmt.Fprintf(&b, "  %-23s %s (%s)\n", i.Name, i.Taken, i.Page)
	}
	b.WriteString("\nPromises for -find:\n")
	for i := model.Kept + 1; i < model.NumInvariants; i++ {
		fmt.Fprintf(&b, "  %-23s broken: %v\n", i.Name(), i)
	}
	b.WriteString("\nRare states for -reach:\n")
	for _, g := range model.Goals {
		fmt.Fprintf(&b, "  %-23s %s\n", g.Name, g.Help)
	}
	b.WriteString("\n")
	return b.String()
}

// runModel is the command model.
func runModel(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var f modelFlags
	c := newCommandLine("model", modelAbout, modelRules()+modelExits)
	f.define(c)
	if status, ok := c.parse(args, stdout, stderr, f.check); !ok {
		return status
	}
	var err error
	switch {
	case f.script != "":
		err = f.play(stdout)
	case f.reach != "":
		err = f.way(ctx, stdout)
	case f.walks > 0:
		err = f.walk(ctx, stdout)
	default:
		err = f.explore(ctx, stdout)
	}
	if err != nil {
		fmt.Fprintf(stderr, "jepsen model: %v\n", err)
		return exitInvalid
	}
	return exitOK
}

// play plays a script.
func (f *modelFlags) play(stdout io.Writer) error {
	text, err := os.ReadFile(f.script)
	if err != nil {
		return err
	}
	out, _, _, err := model.Play(string(text))
	fmt.Fprint(stdout, out)
	return err
}

// explore visits all states.
func (f *modelFlags) explore(ctx context.Context, stdout io.Writer) error {
	m := model.New(f.without, f.bounds)
	start := time.Now()
	r, err := model.Explore(ctx, m)
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	fmt.Fprintf(stdout, "%d states, %d transitions, %d steps deep, %.1f s, %d MB\n", r.States, r.Transitions, r.Depth,
		time.Since(start).Seconds(), mem.Sys>>20)
	if err != nil {
		return err
	}
	return found(m, r.Script, r.Broken, stdout)
}

// way looks for a rare state.
func (f *modelFlags) way(ctx context.Context, stdout io.Writer) error {
	goal, _ := model.GoalNamed(f.reach)
	m := model.New(f.without, goal.Bounds)
	r, err := model.Reach(ctx, m, goal.Reached)
	if err == nil && !r.Reached {
		err = fmt.Errorf("%d states, none of them is as wanted", r.States)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "# %s, after %d steps.\n\n%s", goal.Help, len(r.Script), m.Text(r.Script))
	return nil
}

// walk takes random walks.
func (f *modelFlags) walk(ctx context.Context, stdout io.Writer) error {
	start := time.Now()
	steps := 0
	for i := range f.walks {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		m := model.New(f.without, f.bounds)
		script, broken := model.Walk(m, f.seed+uint64(i), f.length)
		steps += len(script)
		if broken != model.Kept {
			fmt.Fprintf(stdout, "seed %d, shortened:\n", f.seed+uint64(i))
			return found(m, model.Shorten(m, script), broken, stdout)
		}
	}
	fmt.Fprintf(stdout, "%d walks, %d steps, %.1f s\n", f.walks, steps, time.Since(start).Seconds())
	return nil
}

// found prints the end of an exploration.
func found(m *model.Model, script []model.Step, broken model.Invariant, stdout io.Writer) error {
	if broken == model.Kept {
		fmt.Fprintln(stdout, "every state keeps the contract")
		return nil
	}
	fmt.Fprint(stdout, m.Text(script))
	return fmt.Errorf("a state breaks the contract after %d steps: %v", len(script), broken)
}
