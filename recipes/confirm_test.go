package recipes

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestLoneLeader: a leader of ZooKeeper without its followers answers reads and syncs, and no
// write. A grant ends with the answers to writes, and nothing that is to be certain is read.
func TestLoneLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		c.zookeeper = true
		s, conn := newTestSession(c)
		defer s.Close()
		g := mustLock(t, NewMutex(s, "/a", MutexOptions{}))
		in, err := NewDoubleBarrier(s, "/d", 1, nil).Enter(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		wantHeld(t, g)

		alone := make(chan struct{})
		c.with(func() {
			conn.hook = func(n int, op, path string) fault {
				switch op {
				case "create", "container", "delete", "set", "multi", "nothing":
					<-alone
				}
				return faultNone
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		for name, ask := range map[string]func() error{
			"Counter.Get":     func() error { _, err := NewCounter(s, "/c", CounterOptions{}).Get(ctx); return err },
			"Election.Leader": func() error { _, err := NewElection(s, "/e", ElectionOptions{}).Leader(ctx); return err },
			"Barrier.Wait":    func() error { return NewBarrier(s, "/b", nil).Wait(ctx) },
			"Group.Members":   func() error { _, err := NewGroup(s, "/g", nil).Members(ctx); return err },
			"Queue.Len":       func() error { _, _, err := NewQueue(s, "/q", nil).Len(ctx); return err },
			"Contenders":      func() error { _, err := s.Contenders(ctx, "/a"); return err },
			"Leave":           func() error { return in.Leave(ctx) },
		} {
			go func() {
				if err := ask(); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s of a leader without followers: %v", name, err)
				}
			}()
		}
		time.Sleep(testTimeout*2/3 + time.Nanosecond)
		wantLost(t, g, ErrSilent)
		<-ctx.Done()
		synctest.Wait()
		close(alone)
	})
}

// TestConfirmCost: lockkeeper's sync is enough, and ZooKeeper is asked once for each connection
// whether its is.
func TestConfirmCost(t *testing.T) {
	for _, zookeeper := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newFakeCluster()
			c.zookeeper = zookeeper
			s, conn := newTestSession(c)
			defer s.Close()
			g := mustLock(t, NewMutex(s, "/a", MutexOptions{}))
			calls := map[string]int{}
			count := func() {
				c.with(func() {
					clear(calls)
					conn.hook = func(n int, op, path string) fault {
						c.with(func() { calls[op]++ })
						return faultNone
					}
				})
				time.Sleep(10*testTimeout + time.Second)
			}
			for range 2 {
				count()
				var syncs, writes int
				c.with(func() { syncs, writes = calls["sync"], calls["nothing"] })
				switch {
				case zookeeper && (syncs < 1 || syncs > 2 || writes < 60 || writes > 63):
					t.Errorf("ZooKeeper was sent %d syncs and %d writes in ten timeouts, not 1 or 2 and 60", syncs, writes)
				case !zookeeper && (writes != 0 || syncs < 60 || syncs > 63):
					t.Errorf("lockkeeper was sent %d syncs and %d writes in ten timeouts, not 60 and 0", syncs, writes)
				}
				c.with(conn.cutLocked)
			}
			mustUnlock(t, g)
		})
	}
}

// TestClientMoves: the answer of one server says nothing of the next one.
func TestClientMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, conn := newTestSession(c)
		defer s.Close()
		g := mustLock(t, NewMutex(s, "/a", MutexOptions{}))
		time.Sleep(testTimeout)
		c.with(func() {
			c.zookeeper = true
			conn.cutLocked()
			conn.hook = func(n int, op, path string) fault {
				if op == "nothing" {
					return faultCutBefore
				}
				return faultNone
			}
		})
		time.Sleep(testTimeout)
		wantLost(t, g, ErrSilent)
	})
}
