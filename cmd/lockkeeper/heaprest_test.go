package main

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// What an idle member does about its garbage, look by look.
func TestIdleMembersCollectTheirGarbage(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct {
		name string
		use  []heapUse
		want []bool
	}{
		{"the second look is the first idle one", []heapUse{{8 * mb, 4 * mb, 10 * mb, 0}, {8*mb + 100, 4 * mb, 10*mb + 100, 0}}, []bool{false, true}},
		{"little garbage", []heapUse{{100, 4 * mb, 5 * mb, 0}, {200, 4 * mb, 6*mb - 1, 0}}, []bool{false, false}},
		{"little for what is live", []heapUse{{100, 412 * mb, 461 * mb, 0}, {200, 412 * mb, 463 * mb, 0}}, []bool{false, true}},
		{"the room does not count", []heapUse{{100, 44 * mb, 47 * mb, 0}, {200, 44 * mb, 48 * mb, 0}}, []bool{false, true}},
		{"what is free", []heapUse{{100, 30 * mb, 31 * mb, mb - 1}, {200, 30 * mb, 31 * mb, 2 * mb}}, []bool{false, true}},
		{"busy all the time", []heapUse{{8 * mb, 4 * mb, 10 * mb, 0}, {10 * mb, 4 * mb, 12 * mb, 0}}, []bool{false, false}},
		{"a collection has just been", []heapUse{{100, 30 * mb, 20 * mb, 0}}, []bool{false}},
	} {
		h := heapRest{room: heapRoomBytes}
		for i, use := range c.use {
			if got := h.due(use); got != c.want[i] {
				t.Errorf("%s: look %d: %v, want %v", c.name, i, got, c.want[i])
			}
		}
	}
}

// What the runtime says is what heapRest goes by: garbage is seen, and is gone after a collection.
func TestHeapUse(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	runtime.GC()
	before := readHeapUse()
	for range 64 {
		garbage = make([]byte, 1<<20)
	}
	garbage = nil
	after := readHeapUse()
	if made := after.allocated - before.allocated; made < 64<<20 {
		t.Errorf("%d bytes are allocated, want 64 MB", made)
	}
	if after.live != before.live || after.objects < after.live+60<<20 {
		t.Errorf("after 64 MB of garbage: %+v, before %+v", after, before)
	}
	runtime.GC()
	if done := readHeapUse(); done.objects > after.objects-60<<20 {
		t.Errorf("after a collection: %+v, before %+v", done, after)
	}
}

var garbage []byte
