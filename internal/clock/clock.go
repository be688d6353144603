package clock

import (
	"sync/atomic"
	"time"
)

// wakeAfter is the shortest suspend that counts as one. A shorter difference of the two clocks of
// the kernel may come from reading them one after the other.
const wakeAfter = 10 * time.Millisecond

// Clock is the clock of one machine. A nil Clock is Go's monotonic clock, without suspends: the
// clock of a synctest bubble. Methods may be called by any goroutine, and do not block.
type Clock struct {
	awake  func() time.Time
	asleep func() time.Duration

	known atomic.Int64 // the time suspended that the newest Now has seen
	woke  atomic.Int64 // ns from origin to the newest wake-up, by Now; 0: there was none

	origin time.Time
}

// New returns a clock with these readings: awake stands still while the machine is suspended, and
// asleep is the time for which the machine has been suspended so far. The time that asleep counted
// before the call is left out.
func New(awake func() time.Time, asleep func() time.Duration) *Clock {
	before := asleep()
	for range 3 { // one reading may have been interrupted
		before = max(before, asleep())
	}
	c := &Clock{awake: awake, asleep: func() time.Duration { return asleep() - before }}
	c.origin = awake()
	return c
}

// Now returns the present moment. It goes on while the machine is suspended: the difference of two
// moments is the time that has passed. Its wall clock is meaningless; compare it with moments of
// the same Clock only.
func (c *Clock) Now() time.Time {
	if c == nil {
		return time.Now()
	}
	asleep := int64(c.asleep()) // first: a suspend after it may be missed, but is not invented
	now := c.awake()
	for {
		known := c.known.Load()
		if asleep < known+int64(wakeAfter) {
			return now.Add(time.Duration(known))
		}
		if c.known.CompareAndSwap(known, asleep) {
			now = now.Add(time.Duration(asleep))
			raise(&c.woke, int64(now.Sub(c.origin)))
			return now
		}
	}
}

// raise makes v at least n.
func raise(v *atomic.Int64, n int64) {
	for old := v.Load(); old < n && !v.CompareAndSwap(old, n); old = v.Load() {
	}
}

// Recent is Now for callers that need not know of a suspend that no call of Now has seen yet. It
// takes a fraction of the time.
func (c *Clock) Recent() time.Time {
	if c == nil {
		return time.Now()
	}
	return c.awake().Add(time.Duration(c.known.Load()))
}

// Awake returns the present moment of the clock that stands still while the machine is suspended,
// as timers do. Compare it with moments of Awake only.
func (c *Clock) Awake() time.Time {
	if c == nil {
		return time.Now()
	}
	return c.awake()
}

// Woke returns the moment, by Now, at which Now first saw that the machine had been suspended for
// the newest time; the zero time if it never was. The kernel may know the length of a suspend to a
// second only, so a proof from before this moment does not count after it.
func (c *Clock) Woke() time.Time {
	if c == nil {
		return time.Time{}
	}
	if at := c.woke.Load(); at != 0 {
		return c.origin.Add(time.Duration(at))
	}
	return time.Time{}
}

// System returns the clock of this machine.
func System() *Clock {
	start := time.Now()
	return New(time.Now, func() time.Duration {
		boot := sinceBoot()
		return boot - time.Since(start)
	})
}
