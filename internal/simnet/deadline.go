package simnet

import (
	"sync"
	"time"
)

// condition wakes the Reads or the Writes that wait, at the latest at their deadline. L is the
// mutex of the network.
type condition struct {
	sync.Cond
	deadline time.Time // zero: none
	timer    *time.Timer
}

func (c *condition) passedLocked() bool {
	return !c.deadline.IsZero() && !time.Now().Before(c.deadline)
}

// setLocked replaces the deadline. The waiters look at it again when it has
// passed already, and when it is taken back there is nothing to tell them.
func (c *condition) setLocked(t time.Time) {
	c.deadline = t
	if c.timer != nil {
		c.timer.Stop()
	}
	switch {
	case t.IsZero():
	case c.passedLocked():
		c.Broadcast()
	case c.timer == nil:
		c.timer = time.AfterFunc(time.Until(t), func() {
			c.L.Lock()
			defer c.L.Unlock()
			c.Broadcast()
		})
	default:
		c.timer.Reset(time.Until(t))
	}
}
