package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// restCheck is how often it is looked whether a member has become idle.
	restCheck = time.Second
	// restBusyBytes is how much a member allocates between two looks, at the least, that is not idle.
	restBusyBytes = 2 << 20
	// restSpareBytes is how much must have been allocated since the last collection, or be free, at the least, for one to be worth it; it
	// is also to be an eighth of what is live.
	restSpareBytes = 2 << 20
)

// heapUse is how a heap stands, in bytes.
type heapUse struct {
	allocated uint64 // since the start
	live      uint64 // found by the last collection
	objects   uint64 // live, or allocated since
	free      uint64 // kept for what will be allocated
}

func readHeapUse() heapUse {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(s)
	return heapUse{s[0].Value.Uint64(), s[1].Value.Uint64(), s[2].Value.Uint64(), s[3].Value.Uint64()}
}

// heapRest decides when an idle member collects its garbage. Go collects when enough has been allocated, or after two minutes, and then keeps
// what has become free; so a member that has been busy once, or has taken in many sessions that are silent now, would hold on to
// memory that it has no use for.
type heapRest struct {
	room uint64 // that of heapRoom, which counts as live
	last uint64 // allocated at the last look
}

// due says whether garbage is to be collected now, at a look restCheck after the one before.
func (h *heapRest) due(use heapUse) bool {
	busy := use.allocated-h.last >= restBusyBytes
	h.last = use.allocated
	if busy {
		return false
	}
	garbage := max(use.objects, use.live) - use.live
	live := use.live - min(use.live, h.room)
	return garbage+use.free >= max(restSpareBytes, live/8)
}

// restHeap gives the memory back that an idle member does not need, until ctx ends. room is what heapRoom has made: without one, somebody
// else has set the collector's pace, and this does nothing.
func restHeap(ctx context.Context, room []byte) {
	if room == nil {
		return
	}
	rest := heapRest{room: uint64(len(room)), last: readHeapUse().allocated}
	tick := time.NewTicker(restCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if rest.due(readHeapUse()) {
			debug.FreeOSMemory()
		}
	}
}
