package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"lockkeeper/jepsen"
)

// A nemesis breaks something and mends it, again and again.
type nemesis struct {
	name string
	help string
	// general is the nemesis that chooses among several of this kind; empty for none.
	general string
	// usable says why it cannot be used in this field, if so.
	usable func(f *field) error
	// rest is how long it waits before it breaks something, lasts until it mends it.
	rest, lasts span
	// plan chooses the next act; nil means none now.
	plan func(ctx context.Context, f *field, rng *rand.Rand) (*act, error)
}

// An act is one thing that a nemesis does.
type act struct {
	// on is its target, for people: "m1 m3", "m1 | m2 m3".
	on string
	// begin and end are its events in the history; end is empty for an act without length.
	begin, end []jepsen.Op
	start      func(ctx context.Context) error
	mend       func(ctx context.Context) error
	// release gives back the claims of plan.
	release func()
	// harm is its harm, for the planner.
	harm harm
}

// A span is a range of durations.
type span struct{ min, max time.Duration }

// choose is a duration within the span.
func (s span) choose(rng *rand.Rand) time.Duration {
	return s.min + time.Duration(rng.Int64N(int64(s.max-s.min)+1))
}

// seconds is a span.
func seconds(min, max float64) span {
	return span{time.Duration(min * float64(time.Second)), time.Duration(max * float64(time.Second))}
}

// nemeses are all of them, in the order in which they are listed.
func nemeses() []nemesis {
	return slices.Concat(partitions(), []nemesis{loneLeader()}, processNemeses(), linkNemeses(), swapNemeses(), diskNemeses(),
		lossNemeses(), clockNemeses(), memberNemeses())
}

// Nemeses are the names that Test.Nemeses may have, with their faults.
func Nemeses() (names, helps []string) {
	for _, n := range nemeses() {
		names, helps = append(names, n.name), append(helps, n.help)
	}
	return names, helps
}

// expand finds the nemeses for a list of names. all are those that are no special kind of another
// one.
func expand(names []string) (found []nemesis, err error) {
	known, _ := Nemeses()
	for _, name := range names {
		if name != "all" && !slices.Contains(known, name) {
			return nil, fmt.Errorf("run: there is no nemesis %q; there are %s, and all", name,
				strings.Join(known, ", "))
		}
	}
	for _, n := range nemeses() {
		if slices.Contains(names, n.name) || n.general == "" && slices.Contains(names, "all") {
			found = append(found, n)
		}
	}
	return found, nil
}

// lane is the name under which a report has it.
func (n nemesis) lane() string { return cmp.Or(n.general, n.name) }

// canUse says why a nemesis cannot be used, if so.
func (n nemesis) canUse(f *field) error {
	if n.usable == nil {
		return nil
	}
	return n.usable(f)
}

// random is a nemesis' own source of choices, so that its acts depend on nothing but the seed,
// whatever others there are.
func random(seed uint64, name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// mendPatience is how long mending may take: longer than healBound, which counts only the time in
// which a majority can act, about half of it.
const mendPatience = 5 * time.Minute

// run breaks and mends until ctx ends.
func (n nemesis) run(ctx context.Context, f *field, seed uint64) error {
	rng := random(seed, n.name)
	for {
		rest, lasts := n.rest.choose(rng), n.lasts.choose(rng)
		// A source for this act alone: how much of it is used depends on who leads.
		own := rand.New(rand.NewPCG(rng.Uint64(), 0))
		if !jepsen.Sleep(ctx, rest) {
			return nil
		}
		a, err := n.admitted(ctx, f, own, lasts)
		if ctx.Err() != nil && err != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("run: %s: %w", n.name, err)
		}
		if a == nil {
			continue
		}
		if err := n.act(ctx, f, a, lasts); err != nil {
			return fmt.Errorf("run: %s of %s: %w", n.name, a.on, err)
		}
	}
}

// planTries bounds the acts that a nemesis plans until the planner allows one.
const planTries = 5

// admitted plans an act that the planner allows; nil, if there is none.
func (n nemesis) admitted(ctx context.Context, f *field, rng *rand.Rand, lasts time.Duration) (*act, error) {
	for range planTries {
		a, err := n.plan(ctx, f, rng)
		if err != nil || a == nil || f.planner.admit(a, lasts) {
			return a, err
		}
		a.giveBack()
	}
	return nil, nil
}

// giveBack releases the claims of plan, if any.
func (a *act) giveBack() {
	if a.release != nil {
		a.release()
	}
}

// act does one act, for a while or until ctx ends.
func (n nemesis) act(ctx context.Context, f *field, a *act, lasts time.Duration) error {
	defer a.giveBack()
	defer f.planner.over(a)
	// Recorded first: its effects must not stand before it.
	fault := f.begin(n.lane(), n.name, a)
	started := a.start(ctx)
	if started != nil && ctx.Err() != nil {
		started = nil // it was called off
	}
	if a.mend == nil {
		return started
	}
	if started == nil {
		f.inEffect(a, true)
		jepsen.Sleep(ctx, lasts)
		f.inEffect(a, false)
	}
	mending, cancel := context.WithTimeout(context.WithoutCancel(ctx), mendPatience)
	defer cancel()
	if err := errors.Join(started, a.mend(mending)); err != nil {
		return err
	}
	f.end(fault, a)
	return nil
}

// oneOf is a nemesis that each time is another one of several kinds, followed by these.
func oneOf(name, help string, kinds ...nemesis) []nemesis {
	n := nemesis{name: name, help: help, usable: kinds[0].usable, rest: kinds[0].rest, lasts: kinds[0].lasts}
	n.plan = func(ctx context.Context, f *field, rng *rand.Rand) (*act, error) {
		return kinds[rng.IntN(len(kinds))].plan(ctx, f, rng)
	}
	for i := range kinds {
		kinds[i].general = name
	}
	return append([]nemesis{n}, kinds...)
}

// errUnusable is why a nemesis is left out.
var errUnusable = errors.New("not here")
