package session

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// However many requests of Sync there are, one command is under way, and none of them is answered
// by a command that was proposed before it came.
func TestSyncOutsideOfSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		r.setHold(true)
		var answered atomic.Int32
		ask := func() {
			go func() {
				if err := m.Sync(context.Background()); err != nil {
					t.Error(err)
				}
				answered.Add(1)
			}()
			synctest.Wait()
		}
		ask()
		for range 10 {
			ask()
		}
		if n := len(r.held); n != 1 {
			t.Fatalf("%d syncs are under way", n)
		}
		first := r.held
		r.held = nil
		r.apply(first...)
		synctest.Wait()
		if n := answered.Load(); n != 1 || len(r.held) != 1 {
			t.Fatalf("%d answered by the first sync, then %d under way", n, len(r.held))
		}
		r.setHold(false)
		synctest.Wait()
		if n := answered.Load(); n != 11 {
			t.Fatalf("%d answered", n)
		}
	})
}

// Without a leader Sync waits until its ctx ends; when a snapshot has swallowed the command it asks
// again.
func TestSyncThatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		r.setHold(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := m.Sync(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		done := make(chan error, 1)
		go func() { done <- m.Sync(context.Background()) }()
		synctest.Wait()
		r.ctl.Lock()
		r.held = nil // swallowed
		r.ctl.Unlock()
		r.View(func(s *znode.Store) { m.Restored(s) })
		synctest.Wait()
		r.setHold(false)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

// A sync of this kind leaves nothing behind.
func TestSyncChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		state := func() (zxid wire.Zxid, digest uint64) {
			r.View(func(s *znode.Store) { zxid, digest = s.Zxid(), s.TreeDigest() })
			return zxid, digest
		}
		zxid, digest := state()
		if err := m.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if z, d := state(); z != zxid || d != digest {
			t.Errorf("zxid %v then %v, digest %x then %x", zxid, z, digest, d)
		}
	})
}
