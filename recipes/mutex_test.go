package recipes

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/locknode"
)

const testTimeout = 6 * time.Second // session timeout of the tests in a bubble

// newTestSession connects to a fake cluster. The test closes it: a bubble must
// be empty when it ends.
func newTestSession(c *fakeCluster) (*Session, *fakeConn) {
	conn := c.connect()
	return NewSession(conn, conn.events, testTimeout), conn
}

// referee watches over everybody who gets a lock.
type referee struct {
	t      *testing.T
	mu     sync.Mutex
	grants []testGrant
}

// enter notes a grant. While it stands, no earlier one may, and its token must be
// larger than all before it. (It may have been lost before we get to look, and
// the next one granted. A grant that stands after we looked at the others stood then.)
func (r *referee) enter(g testGrant) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.grants {
		if o.Held() && g.Held() {
			r.t.Errorf("%s granted while %s is held", g.Node(), o.Node())
		}
		if o.Token() >= g.Token() && g.Held() {
			r.t.Errorf("token %d of %s after %d of %s", g.Token(), g.Node(), o.Token(), o.Node())
		}
	}
	r.grants = append(r.grants, g)
}

func mustLock(t *testing.T, m *Mutex) *Grant {
	t.Helper()
	g, err := m.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func mustUnlock(t *testing.T, g *Grant) {
	t.Helper()
	if err := g.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// wantEmpty checks that nothing is left of anybody.
func wantEmpty(t *testing.T, c *fakeCluster) {
	t.Helper()
	if left := c.paths(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestMutexOrderAndHerd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		const n = 8
		var order []int
		var mu sync.Mutex
		var wg sync.WaitGroup
		conns := make([]*fakeConn, n)
		grants := make(chan *Grant, n)
		for i := range n {
			s, conn := newTestSession(c)
			defer s.Close()
			conns[i] = conn
			wg.Go(func() {
				g := mustLock(t, NewMutex(s, "/locks/a", MutexOptions{}))
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				grants <- g
			})
			synctest.Wait() // it has its place now
		}
		calls := func() (out []int) {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, f := range conns {
				out = append(out, f.calls)
			}
			return out
		}
		r := &referee{t: t}
		for i := range n {
			g := <-grants
			r.enter(g)
			before := calls()
			mustUnlock(t, g)
			synctest.Wait()
			for j, after := range calls() {
				if j > i+1 && after != before[j] {
					t.Errorf("release by %d woke %d: %d calls", i, j, after-before[j])
				}
			}
		}
		wg.Wait()
		if want := []int{0, 1, 2, 3, 4, 5, 6, 7}; !slices.Equal(order, want) {
			t.Errorf("granted in the order %v, want %v", order, want)
		}
		wantEmpty(t, c)
	})
}

func TestLockEndsWithCtx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, _ := newTestSession(c)
		defer s.Close()
		m := NewMutex(s, "/a", MutexOptions{})
		g := mustLock(t, m)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := m.Lock(ctx)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock = %v", err)
		}
		_, name := split(g.Node())
		if want := "recipes: lock /a: waiting behind " + name + ": context deadline exceeded"; err.Error() != want {
			t.Errorf("Lock = %q, want %q", err, want)
		}
		synctest.Wait()
		if left := c.paths(); !slices.Equal(left, []string{g.Node()}) {
			t.Errorf("nodes: %v", left)
		}
		if _, err := m.Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock with a ctx that has ended = %v", err)
		}
		mustUnlock(t, g)
	})
}

func TestTryLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, _ := newTestSession(c)
		defer s.Close()
		m := NewMutex(s, "/a", MutexOptions{})
		g, err := m.TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.TryLock(t.Context()); !errors.Is(err, ErrLocked) {
			t.Errorf("TryLock of a locked path = %v, want ErrLocked", err)
		}
		if left := c.paths(); !slices.Equal(left, []string{g.Node()}) {
			t.Errorf("after TryLock: %v", left)
		}
		mustUnlock(t, g)
		g2, err := m.TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if g2.Token() <= g.Token() {
			t.Errorf("token %d after %d", g2.Token(), g.Token())
		}
		mustUnlock(t, g2)
	})
}

// TestToken: the tokens grow though the path, and with it the sequence numbers,
// start over.
func TestToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, _ := newTestSession(c)
		defer s.Close()
		m := NewMutex(s, "/a/b", MutexOptions{Data: []byte("me")})
		var last int64
		for i := range 5 {
			g := mustLock(t, m)
			if !strings.HasSuffix(g.Node(), "-lock-0000000000") {
				t.Fatalf("node %s: the path was not made again", g.Node())
			}
			if g.Token() <= last {
				t.Errorf("round %d: token %d after %d", i, g.Token(), last)
			}
			c.mu.Lock()
			if n := c.nodes[g.Node()]; n.czxid != g.Token() || string(n.data) != "me" {
				t.Errorf("token %d, data %q; node %+v", g.Token(), n.data, n)
			}
			c.mu.Unlock()
			last = g.Token()
			mustUnlock(t, g)
			if err := c.delete("/a/b"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestLockRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, _ := newTestSession(c)
		defer s.Close()
		g := mustLock(t, NewMutex(s, "/a", MutexOptions{}))
		_, err := NewMutex(s, g.Node()+"/below", MutexOptions{}).Lock(t.Context())
		if !errors.Is(err, zk.ErrNoChildrenForEphemerals) {
			t.Errorf("Lock below an ephemeral = %v", err)
		}
		mustUnlock(t, g)
		wantEmpty(t, c)
	})
}

// TestExhausted: at the end of its range the counter gives every node the
// same number; which of them is first can then no longer be known.
func TestExhausted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, _ := newTestSession(c)
		defer s.Close()
		m := NewMutex(s, "/a", MutexOptions{})
		mustUnlock(t, mustLock(t, m))
		c.mu.Lock()
		c.nodes["/a"].creates = locknode.MaxSequence - 1
		c.mu.Unlock()
		mustUnlock(t, mustLock(t, m))
		for range 2 {
			if _, err := m.Lock(t.Context()); !errors.Is(err, ErrExhausted) {
				t.Errorf("Lock = %v, want ErrExhausted", err)
			}
		}
		synctest.Wait()
		wantEmpty(t, c)
	})
}

// TestExhaustedBelowZero: ZooKeeper's counter overflows. A number from behind its end is no place
// in the queue: 2147483646 and -2147483646 look alike.
func TestExhaustedBelowZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		c.zookeeper = true
		s, _ := newTestSession(c)
		defer s.Close()
		for path, lock := range map[string]Locker{
			"/a": NewMutex(s, "/a", MutexOptions{}),
			"/w": NewRWMutex(s, "/w", MutexOptions{}),
			"/r": NewRWMutex(s, "/r", MutexOptions{}).RLocker(),
		} {
			mustUnlockAny(t, lock)
			c.with(func() { c.nodes[path].creates = locknode.MaxSequence - 1 })
			g, err := lock.Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for range 5 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				if _, err := lock.Lock(ctx); !errors.Is(err, ErrExhausted) {
					t.Errorf("%s: Lock = %v, want ErrExhausted", path, err)
				}
				cancel()
			}
			mustUnlock(t, g)
			for _, creates := range []int64{-1 << 31, -1<<31 + 2, -1e9, -1e9 + 1, -1} {
				c.with(func() { c.nodes[path].creates = creates })
				if _, err := lock.TryLock(t.Context()); !errors.Is(err, ErrExhausted) {
					t.Errorf("%s: number %d: TryLock = %v, want ErrExhausted", path, creates, err)
				}
			}
		}
		synctest.Wait()
		wantEmpty(t, c)
	})
}

func mustUnlockAny(t *testing.T, l Locker) {
	t.Helper()
	g, err := l.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, g)
}

// TestWaiterExpires: a place in the queue does not survive its session.
func TestWaiterExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		a, _ := newTestSession(c)
		defer a.Close()
		b, conn := newTestSession(c)
		defer b.Close()
		g := mustLock(t, NewMutex(a, "/a", MutexOptions{}))
		done := make(chan error)
		m := NewMutex(b, "/a", MutexOptions{})
		go func() {
			_, err := m.Lock(t.Context())
			done <- err
		}()
		synctest.Wait()
		c.with(conn.expireLocked)
		if err := <-done; !errors.Is(err, ErrExpired) {
			t.Errorf("Lock = %v, want ErrExpired", err)
		}
		mustUnlock(t, g)
		mustUnlock(t, mustLock(t, m)) // under the next session
		wantEmpty(t, c)
	})
}

// TestWaiterReconnects: a waiting contender keeps its place and its watch, and
// sets no further ones, which nobody would ever take away again.
func TestWaiterReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, a, _, g := heldBy(t)
		defer a.Close()
		b, conn := newTestSession(c)
		defer b.Close()
		next := make(chan *Grant)
		go func() { next <- mustLock(t, NewMutex(b, "/a", MutexOptions{})) }()
		synctest.Wait()
		for range 20 {
			c.with(conn.cutLocked)
			time.Sleep(testTimeout)
		}
		c.with(func() {
			if n := len(conn.watches[fakeWatchKey{g.Node(), watchData}]); n != 1 {
				t.Errorf("%d watches on the predecessor, want 1", n)
			}
		})
		mustUnlock(t, g)
		mustUnlock(t, <-next)
	})
}

// TestWatchNotSetAgain: the watch on the predecessor got lost with a connection,
// and the predecessor went meanwhile.
func TestWatchNotSetAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, a, _, g := heldBy(t)
		defer a.Close()
		b, conn := newTestSession(c)
		defer b.Close()
		next := make(chan *Grant)
		go func() { next <- mustLock(t, NewMutex(b, "/a", MutexOptions{})) }()
		synctest.Wait()
		c.with(func() {
			conn.cutLocked()
			conn.watches = make(map[fakeWatchKey][]fakeWatch)
		})
		mustUnlock(t, g)
		mustUnlock(t, <-next)
	})
}

// TestWaiterDeleted: an operator removes a waiting contender.
func TestWaiterDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, _ := newTestSession(c)
		defer s.Close()
		m := NewMutex(s, "/a", MutexOptions{})
		g := mustLock(t, m)
		done := make(chan error)
		go func() {
			_, err := m.Lock(t.Context())
			done <- err
		}()
		synctest.Wait()
		for _, p := range c.paths() {
			if p != g.Node() {
				c.delete(p)
			}
		}
		if err := <-done; !errors.Is(err, ErrDeleted) {
			t.Errorf("Lock = %v, want ErrDeleted", err)
		}
		mustUnlock(t, g)
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, _ := newTestSession(c)
		m := NewMutex(s, "/a", MutexOptions{})
		g := mustLock(t, m)
		waiting := make(chan error)
		go func() {
			_, err := m.Lock(t.Context())
			waiting <- err
		}()
		synctest.Wait()
		go s.Close()
		if err := <-waiting; !errors.Is(err, ErrClosed) {
			t.Errorf("Lock = %v, want ErrClosed", err)
		}
		<-g.Lost()
		if err := g.Err(); err != ErrClosed {
			t.Errorf("Err = %v, want ErrClosed", err)
		}
		if err := g.Unlock(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("Unlock = %v, want ErrClosed", err)
		}
		if _, err := m.Lock(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("Lock = %v, want ErrClosed", err)
		}
		s.Close() // again
		wantEmpty(t, c)

		// Somebody else closes the connection.
		s, conn := newTestSession(c)
		g = mustLock(t, NewMutex(s, "/a", MutexOptions{}))
		conn.Close()
		<-g.Lost()
		// The deletion that the closing causes may be heard of first.
		if err := g.Err(); err != ErrClosed && err != ErrDeleted {
			t.Errorf("Err = %v, want ErrClosed or ErrDeleted", err)
		}
		s.Close()
	})
}

// TestDisconnectedLockMakesNothing: without a connection nothing is sent, and so
// nothing has to be cleaned up.
func TestDisconnectedLockMakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, conn := newTestSession(c)
		defer s.Close()
		c.mu.Lock()
		conn.reconnect = time.Hour
		conn.cutLocked()
		calls := conn.calls
		c.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := NewMutex(s, "/a", MutexOptions{}).Lock(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "waiting for a connection") {
			t.Errorf("Lock = %v", err)
		}
		time.Sleep(2 * time.Hour)
		if conn.calls != calls {
			t.Errorf("%d calls were made", conn.calls-calls)
		}
	})
}

// TestSameNumber: of two nodes with one number, which only somebody by hand makes, the older one is
// in front.
func TestSameNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, _ := newTestSession(c)
		defer s.Close()
		byHand := func(name string) {
			c.with(func() {
				if _, err := c.createLocked("/a/"+name, nil, zk.FlagEphemeral, 77); err != nil {
					t.Fatal(err)
				}
			})
		}
		m := NewMutex(s, "/a", MutexOptions{})
		first := mustLock(t, m)
		byHand("old-lock-0000000002")
		next := later(t, m.Lock) // has the number 2, too
		byHand("young-lock-0000000002")
		mustUnlock(t, first)
		if wantWaiting(t, next); t.Failed() {
			return
		}
		if err := c.delete("/a/old-lock-0000000002"); err != nil {
			t.Fatal(err)
		}
		g := <-next
		if err := g.Valid(t.Context()); err != nil {
			t.Error(err)
		}
		_, err := m.TryLock(t.Context())
		if !errors.Is(err, ErrLocked) {
			t.Errorf("TryLock = %v", err)
		}
		mustUnlock(t, g)
	})
}
