package recipes

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
)

// heldBy sets up a cluster with one session that holds /a.
func heldBy(t *testing.T) (*fakeCluster, *Session, *fakeConn, *Grant) {
	c := newFakeCluster()
	s, conn := newTestSession(c)
	return c, s, conn, mustLock(t, NewMutex(s, "/a", MutexOptions{}))
}

func wantLost(t *testing.T, g *Grant, want error) {
	t.Helper()
	select {
	case <-g.life.Done():
	default:
		t.Error("not lost")
	}
	if err := g.Err(); err != want {
		t.Errorf("Err = %v, want %v", err, want)
	}
	if g.Held() {
		t.Error("held")
	}
}

func wantHeld(t *testing.T, g *Grant) {
	t.Helper()
	select {
	case <-g.life.Done():
		t.Error("lost")
	default:
	}
	if err := g.Err(); err != nil {
		t.Errorf("Err = %v", err)
	}
}

// TestSilent: the grant is lost two thirds of the timeout after the last proof
// was asked for, to the nanosecond.
func TestSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, conn, g := heldBy(t)
		defer s.Close()
		var sent time.Time
		c.with(func() {
			conn.hook = func(n int, op, path string) fault {
				if op == "sync" {
					c.with(func() { sent = time.Now() })
				}
				return faultNone
			}
		})
		time.Sleep(10*time.Minute + 300*time.Millisecond)
		wantHeld(t, g)
		c.mu.Lock()
		conn.reconnect = time.Hour
		conn.cutLocked()
		proof := sent
		c.mu.Unlock()
		if age := time.Since(proof); age > testTimeout/6 {
			t.Errorf("the last proof is %v old", age)
		}
		time.Sleep(testTimeout*2/3 - time.Since(proof) - time.Nanosecond)
		synctest.Wait()
		wantHeld(t, g)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		wantLost(t, g, ErrSilent)

		// The session lives on, and so does the node, until Unlock.
		time.Sleep(2 * time.Hour)
		if left := c.paths(); len(left) != 1 || left[0] != g.Node() {
			t.Errorf("nodes: %v", left)
		}
		wantLost(t, g, ErrSilent)
		if err := g.Unlock(t.Context()); !errors.Is(err, ErrSilent) {
			t.Errorf("Unlock = %v, want ErrSilent", err)
		}
		wantEmpty(t, c)
		mustUnlock(t, mustLock(t, NewMutex(s, "/a", MutexOptions{})))
	})
}

// TestHeldLooksAtTheClock: a process that was stopped runs before its timers do.
func TestHeldLooksAtTheClock(t *testing.T) {
	for _, look := range []func(*Grant){
		func(g *Grant) { g.Held() },
		func(g *Grant) { g.Err() },
		func(g *Grant) { g.Lost() },
		func(g *Grant) { g.Unlock(context.Background()) },
	} {
		synctest.Test(t, func(t *testing.T) {
			c, s, conn, g := heldBy(t)
			defer s.Close()
			c.mu.Lock()
			conn.reconnect = testTimeout
			conn.cutLocked()
			c.mu.Unlock()
			s.link.mu.Lock()
			g.node.lease.alarm.Stop()
			s.link.mu.Unlock()
			time.Sleep(testTimeout * 5 / 6)
			wantOpen := false
			select {
			case <-g.life.Done():
			default:
				wantOpen = true
			}
			if !wantOpen {
				t.Error("lost without the alarm: the test shows nothing")
			}
			look(g)
			wantLost(t, g, ErrSilent)
		})
	}
}

// TestWakes: when a proof comes in before the alarm has been heard, what was
// lost in between stays lost.
func TestWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, conn, g := heldBy(t)
		defer s.Close()
		c.with(func() { conn.reconnect = testTimeout * 3 / 4 })
		c.with(conn.cutLocked)
		s.link.mu.Lock()
		g.node.lease.alarm.Stop()
		s.link.mu.Unlock()
		time.Sleep(testTimeout)
		wantLost(t, g, ErrSilent)
	})
}

// TestReconnects: short disconnects cost nothing.
func TestReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, conn, g := heldBy(t)
		defer s.Close()
		c.with(func() { conn.reconnect = testTimeout / 3 })
		for range 100 {
			c.with(conn.cutLocked)
			time.Sleep(testTimeout / 2)
		}
		wantHeld(t, g)
		mustUnlock(t, g)
		wantEmpty(t, c)
	})
}

// TestLateAnswer: an answer that comes after the safe time revives nothing, and
// an answer proves only the state at the time of the request.
func TestLateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, conn, g := heldBy(t)
		defer s.Close()
		start := time.Now()
		c.with(func() {
			conn.reply = func(op string) {
				if op == "sync" && time.Since(start) < testTimeout {
					time.Sleep(testTimeout * 3 / 4)
				}
			}
		})
		<-g.life.Done()
		if d := time.Since(start); d != testTimeout*2/3 {
			t.Errorf("lost after %v, want %v", d, testTimeout*2/3)
		}
		time.Sleep(time.Minute)
		wantLost(t, g, ErrSilent)
	})
}

func TestExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, conn, g := heldBy(t)
		defer s.Close()
		c.with(conn.expireLocked)
		synctest.Wait()
		wantLost(t, g, ErrExpired)
		if err := g.Unlock(t.Context()); !errors.Is(err, ErrExpired) {
			t.Errorf("Unlock = %v, want ErrExpired", err)
		}
		g2 := mustLock(t, NewMutex(s, "/a", MutexOptions{}))
		wantHeld(t, g2)
		wantLost(t, g, ErrExpired)
		mustUnlock(t, g2)
	})
}

// TestExpiredWithoutEvents: go-zookeeper drops events when their channel is full.
func TestExpiredWithoutEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		conn := c.connect()
		s := NewSession(conn, make(chan zk.Event), testTimeout)
		defer s.Close()
		g := mustLock(t, NewMutex(s, "/a", MutexOptions{}))
		c.mu.Lock()
		conn.watches = make(map[fakeWatchKey][]fakeWatch) // nor the watch
		conn.expireLocked()
		conn.connectLocked() // has a new session before anybody looks
		c.mu.Unlock()
		g.Held()
		wantLost(t, g, ErrExpired)
	})
}

func TestDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, _, g := heldBy(t)
		defer s.Close()
		// A change of the data is no loss, and the watch is set again after it.
		for range 3 {
			c.mu.Lock()
			c.setLocked(g.Node(), []byte("x"), -1)
			c.mu.Unlock()
			synctest.Wait()
			wantHeld(t, g)
		}
		c.delete(g.Node())
		synctest.Wait()
		wantLost(t, g, ErrDeleted)
		if err := g.Unlock(t.Context()); !errors.Is(err, ErrDeleted) {
			t.Errorf("Unlock = %v, want ErrDeleted", err)
		}
	})
}

// TestDeletedUnnoticed: Unlock does not say that all was well when the node
// turns out to have gone before.
func TestDeletedUnnoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, conn, g := heldBy(t)
		defer s.Close()
		c.mu.Lock()
		conn.watches = make(map[fakeWatchKey][]fakeWatch)
		c.deleteLocked(g.Node(), -1)
		c.mu.Unlock()
		if err := g.Unlock(t.Context()); !errors.Is(err, ErrDeleted) {
			t.Errorf("Unlock = %v, want ErrDeleted", err)
		}
	})
}

func TestUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, conn, g := heldBy(t)
		defer s.Close()
		lost := g.Lost()
		mustUnlock(t, g)
		<-lost
		wantLost(t, g, ErrReleased)
		mustUnlock(t, g) // again
		wantEmpty(t, c)

		// While there is no connection.
		g = mustLock(t, NewMutex(s, "/a", MutexOptions{}))
		c.mu.Lock()
		conn.reconnect = time.Second
		conn.cutLocked()
		c.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		if err := g.Unlock(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Unlock = %v", err)
		}
		wantLost(t, g, ErrReleased)
		if left := c.paths(); len(left) != 1 {
			t.Errorf("nodes: %v", left)
		}
		mustUnlock(t, g) // waits for the same release
		wantEmpty(t, c)
	})
}

// TestLostBeforeGivenAway lets requests and replies take any time up to beyond
// the session timeout. The cluster ends the session one timeout after it last
// heard from it; by then every grant must have been given up.
func TestLostBeforeGivenAway(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	var held, silent int
	round := uint64(0)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d, round %d", seed, round)
		}
	})
	for i := range uint64(60) {
		round = i
		synctest.Test(t, func(t *testing.T) {
			worst := testTimeout * time.Duration(i%12) / 10
			h, s := slowLink(t, rand.New(rand.NewPCG(seed, i)), worst)
			held, silent = held+h, silent+s
		})
	}
	if held == 0 || silent == 0 {
		t.Errorf("%d grants held, %d lost: the test shows nothing", held, silent)
	}
}

// slowLink has one contender lock again and again over a link that delays up to
// worst, and counts how its grants ended.
func slowLink(t *testing.T, rnd *rand.Rand, worst time.Duration) (held, silent int) {
	c := newFakeCluster()
	s, conn := newTestSession(c)
	defer s.Close()
	var g *Grant // guarded by c.mu
	expire := time.AfterFunc(testTimeout, func() {
		var grant *Grant
		c.with(func() { grant = g })
		if grant != nil {
			select {
			case <-grant.life.Done():
			default:
				t.Error("the session ended, and the holder does not know")
			}
		}
		c.with(conn.expireLocked)
	})
	defer expire.Stop()
	delay := func() {
		var d time.Duration
		c.with(func() { // which guards rnd, too
			if worst > 0 && rnd.IntN(3) == 0 {
				d = time.Duration(rnd.Int64N(int64(worst)))
			}
		})
		time.Sleep(d)
	}
	c.with(func() {
		conn.arrived = func() { expire.Reset(testTimeout) }
		conn.hook = func(int, string, string) fault { delay(); return faultNone }
		conn.reply = func(string) { delay() }
	})
	for range 20 {
		grant, err := NewMutex(s, "/a", MutexOptions{}).Lock(t.Context())
		if err != nil {
			if !errors.Is(err, ErrExpired) {
				t.Fatal(err)
			}
			continue
		}
		c.with(func() { g = grant })
		select {
		case <-grant.Lost():
			silent++
		case <-time.After(testTimeout * 3):
			held++
		}
		c.with(func() { g = nil })
		grant.Unlock(t.Context())
	}
	return held, silent
}

// TestGrantContext: the context ends with the grant, for its reason, or with the
// parent, for that one's, and a grant that goes on keeps nothing of it.
func TestGrantContext(t *testing.T) {
	type key struct{}
	for _, tt := range []struct {
		about string
		end   func(c *fakeCluster, g *Grant)
		want  error
	}{
		{"unlocked", func(c *fakeCluster, g *Grant) { g.Unlock(context.Background()) }, ErrReleased},
		{"deleted", func(c *fakeCluster, g *Grant) { c.delete(g.Node()) }, ErrDeleted},
		{"closed", func(c *fakeCluster, g *Grant) { g.node.link.close() }, ErrClosed},
	} {
		t.Run(tt.about, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s, _, g := heldBy(t)
				defer s.Close()
				parent, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "v"))
				one, two := g.Context(parent), g.Context(t.Context())
				if one.Value(key{}) != "v" || one.Err() != nil || two.Err() != nil {
					t.Errorf("while it stands: %v, %v, %v", one.Value(key{}), one.Err(), two.Err())
				}
				why := errors.New("why")
				cancel(why)
				synctest.Wait()
				if context.Cause(one) != why || two.Err() != nil {
					t.Errorf("after the parent's end: %v, %v", context.Cause(one), two.Err())
				}
				tt.end(c, g)
				<-two.Done()
				if context.Cause(one) != why || context.Cause(two) != tt.want {
					t.Errorf("after the grant's end: %v, %v, want %v", context.Cause(one), context.Cause(two), tt.want)
				}
				if late := g.Context(t.Context()); context.Cause(late) != tt.want {
					t.Errorf("of a grant that had ended: %v", context.Cause(late))
				}
			})
		})
	}
}

func TestMultiGrantContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, _ := newTestSession(c)
		defer s.Close()
		m := NewMultiMutex(NewMutex(s, "/a", MutexOptions{}), NewMutex(s, "/b", MutexOptions{}))
		g, err := m.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx := g.Context(t.Context())
		synctest.Wait()
		if ctx.Err() != nil {
			t.Error(ctx.Err())
		}
		c.delete(g.Grants()[1].Node())
		<-ctx.Done()
		if context.Cause(ctx) != ErrDeleted {
			t.Errorf("the cause is %v", context.Cause(ctx))
		}
		g.Unlock(t.Context())
	})
}
