package znode

import (
	"iter"
	"strings"

	"lockkeeper/wire"
)

// The reads do not validate paths: the empty path is the root, and any text that is not literally
// the path of a node is missing. ids are the identities of the connection, its "ip" among them;
// Identity{"super", ""} may read everything.

// Get returns the data and the Stat of a node. Codes: NoNode, NoAuth (READ).
func (s *Store) Get(path string, ids []Identity) ([]byte, wire.Stat, wire.Code) {
	t := s.state.tree
	i, code := s.state.readable(path, ids, wire.PermRead)
	if code != wire.CodeOK {
		return nil, wire.Stat{}, code
	}
	return t.nodes.row(i).share(), t.stat(i), wire.CodeOK
}

// Exists returns the Stat of a node. Codes: BadArguments (U+0000 in the path), NoNode, NoAuth
// (READ).
func (s *Store) Exists(path string, ids []Identity) (wire.Stat, wire.Code) {
	if strings.IndexByte(path, 0) >= 0 {
		return wire.Stat{}, wire.CodeBadArguments
	}
	i, code := s.state.readable(path, ids, wire.PermRead)
	if code != wire.CodeOK {
		return wire.Stat{}, code
	}
	return s.state.tree.stat(i), wire.CodeOK
}

// Children returns the names of a node's children, in no particular order, and its Stat. The names
// are not nil when there are none. Codes: NoNode, NoAuth (READ).
func (s *Store) Children(path string, ids []Identity) ([]string, wire.Stat, wire.Code) {
	t := s.state.tree
	i, code := s.state.readable(path, ids, wire.PermRead)
	if code != wire.CodeOK {
		return nil, wire.Stat{}, code
	}
	return t.childNames(i), t.stat(i), wire.CodeOK
}

// childNames returns the names of the children of the node at i, in one allocation: a name does not
// keep the data of its node in memory.
func (t *tree) childNames(i slot) []string {
	f := t.family(t.nodes.row(i))
	if f == nil {
		return []string{}
	}
	names := make([]string, 0, f.children)
	var all strings.Builder
	all.Grow(int(f.nameBytes)) // so that the names stay where they are
	for c := range t.children(i) {
		start := all.Len()
		all.Write(t.nodes.row(c).name())
		names = append(names, all.String()[start:])
	}
	return names
}

// ChildrenInOrder yields the names and data of a node's children without a permission check, in the
// order in which they were made as far as this replica knows: those that it had from a snapshot
// come first, in any order.
func (s *Store) ChildrenInOrder(path string) iter.Seq2[string, []byte] {
	t := s.state.tree
	return func(yield func(name string, data []byte) bool) {
		i, ok := t.find(path)
		if !ok {
			return
		}
		for c := range t.children(i) {
			n := t.nodes.row(c)
			if name, data := n.parts(); !yield(string(name), data) {
				return
			}
		}
	}
}

// GetACL returns the ACL of a node and its Stat. Without ADMIN it has no hashes of
// passwords. Codes: NoNode, NoAuth (READ or ADMIN).
func (s *Store) GetACL(path string, ids []Identity) ([]wire.ACL, wire.Stat, wire.Code) {
	t := s.state.tree
	i, code := s.state.readable(path, ids, wire.PermRead|wire.PermAdmin)
	if code != wire.CodeOK {
		return nil, wire.Stat{}, code
	}
	list := t.nodes.row(i).acl
	if !list.allows(ids, wire.PermAdmin) {
		return maskACL(list.entries), t.stat(i), wire.CodeOK
	}
	return list.entries, t.stat(i), wire.CodeOK
}

// AllChildrenNumber returns the number of all nodes below a node. Under its other name, the empty
// path, the root counts itself too: ZooKeeper counts the paths that begin with path + "/". Codes:
// NoNode, NoAuth (READ on the node itself).
func (s *Store) AllChildrenNumber(path string, ids []Identity) (int32, wire.Code) {
	top, code := s.state.readable(path, ids, wire.PermRead)
	if code != wire.CodeOK {
		return 0, code
	}
	n := int32(0)
	if f := s.state.tree.family(s.state.tree.nodes.row(top)); f != nil {
		n = f.below
	}
	if path == "" {
		n++
	}
	return n, wire.CodeOK
}

// Sizes are the lengths in bytes of a node's parts in an answer.
type Sizes struct {
	Data     int
	Children int // their names, with a length before each
	Names    int // the number of children
	ACL      int
}

// Sizes returns the sizes of a node; zero if there is none, or if it must not be read (READ or
// ADMIN). It takes the same short time for every node.
func (s *Store) Sizes(path string, ids []Identity) Sizes {
	t := s.state.tree
	i, code := s.state.readable(path, ids, wire.PermRead|wire.PermAdmin)
	if code != wire.CodeOK {
		return Sizes{}
	}
	n := t.nodes.row(i)
	sizes := Sizes{Data: len(n.data()), ACL: len(n.acl.key)}
	if f := t.family(n); f != nil {
		sizes.Children, sizes.Names = int(f.nameBytes)+4*int(f.children), int(f.children)
	}
	return sizes
}

// Seen is Node for a client that may not learn of changes that it may not read of: readable is
// whether it may read the node, and there is no Stat if not. Hidden quotas (KeepQuotas) are
// missing.
func (s *Store) Seen(path string, ids []Identity) (stat wire.Stat, exists, readable bool) {
	t := s.state.tree
	i, ok := t.find(path)
	if !ok || s.state.hidesQuota(path, ids) {
		return wire.Stat{}, false, false
	}
	if !t.nodes.row(i).acl.allows(ids, wire.PermRead) {
		return wire.Stat{}, true, false
	}
	return t.stat(i), true, true
}

// Node returns the Stat of a node without a permission check.
func (s *Store) Node(path string) (wire.Stat, bool) {
	t := s.state.tree
	i, ok := t.find(path)
	if !ok {
		return wire.Stat{}, false
	}
	return t.stat(i), true
}

// AllReadable reports whether everybody may read every node.
func (s *Store) AllReadable() bool { return s.state.tree.acls.closed == 0 }

// readable finds a node and checks for one of the permissions.
func (st *state) readable(path string, ids []Identity, want wire.Perm) (slot, wire.Code) {
	if st.hidesQuota(path, ids) {
		return noSlot, wire.CodeNoAuth
	}
	i, ok := st.tree.find(path)
	if !ok {
		return noSlot, wire.CodeNoNode
	}
	if !st.tree.nodes.row(i).acl.allows(ids, want) {
		return noSlot, wire.CodeNoAuth
	}
	return i, wire.CodeOK
}

// AccessOf returns the permissions on a node; false if there is no such node.
func (s *Store) AccessOf(path string) (*Access, bool) {
	t := s.state.tree
	i, ok := t.find(path)
	if !ok {
		return nil, false
	}
	return (*Access)(t.nodes.row(i).acl), true
}

// AccessAbove returns the permissions on the parent of a path or, if there is none, on the nearest
// node above it. The path may be any text of a client, as the path of a watch is: each byte is
// looked at twice, and there is a lookup for each bit of the length, not one for each component.
func (s *Store) AccessAbove(path string) *Access {
	access, _ := s.AccessOf("/")
	if !strings.HasPrefix(path, "/") {
		return access
	}
	// Of the nodes above those that are there come first: each has all nodes above it. access is of
	// the last one that ends at lo or before, and none that ends at hi or behind is there.
	for lo, hi := 0, len(path); lo+1 < hi; {
		middle := lo + (hi-lo)/2
		end := lo + 1 + strings.LastIndexByte(path[lo+1:middle+1], '/')
		if end == lo { // nothing ends there
			lo = middle
		} else if a, ok := s.AccessOf(path[:end]); ok {
			access, lo = a, middle
		} else {
			hi = end
		}
	}
	return access
}

// Perishable reads the rows number from to from+rows-1 and returns the paths of the containers and
// TTL nodes among them that a Reap would delete in an entry with that Stamp.ClockMs
// (docs/protocol/semantics.md section 5.2), and the row to go on from: 0 when all have been read.
// neverUsedMs is as in Reap. The caller does not hold its lock for all
// rows of a large state at once; Reap checks each node again.
func (s *Store) Perishable(clockMs int64, neverUsedMs int32, from, rows uint32) (paths []string, next uint32) {
	if s.state.tree.perishable == 0 {
		return nil, 0
	}
	for i := slot(from); i < s.state.tree.nodes.used; i++ {
		if uint32(i)-from == rows {
			return paths, uint32(i)
		}
		if s.state.tree.perished(i, clockMs+s.state.clock.shiftMs, neverUsedMs) {
			paths = append(paths, s.state.tree.path(i))
		}
	}
	return paths, 0
}

// HasPerishables reports whether there are containers or TTL nodes.
func (s *Store) HasPerishables() bool { return s.state.tree.perishable > 0 }
