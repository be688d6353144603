package znode

import (
	"math"

	"lockkeeper/wire"
)

// This file holds the effects that commands are made of: all that ever changes a node, but for the
// upkeep of quota usage. Each keeps the totals and the quotas right, marks the transaction as
// changed, and can be taken back.

// undo says how to take one effect back.
type undo struct {
	kind undoKind
	old  node // as it was before; of a created node only the path
}

type undoKind uint8

const (
	undoCreate undoKind = iota
	undoDelete
	undoEdit
)

// note remembers how to take an effect back, if that may be needed.
func (s *Store) note(kind undoKind, old node) {
	s.tx.changed = true
	if s.tx.undoing {
		s.tx.undo = append(s.tx.undo, undo{kind, old})
	}
}

// event adds an event about n.
func (s *Store) event(typ wire.EventType, n *node) {
	e := Event{Type: typ, Path: n.path, ACL: n.acl.entries, Zxid: s.tx.zxid, list: n.acl}
	e.kept = s.keepsQuotas && underQuota(n.path)
	if n.kind == kindEphemeral {
		e.Owner, e.Czxid, e.CtimeMs = wire.SessionID(n.owner), n.czxid, n.ctimeMs
		e.Data = n.data
	}
	s.tx.events = append(s.tx.events, e)
}

// createNode adds n, which holds a reference to its ACL, as a child of the node at parent.
func (s *Store) createNode(n node, parent slot) slot {
	p := s.edit(parent)
	if p.creates < math.MaxInt32 {
		p.creates++ // then it stays: ZooKeeper only ever replaces it by a larger number
	}
	p.pzxid = s.tx.zxid
	if of, ok := statsOf(n.path); ok {
		n.data = s.usageText(of)
	}
	i := s.insert(n, parent)
	s.note(undoCreate, node{path: n.path})
	s.event(wire.EventNodeCreated, s.nodes.row(i))
	s.event(wire.EventNodeChildrenChanged, s.nodes.row(parent))
	return i
}

// deleteNode removes the node at i, which has no children.
func (s *Store) deleteNode(i slot) {
	old := *s.nodes.row(i)
	parent := s.link(i).parent
	s.edit(parent).pzxid = s.tx.zxid
	s.event(wire.EventNodeDeleted, &old)
	s.withdraw(i)
	s.note(undoDelete, old)
	s.event(wire.EventNodeChildrenChanged, s.nodes.row(parent))
}

// edit returns the node at i for changing its row. The data is for replaceData.
func (s *Store) edit(i slot) *node {
	n := s.nodes.mut(i)
	s.note(undoEdit, *n)
	return n
}

// replaceData gives n, from edit, which is at i, other data. It leaves the Stat alone.
func (s *Store) replaceData(i slot, n *node, data []byte) {
	diff := int64(len(data) - len(n.data))
	n.data = data
	s.sizeBytes += diff
	if diff != 0 && !underQuota(n.path) {
		l := s.link(i)
		if l.bytes += diff; l.quota {
			s.quotas.touch(s.quotas.byPath[n.path])
		}
		s.sumUp(i, 0, 0, diff)
	}
	if of, ok := limitsOf(n.path); ok {
		s.quotas.byPath[of].read = false
	}
}

// insert adds n to the tree and to all that is derived from it.
func (s *Store) insert(n node, parent slot) slot {
	i := s.place(n)
	s.attach(i, parent)
	if s.link(i).quota {
		s.quotas.touch(s.quotas.byPath[n.path])
	}
	if of, ok := limitsOf(n.path); ok {
		s.startQuota(of)
	}
	return i
}

// withdraw is the reverse of insert. It gives the reference to the ACL back.
func (s *Store) withdraw(i slot) {
	n := *s.nodes.row(i)
	if of, ok := limitsOf(n.path); ok {
		s.stopQuota(of)
	}
	if s.link(i).quota {
		s.quotas.touch(s.quotas.byPath[n.path])
	}
	s.detach(i)
	s.acls.release(n.acl)
}

// rollback takes back all effects that were noted, the newest first.
func (s *Store) rollback() {
	t := &s.tx
	for k := len(t.undo) - 1; k >= 0; k-- {
		u := &t.undo[k]
		switch u.kind {
		case undoCreate:
			s.withdraw(s.paths[u.old.path])
		case undoDelete:
			s.acls.retain(u.old.acl)
			s.insert(u.old, s.paths[parentOf(u.old.path)])
		case undoEdit:
			i := s.paths[u.old.path]
			n := s.nodes.mut(i)
			s.replaceData(i, n, u.old.data)
			*n = u.old // with the same ACL: setACL is never part of a multi
		}
	}
	s.quotas.forget()
	t.events = t.events[:0]
	t.changed = false
}
