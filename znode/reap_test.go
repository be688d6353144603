package znode

import (
	"slices"
	"testing"

	"lockkeeper/wire"
)

// reaperStore is a store with a session, on which entries are applied at given times.
type reaperStore struct {
	*Store
	t   *testing.T
	seq uint64
}

func newReaperStore(t *testing.T) *reaperStore {
	s := &reaperStore{Store: New(), t: t}
	s.at(1000, &Command{Session: 1, Body: &CreateSession{Connection: Connection{TimeoutMs: 4000}}})
	return s
}

func (s *reaperStore) at(ms int64, c *Command) wire.Code {
	s.t.Helper()
	var code wire.Code
	s.Apply(1, &Entry{Stamp: Stamp{TimeMs: ms, ClockMs: ms, Flags: ExtendedTypes}, Commands: []Command{*c}}, func(_ *Command, r *Result) {
		if r.Status != Done {
			s.t.Fatalf("%v: %v", c.Kind(), r.Status)
		}
		code = r.Code
	})
	if err := s.Check(); err != nil {
		s.t.Fatal(err)
	}
	return code
}

func (s *reaperStore) request(ms int64, op wire.Op, body wire.Record) {
	s.t.Helper()
	s.seq++
	c := &Command{Session: 1, Generation: 1, Seq: s.seq, Body: &Request{Op: op, Body: body.Append(nil)}}
	if code := s.at(ms, c); code != wire.CodeOK {
		s.t.Fatalf("%v: %v", op, code)
	}
}

func (s *reaperStore) reapAt(ms int64, path string, neverUsedMs int32) wire.Code {
	return s.at(ms, &Command{Body: &Reap{Path: path, NeverUsedMs: neverUsedMs}})
}

func (s *reaperStore) expectPerishable(nowMs int64, neverUsedMs int32, want ...string) {
	s.t.Helper()
	var got []string
	for row := uint32(0); ; {
		var paths []string
		paths, row = s.Perishable(nowMs, neverUsedMs, row, 3)
		if got = append(got, paths...); row == 0 {
			break
		}
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		s.t.Fatalf("perishable at %d: %v, want %v", nowMs, got, want)
	}
}

func TestContainersAreReapedOnceTheyWereUsed(t *testing.T) {
	s := newReaperStore(t)
	container := func(path string) {
		s.request(1000, wire.OpCreateContainer, wire.CreateRequest{Path: path, ACL: wire.OpenACL, Mode: wire.ModeContainer})
	}
	container("/used")
	container("/unused")
	s.request(1000, wire.OpCreate, wire.CreateRequest{Path: "/used/c", ACL: wire.OpenACL})
	s.expectPerishable(1<<40, 0)
	if code := s.reapAt(2000, "/used", 0); code != wire.CodeNotEmpty {
		t.Fatalf("reaped with a child: %v", code)
	}
	s.request(2000, wire.OpDelete, wire.DeleteRequest{Path: "/used/c", Version: -1})
	s.expectPerishable(2000, 0, "/used")
	s.expectPerishable(2000, 999, "/unused", "/used")
	s.expectPerishable(2000, 1000, "/used")
	// A child comes between the leader's look and the command.
	s.request(2000, wire.OpCreate, wire.CreateRequest{Path: "/used/d", ACL: wire.OpenACL})
	if code := s.reapAt(3000, "/used", 0); code != wire.CodeNotEmpty {
		t.Fatalf("reaped with a new child: %v", code)
	}
	s.request(3000, wire.OpDelete, wire.DeleteRequest{Path: "/used/d", Version: -1})
	if code := s.reapAt(3000, "/used", 0); code != wire.CodeOK {
		t.Fatal(code)
	}
	if code := s.reapAt(3000, "/used", 0); code != wire.CodeNoNode {
		t.Fatal(code)
	}
	s.expectPerishable(3000, 0)
	if _, ok := s.Node("/used"); ok {
		t.Fatal("still there")
	}
}

func TestTTLNodesAreReapedWhenChildlessAndUnchanged(t *testing.T) {
	s := newReaperStore(t)
	s.request(1000, wire.OpCreateTTL, wire.CreateTTLRequest{Path: "/t", ACL: wire.OpenACL, Mode: wire.ModePersistentTTL, TTL: 500})
	s.expectPerishable(1500, 0)
	s.expectPerishable(1501, 0, "/t")
	s.request(1600, wire.OpSetData, wire.SetDataRequest{Path: "/t", Version: -1})
	if code := s.reapAt(1700, "/t", 0); code != wire.CodeNotEmpty {
		t.Fatalf("reaped though it was written to: %v", code)
	}
	s.request(2000, wire.OpCreate, wire.CreateRequest{Path: "/t/c", ACL: wire.OpenACL})
	s.expectPerishable(9000, 0)
	s.request(9000, wire.OpDelete, wire.DeleteRequest{Path: "/t/c", Version: -1})
	s.expectPerishable(9000, 0, "/t")
	if code := s.reapAt(9000, "/t", 0); code != wire.CodeOK {
		t.Fatal(code)
	}
	s.request(9000, wire.OpCreate, wire.CreateRequest{Path: "/p", ACL: wire.OpenACL})
	if code := s.reapAt(99999, "/p", 1); code != wire.CodeNotEmpty {
		t.Fatalf("reaped a persistent node: %v", code)
	}
}

// TTL nodes and containers live by the cluster's clock. Wall clocks, forwards or backwards, delete
// nothing and keep nothing alive (C8); nodes only show them as their times.
//
// Defends: C8.
func TestWallClocksDoNotReap(t *testing.T) {
	for _, jump := range []int64{10 * 365 * 86_400_000, -10 * 365 * 86_400_000} {
		s := newReaperStore(t)
		const now, ttl = 1_800_000_000_000, 60_000
		stamp := Stamp{TimeMs: now, ClockMs: 2000, Flags: ExtendedTypes}
		apply := func(c *Command) (code wire.Code) {
			s.Apply(1, &Entry{Stamp: stamp, Commands: []Command{*c}}, func(_ *Command, r *Result) { code = r.Code })
			return code
		}
		create := func(path string) {
			s.seq++
			body := wire.CreateTTLRequest{Path: path, ACL: wire.OpenACL, Mode: wire.ModePersistentTTL, TTL: ttl}
			if code := apply(&Command{Session: 1, Generation: 1, Seq: s.seq, Body: &Request{Op: wire.OpCreateTTL, Body: body.Append(nil)}}); code != wire.CodeOK {
				t.Fatal(code)
			}
		}
		times := func(path string) (ctimeMs int64) {
			n, ok := s.Node(path)
			if !ok {
				t.Fatalf("no node %s", path)
			}
			return n.Ctime
		}
		reap := func(path string) wire.Code { return apply(&Command{Body: &Reap{Path: path}}) }

		create("/before")
		stamp.TimeMs += jump // a leader with a wrong clock
		create("/wrong")
		if code := reap("/before"); code != wire.CodeNotEmpty {
			t.Errorf("a jump by %d ms has reaped a node: %v", jump, code)
		}
		stamp.TimeMs, stamp.ClockMs = now+1000, stamp.ClockMs+1000 // it is right again
		create("/after")
		if times("/before") != now || times("/wrong") != now+jump || times("/after") != now+1000 {
			t.Errorf("after a jump by %d ms and back the times are %d %d %d", jump, times("/before"), times("/wrong"), times("/after"))
		}
		stamp.ClockMs += ttl - 1000
		for path, want := range map[string]wire.Code{"/before": wire.CodeNotEmpty, "/wrong": wire.CodeNotEmpty, "/after": wire.CodeNotEmpty} {
			if code := reap(path); code != want {
				t.Errorf("%s within its time to live: %v", path, code)
			}
		}
		stamp.ClockMs += 1001
		for _, path := range []string{"/before", "/wrong", "/after"} {
			if code := reap(path); code != wire.CodeOK {
				t.Errorf("%s after its time to live: %v", path, code)
			}
		}
	}
}

// The clock of a state never runs backwards, also over a restore, which keeps the ages of nodes.
func TestClockOverRestore(t *testing.T) {
	for _, begin := range []int64{0, 5000, 50_000} {
		c := clock{}
		c.advance(10_000)
		old := clock{}
		old.advance(begin)
		replaced := c.replaced(&old)
		if replaced.nowMs() != begin || replaced.stampMs != 10_000 {
			t.Errorf("%+v, after a restore of one at %d", replaced, begin)
		}
		replaced.advance(9000)
		replaced.advance(10_700)
		if replaced.nowMs() != begin+700 {
			t.Errorf("%d, 700 ms after a restore of %d", replaced.nowMs(), begin)
		}
	}
}
