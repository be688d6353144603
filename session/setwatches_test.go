package session

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// missing is a list of n paths of which no node is there.
func missing(n int) []string {
	paths := make([]string, n)
	for i := range paths {
		paths[i] = fmt.Sprintf("/missing%d", i)
	}
	return paths
}

// A setWatches with many paths gives up the state's lock between steps. What changes meanwhile is
// told once, after what changed before it and before the reply.
func TestSetWatchesInSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		c, other := mustConnect(t, m, 10*time.Second), mustConnect(t, m, 10*time.Second)
		for i, path := range []string{"/a", "/b", "/c"} {
			other.send(wire.OpCreate, create(path, wire.ModePersistent))
			other.expect(fmt.Sprintf("%d Ok", i+1))
		}
		var seen wire.Zxid
		r.View(func(s *znode.Store) { seen = s.Zxid() })
		steps := 0
		r.viewed = func() {
			if steps++; steps == 1 {
				viewed := r.viewed
				r.viewed = nil
				// of a path that has not been looked at
				other.send(wire.OpCreate, create("/a/child", wire.ModePersistent))
				other.send(wire.OpSetData, wire.SetDataRequest{Path: "/b", Version: -1})
				other.send(wire.OpSetData, wire.SetDataRequest{Path: "/c", Version: -1})
				other.send(wire.OpDelete, wire.DeleteRequest{Path: "/c", Version: -1})
				r.viewed = viewed
			}
		}
		c.send(wire.OpSetWatches2, wire.SetWatchesRequest{V2: true, RelativeZxid: seen, Data: []string{"/b"}, Exist: missing(4 * setWatchesStep),
			Child: []string{"/a"}, Persistent: []string{"/c"}, PersistentRecursive: []string{"/d"}})
		if r.viewed = nil; steps != 5 {
			t.Errorf("the state was locked %d times", steps)
		}
		c.expect("NodeChildrenChanged /a", "NodeDataChanged /b", "1 Ok")
		// its watch is used up
		other.send(wire.OpSetData, wire.SetDataRequest{Path: "/b", Version: -1})
		other.send(wire.OpCreate, create("/c", wire.ModePersistent))
		other.send(wire.OpCreate, create("/missing3999", wire.ModePersistent))
		c.expect("NodeCreated /c", "NodeCreated /missing3999")
		if n := m.watches.counts().Watches; n != 4*setWatchesStep+2 {
			t.Errorf("%d watches are left", n)
		}
	})
}

// A connection that ends while its watches are being set leaves none, and nothing that counts as
// unsent.
func TestConnectionEndsDuringSetWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		c := mustConnect(t, m, 10*time.Second)
		steps := 0
		r.viewed = func() {
			if steps++; steps == 2 {
				c.s.Detach()
			}
		}
		c.send(wire.OpSetWatches, wire.SetWatchesRequest{Data: []string{}, Exist: missing(4 * setWatchesStep), Child: []string{}})
		r.viewed = nil
		synctest.Wait()
		if n := m.watches.counts().Watches; steps != 2 || n != 0 {
			t.Errorf("%d watches are left after %d steps", n, steps)
		}
	})
}

// The watches of a connection that has ended are forgotten a part at a time: an event waits for one
// part at the most.
func TestManyWatchesAreForgottenInSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{})
		c := mustConnect(t, m, 10*time.Second)
		c.send(wire.OpSetWatches, wire.SetWatchesRequest{Data: []string{}, Exist: missing(3 * removeStep), Child: []string{}})
		c.expect("1 Ok")
		if done := m.watches.removeSome(c.s, removeStep); done || m.watches.counts().Watches != 2*removeStep {
			t.Errorf("%d watches are left", m.watches.counts().Watches)
		}
		c.detach()
		synctest.Wait()
		if n := m.watches.counts().Watches; n != 0 {
			t.Errorf("%d watches are left in the end", n)
		}
	})
}
