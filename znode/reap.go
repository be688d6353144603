package znode

import (
	"slices"

	"lockkeeper/wire"
)

// Perishable returns the paths of the containers and TTL nodes that a KindReap at nowMs, in milliseconds since 1970,
// would delete (spec/semantics.md section 5.2), sorted. neverUsedMs is as in Command.TimeoutMs of KindReap.
func (s *Store) Perishable(nowMs int64, neverUsedMs int32) []string {
	var paths []string
	for i := range s.perishable {
		if s.perished(i, nowMs, neverUsedMs) {
			paths = append(paths, s.nodes.row(i).path)
		}
	}
	slices.Sort(paths)
	return paths
}

// perished reports whether the node at i has outlived its purpose: a container whose last child is gone (or, when
// neverUsedMs is not 0, that never had one for longer than that), a TTL node without children that was not written to
// for longer than its time to live.
func (s *Store) perished(i slot, nowMs int64, neverUsedMs int32) bool {
	n := s.nodes.row(i)
	if s.link(i).children > 0 {
		return false
	}
	switch n.kind {
	case kindContainer:
		return n.creates > 0 || neverUsedMs != 0 && nowMs-n.mtimeMs > int64(neverUsedMs)
	case kindTTL:
		return nowMs-n.mtimeMs > n.owner
	}
	return false
}

// reap deletes the node whose path c names, if it still has to go.
func (s *Store) reap(c *Command, r *Result) {
	i, ok := s.paths[string(c.Body)]
	switch {
	case !ok:
		r.Code = wire.CodeNoNode
	case !s.perished(i, s.timeMs, c.TimeoutMs):
		r.Code = wire.CodeNotEmpty
	default:
		s.deleteNode(i)
	}
}
