package session

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// entry is where a watch is, in the simplest of watch tables.
type entry struct {
	child bool
	path  string
	s     *connection
}

// watches is that table.
type watches map[entry]watchMode

func (w watches) add(e entry, mode watchMode) { w[e] |= mode }

func (w watches) drop(e entry, modes watchMode) {
	if w[e] &^= modes; w[e] == 0 {
		delete(w, e)
	}
}

// fire removes the watches that an event uses up, and returns the number of connections told.
func (w watches) fire(t wire.EventType, path string) int { return len(w.told(t, path)) }

// told removes the watches that an event uses up, and returns the connections told.
func (w watches) told(t wire.EventType, path string) map[*connection]bool {
	told := map[*connection]bool{}
	for e, mode := range w {
		above := strings.HasPrefix(path, strings.TrimSuffix(e.path, "/")+"/")
		switch {
		case e.path == path && (t == wire.EventNodeDeleted || e.child == (t == wire.EventNodeChildrenChanged)):
			told[e.s] = true
			defer w.drop(e, standard)
		case above && !e.child && mode&recursive != 0 && t != wire.EventNodeChildrenChanged:
			told[e.s] = true
		}
	}
	return told
}

func (w watches) counts() WatchCounts {
	c := WatchCounts{Watches: len(w)}
	sessions, paths := map[*connection]bool{}, map[string]bool{}
	for e := range w {
		if sessions[e.s] = true; !e.child {
			paths[e.path] = true
			c.DataWatches++
		}
	}
	c.Connections, c.Paths = len(sessions), len(paths)
	return c
}

// TestWatchTable holds the table of watches against the simplest one, with whatever is added,
// removed and fired.
func TestWatchTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{})
		var sessions []*connection
		for range 4 {
			sessions = append(sessions, &mustConnect(t, m, 10*time.Second).s.connection)
		}
		paths := []string{"/", "/a", "/a/b", "/a/b/c", "/a/e/c", "/d"}
		events := []wire.EventType{wire.EventNodeCreated, wire.EventNodeDeleted, wire.EventNodeDataChanged, wire.EventNodeChildrenChanged}
		rng := rand.New(rand.NewPCG(1, 2))
		want := watches{}
		for step := range 20_000 {
			path, s := paths[rng.IntN(len(paths))], sessions[rng.IntN(len(sessions))]
			data, child := entry{false, path, s}, entry{true, path, s}
			switch rng.IntN(8) {
			case 0, 1:
				mode := []watchMode{standard, standard, persistent, recursive}[rng.IntN(4)]
				m.watches.add(s, path, mode, 0)
				want.add(data, mode)
			case 2, 3:
				mode := []watchMode{standard, standard, persistent}[rng.IntN(3)]
				m.watches.add(s, path, 0, mode)
				want.add(child, mode)
			case 4:
				inData, inChild := watchMode(rng.IntN(8)), watchMode(rng.IntN(4))
				expected := want[data]&inData|want[child]&inChild != 0
				if got := m.watches.remove(s, path, inData, inChild); got != expected {
					t.Fatalf("step %d: remove %s: %v", step, path, got)
				}
				want.drop(data, inData)
				want.drop(child, inChild)
			default:
				var fired []znode.Event // of one multi
				expected := 0
				for range 1 + rng.IntN(3) {
					e := znode.Event{Type: events[rng.IntN(len(events))], Path: paths[rng.IntN(len(paths))]}
					fired = append(fired, e)
					expected += want.fire(e.Type, e.Path)
				}
				before := m.stats.PacketsSent
				m.watches.fire(fired)
				if told := int(m.stats.PacketsSent - before); told != expected {
					t.Fatalf("step %d: %v: %d were told, not %d", step, fired, told, expected)
				}
			}
			if got := m.watches.counts(); got != want.counts() {
				t.Fatalf("step %d: %+v, not %+v", step, got, want.counts())
			}
			for _, s := range sessions {
				for _, path := range paths {
					_, watched := s.watched[path]
					if expected := want[entry{false, path, s}]|want[entry{true, path, s}] != 0; watched != expected {
						t.Fatalf("step %d: %s is watched: %v, the connection says %v", step, path, expected, watched)
					}
				}
			}
		}
		for _, s := range sessions {
			m.watches.removeSome(s, 100)
		}
		if got := m.watches.counts(); got != (WatchCounts{}) || len(m.watches.recursive) != 0 {
			t.Fatalf("left in the end: %+v, %d recursive", got, m.watches.recursive)
		}
	})
}

// A multi has events of siblings, and of nodes far below recursive watches. Each ancestor is looked
// at once.
func TestAncestorsAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{})
		s := &mustConnect(t, m, 10*time.Second).s.connection
		for _, path := range []string{"/a", "/a/b", "/a/b/c"} {
			m.watches.add(s, path, recursive, 0)
		}
		w := &m.watches
		w.mu.Lock()
		defer w.mu.Unlock()
		paths := func(g *group) (list []string) {
			for ; g != nil; g = g.up {
				list = append(list, g.key.path)
			}
			return list
		}
		if above := paths(w.aboveLocked("/a/b/c/d/e/f")); !slices.Equal(above, []string{"/a/b/c", "/a/b", "/a"}) {
			t.Errorf("above a deep path: %v", above)
		}
		if len(w.fanout.known) != 3 {
			t.Errorf("%d ancestors are known, want the three that may be watched", len(w.fanout.known))
		}
		delete(w.data.at, "/a") // it is not looked at again
		if above := paths(w.aboveLocked("/a/x")); !slices.Equal(above, []string{"/a"}) {
			t.Errorf("above its sibling: %v", above)
		}
		w.fanout.reset()
	})
}

// Whether a connection may see an event of a node with an ACL takes long to find out when it has
// many identities. This is done when the event is sent, not while the state is locked, and neither
// the order nor what is counted differs.
func TestEventsForConnectionsWithManyIdentities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{})
		c, other := mustConnect(t, m, 10*time.Second), mustConnect(t, m, 10*time.Second)
		for i := range 2 * lookupsLocked {
			if code := c.s.login().identifyAll([]znode.Identity{{Scheme: "digest", ID: fmt.Sprintf("u%d:h", i)}}); code != wire.CodeOK {
				t.Fatal(code)
			}
		}
		only := func(user string) []wire.ACL {
			return []wire.ACL{
				{Perms: wire.PermRead, ID: wire.ID{Scheme: "digest", ID: user}},
				{Perms: wire.PermAll &^ wire.PermRead, ID: wire.ID{Scheme: "world", ID: "anyone"}},
			}
		}
		c.send(wire.OpAddWatch, wire.AddWatchRequest{Path: "/", Mode: wire.AddWatchPersistentRecursive})
		c.expect("1 Ok")
		other.send(wire.OpCreate, wire.CreateRequest{Path: "/mine", ACL: only("u1:h")})
		other.send(wire.OpCreate, wire.CreateRequest{Path: "/theirs", ACL: only("v:h")})
		other.send(wire.OpCreate, wire.CreateRequest{Path: "/open", ACL: wire.OpenACL})
		other.expect("1 Ok", "2 Ok", "3 Ok")
		c.send(wire.OpExists, wire.PathWatchRequest{Path: "/theirs"})
		c.expect("NodeCreated /mine", "NodeCreated /open", "2 NoAuth")
		synctest.Wait()
		if n := m.gate.Memory.Held(); n != 0 || c.unsent() != 0 {
			t.Errorf("%d bytes are still counted, %d of the connection", n, c.unsent())
		}

		may := false
		ids := *c.s.ids.Load()
		for _, test := range []struct {
			acl   []wire.ACL
			asked bool
		}{{only("v:h"), true}, {wire.OpenACL, false}} {
			store := znode.New()
			store.Apply(1, &znode.Entry{Commands: []znode.Command{{Session: 1, Body: &znode.CreateSession{Connection: znode.Connection{Addr: "10.0.0.1"}}}}}, nil)
			store.Apply(1, &znode.Entry{Commands: []znode.Command{{Session: 1, Generation: 1, Seq: 1,
				Body: &znode.Request{Op: wire.OpCreate, Body: wire.CreateRequest{Path: "/n", ACL: test.acl}.Append(nil)}}}}, func(_ *znode.Command, r *znode.Result) {
				may = r.Events[0].Lookups(ids) > lookupsLocked
			})
			if may != test.asked {
				t.Errorf("%v is asked later: %v", test.acl, may)
			}
		}
	})
}

// A client that sets its watches again is told neither that nodes are there which it may not read
// (CVE-2026-59739), nor whether they have changed since a zxid of its choice, which would tell
// when. Its watches are set all the same.
func TestSetWatchesTellsNothingOfUnreadableNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		c, owner := mustConnect(t, m, 10*time.Second), mustConnect(t, m, 10*time.Second)
		owner.send(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: []byte("me:pw")})
		owner.send(wire.OpCreate, &wire.CreateRequest{Path: "/mine", ACL: digestACL("me:pw")})
		owner.send(wire.OpCreate, create("/open", wire.ModePersistent))
		owner.expect("1 Ok", "2 Ok", "3 Ok")
		var zxid wire.Zxid
		r.View(func(s *znode.Store) { zxid = s.Zxid() })
		for i, relative := range []wire.Zxid{0, 1, zxid - 1, zxid, zxid + 1} {
			c := mustConnect(t, m, 10*time.Second)
			c.send(wire.OpSetWatches2, wire.SetWatchesRequest{V2: true, RelativeZxid: relative, Data: []string{"/mine"},
				Exist: []string{"/mine"}, Child: []string{"/mine"}, Persistent: []string{}, PersistentRecursive: []string{}})
			c.expect("1 Ok")
			for _, kind := range []int32{wire.WatchTypeData, wire.WatchTypeChildren} {
				c.send(wire.OpCheckWatches, wire.WatchesRequest{Path: "/mine", Type: kind})
			}
			c.expect("2 Ok", "3 Ok")
			if i > 0 {
				continue
			}
			// One with the right is told.
			owner.send(wire.OpSetWatches, wire.SetWatchesRequest{RelativeZxid: 0, Data: []string{"/mine"}, Exist: []string{"/mine"},
				Child: []string{"/mine"}})
			owner.expect("NodeDataChanged /mine", "NodeCreated /mine", "NodeChildrenChanged /mine", "4 Ok")
		}
		c.send(wire.OpSetWatches, wire.SetWatchesRequest{RelativeZxid: 0, Data: []string{"/open"}, Exist: []string{}, Child: []string{}})
		c.expect("NodeDataChanged /open", "1 Ok")
	})
}

// A recursive watch names no node below one that the client may not read, though the node itself is
// open: the client could not list it.
func TestRecursiveWatchesNameNothingHidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{})
		stranger, owner := mustConnect(t, m, 10*time.Second), mustConnect(t, m, 10*time.Second)
		inner, exact := mustConnect(t, m, 10*time.Second), mustConnect(t, m, 10*time.Second)
		recursively := func(c *client, path string) {
			c.send(wire.OpAddWatch, wire.AddWatchRequest{Path: path, Mode: wire.AddWatchPersistentRecursive})
		}
		owner.send(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: []byte("me:pw")})
		owner.send(wire.OpCreate, &wire.CreateRequest{Path: "/mine", ACL: digestACL("me:pw")})
		recursively(owner, "/mine")
		owner.expect("1 Ok", "2 Ok", "3 Ok")
		recursively(stranger, "/")
		stranger.expect("1 Ok")
		recursively(inner, "/")
		recursively(inner, "/mine/d")
		inner.expect("1 Ok", "2 Ok")
		exact.send(wire.OpAddWatch, wire.AddWatchRequest{Path: "/mine/d/x", Mode: wire.AddWatchPersistent})
		exact.expect("1 Ok")

		owner.send(wire.OpCreate, create("/mine/d", wire.ModePersistent))
		owner.send(wire.OpCreate, create("/mine/d/x", wire.ModePersistent))
		owner.send(wire.OpSetData, wire.SetDataRequest{Path: "/mine/d/x", Version: -1})
		owner.send(wire.OpMulti, wire.MultiRequest{Ops: []wire.MultiOp{
			{Op: wire.OpDelete, Record: &wire.DeleteRequest{Path: "/mine/d/x", Version: -1}},
			{Op: wire.OpDelete, Record: &wire.DeleteRequest{Path: "/mine/d", Version: -1}},
			{Op: wire.OpDelete, Record: &wire.DeleteRequest{Path: "/mine", Version: -1}},
		}})
		owner.expect("NodeCreated /mine/d", "4 Ok", "NodeCreated /mine/d/x", "5 Ok", "NodeDataChanged /mine/d/x", "6 Ok",
			"NodeDeleted /mine/d/x", "NodeDeleted /mine/d", "NodeDeleted /mine", "7 Ok")
		// It has named the path, and may read the nodes from there on.
		inner.expect("NodeCreated /mine/d", "NodeCreated /mine/d/x", "NodeDataChanged /mine/d/x", "NodeDeleted /mine/d/x", "NodeDeleted /mine/d")
		exact.expect("NodeCreated /mine/d/x", "NodeDataChanged /mine/d/x", "NodeDeleted /mine/d/x")

		owner.send(wire.OpCreate, create("/open", wire.ModePersistent))
		stranger.expect("NodeCreated /open")
	})
}
