package znode

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/wire"
)

// TestSequenceEnd: numbers run up to 2147483647 and stay there; plain creates go on working.
func TestSequenceEnd(t *testing.T) {
	d := newDriver(t)
	d.apply(d.open(1))
	d.must(1, wire.OpCreate, create("/q", "", 0))
	for _, s := range []*Store{d.s, d.twin} {
		i, _ := s.state.tree.find("/q")
		s.state.tree.detail(i).creates = math.MaxInt32 - 1
	}
	for _, want := range []string{"/q/n2147483646", "/q/n2147483647"} {
		if r := d.must(1, wire.OpCreate, create("/q/n", "", wire.ModePersistentSequential)); r.Path != want {
			t.Errorf("made %s, want %s", r.Path, want)
		}
	}
	for range 2 {
		if r := d.do(1, wire.OpCreate, create("/q/n", "", wire.ModePersistentSequential)); r.Code != wire.CodeNodeExists {
			t.Errorf("after the last number: %v", r.Code)
		}
	}
	before, _ := d.s.Node("/q")
	d.must(1, wire.OpCreate, create("/q/plain", "", 0))
	after, _ := d.s.Node("/q")
	if after.Pzxid <= before.Pzxid || after.NumChildren != before.NumChildren+1 {
		t.Errorf("a plain create made %+v of %+v", after, before)
	}
}

// TestVersionWraps as it does in ZooKeeper, through -1, which only "any" matches.
func TestVersionWraps(t *testing.T) {
	d := newDriver(t)
	d.apply(d.open(1))
	d.must(1, wire.OpCreate, create("/v", "", 0))
	set := func(version int32) {
		for _, s := range []*Store{d.s, d.twin} {
			i, _ := s.state.tree.find("/v")
			s.state.tree.detail(i).version = version
		}
	}
	write := func(version int32) Result {
		return d.do(1, wire.OpSetData, wire.SetDataRequest{Path: "/v", Version: version})
	}
	set(math.MaxInt32)
	if r := write(math.MaxInt32); r.Code != wire.CodeOK || r.Stat.Version != math.MinInt32 {
		t.Errorf("%v, version %d", r.Code, r.Stat.Version)
	}
	if r := write(math.MinInt32); r.Code != wire.CodeOK || r.Stat.Version != math.MinInt32+1 {
		t.Errorf("%v, version %d", r.Code, r.Stat.Version)
	}
	set(-2)
	if r := write(-2); r.Stat.Version != -1 {
		t.Errorf("%v, version %d", r.Code, r.Stat.Version)
	}
	if r := write(-2); r.Code != wire.CodeBadVersion {
		t.Errorf("%v, version %d", r.Code, r.Stat.Version)
	}
	if r := write(-1); r.Stat.Version != 0 {
		t.Errorf("%v, version %d", r.Code, r.Stat.Version)
	}
}

// TestDeepTree: no depth, and no number of children, is too much for anything that walks the tree.
func TestDeepTree(t *testing.T) {
	const depth = 2000
	d := newDriver(t)
	d.apply(d.open(1))
	cmds := []Command{}
	for i := 1; i <= depth; i++ {
		cmds = append(cmds, d.request(1, wire.OpCreate, create(strings.Repeat("/d", i), "x", 0)))
	}
	cmds = append(cmds,
		d.request(1, wire.OpCreate, create("/zookeeper/quota/d", "", 0)),
		d.request(1, wire.OpCreate, create("/zookeeper/quota/d/zookeeper_limits", "", 0)),
		d.request(1, wire.OpCreate, create("/zookeeper/quota/d/zookeeper_stats", "", 0)))
	d.apply(cmds...)
	ids := []Identity{{"ip", "1.1.1.1"}}
	if n, code := d.s.AllChildrenNumber("/d", ids); n != depth-1 || code != wire.CodeOK {
		t.Errorf("%d nodes below /d, %v", n, code)
	}
	if data, _, _ := d.s.Get("/zookeeper/quota/d/zookeeper_stats", ids); string(data) != fmt.Sprintf("count=%d,bytes=%d", depth, depth) {
		t.Errorf("usage %s", data)
	}
	cmds = nil
	for i := depth; i > 1; i-- {
		cmds = append(cmds, d.request(1, wire.OpDelete, wire.DeleteRequest{Path: strings.Repeat("/d", i), Version: -1}))
	}
	for _, r := range d.apply(cmds...) {
		if r.Code != wire.CodeOK {
			t.Fatal(r.Code)
		}
	}
	if data, _, _ := d.s.Get("/zookeeper/quota/d/zookeeper_stats", ids); string(data) != "count=1,bytes=1" {
		t.Errorf("usage %s", data)
	}
}

// Whatever a client watches, the nearest node above it is found, and at once.
func TestAccessAbove(t *testing.T) {
	d := newDriver(t)
	d.apply(d.open(1))
	owner := func(path string) []Identity { return []Identity{{Scheme: "digest", ID: path}} }
	for _, path := range []string{"/a", "/a/b", "/a/b/c", "/x"} {
		d.must(1, wire.OpCreate, wire.CreateRequest{Path: path, ACL: []wire.ACL{
			{Perms: wire.PermCreate, ID: wire.OpenACL[0].ID}, {Perms: wire.PermRead, ID: wire.ID{Scheme: "digest", ID: path + ":h"}}}})
	}
	for path, want := range map[string]string{
		"/a/b": "/a", "/a/b/c": "/a/b", "/a/b/n": "/a/b", "/a/b/c/n": "/a/b/c", "/a/n/c": "/a", "/a/b/c/n/n/n": "/a/b/c", "/a/": "/a",
		"/a//b": "/a", "/a/bc/d": "/a", "/x/y": "/x", "/a" + strings.Repeat("/", 1<<20): "/a",
		"/a" + strings.Repeat("/b", 1<<19): "/a/b",
		"/":                                "", "/a": "", "/n": "", "/n/b": "", "": "", "a": "", "a/b": "", "//": "", "//a/b": "", "eve\n": "", "x/a/b": "",
		strings.Repeat("/", 1<<20): "", strings.Repeat("a/", 1<<19): "",
	} {
		began := time.Now()
		access := d.s.AccessAbove(path)
		if took := time.Since(began); took > time.Second {
			t.Errorf("%.20q (%d bytes): %v", path, len(path), took)
		}
		for _, at := range []string{"/a", "/a/b", "/a/b/c", "/x"} {
			if got := access.Allows(owner(at+":h"), wire.PermRead); got != (at == want || want == "") {
				t.Errorf("%.20q (%d bytes), reader of %s: %v, want that of %q", path, len(path), at, got, want)
			}
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		path := "/"
		for range rng.IntN(12) {
			path += string("/abcx"[rng.IntN(5)])
		}
		want, _ := d.s.AccessOf("/")
		for i := range path {
			if a, ok := d.s.AccessOf(path[:i]); ok && path[i] == '/' {
				want = a
			}
		}
		if got := d.s.AccessAbove(path); got != want {
			t.Fatalf("%q: %v, want %v", path, got, want)
		}
	}
}

// TestChildrenInOrder: nobody may rely on it, but a Store that was not restored lists children as
// they were created.
func TestChildrenInOrder(t *testing.T) {
	d := newDriver(t)
	d.apply(d.open(1))
	d.must(1, wire.OpCreate, create("/p", "", 0))
	for _, name := range []string{"c", "a", "d", "b", "e"} {
		d.must(1, wire.OpCreate, create("/p/"+name, "", wire.ModeEphemeral))
	}
	for _, c := range []struct{ remove, want string }{
		{"", "c a d b e"}, {"d", "c a b e"}, {"e", "c a b"}, {"c", "a b"}, {"a", "b"}, {"b", ""},
	} {
		if c.remove != "" {
			d.must(1, wire.OpDelete, wire.DeleteRequest{Path: "/p/" + c.remove, Version: -1})
		}
		if names, _, _ := d.s.Children("/p", nil); strings.Join(names, " ") != c.want {
			t.Errorf("after %q: %v, want %s", c.remove, names, c.want)
		}
	}
}

// TestReadsAreKept: the result of a read or an event stays as it was, whatever happens to the node.
func TestReadsAreKept(t *testing.T) {
	d := newDriver(t)
	d.apply(d.open(1))
	r := d.must(1, wire.OpCreate, create("/a", "first", 0))
	super := []Identity{{"super", ""}}
	data, _, _ := d.s.Get("/a", super)
	acl, _, _ := d.s.GetACL("/a", super)
	names, _, _ := d.s.Children("/", super)
	d.must(1, wire.OpSetData, wire.SetDataRequest{Path: "/a", Data: []byte("xxxxx"), Version: -1})
	d.must(1, wire.OpSetACL, wire.SetACLRequest{Path: "/a", Version: -1, ACL: []wire.ACL{{Perms: 1, ID: wire.OpenACL[0].ID}}})
	d.must(1, wire.OpDelete, wire.DeleteRequest{Path: "/a", Version: -1})
	d.must(1, wire.OpCreate, create("/b", "other", 0))
	slices.Sort(names)
	if string(data) != "first" || !slices.Equal(acl, wire.OpenACL) || r.Path != "/a" || !slices.Equal(names, []string{"a", "zookeeper"}) {
		t.Errorf("%s %v %s %v", data, acl, r.Path, names)
	}
}

// TestMaskLeavesTheOriginal: masking hashes for one reader must not take them from the node.
func TestMaskLeavesTheOriginal(t *testing.T) {
	acl := []wire.ACL{
		{Perms: 1, ID: wire.ID{Scheme: "world", ID: "anyone"}},
		{Perms: 2, ID: wire.ID{Scheme: "digest", ID: "u:hash"}},
		{Perms: 4, ID: wire.ID{Scheme: "digest", ID: "v:hash"}},
	}
	before := slices.Clone(acl)
	masked := maskACL(acl)
	if !slices.Equal(acl, before) || masked[1].ID.ID != "u:x" || masked[2].ID.ID != "v:x" || masked[0] != acl[0] {
		t.Errorf("%v became %v", before, masked)
	}
	if open := maskACL(wire.OpenACL); &open[0] != &wire.OpenACL[0] {
		t.Error("a list without hashes was copied")
	}
}

func TestAllowed(t *testing.T) {
	list := func(entries ...string) (acl []wire.ACL) {
		for _, e := range entries {
			p := strings.SplitN(e, " ", 3)
			acl = append(acl, wire.ACL{Perms: wire.Perm(p[0][0] - '0'), ID: wire.ID{Scheme: p[1], ID: p[2]}})
		}
		return acl
	}
	ids := func(entries ...string) (ids []Identity) {
		for _, e := range entries {
			scheme, id, _ := strings.Cut(e, " ")
			ids = append(ids, Identity{scheme, id})
		}
		return ids
	}
	for _, c := range []struct {
		acl  []wire.ACL
		ids  []Identity
		want wire.Perm
		ok   bool
	}{
		{nil, nil, wire.PermRead, true},
		{[]wire.ACL{}, nil, wire.PermAll, true},
		{list("1 world anyone"), nil, wire.PermRead, true},
		{list("1 world anyone"), ids("digest u:h"), wire.PermWrite, false},
		{list("1 world anyone"), ids("super "), wire.PermWrite, true},
		{list("0 digest u:h"), ids("digest u:h"), wire.PermRead, false},
		{list("2 digest u:h"), ids("ip 1.1.1.1", "digest x:y", "digest u:h"), wire.PermWrite, true},
		{list("2 digest u:h"), ids("digest u:H"), wire.PermWrite, false},
		{list("2 digest u:h"), ids("sasl u:h"), wire.PermWrite, false},
		{list("2 sasl bob"), ids("sasl bob"), wire.PermWrite, true},
		{list("2 x509 CN=a"), ids("x509 CN=a"), wire.PermWrite, true},
		{list("2 world bob"), ids("world bob"), wire.PermWrite, true},
		{list("1 world anyone", "2 digest u:h"), ids("digest u:h"), wire.PermRead | wire.PermWrite, true},
		{list("1 digest a:b", "2 digest u:h"), ids("digest u:h"), wire.PermRead, false},
		{list("1 ip 10.0.0.0/8"), ids("ip 10.255.0.1"), wire.PermRead, true},
		{list("1 ip 10.0.0.0/8"), ids("ip 11.0.0.1"), wire.PermRead, false},
		{list("1 ip 10.0.0.7"), ids("ip 10.0.0.7"), wire.PermRead, true},
		{list("1 ip 10.0.0.7/31"), ids("ip 10.0.0.6"), wire.PermRead, true},
		{list("1 ip 10.0.0.7"), ids("ip 10.0.0.6"), wire.PermRead, false},
		{list("1 ip ::/0"), ids("ip 10.0.0.6"), wire.PermRead, false},
		{list("1 ip ::/0"), ids("ip fe80:0:0:0:0:0:0:1"), wire.PermRead, true},
		{list("1 ip ::/0"), ids("ip fe80:0:0:0:0:0:0:1%eth0"), wire.PermRead, false},
		{list("1 ip 2001:DB8::5"), ids("ip 2001:db8:0:0:0:0:0:5"), wire.PermRead, true},
		{list("1 ip nonsense"), ids("ip nonsense"), wire.PermRead, false},
		{list("1 ip 10.0.0.1"), ids("ip "), wire.PermRead, false},
	} {
		if got := Allowed(c.acl, c.ids, c.want); got != c.ok {
			t.Errorf("Allowed(%v, %v, %d) = %v", c.acl, c.ids, c.want, got)
		}
	}
}

// TestApplyCallsEach: in order, after each command, with the state as it is then, and with results
// that belong to it.
func TestApplyCallsEach(t *testing.T) {
	s := New()
	s.Apply(1, &Entry{Commands: []Command{{Session: 1, Body: &CreateSession{}}}}, nil)
	e := &Entry{}
	for i := range 5 {
		e.Commands = append(e.Commands, Command{Session: 1, Generation: 1, Seq: uint64(i + 1),
			Body: &Request{Op: wire.OpCreate, Body: create(fmt.Sprintf("/n%d", i), "", 0).Append(nil)}})
	}
	calls := 0
	s.Apply(1, e, func(c *Command, r *Result) {
		if c != &e.Commands[calls] || r.Path != fmt.Sprintf("/n%d", calls) || len(r.Events) != 2 || r.Events[0].Path != r.Path {
			t.Errorf("call %d: %+v, %+v", calls, c, r)
		}
		calls++
		if n := s.Counts().Nodes; n != 5+calls || r.Zxid != s.Zxid() {
			t.Errorf("in call %d there are %d nodes at %v", calls, n, s.Zxid())
		}
	})
	if calls != 5 {
		t.Errorf("%d calls", calls)
	}
}

// TestIDsThatComeBack: an id is used again when a member's wall clock was set back. No connection
// of the new session has the generation of a connection of an earlier one, so that the requests
// that the earlier one left in flight are refused (C5).
func TestIDsThatComeBack(t *testing.T) {
	d := newDriver(t)
	const id, other = wire.SessionID(0x0100000000000001), wire.SessionID(0x0100000000000002)
	used := map[uint64]bool{}
	use := func(r Result) {
		t.Helper()
		if r.Status != Done || used[r.Generation] {
			t.Fatalf("%v, generation %d, used before: %v", r.Status, r.Generation, used)
		}
		used[r.Generation] = true
	}
	attach := func(id wire.SessionID, generation uint64) Command {
		return Command{Session: id, Generation: generation, Seq: 1 << 63,
			Body: &Attach{Connection: Connection{TimeoutMs: 4000, Password: wire.Password(fmt.Appendf(nil, "%016x", uint64(id))), Addr: "10.0.0.1"}}}
	}
	for round := range 5 {
		r := d.apply(d.open(id))[0]
		use(r)
		for range round {
			r = d.apply(attach(id, r.Generation))[0]
			use(r)
		}
		d.conns[id].generation = r.Generation
		late := d.request(id, wire.OpCreate, create(fmt.Sprint("/late", round), "", 0))
		if round%2 == 0 {
			d.apply(Command{Session: id, Generation: r.Generation, Body: &Expire{}})
		} else {
			d.conns[id].seq--
			d.apply(d.request(id, wire.OpCloseSession, wire.Empty{}))
		}
		d.s = restored(t, d.s) // it is part of the state
		next := d.apply(d.open(id))[0]
		use(next)
		if got := d.apply(late)[0]; got.Status != Moved {
			t.Fatalf("a request of the session before: %v", got.Status)
		}
		d.apply(Command{Session: id, Generation: next.Generation, Body: &Expire{}})
	}
	// A restore ends all sessions.
	r := d.apply(d.open(other))[0]
	for range 20 {
		r = d.apply(attach(other, r.Generation))[0]
	}
	g := d.s.state.sessions.generations
	g.replace(&generations{})
	if g.first() <= r.Generation {
		t.Errorf("after a restore sessions begin at generation %d, and there was %d", g.first(), r.Generation)
	}
}

// TestSlotsAreUsedAgain: a Store does not grow from nodes that come and go.
func TestSlotsAreUsedAgain(t *testing.T) {
	d := newDriver(t)
	for round := range 300 {
		id := wire.SessionID(round + 1)
		d.apply(d.open(id), d.request(id, wire.OpCreate, create("/e", "", wire.ModeEphemeral)),
			d.request(id, wire.OpCreate, create("/p", "", 0)), d.request(id, wire.OpDelete, wire.DeleteRequest{Path: "/p", Version: -1}),
			Command{Session: id, Generation: d.conns[id].generation, Body: &Expire{}})
	}
	if len(d.s.state.tree.nodes.pages) != 1 || len(d.s.state.sessions.rows.pages) != 1 {
		t.Errorf("%d pages of nodes, %d of sessions", len(d.s.state.tree.nodes.pages), len(d.s.state.sessions.rows.pages))
	}
}

// TestBuffersAreDropped: a rare large command does not make the Store keep large buffers.
func TestBuffersAreDropped(t *testing.T) {
	s := New()
	cmds := []Command{{Session: 1, Body: &CreateSession{}}}
	for i := range 5000 {
		cmds = append(cmds, Command{Session: 1, Generation: 1, Seq: uint64(i + 1),
			Body: &Request{Op: wire.OpCreate, Body: create(fmt.Sprintf("/e%d", i), "", wire.ModeEphemeral).Append(nil)}})
	}
	events := 0
	cmds = append(cmds, Command{Session: 1, Generation: 1, Body: &Expire{}}, Command{Body: &Sync{}})
	s.Apply(1, &Entry{Commands: cmds}, func(_ *Command, r *Result) { events = max(events, len(r.Events)) })
	if events != 10000 || cap(s.tx.effects.events) > 1024 {
		t.Errorf("%d events, a buffer for %d is kept", events, cap(s.tx.effects.events))
	}
}
