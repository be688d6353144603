package workload

import (
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"lockkeeper/jepsen"
)

// check judges the workload register: the operations on every node have to be linearizable.
//
// It takes real time, a minute at most: not for inside of a bubble.
func (r register) check(ops []jepsen.Op) Verdict {
	v := Verdict{Checker: registerName, Promise: "C4", Valid: Yes}
	keys := make(map[string][]*call)
	count := make(map[string]int)
	for _, c := range pair(ops, registerName) {
		if !c.says() {
			continue
		}
		keys[c.invoke.Path] = append(keys[c.invoke.Path], c)
		if c.end.Kind == jepsen.Info {
			count["unknown"]++
		} else {
			count[c.invoke.F]++
		}
	}
	deadline := time.Now().Add(r.limit)
	late := 0
	for _, key := range sortedKeys(keys) {
		left := time.Until(deadline)
		if left <= 0 {
			late++
			continue
		}
		switch newCellChecker(keys[key]).check(absent, left) {
		case porcupine.Unknown:
			late++
		case porcupine.Illegal:
			piece := shorten(keys[key], min(r.limit/4, time.Until(deadline)))
			v.violate(conversation(piece), "%s: no order explains what these %d operations were answered", key,
				len(piece))
		}
	}
	v.judged(count[fRead]+count[fWrite]+count[fCAS]+count[fCreate], "operations")
	v.Text = fmt.Sprintf("%d reads behind a sync, %d writes, %d compare-and-sets and %d creates of %d nodes; the "+
		"outcome of %d more is unknown",
		count[fRead], count[fWrite], count[fCAS], count[fCreate], len(keys), count["unknown"])
	switch {
	case late > 0:
		v.doubt(fmt.Sprintf("%d nodes could not be checked within %v", late, r.limit))
	case count[fRead] == 0 || count[fWrite] == 0:
		v.doubt(tooLittle)
	}
	return v.concluded()
}

// says reports whether the call tells anything of the state.
func (c *call) says() bool {
	switch c.end.Kind {
	case jepsen.OK:
		return true
	case jepsen.Fail:
		return c.end.Note == noteNoNode || c.end.Note == noteNodeExists || c.end.Note == noteBadVersion
	}
	return c.invoke.F != fRead
}

// conversation has the requests and replies, in order.
func conversation(calls []*call) []jepsen.Op {
	var ops []jepsen.Op
	for _, c := range calls {
		ops = append(ops, c.entries()...)
	}
	slices.SortStableFunc(ops, func(a, b jepsen.Op) int { return int(a.Time - b.Time) })
	return ops
}
