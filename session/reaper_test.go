package session

import (
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

func TestReaperDeletesWhatHasOutlivedItsPurpose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{Reap: Reap{Interval: 10 * time.Second}})
		c := mustConnect(t, m, 40*time.Second)
		c.pingEvery(10 * time.Second)
		next := func(want string) {
			t.Helper()
			for {
				h, body, err := c.next()
				if err != nil {
					t.Fatal(err)
				}
				if h.Xid == wire.XidPing {
					continue
				}
				var e wire.WatcherEvent
				if h.Xid != wire.XidNotification || wire.Decode(body, &e) != nil || e.Type.String()+" "+e.Path != want {
					t.Fatalf("got %+v %+v, want %s", h, e, want)
				}
				return
			}
		}
		c.send(wire.OpCreateContainer, create("/c", wire.ModeContainer))
		c.send(wire.OpCreateContainer, create("/c/d", wire.ModeContainer))
		c.send(wire.OpCreateContainer, create("/never", wire.ModeContainer))
		c.send(wire.OpCreate, create("/c/d/e", wire.ModePersistent))
		c.expect("1 Ok", "2 Ok", "3 Ok", "4 Ok")
		c.send(wire.OpAddWatch, wire.AddWatchRequest{Path: "/", Mode: wire.AddWatchPersistentRecursive})
		c.expect("5 Ok")
		time.Sleep(time.Minute)
		emptied := time.Now()
		c.send(wire.OpDelete, wire.DeleteRequest{Path: "/c/d/e", Version: -1})
		next("NodeDeleted /c/d/e")
		if h, _, err := c.next(); err != nil || h.Err != 0 {
			t.Fatal(h, err)
		}
		next("NodeDeleted /c/d")
		next("NodeDeleted /c") // a candidate only since the run before
		if d := time.Since(emptied); d < 10*time.Second || d > 20*time.Second {
			t.Fatalf("both gone after %v", d)
		}
	})
}

// TTL nodes live by the cluster's clock (C8): this member's wall clock, wherever it is, neither
// deletes them early nor keeps them.
//
// Defends: C8.
func TestWallClockOfTheLeaderReapsNothing(t *testing.T) {
	for _, off := range []time.Duration{87600 * time.Hour, -87600 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			m, r := newMember(t, Config{Reap: Reap{Interval: time.Second}, Now: func() time.Time { return time.Now().Add(off) }})
			r.flags = znode.ExtendedTypes
			c := mustConnect(t, m, 40*time.Second)
			c.pingEvery(10 * time.Second)
			c.send(wire.OpCreateTTL, wire.CreateTTLRequest{Path: "/t", ACL: wire.OpenACL, Mode: wire.ModePersistentTTL, TTL: 60_000})
			c.expect("1 Ok")
			there := func() (ok bool) {
				r.View(func(s *znode.Store) { _, ok = s.Node("/t") })
				return ok
			}
			if time.Sleep(59 * time.Second); !there() {
				t.Errorf("a wall clock that is off by %v has deleted a node with a TTL of a minute within it", off)
			}
			if time.Sleep(3 * time.Second); there() {
				t.Errorf("a wall clock that is off by %v keeps a node with a TTL of a minute", off)
			}
		})
	}
}

// Without any write the reaper brings the cluster's clock into the log while there are TTL nodes,
// so that a member that starts again knows their age.
func TestClockIsWrittenWhileNothingElseIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{Reap: Reap{Interval: time.Minute}})
		r.flags = znode.ExtendedTypes
		clockMs := func() (ms int64) {
			r.View(func(s *znode.Store) { ms = s.ClockMs() })
			return ms
		}
		c := mustConnect(t, m, 40*time.Second)
		c.pingEvery(10 * time.Second)
		time.Sleep(time.Hour)
		if at := clockMs(); at > 1000 {
			t.Errorf("the clock was written, %d ms after the start, for nothing", at)
		}
		c.send(wire.OpCreateTTL, wire.CreateTTLRequest{Path: "/t", ACL: wire.OpenACL, Mode: wire.ModePersistentTTL, TTL: 86_400_000})
		time.Sleep(10*time.Hour + time.Second)
		if behind := r.ClockMs() - clockMs(); behind > 61_000 {
			t.Errorf("the clock in the state is %d ms behind", behind)
		}
	})
}
