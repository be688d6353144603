package console

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// tape applies commands to a state that a Recorder follows.
type tape struct {
	t    testing.TB
	s    *znode.Store
	r    *Recorder
	seqs map[wire.SessionID]uint64
	ms   int64
}

func newTape(t testing.TB, historyBytes int) *tape {
	return &tape{t: t, s: znode.New(), r: NewRecorder(historyBytes), seqs: map[wire.SessionID]uint64{}, ms: 1000}
}

func (p *tape) apply(c znode.Command) (res znode.Result) {
	p.ms += 10
	p.s.Apply(1, &znode.Entry{Stamp: znode.Stamp{TimeMs: p.ms}, Commands: []znode.Command{c}}, func(c *znode.Command, r *znode.Result) {
		p.r.Applied(p.s, c, r)
		res = *r
	})
	return res
}

func (p *tape) open(id wire.SessionID) {
	p.apply(znode.Command{Session: id, Seq: 1 << 63,
		Body: &znode.CreateSession{Connection: znode.Connection{TimeoutMs: 10_000, Addr: znode.AddrText(netip.MustParseAddr("10.0.0.7"))}}})
}

func (p *tape) request(id wire.SessionID, op wire.Op, body wire.Record) znode.Result {
	p.t.Helper()
	p.seqs[id]++
	var b []byte
	if body != nil {
		b = body.Append(nil)
	}
	res := p.apply(znode.Command{Session: id, Generation: 1, Seq: p.seqs[id], Body: &znode.Request{Op: op, Body: b}})
	if res.Status != znode.Done || res.Code != wire.CodeOK {
		p.t.Fatalf("%v: %v %v", op, res.Status, res.Code)
	}
	return res
}

func (p *tape) create(id wire.SessionID, path, data string, mode wire.CreateMode) string {
	p.t.Helper()
	return p.request(id, wire.OpCreate2, wire.CreateRequest{Path: path, Data: []byte(data), ACL: wire.OpenACL, Mode: mode}).Path
}

// view is Member.View.
func (p *tape) view(f func(*znode.Store)) { f(p.s) }

// history is the API's history of a lock, without the head.
func (p *tape) history(path string) (*replay, *historyAnswer) {
	c := &Console{index: newIndex(p.view, p.r, math.MaxInt)}
	r := &replay{path: path, viewer: &viewer{ctx: context.Background(), super: true}, viewing: p.view}
	c.index.with(func() { r.start(c.index) })
	if err := r.run(); err != nil {
		p.t.Fatal(err)
	}
	a := &historyAnswer{}
	a.fill(r, 1000, [2]time.Time{}, instant(p.ms))
	return r, a
}

// TestEnds has a holder of each end, told from the command that ended it.
func TestEnds(t *testing.T) {
	p := newTape(t, 1<<20)
	for id := range wire.SessionID(6) {
		p.open(id + 1)
	}
	p.create(1, "/l", "", wire.ModePersistent)
	nodes := map[wire.SessionID]string{}
	for id := range wire.SessionID(6) {
		nodes[id+1] = p.create(id+1, "/l/_c_34c73d33-a364-4285-8dd6-8b05f149fed9-lock-", "", wire.ModeEphemeralSequential)
	}
	p.request(1, wire.OpDelete, wire.DeleteRequest{Path: nodes[1], Version: -1})
	p.request(2, wire.OpCloseSession, nil)
	p.apply(znode.Command{Session: 3, Generation: 1, Body: &znode.Expire{}})
	p.request(1, wire.OpDelete, wire.DeleteRequest{Path: nodes[4], Version: -1})
	p.request(1, wire.OpDelete, wire.DeleteRequest{Path: nodes[6], Version: -1}) // a waiter
	r, a := p.history("/l")
	want := []string{"0x1 released 0x1", "0x2 closed 0x2", "0x3 expired 0x3", "0x4 deleted 0x1", "0x5 <nil> "}
	var got []string
	for _, h := range a.Holds {
		end := "<nil>"
		if h.End != nil {
			end = string(*h.End)
		}
		got = append(got, h.Session+" "+end+" "+h.EndedBy)
		if !h.FromExact || h.Address != "10.0.0.7" {
			t.Errorf("%+v", h)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("holds %v, want %v", got, want)
	}
	if len(a.Quit) != 1 || a.Quit[0].End != Deleted || a.Quit[0].EndedBy != "0x1" {
		t.Errorf("quit: %+v", a.Quit)
	}
	if r.begin.Why != beganAtStart {
		t.Errorf("begins %+v", r.begin)
	}
	// One hold ends where the next begins.
	for i := range a.Holds[:len(a.Holds)-1] {
		if time.Time(a.Holds[i].ToAt) != time.Time(a.Holds[i+1].FromAt) {
			t.Errorf("hold %d ends at %v, the next begins at %v", i, a.Holds[i].ToAt, a.Holds[i+1].FromAt)
		}
	}
	last := a.Waiters[len(a.Waiters)-1]
	if most := int64(5); a.Waiters[5][1] != most || last[1] != 0 {
		t.Errorf("waiters %v", a.Waiters)
	}
}

// TestHistoryIsBounded: an answer says that older events are overwritten, and the others are right.
func TestHistoryIsBounded(t *testing.T) {
	const bound = 200_000
	p := newTape(t, bound)
	p.open(1)
	p.open(2)
	p.create(1, "/l", "", wire.ModePersistent)
	const rounds = 3000
	for i := range rounds {
		id := wire.SessionID(1 + i%2)
		node := p.create(id, "/l/x-12-", "", wire.ModeEphemeralSequential)
		p.request(id, wire.OpDelete, wire.DeleteRequest{Path: node, Version: -1})
		if n := p.r.Bytes(); n > bound+2*chunkEvents*eventBytes {
			t.Fatalf("%d bytes", n)
		}
	}
	r, a := p.history("/l")
	if r.begin.Why != beganInRing || r.begin.TimeMs <= 1000 {
		t.Errorf("begins %+v", r.begin)
	}
	if n := len(a.Holds); n == 0 || n >= rounds {
		t.Errorf("%d holds", n)
	}
	for i, h := range a.Holds {
		if *h.End != Released || h.HeldMs != 10 && i > 0 {
			t.Fatalf("hold %d: %+v", i, h)
		}
	}
	if p.r.Restored(p.s); p.r.Bytes() != 0 {
		t.Error("a snapshot from the leader leaves events")
	}
	if r, _ := p.history("/l"); r.begin.Why != beganAtSnapshot {
		t.Errorf("begins %+v", r.begin)
	}
}

// TestHoldFromBeforeTheHistory: who held when the history began is known, since when is not.
func TestHoldFromBeforeTheHistory(t *testing.T) {
	p := newTape(t, 1<<20)
	p.open(1)
	p.open(2)
	p.create(1, "/l", "", wire.ModePersistent)
	first := p.create(1, "/l/x-1-", "", wire.ModeEphemeralSequential)
	p.r.Restored(p.s)
	p.create(2, "/l/x-2-", "", wire.ModeEphemeralSequential)
	p.request(1, wire.OpDelete, wire.DeleteRequest{Path: first, Version: -1})
	_, a := p.history("/l")
	if len(a.Holds) != 2 || a.Holds[0].FromExact || !a.Holds[1].FromExact || *a.Holds[0].End != Released {
		t.Errorf("%+v", a.Holds)
	}
}

// TestNoHistory: nothing is kept unless somebody looks.
func TestNoHistory(t *testing.T) {
	p := newTape(t, 0)
	p.open(1)
	p.create(1, "/e", "", wire.ModeEphemeral)
	if p.r.Bytes() != 0 {
		t.Error("events are kept")
	}
}

// TestIndexFollows compares an index that follows with one that is built anew.
func TestIndexFollows(t *testing.T) {
	p := newTape(t, 1<<20)
	const sessions = 5
	for id := range wire.SessionID(sessions) {
		p.open(id + 1)
	}
	for _, dir := range []string{"/a", "/b", "/s", "/s/locks", "/s/leases"} {
		p.create(1, dir, "", wire.ModePersistent)
	}
	x := newIndex(p.view, p.r, math.MaxInt)
	x.with(func() {})
	var nodes []string
	owner := map[string]wire.SessionID{}
	forms := []string{"/a/x-1-", "/b/b7bfcd3227404d3880a0eccd4e5100cf__lock__", "/s/locks/_c_x-lock-", "/s/leases/_c_x-lease-", "/p-"}
	for i := range 400 {
		id := wire.SessionID(1 + i%sessions)
		if len(nodes) > 0 && i%3 == 2 {
			k := (i * 7) % len(nodes)
			p.request(owner[nodes[k]], wire.OpDelete, wire.DeleteRequest{Path: nodes[k], Version: -1})
			nodes = append(nodes[:k], nodes[k+1:]...)
		} else {
			node := p.create(id, forms[(i*3)%len(forms)], "", wire.ModeEphemeralSequential)
			nodes = append(nodes, node)
			owner[node] = id
		}
		fresh := newIndex(p.view, p.r, math.MaxInt)
		var got, want string
		x.with(func() { got = describe(x) })
		fresh.with(func() { want = describe(fresh) })
		if got != want {
			t.Fatalf("step %d:\n%s\nwant\n%s", i, got, want)
		}
	}
}

func describe(x *index) string {
	m := map[string]string{} // fmt sorts its keys
	for path, l := range x.locks {
		text := l.kind
		for _, c := range l.queue {
			text += fmt.Sprintf(" %s:%t:%t", c.Node, c.Held, c.Orphan)
		}
		m[path] = text
	}
	return fmt.Sprint(m, x.shared, len(x.where))
}

// TestTopLocks: the first of an order are kept.
func TestTopLocks(t *testing.T) {
	less, err := lockOrder(url.Values{"sort": {"path"}})
	if err != nil {
		t.Fatal(err)
	}
	top := topLocks{less: less, most: 3}
	for _, path := range []string{"/d", "/a", "/e", "/c", "/b"} {
		top.add(&lock{path: path})
	}
	var got string
	for _, l := range top.sorted() {
		got += l.path
	}
	if got != "/a/b/c" {
		t.Error(got)
	}
}

// BenchmarkApplied is the Recorder's cost for a command: of a lock, and of any other node.
func BenchmarkApplied(b *testing.B) {
	for _, kind := range []string{"lock", "other"} {
		b.Run(kind, func(b *testing.B) {
			p := newTape(b, 8<<20)
			p.open(1)
			p.create(1, "/l", "", wire.ModePersistent)
			path, mode := "/l/_c_34c73d33-a364-4285-8dd6-8b05f149fed9-lock-", wire.ModeEphemeralSequential
			if kind == "other" {
				path, mode = "/l/n", wire.ModePersistentSequential
			}
			var command znode.Command
			var result znode.Result
			body := wire.CreateRequest{Path: path, Data: make([]byte, 200), ACL: wire.OpenACL, Mode: mode}.Append(nil)
			p.s.Apply(1, &znode.Entry{Stamp: znode.Stamp{TimeMs: p.ms}, Commands: []znode.Command{{Session: 1, Generation: 1, Seq: 2,
				Body: &znode.Request{Op: wire.OpCreate2, Body: body}}}}, func(c *znode.Command, r *znode.Result) {
				command, result = *c, *r
				result.Events = append([]znode.Event(nil), r.Events...)
			})
			b.ReportAllocs()
			for b.Loop() {
				p.r.Applied(p.s, &command, &result)
			}
		})
	}
}

// TestIndexIsDropped: an index that nobody uses goes, also one that has not read events before the
// Recorder has overwritten them, and the next use builds it again.
func TestIndexIsDropped(t *testing.T) {
	p := newTape(t, 1<<20)
	x := newIndex(p.view, p.r, math.MaxInt)
	p.open(1)
	p.create(1, "/lock-", "", wire.ModeEphemeralSequential)
	locks := func() (n int) {
		x.with(func() { n = len(x.locks) })
		return n
	}
	for range 2 {
		if n := locks(); n != 1 {
			t.Fatalf("%d locks", n)
		}
		if x.dropUnused(time.Now()) {
			t.Error("an index in use is dropped")
		}
		if !x.dropUnused(time.Now().Add(2 * indexKept)) {
			t.Error("an index that nobody uses stays")
		}
	}
	locks()
	p.r.Restored(p.s)
	if n := locks(); n != 1 {
		t.Errorf("%d locks after the loss of the recording", n)
	}
}
