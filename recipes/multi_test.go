package recipes

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
)

func TestMultiMutex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, conn := newTestSession(c)
		defer s.Close()
		other, _ := newTestSession(c)
		defer other.Close()
		mutex := func(path string) *Mutex { return NewMutex(s, path, MutexOptions{}) }
		m := NewMultiMutex(mutex("/c"), NewRWMutex(s, "/a", MutexOptions{}).RLocker(), mutex("/b"))
		var deleted []string
		c.with(func() {
			conn.hook = func(n int, op, path string) fault {
				if op == "delete" {
					c.with(func() { deleted = append(deleted, path[:2]) })
				}
				return faultNone
			}
		})
		mg, err := m.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{"/a", "/b", "/c"} {
			if g := mg.Grants()[i]; g.Path() != want || g.Token() != mg.Tokens()[i] {
				t.Errorf("grant %d is of %s, token %d; %v", i, g.Path(), g.Token(), mg.Tokens())
			}
		}
		if err := mg.Valid(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		c.with(func() { deleted = nil }) // Valid's barriers
		for _, path := range []string{"/b", "/c"} {
			if _, err := NewMutex(other, path, MutexOptions{}).TryLock(t.Context()); !errors.Is(err, ErrLocked) {
				t.Errorf("TryLock of %s = %v", path, err)
			}
		}
		if err := mg.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if err := mg.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		c.with(func() {
			if want := []string{"/c", "/b", "/a"}; !slices.Equal(deleted, want) {
				t.Errorf("released in the order %v, want %v", deleted, want)
			}
		})
		if mg.Err() != ErrReleased || mg.Held() {
			t.Errorf("Err = %v", mg.Err())
		}
		wantEmpty(t, c)

		// All or none.
		g := must(t, NewMutex(other, "/b", MutexOptions{}).Lock)
		if _, err := m.TryLock(t.Context()); !errors.Is(err, ErrLocked) {
			t.Errorf("TryLock = %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := m.Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock = %v", err)
		}
		synctest.Wait()
		if left := c.paths(); !slices.Equal(left, []string{g.Node()}) {
			t.Errorf("left: %v", left)
		}
		mustUnlock(t, g)

		for _, m := range []*MultiMutex{NewMultiMutex(), NewMultiMutex(mutex("/a"), mutex("/a"))} {
			if _, err := m.Lock(t.Context()); err == nil {
				t.Error("Lock of none, or of one twice = nil")
			}
		}
	})
}

// TestMultiLost: one that is lost is all that is lost, before it is held and after.
func TestMultiLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, conn := newTestSession(c)
		defer s.Close()
		second, conn2 := newTestSession(c)
		defer second.Close()
		m := NewMultiMutex(NewMutex(s, "/a", MutexOptions{}), NewMutex(second, "/b", MutexOptions{}))
		mg, err := m.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := mg.Guard(t.Context()); !errors.Is(err, ErrNoGuard) {
			t.Errorf("Guard over two sessions = %v", err)
		}
		lost := mg.Lost()
		c.with(conn2.expireLocked)
		<-lost
		if err := mg.Err(); err != ErrExpired {
			t.Errorf("Err = %v", err)
		}
		if err := mg.Valid(t.Context()); !errors.Is(err, ErrExpired) {
			t.Errorf("Valid = %v", err)
		}
		if err := mg.Unlock(t.Context()); !errors.Is(err, ErrExpired) {
			t.Errorf("Unlock = %v", err)
		}
		wantEmpty(t, c)

		g := must(t, NewMutex(second, "/b", MutexOptions{}).Lock)
		failed := make(chan error)
		go func() {
			_, err := m.Lock(t.Context())
			failed <- err
		}()
		synctest.Wait()
		c.with(conn.expireLocked) // has /a, waits for /b
		if err := <-failed; !errors.Is(err, ErrExpired) || !strings.Contains(err.Error(), "waiting for /b") {
			t.Errorf("Lock = %v", err)
		}
		synctest.Wait()
		mustUnlock(t, g)
		wantEmpty(t, c)

		one := NewMultiMutex(NewMutex(s, "/a", MutexOptions{}), NewMutex(s, "/b", MutexOptions{}))
		if mg, err = one.Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		create := &zk.CreateRequest{Path: "/x"}
		if r, err := mg.Guard(t.Context(), create); err != nil || len(r) != 1 || r[0].String != "/x" {
			t.Errorf("Guard = %v, %v", r, err)
		}
		c.with(func() {
			clear(conn.watches)
			c.deleteLocked(mg.Grants()[1].Node(), -1)
		})
		create.Path = "/y"
		if _, err := mg.Guard(t.Context(), create); !errors.Is(err, ErrDeleted) || mg.Held() {
			t.Errorf("Guard = %v", err)
		}
		mg.Unlock(t.Context())
	})
}

// TestMultiDeadlock: contenders that name the locks in any order come through.
func TestMultiDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		var wg sync.WaitGroup
		for i := range 6 {
			s, _ := newTestSession(c)
			defer s.Close()
			rnd := rand.New(rand.NewPCG(1, uint64(i)))
			wg.Go(func() {
				for range 20 {
					var locks []Locker
					for _, p := range rnd.Perm(4) {
						locks = append(locks, NewMutex(s, "/l"+string(rune('a'+p)), MutexOptions{}))
					}
					mg, err := NewMultiMutex(locks[:2+rnd.IntN(3)]...).Lock(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Millisecond)
					if err := mg.Unlock(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		wantEmpty(t, c)
	})
}

// majority sets up n clusters and two contenders with a session at each.
func majority(n int) (clusters []*fakeCluster, conns [2][]*fakeConn, locks [2]*MajorityMutex, stop func()) {
	var sessions [2][]*Session
	for range n {
		c := newFakeCluster()
		clusters = append(clusters, c)
		for i := range 2 {
			s, conn := newTestSession(c)
			sessions[i], conns[i] = append(sessions[i], s), append(conns[i], conn)
		}
	}
	for i := range 2 {
		locks[i] = NewMajorityMutex("/a", MajorityOptions{}, sessions[i]...)
	}
	return clusters, conns, locks, func() {
		for _, s := range slices.Concat(sessions[0], sessions[1]) {
			s.Close()
		}
	}
}

// goDown ends all connections to the cluster; none is possible again before that time has passed.
func (c *fakeCluster) goDown(d time.Duration) {
	c.with(func() {
		for _, conn := range c.conns {
			conn.reconnect = d
			conn.cutLocked()
		}
	})
}

func TestMajorityMutex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clusters, conns, locks, stop := majority(3)
		defer stop()
		mg, err := locks[0].Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if slices.Contains(mg.Tokens(), 0) {
			t.Errorf("tokens %v: not all have joined", mg.Tokens())
		}
		if _, err := locks[1].TryLock(t.Context()); !errors.Is(err, ErrLocked) {
			t.Errorf("TryLock = %v", err)
		}
		next := make(chan *MultiGrant)
		go func() {
			mg, err := locks[1].Lock(t.Context())
			if err != nil {
				t.Error(err)
			}
			next <- mg
		}()
		// One cluster goes, for long: nothing happens.
		clusters[0].goDown(time.Hour)
		time.Sleep(time.Minute)
		if err := mg.Err(); err != nil {
			t.Errorf("a minority is gone: %v", err)
		}
		if err := mg.Grants()[0].Err(); err != ErrSilent {
			t.Errorf("the grant of the cluster that is gone: %v", err)
		}
		select {
		case <-next:
			t.Error("two majorities")
		default:
		}
		// The holder's sessions at another one expire: lost.
		clusters[1].with(conns[0][1].expireLocked)
		synctest.Wait()
		if err := mg.Err(); err != ErrExpired {
			t.Errorf("the majority is gone: %v", err)
		}
		// The next one needs it and the third.
		if len(next) > 0 {
			t.Error("two majorities")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := mg.Unlock(ctx); !errors.Is(err, ErrExpired) {
			t.Errorf("Unlock = %v", err)
		}
		mg2 := <-next
		if tok := mg2.Tokens(); tok[0] != 0 || tok[1] <= mg.Tokens()[1] || tok[2] <= mg.Tokens()[2] {
			t.Errorf("tokens %v after %v", tok, mg.Tokens())
		}
		// The first cluster comes back and joins.
		time.Sleep(2 * time.Hour)
		if slices.Contains(mg2.Tokens(), 0) {
			t.Errorf("tokens %v", mg2.Tokens())
		}
		if err := mg2.Valid(t.Context()); err != nil {
			t.Error(err)
		}
		if err := mg2.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		for _, c := range clusters {
			wantEmpty(t, c)
		}
	})
}

// TestMajorityMutexWithoutMajority: no lock, and nothing left behind.
func TestMajorityMutexWithoutMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clusters, _, locks, stop := majority(3)
		defer stop()
		clusters[0].goDown(time.Hour)
		clusters[1].goDown(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := locks[0].Lock(ctx); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrLocked) {
			t.Errorf("Lock without a majority = %v", err)
		}
		synctest.Wait()
		wantEmpty(t, clusters[2])
		if _, err := NewMajorityMutex("/a", MajorityOptions{}).Lock(t.Context()); err == nil {
			t.Error("Lock without clusters = nil")
		}
	})
}

// TestMajorityContention: clusters that answer at different speeds split the
// contenders; they come through all the same, one at a time, and a resource that
// compares the tokens as documented refuses late writes.
func TestMajorityContention(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		clusters, conns, locks, stop := majority(4)
		defer stop()
		var mu sync.Mutex
		rnd := rand.New(rand.NewPCG(seed, 0))
		for _, conn := range slices.Concat(conns[0], conns[1]) {
			conn.hook = func(int, string, string) fault {
				mu.Lock()
				d := time.Duration(rnd.IntN(20)) * time.Millisecond
				mu.Unlock()
				time.Sleep(d)
				return faultNone
			}
		}
		inside, newest := 0, make([]int64, len(clusters))
		var wg sync.WaitGroup
		for _, l := range locks {
			wg.Go(func() {
				for range 15 {
					mg, err := l.Lock(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					tokens := mg.Tokens()
					mu.Lock()
					if inside++; inside > 1 {
						t.Error("two inside")
					}
					for i, token := range tokens {
						if token != 0 && token <= newest[i] {
							t.Errorf("tokens %v after %v", tokens, newest)
						}
						newest[i] = max(newest[i], token)
					}
					mu.Unlock()
					time.Sleep(50 * time.Millisecond)
					mu.Lock()
					inside--
					mu.Unlock()
					if err := mg.Unlock(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		for _, c := range clusters {
			wantEmpty(t, c)
		}
	})
}
