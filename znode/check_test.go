package znode

import (
	"strings"
	"testing"

	"lockkeeper/wire"
)

// TestCheckFinds breaks each invariant and expects Check to say so.
func TestCheckFinds(t *testing.T) {
	at := func(s *Store, path string) slot {
		i, ok := s.state.tree.find(path)
		if !ok {
			t.Fatalf("no node %s", path)
		}
		return i
	}
	row := func(s *Store, path string) *node { return s.state.tree.nodes.mut(at(s, path)) }
	more := func(s *Store, path string) *details { return s.state.tree.detail(at(s, path)) }
	family := func(s *Store, path string) *family { return s.state.tree.family(row(s, path)) }
	lose := func(s *Store, path string) { s.state.tree.index.slots[s.state.tree.index.hash(path)] = at(s, "/a") }
	const id = wire.SessionID(0x0100000000000001)
	for name, c := range map[string]struct {
		do   func(s *Store)
		want string
	}{
		"a path that leads elsewhere": {func(s *Store) { lose(s, "/c") }, "its path leads to"},
		"a path without a node":       {func(s *Store) { s.state.tree.index.nodes++ }, "paths"},
		"no config":                   {func(s *Store) { lose(s, "/zookeeper/config") }, "no node /zookeeper/config"},
		"an invalid path": {func(s *Store) {
			i := at(s, "/c")
			s.state.tree.indexRemove(i, "/c")
			s.state.tree.nodes.mut(i).body = newBody("..", nil)
			s.state.tree.indexAdd(i, "/..")
		}, "invalid path"},
		"a node from the future":        {func(s *Store) { more(s, "/a").pzxid = s.state.zxid + 1 }, "czxid"},
		"a clock that ran backwards":    {func(s *Store) { s.state.clock.stampMs = 1 }, "used at"},
		"an owner too many":             {func(s *Store) { more(s, "/a").owner = 5 }, "owner"},
		"no time to live":               {func(s *Store) { more(s, "/t").owner = 0 }, "time to live"},
		"an ephemeral of nobody":        {func(s *Store) { more(s, "/a/s0000000001").owner = 12345 }, "does not exist"},
		"an unknown kind":               {func(s *Store) { more(s, "/a").kind = 9 }, "kind 9"},
		"an ephemeral parent":           {func(s *Store) { more(s, "/a").kind = kindEphemeral; more(s, "/a").owner = int64(id) }, "ephemeral"},
		"a lost child":                  {func(s *Store) { family(s, "/a").children-- }, "children"},
		"a child too many":              {func(s *Store) { family(s, "/a").children++ }, "children"},
		"a broken ring":                 {func(s *Store) { s.state.tree.siblings(family(s, "/").first).prev = at(s, "/a/s0000000001") }, "child"},
		"a wrong parent":                {func(s *Store) { row(s, "/c").parent = at(s, "/a") }, "its path leads to"},
		"a row too many":                {func(s *Store) { s.state.tree.nodes.free = s.state.tree.nodes.free[:0] }, "rows in use"},
		"a session that is elsewhere":   {func(s *Store) { s.state.sessions.slots[id] = 1 }, "session"},
		"a session id that may not be":  {func(s *Store) { s.state.sessions.slots[77] = 0 }, "ids"},
		"a lost ephemeral":              {func(s *Store) { *s.state.sessions.belongingsOf(s.state.sessions.slots[id]) = belongings{} }, "ephemerals"},
		"a wrong size of ephemerals":    {func(s *Store) { s.state.sessions.belongingsOf(s.state.sessions.slots[id]).bytes++ }, "ephemerals"},
		"somebody else's ephemeral":     {func(s *Store) { more(s, "/a/s0000000001").owner = -0x7000000000000001 }, "session"},
		"a total of ephemerals":         {func(s *Store) { s.state.sessions.ephemerals++ }, "ephemerals"},
		"a total of bytes":              {func(s *Store) { row(s, "/c").body = newBody("c", []byte("more")) }, "bytes"},
		"an ACL that is not shared":     {func(s *Store) { c := *row(s, "/c").acl; row(s, "/c").acl = &c }, "ACL"},
		"an ACL with too many nodes":    {func(s *Store) { row(s, "/c").acl.refs++ }, "ACL"},
		"an ACL without nodes":          {func(s *Store) { s.state.tree.acls.byKey["x"] = &aclList{key: "x"} }, "ACLs"},
		"a quota that is not active":    {func(s *Store) { delete(s.state.tree.quotas.byPath, "/a") }, "not active"},
		"a quota without limits":        {func(s *Store) { s.state.tree.quotas.byPath["/c"] = &quota{path: "/c"} }, "quotas"},
		"a quota that does not add up":  {func(s *Store) { family(s, "/a").bytes++ }, "counting gives"},
		"a quota nobody knows of":       {func(s *Store) { family(s, "/a").quota = nil }, "its family says otherwise"},
		"stats that are not up to date": {func(s *Store) { s.state.tree.quotas.touch(s.state.tree.quotas.byPath["/a"]) }, "dirty"},
	} {
		s := smallState(t)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		c.do(s)
		if err := s.Check(); err == nil || !strings.HasPrefix(err.Error(), "znode: check: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDigestSees changes everything that is part of the state, one at a time.
func TestDigestSees(t *testing.T) {
	row := func(s *Store) *node { return s.state.tree.nodes.mut(s.state.tree.slotOf("/a")) }
	more := func(s *Store) *details { return s.state.tree.detail(s.state.tree.slotOf("/a")) }
	digests := map[uint64]string{smallState(t).Digest(): "nothing"}
	for name, change := range map[string]func(s *Store){
		"zxid":       func(s *Store) { s.state.zxid++ },
		"time":       func(s *Store) { s.state.timeMs++ },
		"clock":      func(s *Store) { s.state.clock.stampMs++ },
		"shift":      func(s *Store) { s.state.clock.shiftMs++ },
		"ended":      func(s *Store) { s.state.sessions.generations.ended++ },
		"used":       func(s *Store) { more(s).usedMs++ },
		"path":       func(s *Store) { row(s).body = newBody("b", row(s).data()) },
		"data":       func(s *Store) { row(s).body = newBody("a", []byte("longes")) },
		"no data":    func(s *Store) { row(s).body = newBody("a", nil) },
		"empty data": func(s *Store) { row(s).body = newBody("a", []byte{}) },
		"ACL":        func(s *Store) { row(s).acl = s.state.tree.acls.intern([]wire.ACL{{Perms: 30, ID: wire.OpenACL[0].ID}}) },
		"czxid":      func(s *Store) { row(s).czxid++ },
		"mzxid":      func(s *Store) { more(s).mzxid++ },
		"pzxid":      func(s *Store) { more(s).pzxid++ },
		"ctime":      func(s *Store) { row(s).ctimeMs++ },
		"mtime":      func(s *Store) { more(s).mtimeMs++ },
		"version":    func(s *Store) { more(s).version++ },
		"aversion":   func(s *Store) { more(s).aversion++ },
		"creates":    func(s *Store) { more(s).creates++ },
		"owner":      func(s *Store) { more(s).owner++ },
		"kind":       func(s *Store) { more(s).kind = kindContainer },
		"session":    func(s *Store) { s.state.sessions.rows.mut(0).id++ },
		"generation": func(s *Store) { s.state.sessions.rows.mut(0).generation++ },
		"lastSeq":    func(s *Store) { s.state.sessions.rows.mut(0).lastSeq++ },
		"timeout":    func(s *Store) { s.state.sessions.rows.mut(0).timeoutMs++ },
		"address":    func(s *Store) { s.state.sessions.rows.mut(0).addr = &address{text: "0"} },
		"password":   func(s *Store) { s.state.sessions.rows.mut(0).password[0]++ },
		"fewer":      func(s *Store) { i, _ := s.state.tree.find("/c"); s.state.tree.nodes.remove(i) },
	} {
		s := smallState(t)
		change(s)
		if other, ok := digests[s.Digest()]; ok {
			t.Errorf("changing %s gives the digest of changing %s", name, other)
		}
		digests[s.Digest()] = name
		frozen := s.Snapshot()
		if frozen.TreeDigest() != s.TreeDigest() {
			t.Errorf("%s: a snapshot has another digest", name)
		}
		frozen.Release()
	}
}
