package jepsen

import (
	"strings"
	"testing"
	"time"
)

// The test of the tests: contenders that do not lock at all are seen to
// overlap, through everything that lies between a worker and the verdict; and
// so is a lock that was not given back.
func TestDetectorSeesOverlaps(t *testing.T) {
	client(t, "gozk")
	l := newLab(t, 1, time.Minute)
	f := fight{name: "none", recipes: []recipe{{name: "none"}}}
	contest := &Contest{
		Contenders: f.contenders("/none", l.start("gozk", 2)),
		History:    l.history,
		Hold:       5 * time.Millisecond,
	}
	if err := contest.Start(l.ctx); err != nil {
		t.Fatal(err)
	}
	if err := contest.AwaitRounds(l.ctx, 0, 20); err != nil {
		t.Error(err)
	}
	if err := contest.Stop(l.ctx); err != nil {
		t.Error(err)
	}
	overlaps := 0
	for _, v := range CheckLocks(l.history.Ops()).Violations {
		if strings.Contains(v, "/none got it (exclusive) while ") {
			overlaps++
		}
	}
	if overlaps == 0 {
		t.Error("two clients without a lock did not overlap once in 40 holds of 5 ms")
	}

	// A lock that is left behind would be seen as well.
	l.mustDo(l.workers[0], "t", "open", "x", "mutex", "/left")
	l.mustDo(l.workers[0], "t", "acquire", "x", "-1")
	if left := l.ephemerals(); len(left) != 1 || !strings.HasPrefix(left[0], "/left/") {
		t.Errorf("one lock is held, and these nodes are seen: %q", left)
	}
	l.stopWorkers()
}
