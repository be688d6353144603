package quorum

import (
	"sync"
	"time"

	"lockkeeper/internal/clock"
)

// clusterClock is the cluster's clock on this member (znode.Store.ClockMs), which it continues when
// it leads: the clock of the newest entry, and the time that has passed since then by the monotonic
// clock of this machine. While it follows, each entry sets it right, so that clocks of different
// speed do not depart from each other.
//
// It stands still while this machine is suspended, and while no member runs: what counts by it
// lives longer then, never shorter.
type clusterClock struct {
	clock *clock.Clock

	mu sync.Mutex
	ms int64     // at the moment at
	at time.Time // by clock.Awake
}

// set sets the clock.
func (c *clusterClock) set(ms int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ms, c.at = ms, c.clock.Awake()
}

// nowMs returns the clock. It does not run backwards while this member leads.
func (c *clusterClock) nowMs() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nowLocked(c.clock.Awake())
}

func (c *clusterClock) nowLocked(now time.Time) int64 { return c.ms + now.Sub(c.at).Milliseconds() }

// applied is called with the clock of an entry that has been applied. A leader made it some time
// ago, perhaps this one: a leader is set forward only.
func (c *clusterClock) applied(ms int64, leads bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.clock.Awake(); !leads || ms > c.nowLocked(now) {
		c.ms, c.at = ms, now
	}
}
