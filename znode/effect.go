package znode

import (
	"math"
	"slices"

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

// guards returns the guards of events about children of the node at parent, and whether there are
// more of them. Most events of a command are about children of one node.
func (s *Store) guards(parent slot) (above []guard, more bool) {
	t := &s.tx
	if s.acls.closed == 0 || parent == noSlot {
		return nil, false
	}
	if t.guarding != parent {
		t.guarding, t.above, t.buried = parent, nil, false
		for at := parent; at != noSlot; at = s.link(at).parent {
			n := s.nodes.row(at)
			if n.acl.open() || slices.ContainsFunc(t.above, func(g guard) bool { return g.list == n.acl }) {
				continue
			}
			if t.buried = len(t.above) == maxGuards; t.buried {
				break
			}
			t.above = append(t.above, guard{len(n.path), n.acl})
		}
	}
	return t.above, t.buried
}

// event adds an event about n, which is, or was, a child of the node at parent. For
// NodeChildrenChanged, which recursive watches do not see, parent may be noSlot.
func (s *Store) event(typ wire.EventType, n *node, parent slot) {
	e := Event{Type: typ, Path: n.path, ACL: n.acl.entries, Zxid: s.tx.zxid, list: n.acl}
	e.kept = s.keepsQuotas && underQuota(n.path)
	e.above, e.buried = s.guards(parent)
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
	s.event(wire.EventNodeCreated, s.nodes.row(i), parent)
	s.event(wire.EventNodeChildrenChanged, s.nodes.row(parent), noSlot)
	return i
}

// deleteNode removes the node at i, which has no children.
func (s *Store) deleteNode(i slot) {
	old := *s.nodes.row(i)
	parent := s.link(i).parent
	s.edit(parent).pzxid = s.tx.zxid
	s.event(wire.EventNodeDeleted, &old, parent)
	s.withdraw(i)
	s.note(undoDelete, old)
	s.event(wire.EventNodeChildrenChanged, s.nodes.row(parent), noSlot)
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
	if s.tx.guarding == i {
		s.tx.guarding = noSlot // another node may get the slot
	}
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
