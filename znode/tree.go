package znode

import (
	"iter"
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

// link returns the links of the node at i.
func (s *Store) link(i slot) *links { return &s.links[i/pageRows][i%pageRows] }

// find returns the slot of the node at path. The empty path is the root, as in ZooKeeper.
func (s *Store) find(path string) (slot, bool) {
	if path == "" {
		path = rootPath
	}
	i, ok := s.paths[path]
	return i, ok
}

// stat returns the Stat of the node at i as clients see it.
func (s *Store) stat(i slot) wire.Stat {
	n, l := s.nodes.row(i), s.link(i)
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
func (s *Store) place(n node) slot {
	i, row := s.nodes.add()
	*row = n
	if len(s.links) < len(s.nodes.pages) {
		s.links = append(s.links, new([pageRows]links))
	}
	l := s.link(i)
	*l = links{parent: noSlot, first: noSlot, next: i, prev: i}
	if !underQuota(n.path) {
		l.count, l.bytes = 1, int64(len(n.data))
	}
	l.quota = s.quotas.byPath[n.path] != nil
	s.paths[n.path] = i
	if n.mayPerish() {
		s.perishable++
	}
	s.sizeBytes += nodeSizeBytes(n.path, n.data)
	return i
}

// attach links the node at i to its parent, as the last child, and to its session.
func (s *Store) attach(i, parent slot) {
	l, p := s.link(i), s.link(parent)
	l.parent = parent
	if p.first == noSlot {
		p.first = i
	} else {
		first := s.link(p.first)
		l.next, l.prev = p.first, first.prev
		s.link(first.prev).next = i
		first.prev = i
	}
	n := s.nodes.row(i)
	p.children++
	s.sumUp(i, 1+l.below, l.count, l.bytes)
	s.childAttached(i, parent)
	p.nameBytes += int64(len(nameIn(s.nodes.row(parent).path, n.path)))
	if n.kind == kindEphemeral {
		s.own(i, wire.SessionID(n.owner))
	}
}

// detach is the reverse of attach and place. The node has no children.
func (s *Store) detach(i slot) {
	s.childDetaching(i)
	n, l := s.nodes.row(i), s.link(i)
	if n.kind == kindEphemeral {
		s.disown(i, wire.SessionID(n.owner))
	}
	p := s.link(l.parent)
	switch {
	case l.next == i:
		p.first = noSlot
	case p.first == i:
		p.first = l.next
	}
	s.link(l.prev).next = l.next
	s.link(l.next).prev = l.prev
	p.children--
	s.sumUp(i, -1-l.below, -l.count, -l.bytes)
	p.nameBytes -= int64(len(nameIn(s.nodes.row(l.parent).path, n.path)))
	delete(s.paths, n.path)
	if n.mayPerish() {
		s.perishable--
	}
	s.sizeBytes -= nodeSizeBytes(n.path, n.data)
	s.nodes.remove(i)
}

// sumUp adds to the sums of the nodes above the one at i: below to all of them, count and bytes up
// to the nearest that has a quota, unless the node at i has one itself. It takes one step for each
// component of the path.
func (s *Store) sumUp(i slot, below, count int32, bytes int64) {
	counts := !s.link(i).quota && (count != 0 || bytes != 0)
	for at := s.link(i).parent; at != noSlot; {
		l := s.link(at)
		l.below += below
		if counts {
			l.count += count
			l.bytes += bytes
			if counts = !l.quota; !counts {
				s.quotas.touch(s.quotas.byPath[s.nodes.row(at).path])
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

// allNodes returns an iterator over all nodes and their slots, in no particular order.
func (s *Store) allNodes() iter.Seq2[slot, *node] {
	return func(yield func(slot, *node) bool) {
		for i := range s.nodes.used {
			if n := s.nodes.row(i); n.kind != kindFree && !yield(i, n) {
				return
			}
		}
	}
}

// children returns an iterator over the slots of the children of the node at i, the oldest first
// (until the state has been through a snapshot, which keeps no order).
func (s *Store) children(i slot) iter.Seq[slot] {
	return func(yield func(slot) bool) {
		first := s.link(i).first
		for c := first; c != noSlot; {
			if !yield(c) {
				return
			}
			if c = s.link(c).next; c == first {
				return
			}
		}
	}
}
