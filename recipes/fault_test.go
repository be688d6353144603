package recipes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// scenario has a and b fight for a lock. Every step may fail with one of the
// errors that mayFail lists; nothing else may go wrong.
func scenario(t *testing.T, a, b *Session, what testLock, mayFail ...error) {
	r := &referee{t: t}
	locks := map[*Session]testLocker{a: what.a(a, testPath), b: what.b(b, testPath)}
	lock := func(s *Session) testGrant {
		for try := 0; ; try++ {
			g, err := locks[s].Lock(t.Context())
			if err == nil {
				r.enter(g)
				return g
			}
			if try > 3 || !slices.ContainsFunc(mayFail, func(e error) bool { return errors.Is(err, e) }) {
				t.Fatal(err)
			}
		}
	}
	unlock := func(g testGrant) {
		if err := g.Unlock(t.Context()); err != nil &&
			!slices.ContainsFunc(mayFail, func(e error) bool { return errors.Is(err, e) }) {
			t.Error(err)
		}
		if g.Held() {
			t.Error("held after Unlock")
		}
	}
	next := make(chan testGrant)

	ga := lock(a)
	go func() { next <- lock(b) }()
	synctest.Wait()
	unlock(ga)
	gb := <-next
	go func() { next <- lock(a) }()
	synctest.Wait()
	unlock(gb)
	unlock(<-next)

	g, err := locks[a].TryLock(t.Context())
	if err == nil {
		r.enter(g)
		unlock(g)
	} else if !slices.ContainsFunc(mayFail, func(e error) bool { return errors.Is(err, e) }) {
		t.Error(err)
	}
}

// TestFaultAtEveryCall lets each fault hit each call of one of two contenders.
func TestFaultAtEveryCall(t *testing.T) {
	for _, lock := range testLocks {
		for what := faultNone + 1; what < faults; what++ {
			t.Run(fmt.Sprintf("%s/%v", lock.name, what), func(t *testing.T) {
				for at := 0; ; at++ {
					hit := ""
					ok := t.Run(fmt.Sprint(at), func(t *testing.T) { hit = faultAt(t, lock, what, at) })
					if hit == "" || !ok {
						if at < 12 && ok {
							t.Errorf("only %d calls: the scenario does not do what it should", at)
						}
						return
					}
				}
			})
		}
	}
}

// faultAt returns the call that was hit.
func faultAt(t *testing.T, lock testLock, what fault, at int) (hit string) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		a, conn := newTestSession(c)
		b, _ := newTestSession(c)
		defer a.Close()
		defer b.Close()
		conn.hook = func(n int, op, path string) fault {
			if n == at {
				hit = op + " " + path
				return what
			}
			return faultNone
		}
		scenario(t, a, b, lock, mayFail(what)...)
		time.Sleep(time.Second) // what goes on in the background
		if what == faultExpire || what == faultExpireAfter {
			c.delete("/locks/" + delayName + "a") // who has vanished leaves its note
		}
		wantEmpty(t, c)
		if t.Failed() {
			t.Logf("%v at call %d: %s", what, at, hit)
		}
	})
	return hit
}

func mayFail(what fault) []error {
	switch what {
	case faultExpire, faultExpireAfter:
		return []error{ErrExpired, ErrDelayed}
	case faultStrange:
		return []error{errStrange}
	}
	return nil
}

// TestFaultsAtRandom lets any number of faults hit both contenders.
func TestFaultsAtRandom(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	round := uint64(0)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d, round %d", seed, round)
		}
	})
	for i := range uint64(100 * len(testLocks)) {
		round = i
		what := testLocks[i%uint64(len(testLocks))]
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, i))
			var mu sync.Mutex
			c := newFakeCluster()
			a, conna := newTestSession(c)
			b, connb := newTestSession(c)
			defer a.Close()
			defer b.Close()
			left := 12 // so that it comes to an end
			hook := func(n int, op, path string) fault {
				mu.Lock()
				defer mu.Unlock()
				if left == 0 || rnd.IntN(4) > 0 {
					return faultNone
				}
				left--
				return faultNone + 1 + fault(rnd.IntN(int(faults-faultNone-1)))
			}
			conna.hook, connb.hook = hook, hook
			all := []error{ErrExpired, ErrSilent, errStrange, ErrLocked}
			if what.name == "simple" {
				all = append(all, ErrDeleted) // the gap that its documentation tells of
			}
			r := &referee{t: t}
			var wg sync.WaitGroup
			for _, lock := range []testLocker{what.a(a, testPath), what.b(b, testPath)} {
				wg.Go(func() {
					for range 4 {
						g, err := lock.Lock(t.Context())
						if err == nil {
							r.enter(g)
							time.Sleep(30 * time.Millisecond)
							err = g.Unlock(t.Context())
						}
						if err != nil && !slices.ContainsFunc(all, func(e error) bool { return errors.Is(err, e) }) {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			time.Sleep(5 * time.Second)
			c.delete("/locks/" + delayName + "a") // who has vanished leaves its note
			wantEmpty(t, c)
			if t.Failed() {
				t.Log(what.name)
			}
		})
	}
}

// TestCancelAtEveryCall ends the ctx of an acquire, or of the release, while
// each of the calls is under way, with and without the loss of its reply.
func TestCancelAtEveryCall(t *testing.T) {
	for _, lock := range testLocks {
		t.Run(lock.name, func(t *testing.T) { cancelAtEveryCall(t, lock) })
	}
}

func cancelAtEveryCall(t *testing.T, lock testLock) {
	for _, what := range []fault{faultNone, faultCutBefore, faultCutAfter, faultCutLate} {
		for at := 0; ; at++ {
			var hit atomic.Bool
			synctest.Test(t, func(t *testing.T) {
				c := newFakeCluster()
				other, _ := newTestSession(c)
				defer other.Close()
				s, conn := newTestSession(c)
				defer s.Close()
				g, err := lock.b(other, testPath).Lock(t.Context()) // so that it has to wait
				if err != nil {
					t.Fatal(err)
				}

				ctx, cancel := context.WithCancel(t.Context())
				conn.hook = func(n int, op, path string) fault {
					if n != at {
						return faultNone
					}
					hit.Store(true)
					cancel()
					time.Sleep(time.Second)
					return what
				}
				start := time.Now()
				done := make(chan error)
				go func() {
					g, err := lock.a(s, testPath).Lock(ctx)
					if err == nil {
						err = g.Unlock(ctx)
					}
					done <- err
				}()
				time.Sleep(100 * time.Millisecond)
				if err := g.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
				err = <-done
				if hit.Load() != errors.Is(err, context.Canceled) || err != nil && ctx.Err() == nil {
					t.Errorf("call %d, %v: %v", at, what, err)
				}
				if d := time.Since(start); d > 200*time.Millisecond {
					t.Errorf("call %d, %v: returned after %v, not when ctx ended", at, what, d)
				}
				time.Sleep(3 * time.Second)
				wantEmpty(t, c)
				cancel()
			})
			if !hit.Load() || t.Failed() {
				if at < 5 {
					t.Fatalf("only %d calls", at)
				}
				break
			}
		}
	}
}
