package recipes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// watchCount is the number of watches that a connection has, on nodes that are there and that are
// not.
func (f *fakeConn) watchCount() (n int) {
	f.c.with(func() {
		for _, list := range f.watches {
			n += len(list)
		}
	})
	return n
}

// TestWaitsLeaveNoWatches: whatever waits and gives up, or waits for things that go, leaves no more
// watches however often it does.
func TestWaitsLeaveNoWatches(t *testing.T) {
	const rounds = 20
	timeOut := func(f func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		if err := f(ctx); !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("did not wait: %v", err)
		}
		time.Sleep(10 * time.Millisecond) // its node goes in the background
		return nil
	}
	type wait func(other, s *Session) error
	waits := map[string]wait{
		"Campaign": func(other, s *Session) error {
			l, err := NewElection(other, "/e", ElectionOptions{}).Campaign(context.Background(), nil)
			for range rounds {
				if err == nil {
					err = timeOut(func(ctx context.Context) error {
						_, err := NewElection(s, "/e", ElectionOptions{}).Campaign(ctx, nil)
						return err
					})
				}
			}
			return errors.Join(err, l.Resign(context.Background()))
		},
		"Leader": func(other, s *Session) error {
			e := NewElection(s, "/e", ElectionOptions{})
			for range rounds {
				l, err := NewElection(other, "/e", ElectionOptions{}).Campaign(context.Background(), nil)
				if err == nil {
					_, err = e.Leader(context.Background())
				}
				if err := errors.Join(err, l.Resign(context.Background())); err != nil {
					return err
				}
			}
			return nil
		},
		"Barrier.Wait": func(other, s *Session) error {
			err := NewBarrier(other, "/b", nil).Set(context.Background())
			for range rounds {
				if err == nil {
					err = timeOut(NewBarrier(s, "/b", nil).Wait)
				}
			}
			return err
		},
		"Enter": func(_, s *Session) (err error) {
			for range rounds {
				if err == nil {
					err = timeOut(func(ctx context.Context) error {
						_, err := NewDoubleBarrier(s, "/d", 2, nil).Enter(ctx, nil)
						return err
					})
				}
			}
			return err
		},
		"DoubleBarrier.Leave": func(other, s *Session) error {
			for range rounds {
				done := make(chan error)
				for _, s := range []*Session{other, s} {
					go func() {
						in, err := NewDoubleBarrier(s, "/d", 2, nil).Enter(context.Background(), nil)
						if err == nil {
							err = in.Leave(context.Background())
						}
						done <- err
					}()
				}
				if err := errors.Join(<-done, <-done); err != nil {
					return err
				}
			}
			return nil
		},
		"Take": func(_, s *Session) (err error) {
			for range rounds {
				if err == nil {
					err = timeOut(func(ctx context.Context) error {
						_, err := NewQueue(s, "/q", nil).Take(ctx)
						return err
					})
				}
			}
			return err
		},
		"Members": func(other, s *Session) error {
			for range rounds {
				m, err := NewGroup(other, "/g", nil).Join(context.Background(), "", nil)
				if err == nil {
					_, err = NewGroup(s, "/g", nil).Members(context.Background())
				}
				if err = errors.Join(err, m.Leave(context.Background())); err != nil {
					return err
				}
			}
			return nil
		},
	}
	for _, l := range testLocks {
		waits["Lock/"+l.name] = func(other, s *Session) error {
			g, err := l.a(other, testPath).Lock(context.Background())
			for range rounds {
				if err == nil {
					err = timeOut(func(ctx context.Context) error {
						_, err := l.b(s, testPath).Lock(ctx)
						return err
					})
				}
			}
			return errors.Join(err, g.Unlock(context.Background()))
		}
	}
	for name, wait := range waits {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFakeCluster()
				other, _ := newTestSession(c)
				defer other.Close()
				s, conn := newTestSession(c)
				defer s.Close()
				most := 0
				c.with(func() {
					conn.arrived = func() {
						n := 0
						for _, list := range conn.watches {
							n += len(list)
						}
						most = max(most, n)
					}
				})
				if err := wait(other, s); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				left := conn.watchCount()
				c.with(func() {
					if most > 8 || left > 4 {
						t.Errorf("%d watches at most, and %d are left", most, left)
					}
				})
			})
		})
	}
}

// TestLostWatch: go-zookeeper does not say if it cannot set its watches again after a reconnect.
// Who waits for a node looks at it now and then.
func TestLostWatch(t *testing.T) {
	for _, l := range testLocks {
		t.Run(l.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFakeCluster()
				other, _ := newTestSession(c)
				defer other.Close()
				s, conn := newTestSession(c)
				defer s.Close()
				g, err := l.a(other, testPath).Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				got := make(chan error)
				go func() {
					g, err := l.b(s, testPath).Lock(t.Context())
					if err == nil {
						err = g.Unlock(t.Context())
					}
					got <- err
				}()
				time.Sleep(time.Second)
				c.with(func() {
					conn.cutLocked()
					clear(conn.watches)
				})
				time.Sleep(time.Second)
				if err := g.Unlock(t.Context()); err != nil {
					t.Fatal(err)
				}
				select {
				case err := <-got:
					if err != nil {
						t.Error(err)
					}
				case <-time.After(time.Minute):
					t.Error("waits for a node that has gone")
					c.with(conn.expireLocked)
					<-got
				}
			})
		})
	}
}

// TestElectionAboveLock: a lock's path below an election's does not lead.
func TestElectionAboveLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, _ := newTestSession(c)
		defer s.Close()
		e := NewElection(s, "/e", ElectionOptions{})
		g := mustLock(t, NewMutex(s, "/e/job-0000000000", MutexOptions{}))
		c.with(func() { c.nodes["/e"].creates = 7 })
		if l, err := e.Leader(t.Context()); !errors.Is(err, ErrNoLeader) {
			t.Errorf("leader %v, %v", l, err)
		}
		led, err := e.Campaign(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if l, err := e.Leader(t.Context()); err != nil || l.Node != led.Node() {
			t.Errorf("leader %v, %v, not %s", l, err, led.Node())
		}
		led.Resign(t.Context())
		mustUnlock(t, g)
	})
}

// TestLockBelowLock: the path of a lock below the path of another one may end in ten digits. It
// belongs to no session, and nobody waits for it.
func TestLockBelowLock(t *testing.T) {
	for _, l := range testLocks {
		t.Run(l.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFakeCluster()
				s, _ := newTestSession(c)
				defer s.Close()
				var below []testGrant
				dirs := append(l.dirs(testPath), testPath)
				slices.Sort(dirs)
				for _, dir := range slices.Compact(dirs) {
					if strings.HasSuffix(dir, "/leases") {
						continue // each child is one
					}
					g, err := NewMutex(s, dir+"/job-0000000000", MutexOptions{}).Lock(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					below = append(below, g)
					c.with(func() {
						c.nodes[dir].creates = 7
						c.createLocked(dir+"/user-0000000001", nil, 0, 0) // persistent
					})
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				for name, lock := range map[string]func(context.Context) (testGrant, error){
					"Lock": l.a(s, testPath).Lock, "TryLock": l.a(s, testPath).TryLock, "other Lock": l.b(s, testPath).Lock,
				} {
					g, err := lock(ctx)
					if err != nil {
						t.Errorf("%s: %v", name, err)
						continue
					}
					if v, ok := g.(interface{ Valid(context.Context) error }); ok {
						if err := v.Valid(ctx); err != nil {
							t.Errorf("%s: Valid = %v", name, err)
						}
					}
					if err := g.Unlock(t.Context()); err != nil {
						t.Error(err)
					}
				}
				for _, g := range below {
					g.Unlock(t.Context())
				}
			})
		})
	}
}
