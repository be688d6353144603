package znode

import (
	"math"
	"slices"

	"lockkeeper/wire"
)

// effects are the effects of one command on the nodes, with its events. Its methods are all that
// ever changes a node, but for the upkeep of quota usage. Each keeps the totals and the quotas
// right, sets changed, and can be taken back.
type effects struct {
	state   *state
	zxid    wire.Zxid // that the command gets if it has an effect
	changed bool      // whether it had one
	events  []Event
	// guarding is the parent of the nodes that the guards above are for; noSlot: none.
	guarding slot
	above    []guard
	buried   bool
	undo     []undo // how to take the effects back, the newest last
	undoing  bool   // whether effects are noted in undo: only a multi may have to
}

// begin prepares for the next command of an entry of that term.
func (x *effects) begin(term uint64) {
	x.zxid = max(x.state.zxid+1, wire.Zxid(term<<32)+1)
	x.changed = false
	x.events = recycle(x.events)
	x.guarding, x.above, x.buried = noSlot, nil, false
	x.undo, x.undoing = recycle(x.undo), false
}

// end makes zxid the state's if the command had an effect.
func (x *effects) end() {
	if x.changed {
		x.state.zxid = x.zxid
		x.state.tree.flushQuotas()
	}
}

// recycle empties a buffer for the next command; it drops one that a rare command has made large.
func recycle[T any](buf []T) []T {
	if cap(buf) > 1024 {
		return nil
	}
	clear(buf) // for the garbage collector
	return buf[:0]
}

// undo says how to take one effect back.
type undo struct {
	kind undoKind
	path string
	old  record // as it was before, without its path; nothing of a created node
}

type undoKind uint8

const (
	undoCreate undoKind = iota
	undoDelete
	undoEdit
)

// note remembers how to take an effect back, if that may be needed.
func (x *effects) note(kind undoKind, path string, n *node) {
	x.changed = true
	if !x.undoing {
		return
	}
	u := undo{kind: kind, path: path}
	if n != nil {
		u.old = x.state.tree.rows().record(n, "")
	}
	x.undo = append(x.undo, u)
}

// guards returns the guards of events about children of the node at parent, and whether there are
// more of them. Most events of a command are about children of one node.
func (x *effects) guards(parent slot) (above []guard, more bool) {
	t := x.state.tree
	if t.acls.closed == 0 || parent == noSlot {
		return nil, false
	}
	if x.guarding != parent {
		x.guarding, x.above, x.buried = parent, nil, false
		length := t.rows().pathBytes(parent)
		for at := parent; at != noSlot; {
			n := t.nodes.row(at)
			if !n.acl.open() && !slices.ContainsFunc(x.above, func(g guard) bool { return g.list == n.acl }) {
				if x.buried = len(x.above) == maxGuards; x.buried {
					break
				}
				x.above = append(x.above, guard{max(length, 1), n.acl})
			}
			at, length = n.parent, length-1-len(n.name())
		}
	}
	return x.above, x.buried
}

// event adds an event about the node at i, with that path.
func (x *effects) event(typ wire.EventType, i slot, path string) {
	t := x.state.tree
	n := t.nodes.row(i)
	e := Event{Type: typ, Path: path, ACL: n.acl.entries, Zxid: x.zxid, list: n.acl}
	e.kept = x.state.keepsQuotas && underQuota(path)
	if typ != wire.EventNodeChildrenChanged { // recursive watches do not see it
		e.above, e.buried = x.guards(n.parent)
	}
	if t.kind(n) == kindEphemeral {
		e.Owner, e.Czxid, e.CtimeMs = wire.SessionID(t.more.row(n.more).owner), n.czxid, n.ctimeMs
		e.Data = n.share()
	}
	x.events = append(x.events, e)
}

// createNode adds r, which has that path and holds a reference to its ACL, as a child of the node
// at parent.
func (x *effects) createNode(r *record, path string, parent slot) slot {
	p := x.edit(parent, parentOf(path))
	if p.creates < math.MaxInt32 {
		p.creates++ // then it stays: ZooKeeper only ever replaces it by a larger number
	}
	p.pzxid = x.zxid
	if of, ok := statsOf(path); ok {
		r.body = newBody(string(r.name()), x.state.tree.usageText(of))
	}
	i := x.insert(r, path, parent)
	x.note(undoCreate, path, nil)
	x.event(wire.EventNodeCreated, i, path)
	x.event(wire.EventNodeChildrenChanged, parent, parentOf(path))
	return i
}

// deleteNode removes the node at i, with that path, which has no children.
func (x *effects) deleteNode(i slot, path string) {
	t := x.state.tree
	parent := t.nodes.row(i).parent
	x.edit(parent, parentOf(path)).pzxid = x.zxid
	x.event(wire.EventNodeDeleted, i, path)
	x.note(undoDelete, path, t.nodes.row(i))
	x.withdraw(i, path)
	x.event(wire.EventNodeChildrenChanged, parent, parentOf(path))
}

// edit returns the details of the node at i, with that path, for changing them. The data is for
// replaceData.
func (x *effects) edit(i slot, path string) *details {
	x.note(undoEdit, path, x.state.tree.nodes.row(i))
	return x.state.tree.detail(i)
}

// insert adds r to the tree and to all that is derived from it.
func (x *effects) insert(r *record, path string, parent slot) slot {
	i := x.state.tree.insert(r, parent)
	x.state.own(i, len(path))
	return i
}

// withdraw is the reverse of insert. It gives the reference to the ACL back.
func (x *effects) withdraw(i slot, path string) {
	x.state.disown(i, len(path))
	x.state.tree.withdraw(i, path)
	if x.guarding == i {
		x.guarding = noSlot // another node may get the slot
	}
}

// rollback takes back all effects that were noted, the newest first.
func (x *effects) rollback() {
	t := x.state.tree
	for k := len(x.undo) - 1; k >= 0; k-- {
		u := &x.undo[k]
		switch u.kind {
		case undoCreate:
			x.withdraw(t.slotOf(u.path), u.path)
		case undoDelete:
			t.acls.retain(u.old.acl)
			u.old.dir, _ = splitPath(u.path)
			x.insert(&u.old, u.path, t.slotOf(parentOf(u.path)))
		case undoEdit: // with the same ACL: setACL is never part of a multi
			i := t.slotOf(u.path)
			t.replaceData(i, u.path, u.old.data())
			*t.detail(i) = u.old.details
		}
	}
	t.quotas.forget()
	x.events = x.events[:0]
	x.changed = false
}

// Event is a trigger: a change that watches may be set on. The events of a command are in the
// order of docs/protocol/watches.md 3.1: NodeCreated(P), NodeChildrenChanged(parent);
// NodeDeleted(P), NodeChildrenChanged(parent); NodeDataChanged(P). NodeDeleted comes once and is
// for both watch tables.
type Event struct {
	Type wire.EventType
	Path string
	// of Path's node at that moment; for NodeDeleted the last it had. Never modified
	ACL  []wire.ACL
	Zxid wire.Zxid
	// Owner is the session of an ephemeral node, 0 for others. With it come the node's czxid, its
	// ctime, and its data at that moment, which are never modified.
	Owner   wire.SessionID
	Czxid   wire.Zxid
	CtimeMs int64
	Data    []byte

	list *aclList // of which ACL is the entries
	kept bool     // for the super user, see KeepQuotas
	// above are the nodes above Path that not everybody may read, the deepest first, one for each
	// ACL. buried is that there are more than maxGuards.
	above  []guard
	buried bool
}

// ReadableBy reports whether a connection with the identities ids, its "ip" among them, may read
// Path's node.
func (e *Event) ReadableBy(ids []Identity) bool {
	if e.kept && !IsSuper(ids) {
		return false
	}
	return e.list == nil || e.list.allows(ids, wire.PermRead)
}

// A guard is a node, by the length of its path, with an ACL that does not let everybody read it.
type guard struct {
	length int
	list   *aclList
}

// maxGuards is the number of guards of an Event. It is more than anybody nests.
const maxGuards = 8

// Guarded reports whether there are nodes above Path that not everybody may read.
func (e *Event) Guarded() bool { return len(e.above) > 0 }

// NamedTo reports whether a connection with the identities ids that watches recursively, from a
// node with a path of length bytes, may learn of Path: a client that may not list a node's children
// is not told their names.
func (e *Event) NamedTo(ids []Identity, length int) bool {
	if e.buried && !IsSuper(ids) {
		return false
	}
	for _, g := range e.above {
		if g.length >= length && !g.list.allows(ids, wire.PermRead) {
			return false
		}
	}
	return true
}

// Lookups returns the number of lookups that ReadableBy makes, each about 30 ns.
func (e *Event) Lookups(ids []Identity) int {
	if e.list == nil {
		return 0
	}
	return e.list.lookups(ids, wire.PermRead)
}

// Access returns the permissions on Path's node.
func (e *Event) Access() *Access { return (*Access)(e.list) }
