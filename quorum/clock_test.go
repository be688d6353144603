package quorum

import (
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/clock"
)

// The cluster's clock goes on with the monotonic clock of the leader; it is not set back by the
// leader's own entries, which are applied a while after they were stamped. A follower's is set
// right by each entry. It stands still during a suspend.
//
// Defends: C8.
func TestClusterClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, asleep := time.Now(), time.Duration(0)
		c := clusterClock{clock: clock.New(func() time.Time { return begin.Add(time.Since(begin) - asleep) }, func() time.Duration { return asleep })}
		expect := func(about string, want int64) {
			t.Helper()
			if got := c.nowMs(); got != want {
				t.Errorf("%s: %d, want %d", about, got, want)
			}
		}
		c.set(5000)
		expect("at the start, what the state has", 5000)
		time.Sleep(700 * time.Millisecond)
		expect("0.7 s later", 5700)
		c.applied(5100, false)
		expect("an entry of the leader", 5100)
		time.Sleep(100 * time.Millisecond)
		c.applied(5150, true)
		expect("an entry of this leader, stamped 50 ms ago", 5200)
		for range 1000 {
			stamp := c.nowMs()
			time.Sleep(time.Millisecond)
			c.applied(stamp, true)
		}
		expect("1000 entries that take a millisecond each", 6200)
		c.applied(9000, true)
		expect("an entry of the leader before, whose clock was fast", 9000)
		time.Sleep(time.Hour)
		asleep += time.Hour
		expect("after a suspend", 9000)
	})
}
