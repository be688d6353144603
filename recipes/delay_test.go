package recipes

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

const testDelay = 20 * time.Second

func delayed(s *Session) *Mutex { return NewMutex(s, "/a", MutexOptions{LockDelay: testDelay}) }

// wantAfter checks that a lock is granted after a time, to the millisecond of the
// cluster's clock.
func wantAfter(t *testing.T, start time.Time, next <-chan *Grant, want time.Duration) *Grant {
	t.Helper()
	g := <-next
	if d := time.Since(start); d < want || d > want+50*time.Millisecond {
		t.Errorf("granted after %v, want %v", d, want)
	}
	return g
}

func TestLockDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		a, conn := newTestSession(c)
		defer a.Close()
		b, _ := newTestSession(c)
		defer b.Close()
		// Orderly: no delay.
		g := mustLock(t, delayed(a))
		next := later(t, delayed(b).Lock)
		start := time.Now()
		mustUnlock(t, g)
		mustUnlock(t, wantAfter(t, start, next, 0))
		wantEmpty(t, c)
		// Vanished, while one waits.
		g = mustLock(t, delayed(a))
		next = later(t, delayed(b).Lock)
		start = time.Now()
		c.with(conn.expireLocked)
		synctest.Wait()
		wantLost(t, g, ErrExpired)
		_, err := delayed(a).TryLock(t.Context())
		if !errors.Is(err, ErrLocked) {
			t.Errorf("TryLock = %v", err)
		}
		mustUnlock(t, wantAfter(t, start, next, testDelay))
		wantEmpty(t, c)
		// A Mutex without it does not wait.
		mustLock(t, delayed(a))
		c.with(conn.expireLocked)
		mustUnlock(t, must(t, NewMutex(b, "/a", MutexOptions{}).TryLock))
		// A node that is deleted is no release either.
		start = time.Now()
		g = mustLock(t, delayed(b))
		if d := time.Since(start); d < testDelay { // of the one before
			t.Errorf("granted after %v", d)
		}
		c.delete(g.Node())
		start = time.Now()
		mustUnlock(t, wantAfter(t, start, later(t, delayed(a).Lock), testDelay))
		wantEmpty(t, c)
	})
}

// TestLockDelayGivenUp: those who come and give up while the delay runs do not make
// it start again, and who comes when it is over does not wait.
func TestLockDelayGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		a, conn := newTestSession(c)
		defer a.Close()
		mustLock(t, delayed(a))
		c.with(conn.expireLocked)
		start := time.Now()
		for time.Since(start) < testDelay-time.Second {
			b, _ := newTestSession(c)
			_, err := delayed(b).TryLock(t.Context())
			if !errors.Is(err, ErrDelayed) || !errors.Is(err, ErrLocked) {
				t.Fatalf("TryLock = %v, want ErrDelayed", err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
			if _, err := delayed(b).Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("Lock = %v", err)
			}
			cancel()
			synctest.Wait()
			b.Close()
		}
		b, _ := newTestSession(c)
		defer b.Close()
		mustUnlock(t, wantAfter(t, start, later(t, delayed(b).Lock), testDelay))

		mustLock(t, delayed(b))
		b.Close() // no release
		if _, err := delayed(a).TryLock(t.Context()); !errors.Is(err, ErrDelayed) {
			t.Errorf("TryLock = %v", err)
		}
		time.Sleep(testDelay)
		mustUnlock(t, must(t, delayed(a).TryLock))
		wantEmpty(t, c)
	})
}

// TestLockDelayWaiters: the contender that sits out the delay vanishes itself; it
// has never held the lock, so that the next one waits for the rest only.
func TestLockDelayWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		a, conna := newTestSession(c)
		defer a.Close()
		b, connb := newTestSession(c)
		defer b.Close()
		d, _ := newTestSession(c)
		defer d.Close()
		mustLock(t, delayed(a))
		failed := make(chan error)
		go func() {
			_, err := delayed(b).Lock(t.Context())
			failed <- err
		}()
		synctest.Wait()
		next := later(t, delayed(d).Lock)
		c.with(conna.expireLocked)
		start := time.Now()
		time.Sleep(testDelay / 2)
		c.with(connb.expireLocked)
		if err := <-failed; !errors.Is(err, ErrExpired) {
			t.Errorf("Lock = %v", err)
		}
		// It was in the queue before the loss was noted, so that it cannot compare
		// the cluster's times; it counts from when it got to see the note.
		g := <-next
		if w := time.Since(start); w < testDelay || w > testDelay*3/2+time.Second {
			t.Errorf("granted after %v", w)
		}
		mustUnlock(t, g)
		wantEmpty(t, c)
	})
}

// TestLockDelayReaders: readers respect a writer's delay, and leave none; a writer
// that only reads by now leaves none either.
func TestLockDelayReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		a, conn := newTestSession(c)
		defer a.Close()
		b, _ := newTestSession(c)
		defer b.Close()
		opts := MutexOptions{LockDelay: testDelay}
		ma, mb := NewRWMutex(a, "/a", opts), NewRWMutex(b, "/a", opts)
		must(t, ma.Lock)
		r1, r2 := later(t, mb.RLock), later(t, mb.RLock)
		c.with(conn.expireLocked)
		start := time.Now()
		g1, g2 := wantAfter(t, start, r1, testDelay), wantAfter(t, start, r2, testDelay)
		mustUnlock(t, g1)
		mustUnlock(t, g2)
		wantEmpty(t, c)

		must(t, ma.RLock)
		c.with(conn.expireLocked)
		mustUnlock(t, must(t, mb.TryLock))

		g := must(t, ma.Lock)
		if err := g.Downgrade(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.with(conn.expireLocked)
		mustUnlock(t, must(t, mb.TryLock))
		wantEmpty(t, c)
	})
}

func TestLockDelayLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, conn := newTestSession(c)
		defer s.Close()
		for _, d := range []time.Duration{-1, MaxLockDelay + 1} {
			if _, err := NewMutex(s, "/a", MutexOptions{LockDelay: d}).Lock(t.Context()); err == nil {
				t.Errorf("Lock with a delay of %v = nil", d)
			}
		}
		// A note that somebody has written over keeps nobody out for longer than it
		// should, nor does one that asks for too much.
		for _, text := range []string{"rubbish", `{"node":"/x","delayMs":999999999}`} {
			mustUnlock(t, mustLock(t, delayed(s)))
			if _, err := conn.Create("/"+delayName+"a", []byte(text), 0, nil); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			mustUnlock(t, mustLock(t, delayed(s)))
			if d := time.Since(start); d < testDelay || d > MaxLockDelay+time.Second {
				t.Errorf("%s: granted after %v", text, d)
			}
		}
		// One that somebody has deleted does not hinder the release.
		g := mustLock(t, delayed(s))
		c.delete("/" + delayName + "a")
		mustUnlock(t, g)
		wantEmpty(t, c)
		// One that cannot be deleted does not either, but the delay applies.
		g = mustLock(t, delayed(s))
		c.with(func() { c.createLocked("/"+delayName+"a/x", nil, 0, 0) })
		mustUnlock(t, g)
		if _, err := delayed(s).TryLock(t.Context()); !errors.Is(err, ErrDelayed) {
			t.Errorf("TryLock = %v", err)
		}
	})
}
