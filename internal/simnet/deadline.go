package simnet

import (
	"sync"
	"time"
)

// deadline wakes the goroutines that wait for a condition when its time has come. It is guarded by
// mu, the mutex of the condition.
type deadline struct {
	mu    *sync.Mutex
	wake  *sync.Cond
	at    time.Time // zero: none
	timer *time.Timer
}

func (d *deadline) passedLocked() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

// setLocked replaces the deadline. The waiters look at it again when it has
// passed already, and when it is taken back there is nothing to tell them.
func (d *deadline) setLocked(t time.Time) {
	d.at = t
	if d.timer != nil {
		d.timer.Stop()
	}
	switch {
	case t.IsZero():
	case d.passedLocked():
		d.wake.Broadcast()
	case d.timer == nil:
		d.timer = time.AfterFunc(time.Until(t), func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.wake.Broadcast()
		})
	default:
		d.timer.Reset(time.Until(t))
	}
}
