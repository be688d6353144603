package session

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"lockkeeper/session/admission"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// watchMode is a set of the ways in which one connection watches one path in one table.
type watchMode uint8

const (
	standard   watchMode = 1 << iota // fires once
	persistent                       // stays
	recursive                        // stays, and fires for what is below the path
)

// pathWatches are the watches of all connections in one of the tables.
type pathWatches struct {
	at      map[string]map[*Session]watchMode // by path
	entries int                               // of all maps in at
}

// watchTable holds the watches of all connections of this member (docs/protocol/watches.md 1). It
// knows nothing of sessions that live elsewhere, and nothing of it survives the connection.
type watchTable struct {
	mu       sync.Mutex
	data     pathWatches
	child    pathWatches
	watching int // connections that watch anything
	bytes    int // what the watches of all connections count for, see watchBytes
	maxBytes int // how much that may be
	// recursive is how many entries of data have recursive among their modes, by the length of
	// their path: ancestors of other lengths need not be looked up.
	recursive map[int]int
	// herds are the paths that herdSize connections or more watch, in one table. Some of them may
	// have become fewer.
	herds  map[string]struct{}
	fanout fanout
	usedUp []usedUp // not settled yet

	stats  *stats
	memory *admission.Memory
}

// watchBytes returns the bytes that a connection's watches of one path count for: those of the
// path, and an estimate of what the tables take for them.
func watchBytes(path string) int { return len(path) + 400 }

// maxShare is the part of maxBytes that the watches of one connection may have.
const maxShare = 4

func (t *watchTable) init(maxBytes int, s *stats, m *admission.Memory) {
	t.maxBytes, t.stats, t.memory = maxBytes, s, m
	t.data.at = map[string]map[*Session]watchMode{}
	t.child.at = map[string]map[*Session]watchMode{}
	t.recursive = map[int]int{}
	t.herds = map[string]struct{}{}
	t.fanout.init()
}

// add adds modes to the watches of s on path, in the data table and in the child table; false if
// there are too many.
func (t *watchTable) add(s *Session, path string, data, child watchMode) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.addLocked(&t.data, s, path, data) && t.addLocked(&t.child, s, path, child)
}

// admitLocked reports whether s may watch one more path. Each connection has its fair part
// in any case.
func (t *watchTable) admitLocked(s *Session, path string) bool {
	n := watchBytes(path)
	own := s.watchBytes + n
	if own <= t.memory.Fair(int64(t.maxBytes/maxShare)) || own <= t.maxBytes/maxShare && t.bytes+n <= t.maxBytes {
		return s.m.gate.AdmitWatch(&s.account, *s.ids.Load(), path)
	}
	t.stats.inc(&t.stats.WatchesRefused)
	return false
}

// held is what all watches count for.
func (t *watchTable) held() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int64(t.bytes)
}

func (t *watchTable) addLocked(table *pathWatches, s *Session, path string, mode watchMode) bool {
	if mode == 0 || s.unwatched {
		return true // the connection may have ended while it read
	}
	_, watched := s.watched[path]
	if !watched && !t.admitLocked(s, path) {
		return false
	}
	at := table.at[path]
	if at == nil {
		at = map[*Session]watchMode{}
		table.at[path] = at
	}
	if at[s] == 0 {
		table.entries++
	}
	if mode&recursive != 0 && at[s]&recursive == 0 {
		t.recursive[len(path)]++
	}
	at[s] |= mode
	if len(at) == herdSize {
		t.herds[path] = struct{}{}
	}
	if s.watched == nil {
		s.watched = map[string]struct{}{}
		t.watching++
	}
	if !watched {
		s.watched[path] = struct{}{}
		s.watchBytes += watchBytes(path)
		t.bytes += watchBytes(path)
	}
	return true
}

// dropLocked takes modes away from one entry and reports whether there were any of them.
func (t *watchTable) dropLocked(table *pathWatches, s *Session, path string, modes watchMode) bool {
	at := table.at[path]
	had := at[s]
	if had&modes == 0 {
		return false
	}
	if had&modes&recursive != 0 {
		if t.recursive[len(path)]--; t.recursive[len(path)] == 0 {
			delete(t.recursive, len(path))
		}
	}
	if left := had &^ modes; left != 0 {
		at[s] = left
		return true
	}
	delete(at, s)
	table.entries--
	if len(at) == 0 {
		delete(table.at, path)
		delete(t.herds, path)
	}
	if t.data.at[path][s]|t.child.at[path][s] == 0 {
		t.unwatchLocked(s, path)
	}
	return true
}

// unwatchLocked records that s does not watch path any more, in neither table.
func (t *watchTable) unwatchLocked(s *Session, path string) {
	if _, ok := s.watched[path]; !ok {
		return
	}
	s.watchBytes -= watchBytes(path)
	t.bytes -= watchBytes(path)
	s.m.gate.ForgetWatch(&s.account, path)
	if delete(s.watched, path); len(s.watched) == 0 {
		s.watched = nil
		t.watching--
	}
}

const anyMode = standard | persistent | recursive

// removeSome removes up to n of the watched paths of a connection that has ended, and prevents that
// it gets more. It reports whether none are left.
func (t *watchTable) removeSome(s *Session, n int) (done bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.unwatched = true
	for path := range s.watched {
		if n == 0 {
			return false
		}
		n--
		t.dropLocked(&t.data, s, path, anyMode)
		t.dropLocked(&t.child, s, path, anyMode)
		t.unwatchLocked(s, path) // if its watches have fired and are not settled
	}
	return true
}

// removeStep is how many watched paths are removed under one lock, for which events wait.
const removeStep = 1000

// sweepLoop removes the watches of connections that had many, and settles those that have fired
// when they were many.
func (m *Manager) sweepLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.sweepNow:
		}
		m.mu.Lock()
		list := m.abandoned
		m.abandoned = nil
		m.mu.Unlock()
		for _, s := range list {
			for !m.watches.removeSome(s, removeStep) {
			}
		}
		for !m.watches.settleSome(removeStep) {
		}
	}
}

// watchKind translates the type of checkWatches and removeWatches (docs/protocol/watches.md 8).
func watchKind(watchType int32) (data, child watchMode, ok bool) {
	switch watchType {
	case wire.WatchTypeChildren:
		return 0, standard, true
	case wire.WatchTypeData:
		return standard, 0, true
	case wire.WatchTypeAny:
		return anyMode, anyMode, true
	case wire.WatchTypePersistent:
		return persistent, persistent, true
	case wire.WatchTypePersistentRecursive:
		return recursive, recursive, true
	}
	return 0, 0, false
}

func (t *watchTable) has(s *Session, path string, data, child watchMode) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.data.at[path][s]&data != 0 || t.child.at[path][s]&child != 0
}

func (t *watchTable) remove(s *Session, path string, data, child watchMode) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	inData := t.dropLocked(&t.data, s, path, data)
	inChild := t.dropLocked(&t.child, s, path, child)
	return inData || inChild
}

// WatchCounts are the sizes of the watch tables.
type WatchCounts struct {
	Connections int // that watch anything
	Paths       int // watched in the data table
	DataWatches int // entries of the data table
	Watches     int // entries of both tables
}

func (t *watchTable) counts() WatchCounts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return WatchCounts{
		Connections: t.watching,
		Paths:       len(t.data.at),
		DataWatches: t.data.entries,
		Watches:     t.data.entries + t.child.entries,
	}
}

// Watch is one entry of the data table: a session and a path that it watches.
type Watch struct {
	Session wire.SessionID
	Path    string
}

// DataWatches lists the data table, in which exists, getData and addWatch register, sorted by
// session and path (the four-letter words wchc and wchp).
func (m *Manager) DataWatches() []Watch {
	t := &m.watches
	t.mu.Lock()
	var list []Watch
	for path, at := range t.data.at {
		for s := range at {
			list = append(list, Watch{Session: s.id, Path: path})
		}
	}
	t.mu.Unlock()
	slices.SortFunc(list, func(a, b Watch) int {
		return cmp.Or(cmp.Compare(uint64(a.Session), uint64(b.Session)), cmp.Compare(a.Path, b.Path))
	})
	return list
}

// herdSize is how many connections have to watch a node for it to be among the Herds.
const herdSize = 100

// WatchersOf returns how many connections watch a node, in the table in which there are more.
func (m *Manager) WatchersOf(path string) int {
	t := &m.watches
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(len(t.data.at[path]), len(t.child.at[path]))
}

// WatchedBy returns the paths that the connection of a session watches, sorted.
func (m *Manager) WatchedBy(id wire.SessionID) []string {
	s := m.session(id)
	if s == nil {
		return nil
	}
	t := &m.watches
	t.mu.Lock()
	paths := slices.Collect(maps.Keys(s.watched))
	t.mu.Unlock()
	slices.Sort(paths)
	return paths
}

// Herds returns the nodes that at least herdSize connections watch, with how many do, the most
// watched first.
func (m *Manager) Herds() (paths []string, watchers []int) {
	t := &m.watches
	t.mu.Lock()
	size := map[string]int{}
	for path := range t.herds {
		if n := max(len(t.data.at[path]), len(t.child.at[path])); n >= herdSize {
			size[path] = n
			paths = append(paths, path)
		} else {
			delete(t.herds, path)
		}
	}
	t.mu.Unlock()
	slices.SortFunc(paths, func(a, b string) int { return cmp.Or(cmp.Compare(size[b], size[a]), cmp.Compare(a, b)) })
	for _, path := range paths {
		watchers = append(watchers, size[path])
	}
	return paths, watchers
}

// Connection is a session that is connected to this member.
type Connection struct {
	ConnStats
	Watches    int // paths that it watches
	Identities []znode.Identity
}

// Connections lists the sessions that are connected to this member, in no particular order.
func (m *Manager) Connections() (list []Connection) {
	all := m.all()
	watches := make([]int, len(all))
	t := &m.watches
	t.mu.Lock()
	for i, s := range all {
		watches[i] = len(s.watched)
	}
	t.mu.Unlock()
	for i, s := range all {
		if !s.local {
			list = append(list, Connection{s.Stats(), watches[i], m.ownIdentities(*s.ids.Load())})
		}
	}
	return list
}
