package znode

import (
	"slices"

	"lockkeeper/wire"
)

// Ephemeral is an ephemeral node. Its data are never modified.
type Ephemeral struct {
	Path    string
	Owner   wire.SessionID
	Czxid   wire.Zxid
	CtimeMs int64
	Data    []byte
	Access  *Access
}

// EphemeralWalk visits the ephemeral nodes of all sessions in steps, because a million of them take
// longer than the state may be locked at once. It visits each that exists from its beginning to its
// end; of others it may visit some. Sessions are visited too.
type EphemeralWalk struct {
	sessions *Registry
	session  slot   // the next one
	nodes    []slot // of the session before that one, which are to be visited
}

// WalkEphemerals begins a walk.
func (s *Store) WalkEphemerals() *EphemeralWalk {
	return &EphemeralWalk{sessions: s.state.sessions}
}

// Step visits up to n more sessions and nodes of s. lost says that s is another Store than at the
// beginning, or its state replaced, so that the walk cannot be continued.
func (w *EphemeralWalk) Step(s *Store, n int, visit func(Ephemeral)) (done, lost bool) {
	if s.state.sessions != w.sessions {
		return false, true
	}
	for ; n > 0; n-- {
		if len(w.nodes) == 0 {
			if w.session >= w.sessions.rows.used {
				return true, false
			}
			w.nodes = append(w.nodes[:0:0], w.sessions.belongingsOf(w.session).nodes...)
			w.session++
			continue
		}
		i := w.nodes[0]
		w.nodes = w.nodes[1:]
		// The node may have been deleted since, and another one be in its place.
		if node := s.state.tree.nodes.row(i); node.kind == kindEphemeral {
			visit(Ephemeral{Path: node.path, Owner: wire.SessionID(node.owner), Czxid: node.czxid,
				CtimeMs: node.ctimeMs, Data: node.data, Access: (*Access)(node.acl)})
		}
	}
	return false, false
}

// Ephemerals returns the paths of a session's ephemeral nodes, sorted; nil if there is no such
// session.
func (s *Store) Ephemerals(id wire.SessionID) []string { return s.state.ephemerals(id) }

func (st *state) ephemerals(id wire.SessionID) []string {
	i, ok := st.sessions.slots[id]
	if !ok {
		return nil
	}
	nodes := st.sessions.belongingsOf(i).nodes
	paths := make([]string, 0, len(nodes))
	for _, n := range nodes {
		paths = append(paths, st.tree.nodes.row(n).path)
	}
	slices.Sort(paths)
	return paths
}

// own makes the node at i, if it is ephemeral, a belonging of its session.
func (st *state) own(i slot) {
	if n := st.tree.nodes.row(i); n.kind == kindEphemeral {
		st.tree.link(i).owned = st.sessions.own(wire.SessionID(n.owner), i, len(n.path))
	}
}

// disown is the reverse of own.
func (st *state) disown(i slot) {
	if n := st.tree.nodes.row(i); n.kind == kindEphemeral {
		at := st.tree.link(i).owned
		st.tree.link(st.sessions.disown(wire.SessionID(n.owner), at, len(n.path))).owned = at
	}
}
