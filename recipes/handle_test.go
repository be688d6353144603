package recipes

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, conn := newTestSession(c)
		defer s.Close()
		m := NewMutex(s, "/a", MutexOptions{})
		h := m.Handle()
		g := must(t, h.Lock)
		if must(t, h.Lock) != g || must(t, h.TryLock) != g {
			t.Error("another grant for the same handle")
		}
		if _, err := m.Handle().TryLock(t.Context()); !errors.Is(err, ErrLocked) {
			t.Errorf("TryLock by another handle = %v", err)
		}
		for range 2 {
			if err := h.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
			wantHeld(t, g)
		}
		if err := h.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		wantLost(t, g, ErrReleased)
		if err := h.Unlock(t.Context()); !errors.Is(err, ErrNotHeld) {
			t.Errorf("Unlock once more = %v, want ErrNotHeld", err)
		}
		wantEmpty(t, c)

		// Two goroutines with one handle wait for the one place in the queue.
		front := mustLock(t, m)
		one, two := later(t, h.Lock), later(t, h.Lock)
		if _, err := h.TryLock(t.Context()); !errors.Is(err, ErrLocked) {
			t.Errorf("TryLock while another waits = %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock = %v", err)
		}
		if n := len(c.paths()); n != 2 {
			t.Errorf("%d nodes, want 2", n)
		}
		mustUnlock(t, front)
		if g = <-one; <-two != g {
			t.Error("another grant for the same handle")
		}
		// Lost: nobody gets in by it again before all are out.
		c.with(conn.expireLocked)
		synctest.Wait()
		for range 2 {
			if _, err := h.Lock(t.Context()); !errors.Is(err, ErrExpired) {
				t.Errorf("Lock of what was lost = %v", err)
			}
			h.Unlock(t.Context())
		}
		must(t, h.Lock)
		if err := h.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		wantEmpty(t, c)
	})
}

func TestRWHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, _ := newTestSession(c)
		defer s.Close()
		m := NewRWMutex(s, "/a", MutexOptions{})
		h := m.Handle()
		r := must(t, h.RLock)
		if must(t, h.TryRLock) != r || r.Kind() != KindRead {
			t.Error("another grant for the same handle")
		}
		if _, err := h.Lock(t.Context()); !errors.Is(err, ErrUpgrade) {
			t.Errorf("Lock by a reader = %v, want ErrUpgrade", err)
		}
		mustUnlock(t, must(t, m.TryRLock))
		h.Unlock(t.Context())
		h.Unlock(t.Context())
		wantLost(t, r, ErrReleased)

		w := must(t, h.Lock)
		if must(t, h.RLock) != w || w.Kind() != KindWrite {
			t.Error("a writer that reads has another grant")
		}
		if err := w.Downgrade(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := h.TryLock(t.Context()); !errors.Is(err, ErrUpgrade) {
			t.Errorf("TryLock after Downgrade = %v, want ErrUpgrade", err)
		}
		h.Unlock(t.Context())
		h.Unlock(t.Context())
		wantEmpty(t, c)
	})
}

func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, conn := newTestSession(c)
		defer s.Close()
		m := NewMutex(s, "/a", MutexOptions{})
		// Runs again after each loss, with a larger token, and one at a time.
		var tokens []int64
		err := Hold(t.Context(), m, func(ctx context.Context, g *Grant) error {
			if len(tokens) > 0 && g.Token() <= tokens[len(tokens)-1] {
				t.Errorf("token %d after %v", g.Token(), tokens)
			}
			tokens = append(tokens, g.Token())
			wantHeld(t, g)
			if len(tokens) == 4 {
				return nil
			}
			go c.with(conn.expireLocked)
			<-ctx.Done()
			if err := context.Cause(ctx); err != ErrExpired {
				t.Errorf("cause %v", err)
			}
			time.Sleep(time.Minute) // it takes its time
			return context.Cause(ctx)
		})
		if err != nil || len(tokens) != 4 {
			t.Errorf("Hold = %v after %d runs", err, len(tokens))
		}
		wantEmpty(t, c)

		// Its own error, while it holds.
		mine := errors.New("mine")
		if err := Hold(t.Context(), m, func(context.Context, *Grant) error { return mine }); err != mine {
			t.Errorf("Hold = %v", err)
		}
		// It finished, but without the lock.
		err = Hold(t.Context(), m, func(ctx context.Context, g *Grant) error {
			c.delete(g.Node())
			<-ctx.Done()
			return nil
		})
		if !errors.Is(err, ErrDeleted) {
			t.Errorf("Hold = %v, want ErrDeleted", err)
		}
		// ctx ends, while it runs and while it waits.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err = Hold(ctx, m, func(ctx context.Context, g *Grant) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Hold = %v", err)
		}
		cancel()
		synctest.Wait()
		wantEmpty(t, c)
		g := mustLock(t, m)
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := Hold(ctx, m, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Hold = %v", err)
		}
		mustUnlock(t, g)
		// A panic leaves nothing behind.
		func() {
			defer func() { recover() }()
			Hold(t.Context(), m, func(context.Context, *Grant) error { panic("x") })
		}()
		wantEmpty(t, c)
	})
}
