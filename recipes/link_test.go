package recipes

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
)

// TestChangeUnknown: the outcome of a change is unknown if its request is under way when ctx ends,
// and known if it was never sent, or refused.
func TestChangeUnknown(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *fakeCluster, s []*Session, conns []*fakeConn) {
		k := s[0].link
		refused := k.change(t.Context(), func(context.Context, *lease) error { return zk.ErrNoAuth })
		if refused != zk.ErrNoAuth {
			t.Errorf("refused: %v", refused)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := k.change(ctx, func(ctx context.Context, _ *lease) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("under way: %v", err)
		}
		if err := k.change(ctx, nil); errors.Is(err, ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("never sent: %v", err)
		}
	})
}

// TestCallDrops: a result that comes after the end of ctx is dropped, once.
func TestCallDrops(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *fakeCluster, s []*Session, conns []*fakeConn) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		late, dropped := make(chan int), 0
		_, err := call(ctx, s[0].link, func(context.Context) (int, error) { return <-late, nil }, func(v int) { dropped += v })
		if err != context.DeadlineExceeded {
			t.Error(err)
		}
		late <- 7
		synctest.Wait()
		if dropped != 7 {
			t.Errorf("dropped %d, want 7", dropped)
		}
	})
}

// TestEndedLink: the first reason counts; nothing is started any more, and nobody waits.
func TestEndedLink(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *fakeCluster, s []*Session, conns []*fakeConn) {
		k := s[0].link
		l, err := k.ready(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		why := errors.Join(ErrClosed, zk.ErrAuthFailed)
		k.end(why)
		k.end(ErrClosed)
		if k.spawn(func() { t.Error("started") }) {
			t.Error("spawn = true")
		}
		for name, err := range map[string]error{
			"closed":   k.closed(),
			"over":     k.over(l),
			"pause":    k.pause(t.Context(), 1),
			"again":    k.again(t.Context(), nil, func() error { return nil }),
			"upToDate": func() error { _, err := k.upToDate(t.Context()); return err }(),
		} {
			if err != why {
				t.Errorf("%s: %v, want %v", name, err, why)
			}
		}
	})
}
