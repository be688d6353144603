package znode

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/wire"
)

var oracleSeeds = flag.Int("seeds", 12, "how many random histories TestOracle runs")

// TestOracle runs random commands against the Store and the model and compares everything that can
// be seen. The seed is in the name of the subtest: go test -run 'TestOracle/seed=5$'.
func TestOracle(t *testing.T) {
	seen := map[string]int{}
	for i := range *oracleSeeds {
		seed := uint64(i)
		if i == 0 {
			seed = uint64(time.Now().UnixNano()) // one that nobody has seen yet
		}
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			o := newOracle(t, seed)
			o.seen = seen
			for range 600 {
				o.step()
			}
		})
	}
	// A generator that never gets as far as an answer tests nothing about it.
	for _, want := range []string{
		"Done", "Duplicate", "Gap", "Moved", "NoSession", "BadPassword",
		"Ok", "MarshallingError", "Unimplemented", "BadArguments", "NoNode", "NoAuth", "BadVersion", "NoChildrenForEphemerals",
		"NodeExists", "NotEmpty", "InvalidACL", "QuotaExceeded", "RuntimeInconsistency",
		"NodeCreated", "NodeDeleted", "NodeDataChanged", "NodeChildrenChanged",
		"multi ok", "multi failed", "quota", "nested quota", "ephemerals closed", "reaped",
	} {
		if seen[want] < 5 && !t.Failed() {
			t.Errorf("%q came up %d times", want, seen[want])
		}
	}
}

type oracle struct {
	*driver
	m    *model
	rng  *rand.Rand
	seen map[string]int
	last Command // that was applied
}

func newOracle(t testing.TB, seed uint64) *oracle {
	return &oracle{
		driver: newDriver(t), m: newModel(), rng: rand.New(rand.NewPCG(seed, 1)), seen: map[string]int{},
		last: Command{Body: &SetMembers{}},
	}
}

// pick returns one of the choices.
var passwords = []wire.Password{{15: 1}, {15: 2}}

func pick[T any](o *oracle, choices ...T) T { return choices[o.rng.IntN(len(choices))] }

// step applies one entry and compares.
func (o *oracle) step() {
	o.t.Helper()
	if o.rng.IntN(100) == 0 {
		o.term += uint64(o.rng.IntN(2))
		o.flags = Flags(o.rng.IntN(4))
		if o.rng.IntN(4) == 0 {
			o.flags |= SkipACL
		}
	}
	o.timeMs += int64(o.rng.IntN(1000)) - 500 // clocks do jump
	o.clockMs += int64(o.rng.IntN(800)) - 100 // a new leader may be behind
	var cmds []Command
	for range 1 + o.rng.IntN(3) {
		cmds = append(cmds, o.command())
	}
	got := o.apply(cmds...)
	for i, c := range cmds {
		want := o.m.apply(o.term, Stamp{o.timeMs, o.clockMs, o.flags}, c)
		if !reflect.DeepEqual(got[i], want) {
			rec, err := wire.DecodeBody(c.req().Op, c.req().Body)
			o.t.Fatalf("step %d: %v %v %+v %v as %v:\ngot  %+v\nwant %+v", o.entries, c.Kind(), c.req().Op, rec, err, c.req().Identities, got[i], want)
		}
		o.learn(c, want)
	}
	o.compare()
}

// learn keeps up with the sessions, as a member does, and counts the cases.
func (o *oracle) learn(c Command, r Result) {
	o.seen[r.Status.String()]++
	if r.Status != Done {
		return
	}
	o.seen[r.Code.Error()]++
	for _, e := range r.Events {
		o.seen[e.Type.String()]++
	}
	for _, res := range r.Multi {
		o.seen[res.Code.Error()]++
	}
	if len(r.Multi) > 1 {
		o.seen["multi "+map[bool]string{true: "failed", false: "ok"}[r.Multi[0].Op == wire.OpError]]++
	}
	switch c.Kind() {
	case KindCreateSession:
		o.conns[c.Session] = &conn{generation: r.Generation, password: c.by().Password, addr: c.by().Addr}
	case KindAttach:
		conn := o.conns[c.Session]
		conn.generation, conn.seq, conn.addr = r.Generation, 0, c.by().Addr
	case KindReap:
		if r.Code == wire.CodeOK {
			o.seen["reaped"]++
		}
	case KindRequest:
		if c.req().Op == wire.OpCloseSession && len(r.Events) > 2 {
			o.seen["ephemerals closed"]++
		}
		o.last = c
	}
}

var testSessions = []wire.SessionID{0x0100000000000001, 0x0100000000000002, -0x7000000000000001}

func (o *oracle) command() Command {
	id := pick(o, testSessions...)
	c := o.conns[id]
	if c == nil {
		c = &conn{generation: 1}
		o.conns[id] = c
	}
	if _, alive := o.m.sessions[id]; !alive && o.rng.IntN(4) > 0 {
		return Command{Session: id, Seq: 1<<63 | o.rng.Uint64(),
			Body: &CreateSession{Connection: Connection{TimeoutMs: int32(o.rng.IntN(9000)), Password: pick(o, passwords...), Addr: pick(o, "10.0.0.1", "11.0.0.1")}}}
	}
	switch o.rng.IntN(60) {
	case 0:
		return Command{Session: pick(o, id, 0, -1), Body: &CreateSession{Connection: Connection{Password: pick(o, passwords...)}}}
	case 1:
		return Command{Session: id, Generation: c.generation - uint64(o.rng.IntN(2)),
			Body: &Attach{Connection: Connection{TimeoutMs: int32(o.rng.IntN(9000)), Password: pick(o, passwords...), Addr: pick(o, "10.0.0.1", "11.0.0.1")}}}
	case 2:
		return Command{Session: id, Generation: c.generation - uint64(o.rng.IntN(2)), Body: &Expire{}}
	case 3:
		return Command{Body: &SetMembers{Text: pick(o, "", "server.1=a:1:2:participant\nversion=0", "server.1=b:1:2:participant\nversion=0")}}
	case 4:
		return o.last // sent again
	case 5, 6, 7, 8:
		return Command{Body: &Reap{Path: o.path(), NeverUsedMs: pick[int32](o, 0, 500, 100000)}}
	}
	req := o.randomRequest(id)
	switch o.rng.IntN(40) {
	case 0:
		req.Seq++
		c.seq--
	case 1:
		req.Generation++
		c.seq--
	case 2:
		req.req().Body = req.req().Body[:o.rng.IntN(len(req.req().Body)+1)]
	}
	return req
}

func (o *oracle) randomRequest(id wire.SessionID) Command {
	var cmd Command
	// A command of an entry that comes before may have opened, moved or closed the session: such is
	// life.
	switch n := o.rng.IntN(40); {
	case n == 0:
		cmd = o.request(id, wire.OpCloseSession, nil)
	case n == 1:
		cmd = o.request(id, wire.OpSync, wire.SyncRequest{Path: "/x"})
	case n == 2:
		cmd = o.request(id, pick(o, wire.OpCheck, wire.OpDeleteContainer, wire.OpGetData), wire.CheckVersionRequest{Path: "/a"})
	case n < 12:
		var m wire.MultiRequest
		for range o.rng.IntN(5) {
			op, rec := o.op(true)
			m.Ops = append(m.Ops, wire.MultiOp{Op: op, Record: rec})
		}
		cmd = o.request(id, wire.OpMulti, m)
	default:
		op, rec := o.op(false)
		cmd = o.request(id, op, rec)
	}
	for range o.rng.IntN(3) {
		cmd.req().Identities = append(cmd.req().Identities, pick(o, Identity{"digest", "u:h"}, Identity{"digest", "v:h"}, Identity{"sasl", "bob"}))
	}
	if o.rng.IntN(8) == 0 {
		cmd.req().Identities = append(cmd.req().Identities, Identity{"super", ""})
	}
	return cmd
}

func (o *oracle) path() string {
	switch o.rng.IntN(20) {
	case 0:
		return pick(o, "", "/", "a", "a/b", "//", "/a/", "/a//b", "/./a", "/a/..", "/a\x00", "/\x01", "/\U0001f600", "/a\ufffd",
			"/zookeeper", "/zookeeper/quota", "/zookeeper/config", "/zookeeper/config/x")
	case 1, 2, 3, 4:
		return "/zookeeper/quota" + pick(o, "", "/a", "/a", "/a/a", "/a/a", "/zookeeper") +
			pick(o, "", "/zookeeper_limits", "/zookeeper_limits", "/zookeeper_stats", "/zookeeper_stats")
	}
	var p strings.Builder
	for range 1 + o.rng.IntN(3) {
		p.WriteString("/" + pick(o, "a", "a", "b", "ü"))
	}
	return p.String()
}

func (o *oracle) data(path string) []byte {
	if strings.HasSuffix(path, "limits") {
		return []byte(pick(o, "countHardLimit=3", "byteHardLimit=9", "count=1,bytes=1", "garbage", "countHardLimit=5"))
	}
	return pick(o, nil, []byte{}, []byte("x"), []byte("yz"), []byte("12345"))
}

func (o *oracle) acl() []wire.ACL {
	acl := func(perms wire.Perm, scheme, id string) wire.ACL {
		return wire.ACL{Perms: perms, ID: wire.ID{Scheme: scheme, ID: id}}
	}
	if o.rng.IntN(4) > 0 {
		return wire.OpenACL
	}
	return pick(o,
		[]wire.ACL{}, nil,
		[]wire.ACL{acl(wire.Perm(o.rng.IntN(32)), "world", "anyone")},
		[]wire.ACL{acl(31, "auth", "")},
		[]wire.ACL{acl(1, "world", "anyone"), acl(31, "auth", "x")},
		[]wire.ACL{acl(31, "digest", "u:h"), acl(7, "ip", "10.0.0.0/8"), acl(31, "digest", "u:h")},
		[]wire.ACL{acl(31, "digest", "u")},
		[]wire.ACL{acl(31, "world", "anyone"), acl(31, "nobody", "x")},
		[]wire.ACL{{Perms: 31, ID: wire.ID{Scheme: "digest", NullID: true}}},
		[]wire.ACL{{Perms: 31, ID: wire.ID{NullScheme: true, ID: "x"}}},
	)
}

func (o *oracle) version() int32 { return pick[int32](o, -1, -1, -1, 0, 1, -2) }

// op returns a random write; in a multi one that may be inside, mostly.
func (o *oracle) op(inMulti bool) (wire.Op, wire.Record) {
	path := o.path()
	switch o.rng.IntN(10) {
	case 0, 1:
		return wire.OpDelete, wire.DeleteRequest{Path: path, Version: o.version()}
	case 2, 3:
		return wire.OpSetData, wire.SetDataRequest{Path: path, Data: o.data(path), Version: o.version()}
	case 4:
		if inMulti {
			return wire.OpCheck, wire.CheckVersionRequest{Path: path, Version: o.version()}
		}
		return wire.OpSetACL, wire.SetACLRequest{Path: path, ACL: o.acl(), Version: o.version()}
	case 5:
		if o.rng.IntN(2) == 0 {
			return wire.OpCreateTTL, wire.CreateTTLRequest{Path: path, Data: o.data(path), ACL: o.acl(),
				Mode: pick[wire.CreateMode](o, 5, 5, 6, 0), TTL: pick[int64](o, 1, 1000, 0, -1)}
		}
	}
	mode := pick[wire.CreateMode](o, 0, 0, 0, 1, 2, 3, 4)
	if o.rng.IntN(30) == 0 {
		mode = pick[wire.CreateMode](o, 5, 7, -1)
	}
	return pick(o, wire.OpCreate, wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer),
		wire.CreateRequest{Path: path, Data: o.data(path), ACL: o.acl(), Mode: mode}
}

// compare compares the whole state of the Store with the model.
func (o *oracle) compare() {
	o.t.Helper()
	super := []Identity{{"super", ""}}
	if o.s.Zxid() != o.m.zxid || o.s.state.timeMs != o.m.timeMs || o.s.ClockMs() != o.m.clockMs {
		o.t.Fatalf("at %v, %d, %d, model at %v, %d, %d", o.s.Zxid(), o.s.state.timeMs, o.s.ClockMs(), o.m.zxid, o.m.timeMs, o.m.clockMs)
	}
	want := Counts{Nodes: len(o.m.nodes) + 1, Sessions: len(o.m.sessions), DataSizeBytes: int64(len(o.m.nodes["/"].data))}
	ephemerals := map[wire.SessionID][]string{}
	quotas := 0
	for path, n := range o.m.nodes {
		data, stat, code := o.s.Get(path, super)
		if code != wire.CodeOK || !bytes.Equal(data, n.data) || (data == nil) != (n.data == nil) || stat != o.m.statOf(path) {
			o.t.Fatalf("Get %q: %q %+v %v, model has %q %+v", path, data, stat, code, n.data, o.m.statOf(path))
		}
		acl, _, _ := o.s.GetACL(path, super)
		if !slices.Equal(acl, n.acl) {
			o.t.Fatalf("ACL of %q: %v, model has %v", path, acl, n.acl)
		}
		names, _, _ := o.s.Children(path, super)
		slices.Sort(names)
		if !slices.Equal(names, o.m.children(path)) {
			o.t.Fatalf("children of %q: %v, model has %v", path, names, o.m.children(path))
		}
		i, _ := o.s.state.tree.find(path)
		kind := map[bool]nodeKind{n.ephemeral: kindEphemeral, n.container: kindContainer, n.ttlMs != 0: kindTTL}[true]
		if kind == 0 {
			kind = kindPersistent
		}
		if row := o.s.state.tree.record(i); row.kind != kind || row.kind == kindTTL && row.owner != n.ttlMs {
			o.t.Fatalf("%q is of kind %d and owner %d, model has %d", path, row.kind, row.owner, kind)
		}
		if n.ephemeral {
			want.Ephemerals++
			ephemerals[n.stat.EphemeralOwner] = append(ephemerals[n.stat.EphemeralOwner], path)
		}
		want.DataSizeBytes += int64(len([]rune(path)) + len(n.data))
		if o.m.hasQuota(path) && path != "/" {
			quotas++
		}
	}
	if o.m.hasQuota("/a") && o.m.hasQuota("/a/a") && o.m.has("/a/a") {
		o.seen["nested quota"]++
	}
	o.seen["quota"] += quotas
	if got := o.s.Counts(); got != want {
		o.t.Fatalf("Counts %+v, model has %+v", got, want)
	}
	for id, sess := range o.m.sessions {
		info, ok := o.s.Sessions().Get(id)
		paths := ephemerals[id]
		slices.Sort(paths)
		if !ok || info.Generation != sess.generation || info.LastSeq != sess.seq || info.TimeoutMs != sess.timeoutMs ||
			info.Addr != sess.addr || info.Password != sess.password || !slices.Equal(info.Identities, sess.ids) || info.Ephemerals != len(paths) ||
			!slices.Equal(o.s.Ephemerals(id), paths) {
			o.t.Fatalf("session %v: %+v with %v, model has %+v with %v", id, info, o.s.Ephemerals(id), sess, paths)
		}
	}
	o.compareReads()
}

// compareReads compares the reads of some client.
func (o *oracle) compareReads() {
	o.t.Helper()
	path := o.path()
	ids := pick(o, []Identity{{"ip", "10.0.0.1"}}, []Identity{{"ip", "11.0.0.1"}, {"digest", "u:h"}}, []Identity{{"ip", "11.0.0.1"}})
	n, ok := o.m.nodes[at(path)]
	code := func(perm wire.Perm) wire.Code {
		switch {
		case !ok:
			return wire.CodeNoNode
		case !mayWith(n.acl, ids, perm):
			return wire.CodeNoAuth
		}
		return wire.CodeOK
	}
	_, _, get := o.s.Get(path, ids)
	_, _, children := o.s.Children(path, ids)
	acl, _, getACL := o.s.GetACL(path, ids)
	below, number := o.s.AllChildrenNumber(path, ids)
	exists, existsCode := o.s.Exists(path, ids)
	stat, there := o.s.Node(path)
	if get != code(wire.PermRead) || children != get || number != get || getACL != code(wire.PermRead|wire.PermAdmin) || there != ok {
		o.t.Fatalf("reading %q as %v: %v, %v, %v, %v, model has %+v", path, ids, get, children, number, getACL, n)
	}
	if strings.Contains(path, "\x00") {
		if existsCode != wire.CodeBadArguments {
			o.t.Fatalf("exists %q: %v", path, existsCode)
		}
	} else if existsCode != get || existsCode == wire.CodeOK && exists != stat {
		o.t.Fatalf("exists %q: %v %+v, Node %+v", path, existsCode, exists, stat)
	}
	if number == wire.CodeOK {
		want := int32(0)
		if path == "" {
			want++ // as in ZooKeeper
		}
		for p := range o.m.nodes {
			if p != at(path) && strings.HasPrefix(p, strings.TrimSuffix(at(path), "/")+"/") {
				want++
			}
		}
		if below != want {
			o.t.Fatalf("%d nodes below %q, model has %d", below, path, want)
		}
	}
	if getACL == wire.CodeOK {
		masked := slices.Clone(n.acl)
		for i, a := range masked {
			if a.Scheme == "digest" && !mayWith(n.acl, ids, wire.PermAdmin) {
				masked[i].ID.ID = a.ID.ID[:1] + ":x"
			}
		}
		if !slices.Equal(acl, masked) {
			o.t.Fatalf("ACL of %q as %v: %v, want %v", path, ids, acl, masked)
		}
	}
}
