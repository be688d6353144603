package workload

import (
	"math"
	"slices"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"

	"lockkeeper/jepsen"
)

// cell is a client's view of one node.
type cell struct {
	// any: nothing is known of it. So begins a piece that is taken out of the middle of a history.
	any bool
	// over: everything that was answered has taken effect. An unknown operation that was not needed
	// until then may as well not have happened.
	over    bool
	version int32 // -1: there is no node
	value   string
}

// absent is a node that is not there.
var absent = cell{version: -1}

// cellChecker says whether operations on one node are linearizable.
//
// Every write makes the version that follows the one before, and says which, if it is answered. So
// there is seldom more than one order to try, also with many operations of unknown outcome: such a
// one can only have made a version that no answered operation has made and a reply shows, with the
// value that was read there. Else it comes after everything that was answered: if it could come at
// any place, each one would double the number of orders.
type cellChecker struct {
	calls []*call
	made  map[int32]bool   // versions that answered operations have made
	read  map[int32]string // values that were read, by version
	last  int32            // the last version that a reply shows
}

func newCellChecker(calls []*call) *cellChecker {
	c := &cellChecker{calls: calls, made: make(map[int32]bool), read: make(map[int32]string), last: -1}
	for _, call := range calls {
		switch end := call.end; {
		case end.Kind == jepsen.OK && call.invoke.F == fRead:
			c.read[end.Version] = end.Value
			c.last = max(c.last, end.Version)
		case end.Kind == jepsen.OK:
			c.made[end.Version] = true
			c.last = max(c.last, end.Version)
		case end.Note == noteNodeExists:
			c.last = max(c.last, 0)
		case end.Note == noteBadVersion:
			c.last = max(c.last, call.invoke.Version+1)
		}
	}
	return c
}

// step says whether call can come next, and returns the state after it. Nil stands for the end of
// all that was answered.
func (c *cellChecker) step(s cell, call *call) (bool, cell) {
	switch {
	case call == nil:
		s.over = true
		return true, s
	case s.over:
		return true, s
	case s.any:
		return call.end.Kind != jepsen.Info, fromAny(call)
	}
	after := cell{version: s.version + 1, value: call.invoke.Value}
	exists := s.version >= 0
	end := call.end
	may := exists
	switch call.invoke.F {
	case fCreate:
		may = !exists
	case fCAS:
		may = exists && s.version == call.invoke.Version
	}
	switch {
	case end.Kind == jepsen.OK && call.invoke.F == fRead:
		return exists && s.version == end.Version && s.value == end.Value, s
	case end.Kind == jepsen.OK:
		return may && end.Version == after.version, after
	case end.Kind == jepsen.Fail && end.Note == noteNoNode:
		return !exists, s
	case end.Kind == jepsen.Fail && end.Note == noteNodeExists:
		return exists, s
	case end.Kind == jepsen.Fail: // the wrong version
		return exists && !may, s
	}
	value, seen := c.read[after.version]
	return may && after.version <= c.last && !c.made[after.version] && (!seen || value == after.value), after
}

// fromAny is the knowledge after a call from an unknown state.
func fromAny(call *call) cell {
	switch end := call.end; {
	case end.Kind == jepsen.OK && call.invoke.F == fRead:
		return cell{version: end.Version, value: end.Value}
	case end.Kind == jepsen.OK:
		return cell{version: end.Version, value: call.invoke.Value}
	case end.Kind == jepsen.Fail && end.Note == noteNoNode:
		return absent
	}
	return cell{any: true}
}

// check has porcupine look for an order, for at most limit.
func (c *cellChecker) check(first cell, limit time.Duration) porcupine.CheckResult {
	operations := make([]porcupine.Operation, len(c.calls), len(c.calls)+1)
	var last int64
	for i, call := range c.calls {
		operations[i] = porcupine.Operation{Input: call, Call: int64(call.invoke.Time), Return: math.MaxInt64}
		if call.end.Kind != jepsen.Info {
			operations[i].Return = int64(call.end.Time)
			last = max(last, operations[i].Return)
		}
	}
	operations = append(operations, porcupine.Operation{Input: (*call)(nil), Call: last + 1, Return: last + 2})
	model := porcupine.Model{
		Init: func() any { return first },
		Step: func(state, input, _ any) (bool, any) {
			return c.step(state.(cell), input.(*call))
		},
		Hash: func(state any) uint64 { return uint64(uint32(state.(cell).version)) },
	}
	return porcupine.CheckOperationsTimeout(model, operations, limit)
}

// shorten is the shortest piece of calls found that is not linearizable either: first the end is
// cut off, then the beginning, then the reads that do not matter. calls must not be linearizable.
func shorten(calls []*call, limit time.Duration) []*call {
	deadline := time.Now().Add(limit)
	fails := func(piece []*call, first cell) bool {
		left := time.Until(deadline)
		return left > 0 && newCellChecker(piece).check(first, left) == porcupine.Illegal
	}
	ends := make([]time.Duration, 0, len(calls))
	for _, call := range calls {
		if call.end.Kind != jepsen.Info {
			ends = append(ends, call.end.Time)
		}
	}
	slices.Sort(ends)
	n := sort.Search(len(ends), func(i int) bool { return fails(before(calls, ends[i]), absent) })
	if n < len(ends) {
		calls = before(calls, ends[n])
	}

	// Operations that had ended before the piece begins leave an unknown state behind.
	n = sort.Search(len(calls), func(i int) bool { return !fails(after(calls, calls[i].invoke.Time), cell{any: true}) })
	first := absent
	if n > 0 {
		if piece := after(calls, calls[n-1].invoke.Time); fails(piece, cell{any: true}) {
			calls, first = piece, cell{any: true}
		}
	}
	calls = dropReads(calls, func(piece []*call) bool { return fails(piece, first) })
	return newCellChecker(calls).needed(first)
}

// needed are the calls without those of unknown outcome that cannot have made any version that a
// reply shows and no answered operation has made.
func (c *cellChecker) needed(first cell) []*call {
	lowest := int32(-1)
	if first.any {
		lowest = c.last
		for v := range c.made {
			lowest = min(lowest, v)
		}
		for v := range c.read {
			lowest = min(lowest, v)
		}
	}
	return slices.DeleteFunc(slices.Clone(c.calls), func(call *call) bool {
		if call.end.Kind != jepsen.Info {
			return false
		}
		for v := lowest + 1; v <= c.last; v++ {
			value, seen := c.read[v]
			may := v > 0
			switch call.invoke.F {
			case fCreate:
				may = v == 0
			case fCAS:
				may = v == call.invoke.Version+1
			}
			if may && !c.made[v] && (!seen || value == call.invoke.Value) {
				return false
			}
		}
		return true
	})
}

// before are the calls that had begun at t, as far as they were known by then.
func before(calls []*call, t time.Duration) []*call {
	var piece []*call
	for _, c := range calls {
		if c.invoke.Time > t {
			continue
		}
		if c.end.Kind != jepsen.Info && c.end.Time > t {
			if c.invoke.F == fRead {
				continue
			}
			open := *c
			open.end.Kind, open.end.Note, open.ended = jepsen.Info, "", false
			c = &open
		}
		piece = append(piece, c)
	}
	return piece
}

// after are the calls that had not ended at t.
func after(calls []*call, t time.Duration) []*call {
	var piece []*call
	for _, c := range calls {
		if c.end.Kind == jepsen.Info || c.end.Time >= t {
			piece = append(piece, c)
		}
	}
	return piece
}

// dropReads takes out operations that change nothing, one by one, as long as the rest fails. A
// piece without them has fewer demands: if it fails, so did the whole.
func dropReads(calls []*call, fails func([]*call) bool) []*call {
	for i := len(calls) - 1; i >= 0; i-- {
		if c := calls[i]; c.invoke.F != fRead && c.end.Kind != jepsen.Fail {
			continue
		}
		if rest := slices.Delete(slices.Clone(calls), i, i+1); fails(rest) {
			calls = rest
		}
	}
	return calls
}
