package model

import (
	"fmt"
)

// Result is the outcome of an exploration.
type Result struct {
	States      int // different ones, up to the numbers of the members
	Transitions int
	Depth       int       // steps from the first state to the last that was found
	Broken      Invariant // Kept if every state keeps the contract
	Script      []Step    // a shortest way to the state that breaks it
}

// tooMany is returned for an exploration that Bounds.States ends.
type tooMany int

func (n tooMany) Error() string {
	return fmt.Sprintf("model: more than %d states; nothing was found in those", int(n))
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
	before int32
	step   Step
}

// Explore visits all states within the bounds, breadth first, until one breaks an invariant. The
// error is for Bounds.States.
func Explore(m *Model) (Result, error) {
	var (
		seen   fingerprints
		all    = views{}
		steps  []reached
		r      Result
		level  = []State{m.First()}
		number = []int32{0}
	)
	seen.add(m.fingerprint(all, &level[0]))
	steps = append(steps, reached{before: -1})
	for len(level) > 0 && r.Broken == Kept {
		var next []State
		var numbers []int32
		for i := range level {
			m.Next(&level[i], func(s State, step Step) {
				r.Transitions++
				if r.Broken != Kept || !seen.add(m.fingerprint(all, &s)) {
					return
				}
				next = append(next, s)
				numbers = append(numbers, int32(len(steps)))
				steps = append(steps, reached{number[i], step})
				if s.Broken != Kept {
					r.Broken = s.Broken
					r.Script = way(steps)
				}
			})
			if r.Broken != Kept {
				break
			}
			if m.bounds.States > 0 && len(steps) > m.bounds.States {
				r.States = len(steps)
				return r, tooMany(m.bounds.States)
			}
		}
		if len(next) > 0 {
			r.Depth++
		}
		level, number = next, numbers
	}
	r.States = len(steps)
	return r, nil
}

// way is the steps to the newest state.
func way(steps []reached) []Step {
	var script []Step
	for i := int32(len(steps) - 1); steps[i].before >= 0; i = steps[i].before {
		script = append(script, steps[i].step)
	}
	for i, j := 0, len(script)-1; i < j; i, j = i+1, j-1 {
		script[i], script[j] = script[j], script[i]
	}
	return script
}
