package session

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// fillDir makes a node at path with n children.
func fillDir(t *testing.T, c *client, path string, n int) {
	t.Helper()
	c.send(wire.OpCreate, create(path, wire.ModePersistent))
	if h, _, err := c.next(); err != nil || h.Err != wire.CodeOK {
		t.Fatal(h, err)
	}
	for i := 0; i < n; {
		var m wire.MultiRequest
		for ; i < n && len(m.Ops) < 1000; i++ {
			m.Ops = append(m.Ops, wire.MultiOp{Op: wire.OpCreate, Record: &wire.CreateRequest{Path: fmt.Sprintf("%s/%d", path, i), ACL: wire.OpenACL}})
		}
		c.send(wire.OpMulti, m)
		if h, _, err := c.next(); err != nil || h.Err != wire.CodeOK {
			t.Fatal(h, err)
		}
	}
}

// The children of a large directory are listed in steps. The answer has the children
// that came meanwhile, without those that went, and the watch fires for later changes, behind the
// reply.
//
// Defends: C9.
func TestChildrenAreListedInSteps(t *testing.T) {
	for _, op := range []wire.Op{wire.OpGetChildren, wire.OpGetChildren2} {
		synctest.Test(t, func(t *testing.T) {
			m, r := newMember(t, Config{})
			c, other := mustConnect(t, m, 10*time.Second), mustConnect(t, m, 10*time.Second)
			const n = 3*listStep - 10
			fillDir(t, other, "/d", n)
			steps := 0
			r.viewed = func() {
				steps++
				viewed := r.viewed
				r.viewed = nil
				switch steps {
				case 3: // one has been listed, one not, and one is new
					other.send(wire.OpDelete, wire.DeleteRequest{Path: "/d/1", Version: -1})
					other.send(wire.OpDelete, wire.DeleteRequest{Path: fmt.Sprintf("/d/%d", n-1), Version: -1})
					other.send(wire.OpCreate, create("/d/new", wire.ModePersistent))
				case 5: // the last step, which sets the watch
					other.send(wire.OpCreate, create("/d/late", wire.ModePersistent))
				}
				r.viewed = viewed
			}
			c.send(op, wire.PathWatchRequest{Path: "/d", Watch: true})
			if r.viewed = nil; steps != 5 {
				t.Errorf("the state was locked %d times", steps)
			}
			h, body, err := c.next()
			if err != nil || h.Err != wire.CodeOK || h.Xid != 1 {
				t.Fatal(h, err)
			}
			var got wire.GetChildren2Response
			if op == wire.OpGetChildren2 {
				err = wire.Decode(body, &got)
			} else {
				var plain wire.GetChildrenResponse
				err = wire.Decode(body, &plain)
				got.Children, got.Stat.NumChildren = plain.Children, n-1
			}
			if err != nil || len(got.Children) != n-1 || got.Stat.NumChildren != n-1 ||
				slices.Contains(got.Children, "1") || !slices.Contains(got.Children, "new") || slices.Contains(got.Children, "late") {
				t.Errorf("%d children, Stat %+v, %v", len(got.Children), got.Stat, err)
			}
			c.expect("NodeChildrenChanged /d")
		})
	}
}

// A directory that goes away while it is listed is not there; a connection that ends has no answer.
func TestListingIsCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		c, other := mustConnect(t, m, 10*time.Second), mustConnect(t, m, 10*time.Second)
		fillDir(t, other, "/d", 2*listStep)
		steps := 0
		r.viewed = func() {
			if steps++; steps == 3 {
				r.viewed = nil
				for i := 0; i < 2*listStep; {
					var m wire.MultiRequest
					for ; len(m.Ops) < 1000; i++ {
						m.Ops = append(m.Ops, wire.MultiOp{Op: wire.OpDelete, Record: &wire.DeleteRequest{Path: fmt.Sprintf("/d/%d", i), Version: -1}})
					}
					other.send(wire.OpMulti, m)
				}
				other.send(wire.OpDelete, wire.DeleteRequest{Path: "/d", Version: -1})
			}
		}
		c.send(wire.OpGetChildren, wire.PathWatchRequest{Path: "/d", Watch: true})
		c.expect("1 NoNode")
		fillDir(t, mustConnect(t, m, 10*time.Second), "/e", 2*listStep)
		steps = 0
		r.viewed = func() {
			if steps++; steps == 3 {
				c.s.Detach()
			}
		}
		c.send(wire.OpGetChildren, wire.PathWatchRequest{Path: "/e", Watch: true})
		if r.viewed = nil; steps != 4 || m.watches.counts().Watches != 0 {
			t.Errorf("%d steps, %+v", steps, m.watches.counts())
		}
	})
}

// A multiRead reads under one lock, so the names that it lists are bounded, whatever the bytes are.
func TestNamesOfAMultiReadAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{})
		c := mustConnect(t, m, 10*time.Second)
		fillDir(t, c, "/d", 1000)
		xid := c.xid
		for _, n := range []int{multiReadNames / 1000, multiReadNames/1000 + 1} {
			c.send(wire.OpMultiRead, multiOf(n, wire.OpGetChildren, &wire.PathWatchRequest{Path: "/d"}))
		}
		c.expect(fmt.Sprintf("%d Ok", xid+1), fmt.Sprintf("%d BadArguments", xid+2))
	})
}

// Reads with long answers take turns, and nobody else waits for them.
func TestLongAnswersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{})
		c, other := mustConnect(t, m, 10*time.Second), mustConnect(t, m, 10*time.Second)
		const n = 1000
		path := func(i int) string { return fmt.Sprintf("/a-node-with-a-name-%d", i) }
		var creates wire.MultiRequest
		for i := range n {
			creates.Ops = append(creates.Ops, wire.MultiOp{Op: wire.OpCreate,
				Record: &wire.CreateRequest{Path: path(i), ACL: wire.OpenACL, Mode: wire.ModeEphemeral}})
		}
		c.send(wire.OpMulti, creates)
		if h, _, err := c.next(); err != nil || h.Err != wire.CodeOK {
			t.Fatal(h, err)
		}
		if !m.answering.TryAcquire(1) {
			t.Fatal("somebody has the turn")
		}
		answered := make(chan struct{})
		go func() {
			c.send(wire.OpGetEphemerals, wire.GetEphemeralsRequest{PrefixPath: "/"})
			close(answered)
		}()
		synctest.Wait()
		select {
		case <-answered:
			t.Error("a long answer did not wait for its turn")
		default:
		}
		for _, op := range []wire.Op{wire.OpGetChildren, wire.OpGetEphemerals} {
			var body wire.Record = wire.GetEphemeralsRequest{PrefixPath: "/"}
			if op == wire.OpGetChildren {
				body = wire.PathWatchRequest{Path: path(1)}
			}
			other.send(op, body)
			if h, _, err := other.next(); err != nil || h.Err != wire.CodeOK {
				t.Errorf("%v: %v, %v", op, h, err)
			}
		}
		m.answering.Release(1)
		<-answered
		_, body, err := c.next()
		var got wire.GetEphemeralsResponse
		if err == nil {
			err = wire.Decode(body, &got)
		}
		if err != nil || len(got.Ephemerals) != n {
			t.Errorf("%d ephemeral nodes, %v", len(got.Ephemerals), err)
		}
	})
}

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
//
// Defends: C9.
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
		last := fmt.Sprintf("/missing%d", 4*setWatchesStep-1)
		other.send(wire.OpCreate, create(last, wire.ModePersistent))
		c.expect("NodeCreated /c", "NodeCreated "+last)
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
//
// Defends: C9.
func TestManyWatchesAreForgottenInSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{})
		c := mustConnect(t, m, 10*time.Second)
		c.send(wire.OpSetWatches, wire.SetWatchesRequest{Data: []string{}, Exist: missing(3 * removeStep), Child: []string{}})
		c.expect("1 Ok")
		if done := m.watches.removeSome(&c.s.connection, removeStep); done || m.watches.counts().Watches != 2*removeStep {
			t.Errorf("%d watches are left", m.watches.counts().Watches)
		}
		c.detach()
		synctest.Wait()
		if n := m.watches.counts().Watches; n != 0 {
			t.Errorf("%d watches are left in the end", n)
		}
	})
}
