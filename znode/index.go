package znode

import "hash/maphash"

// pathIndex finds nodes by a hash of their path, of 32 bits: a node takes about 14 bytes of it,
// where a map from path to slot takes 30 to 55. The few nodes that share a hash form a chain
// through siblings.same.
//
// The hash has a seed of its own in each process, so no client can choose paths that share one.
// Nothing that can be seen depends on it.
type pathIndex struct {
	seed  maphash.Seed
	slots map[uint32]slot // the first node of each chain
	nodes int
}

func newPathIndex() pathIndex {
	return pathIndex{seed: maphash.MakeSeed(), slots: map[uint32]slot{}}
}

// hash is the hash of a path.
func (x *pathIndex) hash(path string) uint32 { return uint32(maphash.String(x.seed, path)) }

// indexAdd puts the node at i, with that path, into the index.
func (t *tree) indexAdd(i slot, path string) {
	x, hash := &t.index, t.index.hash(path)
	same, ok := x.slots[hash]
	if !ok {
		same = noSlot
	}
	t.siblings(i).same = same
	x.slots[hash] = i
	x.nodes++
}

// indexRemove takes the node at i, with that path, out of the index.
func (t *tree) indexRemove(i slot, path string) {
	x, hash := &t.index, t.index.hash(path)
	x.nodes--
	at, same := x.slots[hash], t.siblings(i).same
	switch {
	case at != i:
		for t.siblings(at).same != i {
			at = t.siblings(at).same
		}
		t.siblings(at).same = same
	case same == noSlot:
		delete(x.slots, hash)
	default:
		x.slots[hash] = same
	}
}

// find returns the slot of the node at path. The empty path is the root, as in ZooKeeper.
func (t *tree) find(path string) (slot, bool) {
	if path == "" {
		path = rootPath
	}
	i, ok := t.index.slots[t.index.hash(path)]
	for ok && !t.isAt(i, path) {
		i = t.siblings(i).same
		ok = i != noSlot
	}
	return i, ok
}

// slotOf is find for a node that exists.
func (t *tree) slotOf(path string) slot {
	i, _ := t.find(path)
	return i
}

// isAt reports whether the node at i has that path. It compares the names of the node and of all
// nodes above it.
func (t *tree) isAt(i slot, path string) bool {
	n := t.nodes.row(i)
	if path == rootPath {
		return n.parent == noSlot
	}
	for ; n.parent != noSlot; n = t.nodes.row(n.parent) {
		name := n.name()
		slash := len(path) - len(name) - 1
		if slash < 0 || path[slash] != '/' || path[slash+1:] != string(name) {
			return false
		}
		path = path[:slash]
	}
	return path == ""
}
