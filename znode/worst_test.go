package znode

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/cputime"
	"lockkeeper/wire"
)

// frameBytes is the longest request that a client may send by default.
const frameBytes = wire.DefaultMaxBuffer

// costMax is the default of maxRequestCost.
const costMax = 30_000_000

// worstCase is one of the requests that take the longest of all that a member lets pass: they have
// at most 1 MB, and cost at most costMax.
type worstCase struct {
	name string
	// prepare makes the state and returns the request that is measured.
	prepare func(tb testing.TB, s *worstStore) (wire.Op, wire.Record)
	// again restores the state, so that the request can be measured once more; nil if it
	// is that already.
	again func(s *worstStore)
}

// worstStore is a Store with a session that sends requests.
type worstStore struct {
	tb  testing.TB
	s   *Store
	seq uint64
}

func newWorstStore(tb testing.TB) *worstStore {
	w := &worstStore{tb: tb, s: New()}
	w.s.Apply(1, &Entry{Commands: []Command{{Session: 1, Body: &CreateSession{Connection: Connection{Addr: "10.0.0.1"}}}}}, nil)
	return w
}

func (w *worstStore) command(op wire.Op, body wire.Record) Command {
	w.seq++
	return request(w.seq, op, body)
}

// must applies a request that succeeds.
func (w *worstStore) must(op wire.Op, body wire.Record) {
	w.s.Apply(1, &Entry{Stamp: Stamp{TimeMs: 1}, Commands: []Command{w.command(op, body)}}, func(_ *Command, r *Result) {
		if r.Code != wire.CodeOK || len(r.Multi) > 0 && r.Multi[0].Op == wire.OpError {
			w.tb.Fatalf("%v: %v %+v", op, r.Code, r.Multi[:min(len(r.Multi), 1)])
		}
	})
}

// fill makes a multi of as many ops as a member lets pass.
func fill(op func(i int) wire.MultiOp) wire.MultiRequest {
	var m wire.MultiRequest
	var cost Cost
	for size, i := multiEndBytes, 0; ; i++ {
		next := op(i)
		cost.add(next.Record, proven{})
		cost.Nanoseconds += prefixPrice * MaxACLPrefixes
		if size += multiEndBytes + len(next.Record.Append(nil)); size > frameBytes-8 || cost.Nanoseconds > costMax {
			return m
		}
		m.Ops = append(m.Ops, next)
	}
}

// multiEndBytes is the size of the bytes before each op of a multi and behind the last.
const multiEndBytes = 9

func opCreate(path string, acl []wire.ACL, mode wire.CreateMode) wire.MultiOp {
	return wire.MultiOp{Op: wire.OpCreate, Record: &wire.CreateRequest{Path: path, ACL: acl, Mode: mode}}
}

func opDelete(path string) wire.MultiOp {
	return wire.MultiOp{Op: wire.OpDelete, Record: &wire.DeleteRequest{Path: path, Version: -1}}
}

func opSet(path string) wire.MultiOp {
	return wire.MultiOp{Op: wire.OpSetData, Record: &wire.SetDataRequest{Path: path, Version: -1}}
}

// failing has the last op of m fail, so that all before it are taken back.
func failing(m wire.MultiRequest) wire.MultiRequest {
	m.Ops[len(m.Ops)-1] = opDelete("/-")
	return m
}

// chain makes a path of n components, one below the other, and returns it.
func (w *worstStore) chain(n int) string {
	path := ""
	for range n {
		path += "/a"
		w.must(wire.OpCreate, wire.CreateRequest{Path: path, ACL: wire.OpenACL})
	}
	return path
}

// names makes n short paths, of which none is below another.
func names(n int) []string {
	const digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	paths := make([]string, n)
	for i := range paths {
		name := []byte{'/'}
		for v := i + len(digits); v > 0; v /= len(digits) {
			name = append(name, digits[v%len(digits)])
		}
		paths[i] = string(name)
	}
	return paths
}

// populate makes nodes at these paths.
func (w *worstStore) populate(paths []string, mode wire.CreateMode) {
	for len(paths) > 0 {
		n := min(len(paths), 1000)
		var m wire.MultiRequest
		for _, path := range paths[:n] {
			m.Ops = append(m.Ops, opCreate(path, wire.OpenACL, mode))
		}
		w.must(wire.OpMulti, m)
		paths = paths[n:]
	}
}

func worstCases() []worstCase {
	short := names(60_000)
	return []worstCase{
		{name: "create, 1 MB of data",
			prepare: func(_ testing.TB, w *worstStore) (wire.Op, wire.Record) {
				return wire.OpCreate, wire.CreateRequest{Path: "/n", Data: bytes.Repeat([]byte("x"), frameBytes-100), ACL: wire.OpenACL}
			},
			again: func(w *worstStore) { w.must(wire.OpDelete, wire.DeleteRequest{Path: "/n", Version: -1}) }},
		// as far as maxRequestCost goes, whatever maxACLEntries is
		{name: "create, ACL of 24 000 entries",
			prepare: func(_ testing.TB, w *worstStore) (wire.Op, wire.Record) {
				return wire.OpCreate, wire.CreateRequest{Path: "/n", ACL: manyAddresses(24_000)}
			},
			again: func(w *worstStore) { w.must(wire.OpDelete, wire.DeleteRequest{Path: "/n", Version: -1}) }},
		{name: "multi of creates, taken back",
			prepare: func(_ testing.TB, w *worstStore) (wire.Op, wire.Record) {
				return wire.OpMulti, failing(fill(func(i int) wire.MultiOp { return opCreate(short[i], wire.OpenACL, 0) }))
			}},
		{name: "multi of creates with ACLs of their own, taken back",
			prepare: func(_ testing.TB, w *worstStore) (wire.Op, wire.Record) {
				return wire.OpMulti, failing(fill(func(i int) wire.MultiOp {
					return opCreate(short[i], []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: schemeIP, ID: fmt.Sprintf("%x::", i)}}}, 0)
				}))
			}},
		{name: "multi of deletes, taken back",
			prepare: func(_ testing.TB, w *worstStore) (wire.Op, wire.Record) {
				w.populate(short, 0)
				return wire.OpMulti, failing(fill(func(i int) wire.MultiOp { return opDelete(short[i]) }))
			}},
		{name: "multi of setData",
			prepare: func(_ testing.TB, w *worstStore) (wire.Op, wire.Record) {
				w.populate(short, 0)
				return wire.OpMulti, fill(func(i int) wire.MultiOp { return opSet(short[i]) })
			}},
		{name: "multi of checks",
			prepare: func(_ testing.TB, w *worstStore) (wire.Op, wire.Record) {
				w.populate(short, 0)
				return wire.OpMulti, fill(func(i int) wire.MultiOp {
					return wire.MultiOp{Op: wire.OpCheck, Record: &wire.CheckVersionRequest{Path: short[i%60_000], Version: -1}}
				})
			}},
		{name: "8000 checks, ACL of 5000",
			prepare: func(_ testing.TB, w *worstStore) (wire.Op, wire.Record) {
				acl := append(manyAddresses(5000), wire.ACL{Perms: wire.PermAll, ID: wire.ID{Scheme: schemeIP, ID: "10.0.0.1"}})
				w.must(wire.OpCreate, wire.CreateRequest{Path: "/n", ACL: acl})
				return wire.OpMulti, checks("/n", 8000)
			}},
		{name: "multi of checks, ACLs with prefixes of all lengths",
			prepare: func(_ testing.TB, w *worstStore) (wire.Op, wire.Record) {
				var acl []wire.ACL
				for bits := range MaxACLPrefixes {
					acl = append(acl, wire.ACL{Perms: wire.PermAll, ID: wire.ID{Scheme: schemeIP, ID: fmt.Sprintf("11.0.0.0/%d", 32-bits)}})
				}
				acl = append(acl, wire.ACL{Perms: wire.PermAll, ID: wire.ID{Scheme: schemeIP, ID: "10.0.0.1"}})
				w.must(wire.OpCreate, wire.CreateRequest{Path: "/n", ACL: acl})
				return wire.OpMulti, checks("/n", 24_000)
			}},
		{name: "multi of setData at a depth of 2000, with a quota",
			prepare: func(_ testing.TB, w *worstStore) (wire.Op, wire.Record) {
				path := w.chain(2000)
				w.populate([]string{quotaPath + "/a", quotaPath + "/a" + limitsName, quotaPath + "/a" + statsName}, 0)
				return wire.OpMulti, fill(func(int) wire.MultiOp { return opSet(path) })
			}},
		{name: "closeSession, 15 000 ephemerals",
			prepare: func(_ testing.TB, w *worstStore) (wire.Op, wire.Record) {
				w.populate(short[:15_000], wire.ModeEphemeral)
				return wire.OpCloseSession, wire.Empty{}
			},
			again: func(w *worstStore) {
				w.s.Apply(1, &Entry{Commands: []Command{{Session: 1, Body: &CreateSession{Connection: Connection{Addr: "10.0.0.1"}}}}}, nil)
				w.seq = 0
				w.populate(short[:15_000], wire.ModeEphemeral)
			}},
	}
}

// costOf is the cost of a command as the member that takes it estimates it.
func costOf(tb testing.TB, c Command) Cost {
	record, err := wire.DecodeBody(c.req().Op, c.req().Body)
	if err != nil {
		tb.Fatal(err)
	}
	return CostOf(record, nil)
}

// BenchmarkWorst measures how long the worst requests of at most 1 MB take to apply, with the state
// locked. On a busy machine the CPU time of that thread counts.
//
// Defends: C9.
func BenchmarkWorst(b *testing.B) {
	for _, c := range worstCases() {
		b.Run(strings.ReplaceAll(c.name, " ", "_"), func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			w := newWorstStore(b)
			op, body := c.prepare(b, w)
			cmd := w.command(op, body)
			if size, cost := len(cmd.req().Body), costOf(b, cmd).Nanoseconds; size > frameBytes || cost > costMax {
				b.Fatalf("the request has %d bytes and costs %d ns: no member lets it pass", size, cost)
			}
			var took, used time.Duration
			for i := 0; b.Loop(); i++ {
				if i > 0 {
					if c.again != nil {
						b.StopTimer()
						c.again(w)
						b.StartTimer()
					}
					w.seq++
					cmd.Seq = w.seq
				}
				start, before := time.Now(), cputime.Thread()
				w.s.Apply(1, &Entry{Commands: []Command{cmd}}, func(*Command, *Result) {})
				used += cputime.Thread() - before
				took += time.Since(start)
			}
			b.ReportMetric(float64(took.Microseconds())/1000/float64(b.N), "ms/apply")
			b.ReportMetric(float64(used.Microseconds())/1000/float64(b.N), "ms-cpu/apply")
			b.ReportMetric(float64(len(cmd.req().Body)), "bytes")
		})
	}
}

// Each op of a multi may look up each identity of the connection in another ACL.
func TestCostOfIdentities(t *testing.T) {
	m := checks("/n", 8000)
	few, many := make([]Identity, 3), make([]Identity, 101)
	if cost := CostOf(&m, few).Nanoseconds; cost > costMax {
		t.Errorf("8000 checks with three identities cost %d ns", cost)
	}
	if cost := CostOf(&m, many).Nanoseconds; cost <= costMax {
		t.Errorf("8000 checks with a hundred identities cost %d ns", cost)
	}
}

// An ACL with prefixes of each length is counted as one that takes many lookups.
func TestCostOfPrefixes(t *testing.T) {
	var acl []wire.ACL
	for bits := range 129 {
		acl = append(acl, wire.ACL{Perms: wire.PermAll, ID: wire.ID{Scheme: schemeIP, ID: fmt.Sprintf("a::/%d", bits)}})
	}
	for n, want := range map[int]int{1: 1, 16: 16, 129: 129} {
		twice := append(acl[:n:n], acl[:n]...)
		if got := CostOf(&wire.SetACLRequest{Path: "/", ACL: twice}, nil).ACLPrefixes; got != want {
			t.Errorf("%d prefixes count as %d", n, got)
		}
	}
	plain := []wire.ACL{{ID: wire.ID{Scheme: schemeIP, ID: "10.0.0.1"}}, {ID: wire.ID{Scheme: schemeIP, ID: "10.0.0.1/x"}}}
	if got := CostOf(&wire.SetACLRequest{Path: "/", ACL: plain}, nil).ACLPrefixes; got != 0 {
		t.Errorf("addresses count as %d", got)
	}
}

// The requests of an attack are too dear, and those that programs send are not.
//
// Defends: C9.
func TestCost(t *testing.T) {
	list := func(n int, op wire.MultiOp) wire.MultiRequest {
		m := wire.MultiRequest{Ops: make([]wire.MultiOp, n)}
		for i := range m.Ops {
			m.Ops[i] = op
		}
		return m
	}
	path := "/hbase/replication/rs/host.example.org,16020,1700000000000/1/host.example.org%2C16020.1700000000000"
	for _, c := range []struct {
		name   string
		op     wire.Op
		body   wire.Record
		passes bool
	}{
		{"a lock", wire.OpCreate, create("/locks/report/lock-", "", wire.ModeEphemeralSequential), true},
		{"a megabyte", wire.OpSetData, wire.SetDataRequest{Path: "/n", Data: make([]byte, 1_000_000)}, true},
		{"2000 deletes", wire.OpMulti, list(2000, opDelete(path)), true},
		{"2000 creates", wire.OpMulti, list(2000, opCreate(path, wire.OpenACL, 0)), true},
		{"8000 checks", wire.OpMulti, checks("/n", 8000), true},
		{"3000 creates, each of which may be watched by 60", wire.OpMulti, list(3000, opCreate("/n", wire.OpenACL, 0)), false},
		{"3000 deletes", wire.OpMulti, list(3000, opDelete("/n")), false},
		{"80 000 entries", wire.OpCreate, wire.CreateRequest{Path: "/n", ACL: make([]wire.ACL, 80_000)}, false},
		{"a path of 500 000 components", wire.OpMulti, list(1, opDelete(strings.Repeat("/a", 500_000))), true},
		{"paths of a million components", wire.OpDelete, wire.DeleteRequest{Path: strings.Repeat("/", 1_000_000)}, false},
	} {
		if cost := costOf(t, request(1, c.op, c.body)).Nanoseconds; (cost <= costMax) != c.passes {
			t.Errorf("%s costs %d ns", c.name, cost)
		}
	}
}
