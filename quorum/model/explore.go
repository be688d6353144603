package model

import (
	"context"
	"fmt"
	"slices"
)

// Result is the outcome of an exploration.
type Result struct {
	States      int // different ones, up to the numbers of the members
	Transitions int
	Depth       int       // steps from the first state to the last that was found
	Broken      Invariant // Kept if every state keeps the contract
	Reached     bool      // a state is as wanted: Reach
	Script      []Step    // a shortest way to the last state, if that is broken or wanted
}

// tooMany is returned for an exploration that Bounds.States ends.
type tooMany int

func (n tooMany) Error() string {
	return fmt.Sprintf("model: more than %d states; nothing was found in those", int(n))
}

// tooManyLogs ends an exploration that has more logs than a LogID can name.
type tooManyLogs struct{}

func (tooManyLogs) Error() string {
	return "model: more than 65,535 different logs: smaller bounds of entries, terms or changes"
}

// fingerprints is a set of 64-bit fingerprints.
type fingerprints struct {
	table []uint64 // a power of two, open addressing; 0: free
	n     int
}

// add reports whether f was not in the set.
func (p *fingerprints) add(f uint64) bool {
	if f == 0 {
		f = 1
	}
	if 4*p.n >= 3*len(p.table) {
		old := p.table
		p.table, p.n = make([]uint64, max(1<<12, 2*len(old))), 0
		for _, f := range old {
			if f != 0 {
				p.add(f)
			}
		}
	}
	mask := uint64(len(p.table) - 1)
	for i := f & mask; ; i = (i + 1) & mask {
		switch p.table[i] {
		case f:
			return false
		case 0:
			p.table[i] = f
			p.n++
			return true
		}
	}
}

// reached is a step to a state, from the state with the number before.
type reached struct {
	before uint32
	step   Step
}

// steps is the step to each state, by the number of the state. The first has none.
type steps struct {
	chunks [][]reached
	n      int
}

const stepsInChunk = 1 << 16

func (t *steps) add(before int, step Step) {
	if t.n%stepsInChunk == 0 {
		t.chunks = append(t.chunks, make([]reached, 0, stepsInChunk))
	}
	c := &t.chunks[t.n/stepsInChunk]
	*c = append(*c, reached{uint32(before), step})
	t.n++
}

// way is the steps to the newest state.
func (t *steps) way() (script []Step) {
	for i := t.n - 1; i > 0; {
		r := t.chunks[i/stepsInChunk][i%stepsInChunk]
		script = append(script, r.step)
		i = int(r.before)
	}
	slices.Reverse(script)
	return script
}

// Explore visits all states within the bounds, breadth first, until one breaks an invariant. The
// errors are for Bounds.States, for the end of ctx, and for more logs than a LogID can name.
func Explore(ctx context.Context, m *Model) (Result, error) {
	return Reach(ctx, m, func(*Model, *State) bool { return false })
}

// Reach is Explore that also ends with the first state that is as wanted.
func Reach(ctx context.Context, m *Model, wanted func(*Model, *State) bool) (r Result, err error) {
	var (
		seen  fingerprints
		all   = views{}
		way   steps
		level = &frontier{}
		first = m.First()
	)
	defer func() {
		r.States = way.n
		if p := recover(); p == (tooManyLogs{}) {
			err = tooManyLogs{}
		} else if p != nil {
			panic(p)
		}
	}()
	seen.add(m.fingerprint(all, &first))
	way.add(0, Step{})
	level.push(&first)
	ended := false
	for number := 0; level.length > 0 && !ended && err == nil; {
		next := &frontier{}
		level.drain(func(s *State) bool {
			m.Next(s, func(n *State, step Step) {
				r.Transitions++
				if ended || !seen.add(m.fingerprint(all, n)) {
					return
				}
				way.add(number, step)
				next.push(n)
				r.Broken, r.Reached = n.Broken, n.Broken == Kept && wanted(m, n)
				if ended = r.Broken != Kept || r.Reached; ended {
					r.Script = way.way()
				}
			})
			if number++; number%1024 == 0 {
				err = ctx.Err()
			}
			if m.bounds.States > 0 && way.n > m.bounds.States {
				err = tooMany(m.bounds.States)
			}
			return !ended && err == nil
		})
		if next.length > 0 {
			r.Depth++
		}
		level = next
	}
	return r, err
}
