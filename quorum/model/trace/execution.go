package trace

import (
	"fmt"
	"maps"
	"slices"

	"lockkeeper/wire"
)

// execution is the effects of the entries of a cluster. Every member that executes an entry does
// the same.
type execution struct {
	results map[uint64]uint64 // a digest of the effects of each entry, by its index; 0: none
	zxid    wire.Zxid         // of the newest change
	nodes   nodes
}

// add takes the entries that a member has executed: those behind the index after, up to last. If
// after is 0, their beginning is not known, and there may be more than the last.
func (x *execution) add(after, last uint64, commands []Command) error {
	if after == 0 {
		after = last - 1
	}
	done := map[uint64]uint64{}
	for i := after + 1; i <= last; i++ {
		done[i] = 0
	}
	for _, c := range commands {
		done[c.Index] = done[c.Index]*31 + c.Result
	}
	for _, i := range slices.Sorted(maps.Keys(done)) {
		if before, known := x.results[i]; known && before != done[i] {
			return fmt.Errorf("another member has executed entry %d, and it did something else (C1: all members "+
				"execute the same)", i)
		}
		x.results[i] = done[i]
	}
	return nil
}

// change is a command that no member has executed before.
func (x *execution) change(c Command) error {
	if c.MtimeMs != c.EntryMs && c.MtimeMs > 0 && c.EntryMs > 0 {
		return fmt.Errorf("it gives the time %d to a node, and its entry has %d (C8)", c.MtimeMs, c.EntryMs)
	}
	if c.Deed == Reset {
		clear(x.nodes)
	}
	if !c.Changed {
		return nil
	}
	if c.Zxid <= x.zxid {
		return fmt.Errorf("it changes nodes with zxid %v, and one before it had %v (C1: each has its own)", c.Zxid,
			x.zxid)
	}
	x.zxid = c.Zxid
	x.nodes.add(c)
	return nil
}
