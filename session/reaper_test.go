package session

import (
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/wire"
)

func TestReaperDeletesWhatHasOutlivedItsPurpose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{ReapInterval: 10 * time.Second})
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
