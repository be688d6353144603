package znode

import (
	"fmt"
	"iter"
	"slices"

	"lockkeeper/wire"
)

// Node is a node as another program keeps it, with all that a Stat shows.
type Node struct {
	Path             string
	Data             []byte // nil is null; never modified
	ACL              []wire.ACL
	Czxid, Mzxid     wire.Zxid
	Pzxid            wire.Zxid
	CtimeMs, MtimeMs int64 // since 1970
	Version          int32
	Creates          int32 // children that were ever created
	Aversion         int32
	// At most one of these says that the node does not live until it is deleted.
	Session   wire.SessionID // of an ephemeral node
	TTLMs     int64          // of a TTL node
	Container bool
}

// Session is a session as another program keeps it.
type Session struct {
	ID        wire.SessionID
	TimeoutMs int32
	Password  []byte
}

// Content is a state that was not made by applying entries, but taken over from another program.
type Content struct {
	// Zxid is at least the zxid of the newest update. Updates that follow get higher ones, also if
	// a node has seen later ones than this.
	Zxid     wire.Zxid
	Sessions iter.Seq[Session]
	Nodes    iter.Seq[Node] // in any order
}

// FromContent returns a Store with that content. The nodes that are always there are added if they
// are missing, and /zookeeper/config is as it is before the first configuration: the members are
// not part of the content. An error says which session or node cannot be.
func FromContent(c Content) (*Store, error) {
	st := empty()
	st.zxid = c.Zxid
	for row := range c.Sessions {
		if _, ok := st.sessions.slots[row.ID]; ok || !mayBeSession(row.ID) {
			return nil, fmt.Errorf("znode: session %v: it exists already, or its id marks no session", row.ID)
		}
		st.sessions.add(session{id: row.ID, generation: 1, timeoutMs: row.TimeoutMs, password: string(row.Password)})
	}
	for n := range c.Nodes {
		if _, ok := st.tree.paths[n.Path]; ok {
			return nil, fmt.Errorf("znode: there are two nodes %q", n.Path)
		}
		if n.Path != configPath {
			st.takeOver(n)
		}
	}
	fresh := New().state.tree
	for _, path := range builtInPaths {
		if _, ok := st.tree.paths[path]; !ok {
			n := *fresh.nodes.row(fresh.paths[path])
			n.acl = st.tree.acls.intern(n.acl.entries)
			st.tree.place(n)
		}
	}
	if err := st.derive(); err != nil {
		return nil, fmt.Errorf("znode: %w", err)
	}
	for _, q := range st.tree.quotas.byPath { // the other program's usage may be out of date
		st.tree.quotas.touch(q)
	}
	st.tree.flushQuotas()
	return newStore(st), nil
}

// takeOver places a node.
func (st *state) takeOver(n Node) {
	row := node{
		path: n.Path, data: n.Data, acl: st.tree.acls.intern(n.ACL), czxid: n.Czxid, mzxid: n.Mzxid, pzxid: n.Pzxid,
		ctimeMs: n.CtimeMs, mtimeMs: n.MtimeMs, version: n.Version, creates: n.Creates, aversion: n.Aversion,
		kind: kindPersistent,
	}
	switch {
	case n.Session != 0:
		row.kind, row.owner = kindEphemeral, int64(n.Session)
	case n.TTLMs != 0:
		row.kind, row.owner = kindTTL, n.TTLMs
	case n.Container:
		row.kind = kindContainer
	}
	st.zxid = max(st.zxid, n.Czxid, n.Mzxid, n.Pzxid)
	st.tree.place(row)
}

// AllNodes returns all nodes, in no particular order.
func (s *Store) AllNodes() iter.Seq[Node] {
	return func(yield func(Node) bool) {
		for _, n := range s.state.tree.allNodes() {
			out := Node{
				Path: n.path, Data: n.data, ACL: slices.Clip(n.acl.entries), Czxid: n.czxid, Mzxid: n.mzxid,
				Pzxid:   n.pzxid,
				CtimeMs: n.ctimeMs, MtimeMs: n.mtimeMs, Version: n.version, Creates: n.creates, Aversion: n.aversion,
				Container: n.kind == kindContainer,
			}
			switch n.kind {
			case kindEphemeral:
				out.Session = wire.SessionID(n.owner)
			case kindTTL:
				out.TTLMs = n.owner
			}
			if !yield(out) {
				return
			}
		}
	}
}
