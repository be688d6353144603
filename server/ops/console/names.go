package console

import (
	"lockkeeper/server/ops"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// named has the names of a session for people. Note and Who are a contender's own fields, for those
// who may read its node.
type named struct {
	Address string `json:"address"`
	Who     string `json:"who"`
	Note    string `json:"note"`
}

// namesLooked bounds the nodes of a session that are looked at for its name.
const namesLooked = 500

// nameOf returns the names of a session: those in the first of its nodes that v may read, as if
// there were no others. The index's mu is held.
func (x *index) nameOf(store *znode.Store, v *viewer, session int64) named {
	id := wire.SessionID(session)
	n := named{Address: v.withPort(id, store.Sessions().Addr(id))}
	paths := x.nodes[id].named
	for _, path := range paths[:min(len(paths), namesLooked)] {
		l := x.where[path]
		if l == nil || !v.sees(store, path) || !v.may(l.access[path]) {
			continue
		}
		if i := l.find(path); i >= 0 {
			n.Note, n.Who = says(&l.all[i])
		}
		break
	}
	return n
}

// namesOf returns the names of the sessions of some edges. The index's mu is held.
func (x *index) namesOf(v *viewer, edges []edgeRow) map[string]named {
	names := map[string]named{}
	for _, e := range edges[:min(len(edges), walkStep)] {
		for _, s := range []string{e.Waiter, e.Holder} {
			if _, known := names[s]; !known {
				id, _ := sessionID(s)
				x.view(func(store *znode.Store) { names[s] = x.nameOf(store, v, id) })
			}
		}
	}
	return names
}

// sessionLock is a lock that a session holds or waits for.
type sessionLock struct {
	Path string `json:"path"`
	// Behind is the session of the first holder of a lock that is waited for, if there is one.
	Behind string `json:"behind,omitempty"`
	named         // of Behind
}

// behind tells for whom the session waits at a lock. The index's mu is held.
func (x *index) behind(store *znode.Store, v *viewer, l *lock, session int64) sessionLock {
	s := sessionLock{Path: l.path}
	for i := range l.queue {
		if c := &l.queue[i]; c.Held && c.Session != session {
			s.Behind, s.named = ops.Hex(c.Session), x.nameOf(store, v, c.Session)
			break
		}
	}
	return s
}
