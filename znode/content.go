package znode

import (
	"fmt"
	"iter"
	"slices"
	"strings"

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
	Password  wire.Password
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
		st.sessions.add(session{id: row.ID, generation: 1, timeoutMs: row.TimeoutMs, password: row.Password}, "")
	}
	if err := st.takeOver(c.Nodes); err != nil {
		return nil, fmt.Errorf("znode: %w", err)
	}
	for _, q := range st.tree.quotas.byPath { // the other program's usage may be out of date
		st.tree.quotas.touch(q)
	}
	st.tree.flushQuotas()
	return newStore(st), nil
}

// takeOver adds nodes, and the nodes that are always there if they are missing.
func (st *state) takeOver(nodes iter.Seq[Node]) error {
	var all []record
	missing := slices.Clone(builtInPaths)
	for n := range nodes {
		if n.Path == configPath {
			continue
		}
		st.zxid = max(st.zxid, n.Czxid, n.Mzxid, n.Pzxid)
		all = append(all, st.recordOf(n))
		missing = slices.DeleteFunc(missing, func(path string) bool { return path == n.Path })
	}
	fresh := New().state.tree
	for _, path := range missing {
		r := fresh.record(fresh.slotOf(path))
		r.acl = st.tree.acls.intern(r.acl.entries)
		all = append(all, r)
	}
	// parents first
	slices.SortFunc(all, func(a, b record) int { return strings.Compare(a.path(), b.path()) })
	for i := range all {
		if err := st.add(&all[i], all[i].path()); err != nil {
			return err
		}
	}
	return nil
}

// recordOf returns the record of a node.
func (st *state) recordOf(n Node) record {
	r := record{
		node: node{acl: st.tree.acls.intern(n.ACL), czxid: n.Czxid, ctimeMs: n.CtimeMs},
		details: details{mzxid: n.Mzxid, pzxid: n.Pzxid, mtimeMs: n.MtimeMs, version: n.Version, creates: n.Creates,
			aversion: n.Aversion, kind: kindPersistent},
	}
	dir, name := splitPath(n.Path)
	r.dir, r.body = dir, newBody(name, n.Data)
	switch {
	case n.Session != 0:
		r.kind, r.owner = kindEphemeral, int64(n.Session)
	case n.TTLMs != 0:
		r.kind, r.owner = kindTTL, n.TTLMs
	case n.Container:
		r.kind = kindContainer
	}
	return r
}

// AllNodes returns all nodes, in no particular order.
func (s *Store) AllNodes() iter.Seq[Node] {
	return func(yield func(Node) bool) {
		for _, n := range s.state.tree.rows().all() {
			out := Node{
				Path: n.path(), Data: n.data(), ACL: slices.Clip(n.acl.entries), Czxid: n.czxid, Mzxid: n.mzxid,
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
