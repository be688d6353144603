package recipes

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
)

// later acquires in the background.
func later(t *testing.T, lock func(context.Context) (*Grant, error)) <-chan *Grant {
	next := make(chan *Grant, 1)
	go func() {
		g, err := lock(t.Context())
		if err != nil {
			t.Error(err)
		}
		next <- g
	}()
	synctest.Wait()
	return next
}

func must(t *testing.T, lock func(context.Context) (*Grant, error)) *Grant {
	t.Helper()
	g, err := lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func wantWaiting(t *testing.T, next <-chan *Grant) {
	t.Helper()
	synctest.Wait()
	select {
	case <-next:
		t.Error("granted too early")
	default:
	}
}

// TestRWMutex: readers share; a writer waits for those in front of it, and those
// behind it wait for it.
func TestRWMutex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, _ := newTestSession(c)
		defer s.Close()
		m := NewRWMutex(s, "/a", MutexOptions{})
		r1, r2 := must(t, m.RLock), must(t, m.RLock)
		w := later(t, m.Lock)
		r3 := later(t, m.RLock)
		r4 := later(t, m.RLock)
		if _, err := m.TryRLock(t.Context()); !errors.Is(err, ErrLocked) {
			t.Errorf("TryRLock behind a writer = %v, want ErrLocked", err)
		}
		if _, err := m.TryLock(t.Context()); !errors.Is(err, ErrLocked) {
			t.Errorf("TryLock = %v, want ErrLocked", err)
		}
		mustUnlock(t, r1)
		wantWaiting(t, w)
		mustUnlock(t, r2)
		gw := <-w
		if gw.Kind() != KindWrite || r1.Kind() != KindRead {
			t.Errorf("kinds %v, %v", gw.Kind(), r1.Kind())
		}
		wantWaiting(t, r3)
		wantWaiting(t, r4)
		mustUnlock(t, gw)
		g3, g4 := <-r3, <-r4
		if g3.Token() <= gw.Token() || g4.Token() <= gw.Token() {
			t.Error("a reader's token is not larger than the writer's before it")
		}
		wantHeld(t, g3)
		r5 := must(t, m.TryRLock)
		for _, g := range []*Grant{g3, g4, r5} {
			mustUnlock(t, g)
		}
		wantEmpty(t, c)
	})
}

// TestRWMutexForeign: which nodes of others a reader waits for.
func TestRWMutexForeign(t *testing.T) {
	for name, waits := range map[string]bool{
		"_c_ffffffff-ffff-4fff-bfff-ffffffffffff-__READ__": false,
		"_c_ffffffff-ffff-4fff-bfff-ffffffffffff-__WRIT__": true,
		"_c_ffffffff-ffff-4fff-bfff-ffffffffffff-lock-":    true,
		"ffffffffffffffffffffffffffffffff__rlock__":        false,
		"ffffffffffffffffffffffffffffffff__lock__":         true,
		"what-is-this-": true,
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newFakeCluster()
			s, conn := newTestSession(c)
			defer s.Close()
			m := NewRWMutex(s, "/a", MutexOptions{})
			mustUnlock(t, must(t, m.Lock)) // makes the path
			node, err := conn.Create("/a/"+name, nil, zk.FlagEphemeralSequential, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := m.TryLock(t.Context()); !errors.Is(err, ErrLocked) {
				t.Errorf("TryLock behind %s = %v", name, err)
			}
			g, err := m.TryRLock(t.Context())
			if waits != errors.Is(err, ErrLocked) {
				t.Errorf("TryRLock behind %s = %v", name, err)
			}
			if err == nil {
				mustUnlock(t, g)
			}
			next := later(t, m.RLock)
			if waits {
				wantWaiting(t, next)
			}
			c.delete(node)
			mustUnlock(t, <-next)
		})
	}
}

func TestDowngrade(t *testing.T) {
	for _, opts := range []MutexOptions{
		{Note: "why"},
		{Data: []byte("mine")},
		{LockDelay: time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newFakeCluster()
			s, _ := newTestSession(c)
			defer s.Close()
			m := NewRWMutex(s, "/a", opts)
			g := must(t, m.Lock)
			r1, r2 := later(t, m.RLock), later(t, m.RLock)
			w := later(t, m.Lock)
			r3 := later(t, m.RLock)
			wantWaiting(t, r1)
			if err := g.Downgrade(t.Context()); err != nil {
				t.Fatal(err)
			}
			if g.Kind() != KindRead {
				t.Errorf("kind %v", g.Kind())
			}
			gr1, gr2 := <-r1, <-r2
			wantHeld(t, g)
			wantWaiting(t, w)
			wantWaiting(t, r3)
			for _, g := range []*Grant{g, gr1, gr2} {
				if err := g.Valid(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if err := g.Downgrade(t.Context()); !errors.Is(err, ErrNotWriter) {
				t.Errorf("Downgrade again = %v", err)
			}
			cs, err := s.Contenders(t.Context(), "/a")
			if err != nil {
				t.Fatal(err)
			}
			var held []bool
			for _, c := range cs {
				held = append(held, c.Held || c.MayHold) // with data of its own it may be Curator's
			}
			if want := []bool{true, true, true, false, false}; !slices.Equal(held, want) {
				t.Errorf("held: %v, want %v", held, want)
			}
			if i := cs[0].Info; !i.Downgraded || i.Note != opts.Note || string(i.Data) != string(opts.Data) {
				t.Errorf("info of the downgraded: %+v", i)
			}
			mustUnlock(t, gr1)
			mustUnlock(t, gr2)
			wantWaiting(t, w)
			mustUnlock(t, g)
			mustUnlock(t, <-w)
			mustUnlock(t, <-r3)
			wantEmpty(t, c)
		})
	}
}

// TestTryRLockBehindDowngraded: who is not to wait looks at the data too.
func TestTryRLockBehindDowngraded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, _ := newTestSession(c)
		defer s.Close()
		m := NewRWMutex(s, "/a", MutexOptions{})
		g := must(t, m.Lock)
		if _, err := m.TryRLock(t.Context()); !errors.Is(err, ErrLocked) {
			t.Errorf("TryRLock = %v, want ErrLocked", err)
		}
		if err := g.Downgrade(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, must(t, m.TryRLock))
		mustUnlock(t, g)
	})
}

// TestDowngradeFaults lets each fault hit each call of a downgrade. Whatever comes
// of it, a grant that says it is for writing has no reader beside it.
func TestDowngradeFaults(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Second} {
		for what := faultNone + 1; what < faults; what++ {
			for at := range 3 {
				synctest.Test(t, func(t *testing.T) {
					c := newFakeCluster()
					a, conn := newTestSession(c)
					b, _ := newTestSession(c)
					defer a.Close()
					defer b.Close()
					opts := MutexOptions{LockDelay: delay}
					g := must(t, NewRWMutex(a, "/a", opts).Lock)
					// The reader looks at the writer's grant the moment it is let in.
					r := later(t, func(ctx context.Context) (*Grant, error) {
						gr, err := NewRWMutex(b, "/a", opts).RLock(ctx)
						if g.Held() && g.Kind() == KindWrite {
							t.Errorf("%v at %d: granted to a reader beside a writer", what, at)
						}
						return gr, err
					})
					c.with(func() {
						first := conn.calls
						conn.hook = func(n int, op, path string) fault {
							var hit bool
							c.with(func() {
								if op == "sync" { // of the lease, at its own times
									first++
								}
								hit = n == first+at
							})
							if hit {
								return what
							}
							return faultNone
						}
					})
					err := g.Downgrade(t.Context())
					synctest.Wait()
					var gr *Grant
					select {
					case gr = <-r:
					default:
						if err == nil {
							t.Errorf("%v at %d: downgraded, and the reader waits", what, at)
						}
					}
					if err == nil && g.Kind() != KindRead {
						t.Errorf("%v at %d: downgraded to %v", what, at, g.Kind())
					}
					g.Unlock(t.Context())
					if gr == nil {
						gr = <-r
					}
					mustUnlock(t, gr)
				})
			}
		}
	}
}

func TestDowngradeRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, _, g := heldBy(t)
		defer s.Close()
		m := NewRWMutex(s, "/b", MutexOptions{})
		r := must(t, m.RLock)
		for _, g := range []*Grant{g, r} {
			if err := g.Downgrade(t.Context()); !errors.Is(err, ErrNotWriter) {
				t.Errorf("Downgrade of a grant to %v = %v, want ErrNotWriter", g.Kind(), err)
			}
		}
		if err := r.Upgrade(t.Context()); !errors.Is(err, ErrUpgrade) {
			t.Errorf("Upgrade = %v, want ErrUpgrade", err)
		}
		wantHeld(t, r)
		mustUnlock(t, r)
		w := must(t, m.Lock)
		mustUnlock(t, w)
		if err := w.Downgrade(t.Context()); !errors.Is(err, ErrReleased) {
			t.Errorf("Downgrade of what was released = %v", err)
		}
		mustUnlock(t, g)
		wantEmpty(t, c)
	})
}
