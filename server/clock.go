package server

import (
	"context"
	"time"

	"lockkeeper/internal/histogram"
	"lockkeeper/internal/loglimit"
	"lockkeeper/server/ops"
)

const (
	// clockJump is by how much the wall clock may depart from the monotonic clock in that time.
	clockJump = 500 * time.Millisecond
	// clockPause is how late the comparison may be.
	clockPause = time.Second
)

// clockWatch compares the wall clock with the monotonic clock, and warns when one of them did not
// run on: when the wall clock was set, and when this process did not run.
type clockWatch struct {
	now    func() time.Time // the wall clock
	log    *loglimit.Limiter
	pauses histogram.Histogram // ns by which a comparison was late
}

func (w *clockWatch) loop(ctx context.Context) {
	ticker := time.NewTicker(ops.ClockLook)
	defer ticker.Stop()
	for last, wall := time.Now(), w.now().Round(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now, nowWall := time.Now(), w.now().Round(0)
		w.compare(now.Sub(last), nowWall.Sub(wall))
		last, wall = now, nowWall
	}
}

// compare is given how much time has passed since the last comparison, by either clock.
func (w *clockWatch) compare(passed, wallPassed time.Duration) {
	late := max(passed-ops.ClockLook, 0)
	w.pauses.Observe(int64(late))
	if late >= clockPause {
		w.log.Warn("pause", "this process did not run for a while: the machine is overloaded, swaps, or was "+
			"suspended; "+
			"a leader that does not run for longer than an election timeout is replaced", "late",
			late.Round(time.Millisecond))
	}
	if jump := wallPassed - passed; jump.Abs() >= clockJump {
		w.log.Warn("jump", "the wall clock was set, or the machine was suspended: sessions, leases and TTL nodes do "+
			"not depend on it, "+
			"the times that nodes show do; look at the time synchronization of this machine (chronyc tracking, "+
			"timedatectl)",
			"by", jump.Round(time.Millisecond))
	}
}
