package znode

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
			paths = append(paths, s.state.tree.nodes.row(i).path)
		}
	}
	return paths, 0
}

// HasPerishables reports whether there are containers or TTL nodes.
func (s *Store) HasPerishables() bool { return s.state.tree.perishable > 0 }

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
