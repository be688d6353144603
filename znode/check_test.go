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
	const id = wire.SessionID(0x0100000000000001)
	for name, c := range map[string]struct {
		do   func(s *Store)
		want string
	}{
		"a path that leads elsewhere": {func(s *Store) { s.state.tree.paths["/a"] = at(s, "/c") }, "its path leads to"},
		"a path without a node":       {func(s *Store) { s.state.tree.paths["/x"] = at(s, "/c") }, "paths"},
		"no config":                   {func(s *Store) { delete(s.state.tree.paths, "/zookeeper/config") }, "no node /zookeeper/config"},
		"an invalid path": {func(s *Store) {
			row(s, "/a").path = "/a/"
			s.state.tree.paths["/a/"] = at(s, "/a")
			delete(s.state.tree.paths, "/a")
		}, "invalid path"},
		"a node from the future":        {func(s *Store) { row(s, "/a").pzxid = s.state.zxid + 1 }, "czxid"},
		"a clock that ran backwards":    {func(s *Store) { s.state.clock.stampMs = 1 }, "used at"},
		"an owner too many":             {func(s *Store) { row(s, "/a").owner = 5 }, "owner"},
		"no time to live":               {func(s *Store) { row(s, "/t").owner = 0 }, "time to live"},
		"an ephemeral of nobody":        {func(s *Store) { row(s, "/a/s0000000001").owner = 12345 }, "does not exist"},
		"an unknown kind":               {func(s *Store) { row(s, "/a").kind = 9 }, "kind 9"},
		"an ephemeral parent":           {func(s *Store) { row(s, "/a").kind = kindEphemeral; row(s, "/a").owner = int64(id) }, "ephemeral"},
		"a lost child":                  {func(s *Store) { s.state.tree.link(at(s, "/a")).children-- }, "children"},
		"a child too many":              {func(s *Store) { s.state.tree.link(at(s, "/a")).children++ }, "children"},
		"a broken ring":                 {func(s *Store) { s.state.tree.link(s.state.tree.link(at(s, "/")).first).prev = at(s, "/a/s0000000001") }, "child"},
		"a wrong parent":                {func(s *Store) { s.state.tree.link(at(s, "/c")).parent = at(s, "/a") }, "child"},
		"a row too many":                {func(s *Store) { s.state.tree.nodes.free = s.state.tree.nodes.free[:0] }, "rows in use"},
		"a session that is elsewhere":   {func(s *Store) { s.state.sessions.slots[id] = 1 }, "session"},
		"a session id that may not be":  {func(s *Store) { s.state.sessions.slots[77] = 0 }, "ids"},
		"a lost ephemeral":              {func(s *Store) { *s.state.sessions.belongingsOf(s.state.sessions.slots[id]) = belongings{} }, "ephemerals"},
		"a wrong size of ephemerals":    {func(s *Store) { s.state.sessions.belongingsOf(s.state.sessions.slots[id]).bytes++ }, "ephemerals"},
		"somebody else's ephemeral":     {func(s *Store) { row(s, "/a/s0000000001").owner = -0x7000000000000001 }, "session"},
		"a total of ephemerals":         {func(s *Store) { s.state.sessions.ephemerals++ }, "ephemerals"},
		"a total of bytes":              {func(s *Store) { row(s, "/c").data = []byte("more") }, "bytes"},
		"an ACL that is not shared":     {func(s *Store) { c := *row(s, "/c").acl; row(s, "/c").acl = &c }, "ACL"},
		"an ACL with too many nodes":    {func(s *Store) { row(s, "/c").acl.refs++ }, "ACL"},
		"an ACL without nodes":          {func(s *Store) { s.state.tree.acls.byKey["x"] = &aclList{key: "x"} }, "ACLs"},
		"a quota that is not active":    {func(s *Store) { delete(s.state.tree.quotas.byPath, "/a") }, "not active"},
		"a quota without limits":        {func(s *Store) { s.state.tree.quotas.byPath["/c"] = &quota{path: "/c"} }, "quotas"},
		"a quota that does not add up":  {func(s *Store) { s.state.tree.link(s.state.tree.paths["/a"]).bytes++ }, "counting gives"},
		"a quota nobody knows of":       {func(s *Store) { s.state.tree.link(s.state.tree.paths["/a"]).quota = false }, "its links say otherwise"},
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
	row := func(s *Store) *node { i, _ := s.state.tree.find("/a"); return s.state.tree.nodes.mut(i) }
	digests := map[uint64]string{smallState(t).Digest(): "nothing"}
	for name, change := range map[string]func(s *Store){
		"zxid":       func(s *Store) { s.state.zxid++ },
		"time":       func(s *Store) { s.state.timeMs++ },
		"clock":      func(s *Store) { s.state.clock.stampMs++ },
		"shift":      func(s *Store) { s.state.clock.shiftMs++ },
		"ended":      func(s *Store) { s.state.sessions.generations.ended++ },
		"used":       func(s *Store) { row(s).usedMs++ },
		"path":       func(s *Store) { row(s).path = "/b" },
		"data":       func(s *Store) { row(s).data = []byte("longes") },
		"no data":    func(s *Store) { row(s).data = nil },
		"empty data": func(s *Store) { row(s).data = []byte{} },
		"ACL":        func(s *Store) { row(s).acl = s.state.tree.acls.intern([]wire.ACL{{Perms: 30, ID: wire.OpenACL[0].ID}}) },
		"czxid":      func(s *Store) { row(s).czxid++ },
		"mzxid":      func(s *Store) { row(s).mzxid++ },
		"pzxid":      func(s *Store) { row(s).pzxid++ },
		"ctime":      func(s *Store) { row(s).ctimeMs++ },
		"mtime":      func(s *Store) { row(s).mtimeMs++ },
		"version":    func(s *Store) { row(s).version++ },
		"aversion":   func(s *Store) { row(s).aversion++ },
		"creates":    func(s *Store) { row(s).creates++ },
		"owner":      func(s *Store) { row(s).owner++ },
		"kind":       func(s *Store) { row(s).kind = kindContainer },
		"session":    func(s *Store) { s.state.sessions.rows.mut(0).id++ },
		"generation": func(s *Store) { s.state.sessions.rows.mut(0).generation++ },
		"lastSeq":    func(s *Store) { s.state.sessions.rows.mut(0).lastSeq++ },
		"timeout":    func(s *Store) { s.state.sessions.rows.mut(0).timeoutMs++ },
		"address":    func(s *Store) { s.state.sessions.rows.mut(0).addr += "0" },
		"password":   func(s *Store) { s.state.sessions.rows.mut(0).password += "0" },
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
