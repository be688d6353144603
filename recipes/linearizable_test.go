package recipes

import "testing"

// A timedCall is one call of a history: it takes effect once, at a moment between call and end.
type timedCall struct {
	call, end     int64 // nanoseconds; math.MaxInt64 for an end that nobody knows
	input, output any
}

// A sequential is the specification of an object: step reports whether an operation may have that
// output in a state, and returns the next state. States are comparable.
type sequential struct {
	init any
	step func(state, input, output any) (ok bool, next any)
}

// linearizable reports whether the operations, at most 64, can be put into an order that respects
// real time and that the model accepts (Wing and Gong, Testing and Verifying Concurrent Objects,
// 1993). It remembers where it has been: the operations that are in the order, and the state.
func (m sequential) linearizable(ops []timedCall) bool {
	type place struct {
		done  uint64
		state any
	}
	all := uint64(1)<<len(ops) - 1
	seen := make(map[place]bool)
	var search func(place) bool
	search = func(at place) bool {
		if at.done == all {
			return true
		}
		if seen[at] {
			return false
		}
		seen[at] = true
		firstEnd := int64(1<<63 - 1)
		for i, o := range ops {
			if at.done>>i&1 == 0 {
				firstEnd = min(firstEnd, o.end)
			}
		}
		for i, o := range ops {
			if at.done>>i&1 == 1 || o.call > firstEnd {
				continue
			}
			if ok, next := m.step(at.state, o.input, o.output); ok && search(place{at.done | 1<<i, next}) {
				return true
			}
		}
		return false
	}
	return search(place{0, m.init})
}

func TestLinearizable(t *testing.T) {
	register := sequential{0, func(state, input, output any) (bool, any) {
		if input == nil { // a read
			return state == output, state
		}
		return true, input
	}}
	write := func(call, end int64, v int) timedCall { return timedCall{call, end, v, nil} }
	read := func(call, end int64, v int) timedCall { return timedCall{call, end, nil, v} }
	for _, test := range []struct {
		name string
		ops  []timedCall
		want bool
	}{
		{"nothing", nil, true},
		{"a read during a write sees either", []timedCall{write(1, 4, 7), read(2, 3, 0)}, true},
		{"a read during a write sees the other", []timedCall{write(1, 4, 7), read(2, 3, 7)}, true},
		{"a read after a write", []timedCall{write(1, 2, 7), read(3, 4, 7)}, true},
		{"a stale read", []timedCall{write(1, 2, 7), read(3, 4, 0)}, false},
		{"two reads, the later one stale", []timedCall{write(1, 9, 7), read(2, 3, 7), read(4, 5, 0)}, false},
		{"a value that nobody wrote", []timedCall{write(1, 2, 7), read(1, 4, 8)}, false},
	} {
		if got := register.linearizable(test.ops); got != test.want {
			t.Errorf("%s: %t, want %t", test.name, got, test.want)
		}
	}
}
