package znode

import (
	"iter"
	"sync/atomic"
	"unicode/utf8"

	"lockkeeper/wire"
)

// nodeKind says how long a node lives. The numbers are part of the snapshot's format.
type nodeKind uint8

const (
	kindFree       nodeKind = iota // the row is not in use
	kindPersistent                 // until it is deleted
	kindEphemeral                  // until its session ends
	kindContainer                  // until the reaper finds that its last child is gone
	kindTTL                        // until the reaper finds it childless and unchanged for too long
)

// node is the part of a node that a snapshot keeps; the rest (links) follows from the paths.
type node struct {
	path             string
	data             []byte // null and empty are different. Replaced, never modified
	acl              *aclList
	czxid, mzxid     wire.Zxid
	pzxid            wire.Zxid
	ctimeMs, mtimeMs int64
	// usedMs is when a container or a TTL node was created or written, by the cluster's clock
	// (clock.nowMs); 0 for other nodes.
	usedMs   int64
	owner    int64 // kindEphemeral: the session; kindTTL: the time to live in ms
	version  int32
	creates  int32 // children ever created; gives cversion and the sequence numbers
	aversion int32
	kind     nodeKind
}

// links tie a node into the tree and into its session, and hold the sums of the nodes below it.
// They are no part of a snapshot.
//
// Invariant: the children of a node form a ring through next and prev. A ring of one points to
// itself. below is the number of all nodes below this one. count and bytes are the sums of the node
// and of all nodes below it, without nodes that count for a quota below it, or for no quota
// (underQuota).
type links struct {
	parent     slot  // noSlot for the root
	first      slot  // child; noSlot without children
	next, prev slot  // siblings
	owned      int32 // an ephemeral node's index in the belongings of its session
	children   int32
	below      int32
	count      int32
	quota      bool // there is one on this path, and it is active
	bytes      int64
	nameBytes  int64 // of the names of the children
}

// tree is the nodes with their ACLs and quotas, and the listings of children. It knows no session
// and no command: the owner of an ephemeral node is a number here.
type tree struct {
	nodes      table[node]
	links      []*[pageRows]links // by slot of nodes
	paths      map[string]slot
	acls       aclTable
	quotas     quotaSet
	sizeBytes  int64                      // sum of nodeSizeBytes
	perishable int                        // number of containers and TTL nodes
	listings   atomic.Pointer[[]*Listing] // that are not closed; nil if there are none
}

// newTree returns a tree without even a root.
func newTree() *tree {
	return &tree{
		nodes:  table[node]{epoch: 1},
		paths:  map[string]slot{},
		acls:   aclTable{byKey: map[string]*aclList{}},
		quotas: quotaSet{byPath: map[string]*quota{}},
	}
}

// link returns the links of the node at i.
func (t *tree) link(i slot) *links { return &t.links[i/pageRows][i%pageRows] }

// find returns the slot of the node at path. The empty path is the root, as in ZooKeeper.
func (t *tree) find(path string) (slot, bool) {
	if path == "" {
		path = rootPath
	}
	i, ok := t.paths[path]
	return i, ok
}

// stat returns the Stat of the node at i as clients see it.
func (t *tree) stat(i slot) wire.Stat {
	n, l := t.nodes.row(i), t.link(i)
	st := wire.Stat{
		Czxid: n.czxid, Mzxid: n.mzxid, Pzxid: n.pzxid,
		Ctime: n.ctimeMs, Mtime: n.mtimeMs,
		Version: n.version, Aversion: n.aversion,
		// Each child was created once, and those that are not there any more were deleted once.
		Cversion:    2*n.creates - l.children,
		DataLength:  int32(len(n.data)),
		NumChildren: l.children,
	}
	if n.kind == kindEphemeral {
		st.EphemeralOwner = wire.SessionID(n.owner)
	}
	return st
}

// place puts n into a row and into the index of paths; the links are left for attach.
func (t *tree) place(n node) slot {
	i, row := t.nodes.add()
	*row = n
	if len(t.links) < len(t.nodes.pages) {
		t.links = append(t.links, new([pageRows]links))
	}
	l := t.link(i)
	*l = links{parent: noSlot, first: noSlot, next: i, prev: i}
	if !underQuota(n.path) {
		l.count, l.bytes = 1, int64(len(n.data))
	}
	l.quota = t.quotas.byPath[n.path] != nil
	t.paths[n.path] = i
	if n.mayPerish() {
		t.perishable++
	}
	t.sizeBytes += nodeSizeBytes(n.path, n.data)
	return i
}

// attach links the node at i to its parent, as the last child.
func (t *tree) attach(i, parent slot) {
	l, p := t.link(i), t.link(parent)
	l.parent = parent
	if p.first == noSlot {
		p.first = i
	} else {
		first := t.link(p.first)
		l.next, l.prev = p.first, first.prev
		t.link(first.prev).next = i
		first.prev = i
	}
	n := t.nodes.row(i)
	p.children++
	t.sumUp(i, 1+l.below, l.count, l.bytes)
	t.childAttached(i, parent)
	p.nameBytes += int64(len(nameIn(t.nodes.row(parent).path, n.path)))
}

// detach is the reverse of attach and place. The node has no children.
func (t *tree) detach(i slot) {
	t.childDetaching(i)
	n, l := t.nodes.row(i), t.link(i)
	p := t.link(l.parent)
	switch {
	case l.next == i:
		p.first = noSlot
	case p.first == i:
		p.first = l.next
	}
	t.link(l.prev).next = l.next
	t.link(l.next).prev = l.prev
	p.children--
	t.sumUp(i, -1-l.below, -l.count, -l.bytes)
	p.nameBytes -= int64(len(nameIn(t.nodes.row(l.parent).path, n.path)))
	delete(t.paths, n.path)
	if n.mayPerish() {
		t.perishable--
	}
	t.sizeBytes -= nodeSizeBytes(n.path, n.data)
	t.nodes.remove(i)
}

// insert adds n to the tree and to its quotas.
func (t *tree) insert(n node, parent slot) slot {
	i := t.place(n)
	t.attach(i, parent)
	if t.link(i).quota {
		t.quotas.touch(t.quotas.byPath[n.path])
	}
	if of, ok := limitsOf(n.path); ok {
		t.startQuota(of)
	}
	return i
}

// withdraw is the reverse of insert. It gives the reference to the ACL back.
func (t *tree) withdraw(i slot) {
	n := *t.nodes.row(i)
	if of, ok := limitsOf(n.path); ok {
		t.stopQuota(of)
	}
	if t.link(i).quota {
		t.quotas.touch(t.quotas.byPath[n.path])
	}
	t.detach(i)
	t.acls.release(n.acl)
}

// replaceData gives n, the row for writing at i, other data. It leaves the Stat alone.
func (t *tree) replaceData(i slot, n *node, data []byte) {
	diff := int64(len(data) - len(n.data))
	n.data = data
	t.sizeBytes += diff
	if diff != 0 && !underQuota(n.path) {
		l := t.link(i)
		if l.bytes += diff; l.quota {
			t.quotas.touch(t.quotas.byPath[n.path])
		}
		t.sumUp(i, 0, 0, diff)
	}
	if of, ok := limitsOf(n.path); ok {
		t.quotas.byPath[of].read = false
	}
}

// sumUp adds to the sums of the nodes above the one at i: below to all of them, count and bytes up
// to the nearest that has a quota, unless the node at i has one itself. It takes one step for each
// component of the path.
func (t *tree) sumUp(i slot, below, count int32, bytes int64) {
	counts := !t.link(i).quota && (count != 0 || bytes != 0)
	for at := t.link(i).parent; at != noSlot; {
		l := t.link(at)
		l.below += below
		if counts {
			l.count += count
			l.bytes += bytes
			if counts = !l.quota; !counts {
				t.quotas.touch(t.quotas.byPath[t.nodes.row(at).path])
			}
		}
		at = l.parent
	}
}

// mayPerish reports whether n is a container or TTL node, which the reaper deletes.
func (n *node) mayPerish() bool { return n.kind == kindContainer || n.kind == kindTTL }

// nodeSizeBytes is the node's part of the approximate size of the data (docs/protocol/semantics.md
// section 12).
func nodeSizeBytes(path string, data []byte) int64 {
	return int64(utf8.RuneCountInString(path) + len(data))
}

// perished reports whether the node at i has outlived its purpose: a container that has lost its
// last child (or, unless neverUsedMs is 0, has had none for longer than that), a TTL node without
// children that was not written to for longer than its time to live. nowMs is clock.nowMs.
func (t *tree) perished(i slot, nowMs int64, neverUsedMs int32) bool {
	n := t.nodes.row(i)
	if t.link(i).children > 0 {
		return false
	}
	switch n.kind {
	case kindContainer:
		return n.creates > 0 || neverUsedMs != 0 && nowMs-n.usedMs > int64(neverUsedMs)
	case kindTTL:
		return nowMs-n.usedMs > n.owner
	}
	return false
}

// allNodes returns an iterator over all nodes and their slots, in no particular order.
func (t *tree) allNodes() iter.Seq2[slot, *node] {
	return func(yield func(slot, *node) bool) {
		for i := range t.nodes.used {
			if n := t.nodes.row(i); n.kind != kindFree && !yield(i, n) {
				return
			}
		}
	}
}

// children returns an iterator over the slots of the children of the node at i, the oldest first
// (until the state has been through a snapshot, which keeps no order).
func (t *tree) children(i slot) iter.Seq[slot] {
	return func(yield func(slot) bool) {
		first := t.link(i).first
		for c := first; c != noSlot; {
			if !yield(c) {
				return
			}
			if c = t.link(c).next; c == first {
				return
			}
		}
	}
}
