package session

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/clock"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

func alive(r *replica, id wire.SessionID) (ok bool) {
	r.View(func(s *znode.Store) { _, ok = s.Sessions().Get(id) })
	return ok
}

// pingEvery keeps c alive as client libraries do, until its connection ends.
func (c *client) pingEvery(d time.Duration) {
	go func() {
		for {
			select {
			case <-c.over:
				return
			case <-time.After(d):
				_ = c.submit(wire.AppendRequest(nil, wire.XidPing, wire.OpPing, nil)[4:])
			}
		}
	}()
}

// Defends: C7.
func TestSilentSessionExpiresWithItsEphemerals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		holder, waiter := mustConnect(t, m, 4*time.Second), mustConnect(t, m, 40*time.Second)
		holder.send(wire.OpCreate, create("/lock", wire.ModeEphemeral))
		holder.send(wire.OpCreate, create("/lock2", wire.ModeEphemeral))
		holder.expect("1 Ok", "2 Ok")
		waiter.pingEvery(10 * time.Second)
		waiter.send(wire.OpExists, wire.PathWatchRequest{Path: "/lock", Watch: true})
		waiter.expect("1 Ok")
		silentFrom := time.Now()
		for {
			h, _, err := waiter.next()
			if err != nil {
				t.Fatal(err)
			}
			if h.Xid == wire.XidNotification {
				break
			}
		}
		if d := time.Since(silentFrom); d < 4*time.Second || d > 4*time.Second+tick {
			t.Fatalf("expired after %v of silence, the timeout is 4s", d)
		}
		r.View(func(s *znode.Store) {
			if n := s.Counts(); n.Ephemerals != 0 || n.Sessions != 1 {
				t.Errorf("left: %+v", n)
			}
		})
		if _, _, err := holder.next(); !errors.Is(err, errEnded) {
			t.Fatalf("the expired session's connection: %v", err)
		}
	})
}

// Defends: C8.
func TestPingsKeepASessionAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		c := mustConnect(t, m, 4*time.Second)
		c.pingEvery(4 * time.Second / 3)
		time.Sleep(time.Hour)
		if !alive(r, c.s.id()) || c.s.ended.Load() {
			t.Fatal("gone")
		}
		// Each ping was answered at once, not only with the next report.
		if l := c.s.Stats().Latency; l.MaxMs > 1 {
			t.Fatalf("latency of pings: %+v", l)
		}
	})
}

func TestNewLeaderGivesEverySessionItsFullTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		c := mustConnect(t, m, 4*time.Second)
		time.Sleep(3 * time.Second)
		m.Follow()
		time.Sleep(10 * time.Second)
		if !alive(r, c.s.id()) {
			t.Fatal("expired by a member that does not lead")
		}
		m.Lead(r.store)
		time.Sleep(4 * time.Second)
		if !alive(r, c.s.id()) {
			t.Fatal("expired before its full timeout under the new leader")
		}
		time.Sleep(tick)
		if alive(r, c.s.id()) {
			t.Fatal("not expired")
		}
	})
}

// Promise C6, the member's side: no byte while the lease is unconfirmed for a third of its timeout;
// the connection closed at two thirds.
//
// Defends: C6.
func TestUnconfirmedLeaseSilencesTheMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		const timeout = 9 * time.Second
		c := mustConnect(t, m, timeout)
		c.send(wire.OpPing, nil)
		c.expect("-2 Ok")
		r.setCut(true)
		cutAt := time.Now()
		var last time.Time
		for {
			c.send(wire.OpGetData, wire.PathWatchRequest{Path: "/"}) // reads need no leader
			time.Sleep(100 * time.Millisecond)
			c.mu.Lock()
			last = c.heard
			ended := c.err
			c.mu.Unlock()
			if ended != nil {
				break
			}
			if d := last.Sub(cutAt); d > timeout/3 {
				t.Fatalf("a byte %v after the last confirmation", d)
			}
		}
		if d := time.Since(cutAt); d < timeout*2/3 || d > timeout*2/3+timeout/6 {
			t.Fatalf("closed after %v, two thirds are %v", d, timeout*2/3)
		}
		if d := last.Sub(cutAt); d < timeout/3-timeout/9 {
			t.Fatalf("silent after %v already", d)
		}
	})
}

func TestHeldBackRepliesComeWhenTheLeaseIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		c := mustConnect(t, m, 9*time.Second)
		r.setCut(true)
		time.Sleep(4 * time.Second)
		c.send(wire.OpPing, nil)
		synctest.Wait()
		if len(c.frames) != 0 {
			t.Fatal("answered on an unconfirmed lease")
		}
		r.setCut(false)
		c.expect("-2 Ok")
		if d := time.Since(c.heard); d > time.Second {
			t.Fatal("late")
		}
	})
}

// Promise C6 as a property: whatever the connection between member and leader does, and however
// stale the leader's proof is, the time until which a client may believe itself connected (2/3 of
// the timeout after the last byte) never passes the moment at which the session expires.
//
// Defends: C6.
func TestBeliefNeverOutlivesTheLease(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for range 30 {
		synctest.Test(t, func(t *testing.T) {
			m, r := newMember(t, Config{})
			timeout := time.Duration(4+rnd.IntN(30)) * time.Second
			c := mustConnect(t, m, timeout)
			c.pingEvery(timeout / 3)
			for alive(r, c.s.id()) {
				r.ctl.Lock()
				r.cut = rnd.IntN(2) == 0
				r.lag = time.Duration(rnd.Int64N(int64(timeout) / 4))
				r.ctl.Unlock()
				if rnd.IntN(40) == 0 {
					r.setCut(true)
					c.detach() // the client's connection is lost, nobody reports it any more
				}
				time.Sleep(time.Duration(rnd.Int64N(int64(timeout))))
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			// Lag is real time by which the proof, not the lease, is older: the lease here runs
			// from the report, so the belief must end before it with the lag to spare.
			if belief := c.heard.Add(timeout * 2 / 3); belief.After(time.Now()) {
				t.Fatalf("expired while the client believes itself connected for another %v", time.Until(belief))
			}
		})
	}
}

// machine has a monotonic clock that stands still while it is suspended.
type machine struct {
	mu     sync.Mutex
	asleep time.Duration // until since
	since  time.Time     // of the suspend that has not ended; zero: it is awake
}

func (m *machine) clock() *clock.Clock { return clock.New(m.awake, m.slept) }

func (m *machine) awake() time.Time { return time.Now().Add(-m.slept()) }

func (m *machine) slept() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.since.IsZero() {
		return m.asleep
	}
	return m.asleep + time.Since(m.since)
}

// suspend returns when the machine wakes after d. Its goroutines go on meanwhile.
func (m *machine) suspend(d time.Duration) {
	m.mu.Lock()
	m.since = time.Now()
	m.mu.Unlock()
	time.Sleep(d)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asleep, m.since = m.asleep+d, time.Time{}
}

// Promise C6: a member that wakes from a suspend, however short, holds no lease until the leader
// has confirmed it anew, and its sessions live on.
//
// Defends: C6.
func TestSuspendSilencesTheMember(t *testing.T) {
	for _, asleep := range []time.Duration{time.Second, 5 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var machine machine
			m, r := newMember(t, Config{Clock: machine.clock()})
			c := mustConnect(t, m, 9*time.Second)
			c.send(wire.OpPing, nil)
			c.expect("-2 Ok")
			r.setCut(true)
			machine.suspend(asleep)
			c.send(wire.OpPing, nil) // the first that happens after the wake-up
			synctest.Wait()
			if len(c.frames) != 0 {
				t.Fatalf("answered after a suspend of %v, on a lease from before it", asleep)
			}
			if !alive(r, c.s.id()) {
				t.Fatalf("a suspend of %v has expired the session", asleep)
			}
			r.setCut(false)
			if asleep < 6*time.Second { // else the connection is closed
				c.expect("-2 Ok")
			}
		})
	}
}

// A confirmation that counts from before the wake-up does not count.
func TestConfirmationFromBeforeASuspendDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var machine machine
		m, r := newMember(t, Config{Clock: machine.clock()})
		c := mustConnect(t, m, 30*time.Second)
		r.ctl.Lock()
		r.lag = time.Second
		r.ctl.Unlock()
		machine.suspend(100 * time.Millisecond)
		c.send(wire.OpPing, nil)
		time.Sleep(500 * time.Millisecond)
		if len(c.frames) != 0 {
			t.Fatal("answered on a proof from before the suspend")
		}
		c.expect("-2 Ok")
	})
}

// The leader's deadlines stand still while it is suspended: sessions get the rest of their timeouts
// when it wakes.
//
// Defends: C8.
func TestSuspendedLeaderExpiresNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var machine machine
		m, r := newMember(t, Config{Clock: machine.clock()})
		c := mustConnect(t, m, 9*time.Second)
		machine.suspend(time.Hour)
		time.Sleep(5 * time.Second)
		if !alive(r, c.s.id()) {
			t.Fatal("expired because the leader was suspended")
		}
		time.Sleep(10 * time.Second)
		if alive(r, c.s.id()) {
			t.Fatal("not expired")
		}
	})
}
