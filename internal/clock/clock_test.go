package clock

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// hands are the readings of a machine that a test suspends.
type hands struct {
	mu     sync.Mutex
	asleep time.Duration
}

func (h *hands) suspend(d time.Duration) {
	time.Sleep(d)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asleep += d
}

func (h *hands) slept() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asleep
}

func (h *hands) awake() time.Time { return time.Now().Add(-h.slept()) }

func TestSuspendIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hands{asleep: time.Hour} // before the clock was made
		c := New(h.awake, h.slept)
		begin, awake := c.Now(), c.Awake()
		time.Sleep(3 * time.Second)
		if passed := c.Now().Sub(begin); passed != 3*time.Second || !c.Woke().IsZero() {
			t.Fatalf("%v passed of 3 s, a wake-up at %v", passed, c.Woke())
		}
		h.suspend(7 * time.Second)
		if passed := c.Recent().Sub(begin); passed != 3*time.Second {
			t.Errorf("Recent counts %v of a suspend that Now has not seen", passed-3*time.Second)
		}
		now := c.Now()
		if passed := now.Sub(begin); passed != 10*time.Second {
			t.Errorf("%v passed, 3 s of them awake and 7 s suspended", passed)
		}
		if passed := c.Awake().Sub(awake); passed != 3*time.Second {
			t.Errorf("awake for %v, not 3 s", passed)
		}
		if !c.Woke().Equal(now) || !c.Recent().Equal(now) {
			t.Errorf("awake at %v, recently %v, now is %v", c.Woke(), c.Recent(), now)
		}
		time.Sleep(time.Second)
		if passed := c.Now().Sub(c.Woke()); passed != time.Second {
			t.Errorf("%v since the wake-up, not 1 s", passed)
		}
	})
}

func TestNilIsGosClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *Clock
		if now := time.Now(); c.Now() != now || c.Recent() != now || c.Awake() != now || !c.Woke().IsZero() {
			t.Error("not Go's clock")
		}
	})
}

// The clock of this machine runs as fast as Go's, and sees no suspend where there is none.
func TestSystem(t *testing.T) {
	c := System()
	before, begin := time.Now(), c.Now()
	for range 100_000 {
		c.Now()
	}
	end, after := c.Now(), time.Now()
	if passed, real := end.Sub(begin), after.Sub(before); passed <= 0 || passed > real || !c.Woke().IsZero() {
		t.Errorf("%v passed in %v, a wake-up at %v", passed, real, c.Woke())
	}
}

func BenchmarkNow(b *testing.B) {
	c := System()
	for b.Loop() {
		c.Now()
	}
}

func BenchmarkRecent(b *testing.B) {
	c := System()
	for b.Loop() {
		c.Recent()
	}
}
