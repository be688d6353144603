package znode

import (
	"slices"
	"strings"
	"testing"

	"lockkeeper/wire"
)

// TestContent takes the content of a state out and in again: nothing may be lost, and the state
// goes on as the original does.
func TestContent(t *testing.T) {
	const session = wire.SessionID(0x100000000000001)
	acl := []wire.ACL{{Perms: wire.PermRead, ID: wire.ID{Scheme: "digest", ID: "a:b"}}}
	base := func(path string) Node {
		return Node{Path: path, ACL: wire.OpenACL, Czxid: 3, Mzxid: 4, Pzxid: 5, CtimeMs: 1000, MtimeMs: 900, Version: 2, Aversion: 1}
	}
	with := func(n Node, change func(*Node)) Node {
		change(&n)
		return n
	}
	nodes := []Node{
		with(base("/a/e"), func(n *Node) { n.Session = session }), // before its parent
		with(base("/a"), func(n *Node) { n.Data, n.Creates = []byte("x"), 7 }),
		with(base("/a/t"), func(n *Node) { n.TTLMs = 5000; n.Data = []byte{} }),
		with(base("/a/c"), func(n *Node) { n.Container, n.ACL = true, acl }),
		with(base("/zookeeper/quota/a"), func(n *Node) {}),
		with(base("/zookeeper/quota/a/zookeeper_limits"), func(n *Node) { n.Data = []byte("count=10,bytes=-1") }),
		with(base("/zookeeper/quota/a/zookeeper_stats"), func(n *Node) { n.Data = []byte("count=99,bytes=99") }),
		with(base("/zookeeper/config"), func(n *Node) { n.Data = []byte("server.9=gone:1:2") }),
		with(base("/late"), func(n *Node) { n.Mzxid = 77 }),
	}
	store, err := FromContent(Content{Zxid: 9, Nodes: slices.Values(nodes),
		Sessions: slices.Values([]Session{{ID: session, TimeoutMs: 6000, Password: wire.Password([]byte("0123456789abcdef"))}})})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Check(); err != nil {
		t.Fatal(err)
	}
	if store.Zxid() != 77 {
		t.Errorf("zxid %v, the newest of a node is 77", store.Zxid())
	}
	if data, _, _ := store.Get("/zookeeper/config", nil); len(data) != 0 {
		t.Errorf("the members of the other cluster are in /zookeeper/config: %q", data)
	}
	if data, _, _ := store.Get("/zookeeper/quota/a/zookeeper_stats", nil); string(data) != "count=4,bytes=1" {
		t.Errorf("usage %q is not counted anew", data)
	}
	if info, ok := store.Sessions().Get(session); !ok || info.TimeoutMs != 6000 || info.Ephemerals != 1 || info.Generation != 1 {
		t.Errorf("session %+v, %v", info, ok)
	}
	var out []Node
	for n := range store.AllNodes() {
		if !builtIn(n.Path) && !strings.HasPrefix(n.Path, "/zookeeper/quota") {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b Node) int { return strings.Compare(a.Path, b.Path) })
	want := slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return strings.HasPrefix(n.Path, "/zookeeper") })
	slices.SortFunc(want, func(a, b Node) int { return strings.Compare(a.Path, b.Path) })
	if len(out) != len(want) {
		t.Fatalf("%d nodes, %d went in", len(out), len(want))
	}
	for i := range out {
		equalNodes(t, out[i], want[i])
	}
}

func equalNodes(t *testing.T, a, b Node) {
	t.Helper()
	if (a.Data == nil) != (b.Data == nil) || string(a.Data) != string(b.Data) || !slices.Equal(a.ACL, b.ACL) {
		t.Errorf("%s: data %q, ACL %v, not %q, %v", a.Path, a.Data, a.ACL, b.Data, b.ACL)
	}
	a.Data, a.ACL, b.Data, b.ACL = nil, nil, nil, nil
	if a.Path != b.Path || a.Czxid != b.Czxid || a.Mzxid != b.Mzxid || a.Pzxid != b.Pzxid || a.CtimeMs != b.CtimeMs ||
		a.MtimeMs != b.MtimeMs || a.Version != b.Version || a.Creates != b.Creates || a.Aversion != b.Aversion ||
		a.Session != b.Session || a.TTLMs != b.TTLMs || a.Container != b.Container {
		t.Errorf("%+v\nwent in as\n%+v", a, b)
	}
}

// TestContentRefused: the error names the node or session that no state can hold.
func TestContentRefused(t *testing.T) {
	node := func(path string, change func(*Node)) Node {
		n := Node{Path: path, ACL: wire.OpenACL}
		change(&n)
		return n
	}
	none := func(*Node) {}
	for want, c := range map[string]Content{
		`two nodes "/a"`:             {Nodes: slices.Values([]Node{node("/a", none), node("/a", none)})},
		`"/a/b" has no parent`:       {Nodes: slices.Values([]Node{node("/a/b", none)})},
		`node "/a/": invalid path`:   {Nodes: slices.Values([]Node{node("/a/", none)})},
		`0x5, which does not exist`:  {Nodes: slices.Values([]Node{node("/a", func(n *Node) { n.Session = 5 })})},
		`session 0xff00000000000001`: {Sessions: slices.Values([]Session{{ID: -1<<56 + 1}})},
	} {
		if c.Nodes == nil {
			c.Nodes = func(func(Node) bool) {}
		}
		if c.Sessions == nil {
			c.Sessions = func(func(Session) bool) {}
		}
		if _, err := FromContent(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

// TestImportFromTheFuture: one node of the future, as a wrong clock leaves it behind in ZooKeeper,
// has no effect on the times of others, and TTL nodes live for their time to live.
func TestImportFromTheFuture(t *testing.T) {
	const now, future, ttl = 1_800_000_000_000, 2_100_000_000_000, 2000
	s, err := FromContent(Content{Sessions: slices.Values([]Session{{ID: 1, TimeoutMs: 4000}}),
		Nodes: slices.Values([]Node{{Path: "/", ACL: wire.OpenACL},
			{Path: "/future", ACL: wire.OpenACL, CtimeMs: future, MtimeMs: future, TTLMs: ttl, Czxid: 5, Mzxid: 5, Pzxid: 5}})})
	if err != nil {
		t.Fatal(err)
	}
	apply := func(clockMs int64, c Command) (code wire.Code) {
		s.Apply(1, &Entry{Stamp: Stamp{now, clockMs, ExtendedTypes}, Commands: []Command{c}}, func(_ *Command, r *Result) { code = r.Code })
		return code
	}
	if code := apply(0, Command{Session: 1, Generation: 1, Seq: 1, Body: &Request{Op: wire.OpCreate, Body: create("/now", "", 0).Append(nil)}}); code != wire.CodeOK {
		t.Fatal(code)
	}
	if n, _ := s.Node("/now"); n.Ctime != now {
		t.Errorf("created at %d, at %d", n.Ctime, int64(now))
	}
	reap := Command{Body: &Reap{Path: "/future"}}
	if code := apply(ttl, reap); code != wire.CodeNotEmpty {
		t.Errorf("within its time to live: %v", code)
	}
	if code := apply(ttl+1, reap); code != wire.CodeOK {
		t.Errorf("after its time to live: %v", code)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}
