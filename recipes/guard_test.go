package recipes

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
)

func TestGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, conn, g := heldBy(t)
		defer s.Close()
		if _, err := conn.Create("/data", []byte("0"), 0, nil); err != nil {
			t.Fatal(err)
		}
		set := func(data string) *zk.SetDataRequest {
			return &zk.SetDataRequest{Path: "/data", Data: []byte(data), Version: -1}
		}
		data := func() string {
			b, _, err := conn.Get("/data")
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		results, err := g.Guard(t.Context(), set("1"), &zk.CreateRequest{Path: "/more", Flags: 0})
		if err != nil || len(results) != 2 || results[0].Stat.Version != 1 || results[1].String != "/more" {
			t.Errorf("Guard = %+v, %v", results, err)
		}
		if data() != "1" {
			t.Errorf("data %q", data())
		}
		// An op's own error is that, and no loss.
		results, err = g.Guard(t.Context(), set("2"), &zk.DeleteRequest{Path: "/not-there", Version: -1})
		if !errors.Is(err, zk.ErrNoNode) || len(results) != 2 || !errors.Is(results[1].Error, zk.ErrNoNode) {
			t.Errorf("Guard = %+v, %v", results, err)
		}
		wantHeld(t, g)

		// A reply that is lost.
		c.with(func() {
			n := conn.calls
			conn.hook = func(i int, op, path string) fault {
				if i == n {
					return faultCutAfter
				}
				return faultNone
			}
		})
		if _, err = g.Guard(t.Context(), set("3")); !errors.Is(err, ErrUnknown) {
			t.Errorf("Guard = %v, want ErrUnknown", err)
		}
		if data() != "3" {
			t.Errorf("data %q", data())
		}
		// A ctx that ends.
		c.with(func() { conn.hook = func(int, string, string) fault { time.Sleep(time.Second); return faultNone } })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		if _, err = g.Guard(ctx, set("4")); !errors.Is(err, ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Guard = %v, want ErrUnknown and the deadline", err)
		}
		time.Sleep(time.Second)
		c.with(func() { conn.hook = nil })

		// The node goes, and nobody has told us yet.
		c.with(func() {
			clear(conn.watches)
			c.deleteLocked(g.Node(), -1)
		})
		wantHeld(t, g)
		if _, err := g.Guard(t.Context(), set("5")); !errors.Is(err, ErrDeleted) {
			t.Errorf("Guard = %v, want ErrDeleted", err)
		}
		if data() != "4" {
			t.Errorf("data %q: a stale holder has written", data())
		}
		wantLost(t, g, ErrDeleted)
		if _, err := g.Guard(t.Context(), set("6")); !errors.Is(err, ErrDeleted) || data() != "4" {
			t.Errorf("Guard = %v, data %q", err, data())
		}
		if g, err := NewSimpleMutex(s, "/simple", MutexOptions{}).Lock(t.Context()); err != nil {
			t.Error(err)
		} else if _, err := g.Guard(t.Context(), set("7")); !errors.Is(err, ErrNoGuard) {
			t.Errorf("Guard = %v, want ErrNoGuard", err)
		}
	})
}

// TestGuardLate: the request of a guard that is under way when the session ends is
// refused, though it is carried over into the next session.
func TestGuardLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, conn, g := heldBy(t)
		defer s.Close()
		if _, err := conn.Create("/data", nil, 0, nil); err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		c.with(conn.cutLocked)
		go func() {
			_, err := g.Guard(t.Context(), &zk.SetDataRequest{Path: "/data", Data: []byte("late"), Version: -1})
			done <- err
		}()
		synctest.Wait() // for a connection
		c.with(conn.expireLocked)
		if err := <-done; !errors.Is(err, ErrExpired) {
			t.Errorf("Guard = %v, want ErrExpired", err)
		}
		if data, _, _ := conn.Get("/data"); len(data) > 0 {
			t.Errorf("data %q", data)
		}
	})
}

func TestValid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, conn, g := heldBy(t)
		defer s.Close()
		for range 3 {
			if err := g.Valid(t.Context()); err != nil {
				t.Error(err)
			}
			c.with(conn.cutLocked)
		}
		// Somebody puts a node in front.
		c.with(func() {
			if _, err := c.createLocked("/a/x-lock--000000001", nil, zk.FlagEphemeral, 77); err != nil {
				t.Fatal(err)
			}
		})
		if err := g.Valid(t.Context()); err != nil { // which has no number
			t.Error(err)
		}
		mustUnlock(t, g)
		if err := g.Valid(t.Context()); !errors.Is(err, ErrReleased) {
			t.Errorf("Valid = %v, want ErrReleased", err)
		}
		g = mustLock(t, NewMutex(s, "/a", MutexOptions{}))
		c.with(func() { c.createLocked("/a/x-lock-0000000000", nil, zk.FlagEphemeral, 77) })
		if err := g.Valid(t.Context()); !errors.Is(err, ErrOvertaken) {
			t.Errorf("Valid = %v, want ErrOvertaken", err)
		}
		wantLost(t, g, ErrOvertaken)
		g.Unlock(t.Context())

		// Deleted, and nobody has told us.
		g = must(t, NewRWMutex(s, "/b", MutexOptions{}).RLock)
		c.with(func() {
			clear(conn.watches)
			c.deleteLocked(g.Node(), -1)
		})
		wantHeld(t, g)
		if err := g.Valid(t.Context()); !errors.Is(err, ErrDeleted) {
			t.Errorf("Valid = %v, want ErrDeleted", err)
		}
		wantLost(t, g, ErrDeleted)

		// No answer is no verdict.
		g = mustLock(t, NewMutex(s, "/c", MutexOptions{}))
		c.with(func() {
			conn.reconnect = testTimeout / 2
			conn.cutLocked()
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Valid(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Valid = %v", err)
		}
		wantHeld(t, g)
		if err := g.Valid(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
