package recipes

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
)

func TestSemaphore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, _ := newTestSession(c)
		defer s.Close()
		other, conn := newTestSession(c)
		defer other.Close()
		m := NewSemaphore(s, "/a", SemaphoreOptions{Leases: 3})
		g := []*Grant{must(t, m.Lock), must(t, m.TryLock), must(t, NewSemaphore(other, "/a", SemaphoreOptions{Leases: 3}).Lock)}
		if _, err := m.TryLock(t.Context()); !errors.Is(err, ErrLocked) {
			t.Errorf("TryLock = %v, want ErrLocked", err)
		}
		first := later(t, m.Lock)
		second := later(t, m.Lock)
		wantWaiting(t, first)
		for i := range g {
			if g[i].Kind() != KindLease {
				t.Errorf("kind %v", g[i].Kind())
			}
			wantHeld(t, g[i])
			if err := g[i].Valid(t.Context()); err != nil {
				t.Error(err)
			}
		}
		mustUnlock(t, g[1])
		g = append(g, <-first)
		wantWaiting(t, second)
		c.with(conn.expireLocked)
		g = append(g, <-second)
		synctest.Wait()
		wantLost(t, g[2], ErrExpired)
		for _, i := range []int{0, 3, 4} {
			mustUnlock(t, g[i])
		}
		wantEmpty(t, c)
	})
}

// TestSemaphoreCount: the number changes while contenders wait.
func TestSemaphoreCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, conn := newTestSession(c)
		defer s.Close()
		m := NewSemaphore(s, "/a", SemaphoreOptions{Leases: 1, CountPath: "/count/a"})
		g := []*Grant{must(t, m.Lock)}
		waiting := []<-chan *Grant{later(t, m.Lock), later(t, m.Lock), later(t, m.Lock)}
		wantWaiting(t, waiting[0])
		// Made, grown by two; each gets in, in order.
		if err := m.SetLeases(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		g = append(g, <-waiting[0], <-waiting[1])
		wantWaiting(t, waiting[2])
		// Shrunk: nobody is thrown out, and two have to go before one gets in.
		if err := m.SetLeases(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, g := range g {
			wantHeld(t, g)
		}
		mustUnlock(t, g[0])
		wantWaiting(t, waiting[2])
		mustUnlock(t, g[1])
		g = append(g, <-waiting[2])
		// As Curator's SharedCount has it.
		if data, _, _ := conn.Get("/count/a"); string(data) != "\x00\x00\x00\x02" {
			t.Errorf("data of the count: %q", data)
		}
		// Data that are no number are an error, and do no harm.
		if _, err := conn.Set("/count/a", []byte("5"), -1); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Lock(t.Context()); err == nil {
			t.Error("granted with a count that is none")
		}
		synctest.Wait()
		// And 0 lets nobody in until it changes.
		if err := m.SetLeases(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, g[2])
		mustUnlock(t, g[3])
		next := later(t, m.Lock)
		wantWaiting(t, next)
		if err := m.SetLeases(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, <-next)
		c.with(func() {
			if n := len(conn.watches); n > 4 {
				t.Errorf("%d watches", n)
			}
		})
		c.delete("/count/a")
		wantEmpty(t, c)

		for _, m := range []*Semaphore{
			NewSemaphore(s, "/a", SemaphoreOptions{Leases: 1}),
			m,
		} {
			if err := m.SetLeases(t.Context(), -1); err == nil {
				t.Error("SetLeases to -1 = nil")
			}
		}
		if _, err := NewSemaphore(s, "/a", SemaphoreOptions{}).Lock(t.Context()); err == nil {
			t.Error("Lock without leases = nil")
		}
	})
}

// TestSemaphoreTampered: somebody deletes the waiting contender's node in the gate,
// so that another one comes to wait beside it. The first gives up: two that count
// each other would both wait for ever.
func TestSemaphoreTampered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, _ := newTestSession(c)
		defer s.Close()
		m := NewSemaphore(s, "/a", SemaphoreOptions{Leases: 1})
		g := must(t, m.Lock)
		failed := make(chan error)
		go func() {
			_, err := m.Lock(t.Context())
			failed <- err
		}()
		synctest.Wait()
		for _, p := range c.paths() {
			if dir, _ := split(p); dir == "/a/locks" {
				c.delete(p)
			}
		}
		if err := <-failed; !errors.Is(err, ErrDeleted) {
			t.Errorf("Lock = %v, want ErrDeleted", err)
		}
		next := later(t, m.Lock)
		mustUnlock(t, g)
		mustUnlock(t, <-next)
		wantEmpty(t, c)
	})
}

// TestSemaphoreReconnects: the watches of one who waits are set again, and do not
// pile up.
func TestSemaphoreReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, _ := newTestSession(c)
		defer s.Close()
		other, conn := newTestSession(c)
		defer other.Close()
		g := must(t, NewSemaphore(s, "/a", SemaphoreOptions{Leases: 1}).Lock)
		next := later(t, NewSemaphore(other, "/a", SemaphoreOptions{Leases: 1}).Lock)
		for range 5 {
			c.with(conn.cutLocked)
			time.Sleep(testTimeout)
		}
		c.with(func() {
			conn.cutLocked()
			clear(conn.watches) // got lost
		})
		mustUnlock(t, g)
		mustUnlock(t, <-next)
	})
}

// TestSimpleMutexHerd: it costs as much as its documentation says.
func TestSimpleMutexHerd(t *testing.T) {
	cost := func(lock func(s *Session) Locker) (calls int) {
		synctest.Test(t, func(t *testing.T) {
			c := newFakeCluster()
			const n = 20
			var conns []*fakeConn
			var locks []Locker
			for range n {
				s, conn := newTestSession(c)
				defer s.Close()
				conns, locks = append(conns, conn), append(locks, lock(s))
			}
			first := must(t, locks[0].Lock)
			done := make(chan bool)
			for _, l := range locks[1:] {
				go func() {
					g := must(t, l.Lock)
					time.Sleep(100 * time.Millisecond)
					mustUnlock(t, g)
					done <- true
				}()
			}
			synctest.Wait()
			mustUnlock(t, first)
			for range n - 1 {
				<-done
			}
			wantEmpty(t, c)
			c.with(func() {
				for _, conn := range conns {
					calls += conn.calls
				}
			})
		})
		return calls
	}
	simple := cost(func(s *Session) Locker { return NewSimpleMutex(s, "/a", MutexOptions{}) })
	fair := cost(func(s *Session) Locker { return NewMutex(s, "/a", MutexOptions{}) })
	t.Logf("20 contenders, once each: SimpleMutex %d calls, Mutex %d", simple, fair)
	if simple < 20*20/2 || fair > 20*12 {
		t.Errorf("SimpleMutex %d calls, Mutex %d: the documentation says otherwise", simple, fair)
	}
}

// TestSimpleMutexUnlockedWithoutConnection: an Unlock without a connection, before the session is
// known to have expired, leaves the next holder's node alone.
func TestSimpleMutexUnlockedWithoutConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		a, conn := newTestSession(c)
		b, _ := newTestSession(c)
		defer a.Close()
		defer b.Close()
		g := must(t, NewSimpleMutex(a, "/simple", MutexOptions{}).Lock)
		c.with(conn.cutLocked)
		done := make(chan error)
		go func() { done <- g.Unlock(t.Context()) }()
		synctest.Wait() // for a connection
		c.with(conn.expireLocked)
		next := must(t, NewSimpleMutex(b, "/simple", MutexOptions{}).Lock)
		if err := <-done; err != nil && !errors.Is(err, ErrExpired) {
			t.Errorf("Unlock = %v", err)
		}
		time.Sleep(conn.reconnect + time.Second)
		if err := next.Err(); err != nil {
			t.Errorf("the next holder: %v", err)
		}
	})
}

// TestSimpleMutexNotOurs: a release does not delete a node that another has made under
// the same name.
func TestSimpleMutexNotOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, _ := newTestSession(c)
		defer s.Close()
		m := NewSimpleMutex(s, "/a", MutexOptions{})
		g := must(t, m.Lock)
		c.delete("/a")
		synctest.Wait()
		wantLost(t, g, ErrDeleted)
		g2 := must(t, m.Lock) // of the same session
		if err := g.Unlock(t.Context()); !errors.Is(err, ErrDeleted) {
			t.Errorf("Unlock = %v, want ErrDeleted", err)
		}
		wantHeld(t, g2)
		if err := g2.Valid(t.Context()); err != nil {
			t.Error(err)
		}
		mustUnlock(t, g2)
		// A plain node of somebody's is in the way like any other.
		c.with(func() { c.createLocked("/a", nil, zk.FlagPersistent, 0) })
		if _, err := m.TryLock(t.Context()); !errors.Is(err, ErrLocked) {
			t.Errorf("TryLock = %v", err)
		}
		next := later(t, m.Lock)
		wantWaiting(t, next)
		c.delete("/a")
		mustUnlock(t, <-next)
	})
}
