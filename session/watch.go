package session

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

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
	herds map[string]struct{}

	stats  *stats
	memory *memory
}

// watchBytes returns the bytes that a connection's watches of one path count for: those of the
// path, and an estimate of what the tables take for them.
func watchBytes(path string) int { return len(path) + 400 }

// maxShare is the part of maxBytes that the watches of one connection may have.
const maxShare = 4

func (t *watchTable) init(maxBytes int, s *stats, m *memory) {
	t.maxBytes, t.stats, t.memory = maxBytes, s, m
	t.data.at = map[string]map[*Session]watchMode{}
	t.child.at = map[string]map[*Session]watchMode{}
	t.recursive = map[int]int{}
	t.herds = map[string]struct{}{}
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
	if own <= t.memory.fair(int64(t.maxBytes/maxShare)) || own <= t.maxBytes/maxShare && t.bytes+n <= t.maxBytes {
		return true
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
	if _, ok := s.watched[path]; ok {
		s.watchBytes -= watchBytes(path)
		t.bytes -= watchBytes(path)
	}
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
	}
	return true
}

// removeStep is how many watched paths of a connection that has ended are removed under one lock,
// for which events wait.
const removeStep = 1000

// sweepLoop removes the watches of connections that had many.
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

// fire sends the notifications that the events of one command cause, in the order of
// docs/protocol/watches.md 3.1. A watch that fires once is used up even if its client may not see
// the event.
func (t *watchTable) fire(events []znode.Event) {
	if len(events) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watching == 0 {
		return
	}
	known := ancestry{}
	for i := range events {
		switch e := &events[i]; e.Type {
		case wire.EventNodeChildrenChanged:
			t.triggerLocked(&t.child, e)
		case wire.EventNodeDeleted:
			at, above := t.triggerDataLocked(e, known)
			t.triggerLocked(&t.child, e, at, above)
		default:
			t.triggerDataLocked(e, known)
		}
	}
}

// triggerDataLocked matches an event against the data table, recursive watches on ancestors
// included. It returns the connections that it reached: those with entries at the path, and those
// with recursive ones above it. Neither is to be changed.
func (t *watchTable) triggerDataLocked(e *znode.Event, known ancestry) (at, above map[*Session]watchMode) {
	at = t.triggerLocked(&t.data, e)
	if len(t.recursive) == 0 {
		return at, nil
	}
	above = t.aboveLocked(e.Path, known)
	for s := range above {
		if at[s] == 0 {
			t.sendAboveLocked(s, e)
		}
	}
	return at, above
}

// ancestry holds, by path, the connections that watch the path or an ancestor of it recursively.
// One is used while the events of one command fire. A multi can have hundreds of events below a
// thousand ancestors, each of which every connection watches: without it that takes a second.
type ancestry map[string]map[*Session]watchMode

// aboveLocked returns the connections with recursive watches on ancestors of path.
func (t *watchTable) aboveLocked(path string, known ancestry) (above map[*Session]watchMode) {
	var unknown []string // ancestors, the longest first
	for path != "/" {
		path = path[:max(1, strings.LastIndexByte(path, '/'))]
		if t.recursive[len(path)] == 0 {
			continue
		}
		if found, ok := known[path]; ok {
			above = found
			break
		}
		unknown = append(unknown, path)
	}
	for _, path := range slices.Backward(unknown) {
		above = t.joinLocked(above, path)
		known[path] = above
	}
	return above
}

// joinLocked returns the connections in above, which it does not change, and those that watch path
// recursively.
func (t *watchTable) joinLocked(above map[*Session]watchMode, path string) map[*Session]watchMode {
	joined := above
	for s, mode := range t.data.at[path] {
		if mode&recursive == 0 || above[s] != 0 {
			continue
		}
		if len(joined) == len(above) { // the first one
			if joined = maps.Clone(above); joined == nil {
				joined = map[*Session]watchMode{}
			}
		}
		joined[s] = mode
	}
	return joined
}

// triggerLocked matches an event against the entries at exactly its path, but for the connections
// in skip, whose one-shot watches are used up all the same. It returns the entries, which are not
// to be changed.
func (t *watchTable) triggerLocked(table *pathWatches, e *znode.Event,
	skip ...map[*Session]watchMode,
) map[*Session]watchMode {
	at := table.at[e.Path]
	modes := watchMode(0)
	for s, mode := range at {
		modes |= mode
		if !slices.ContainsFunc(skip, func(m map[*Session]watchMode) bool { return m[s] != 0 }) {
			t.sendLocked(s, e)
		}
	}
	if modes&standard != 0 {
		t.useUpLocked(table, e.Path)
	}
	return at
}

// useUpLocked removes the one-shot watches of a path, all at once: it leaves the entries as they
// are, and makes new ones of the rest.
func (t *watchTable) useUpLocked(table *pathWatches, path string) {
	at := table.at[path]
	delete(table.at, path)
	delete(t.herds, path)
	left := map[*Session]watchMode{}
	for s, mode := range at {
		if mode &^= standard; mode != 0 {
			left[s] = mode
		}
	}
	table.entries -= len(at) - len(left)
	if len(left) > 0 {
		table.at[path] = left
	}
	data, child := t.data.at[path], t.child.at[path]
	for s := range at {
		if data[s]|child[s] == 0 {
			t.unwatchLocked(s, path)
		}
	}
}

// lookupsLocked is up to how many lookups in an ACL are made while the state is locked.
const lookupsLocked = 4

// sendLocked sends the event to s, if its identities may read the node.
func (t *watchTable) sendLocked(s *Session, e *znode.Event) {
	ids := *s.ids.Load()
	if e.Lookups(ids) > lookupsLocked {
		// each of thousands of events may have another ACL, a connection a hundred identities
		e := *e
		s.notify(e.Zxid, e.Type, e.Path, func() bool { return e.ReadableBy(ids) })
	} else if e.ReadableBy(ids) {
		s.notify(e.Zxid, e.Type, e.Path, nil)
	}
}

// sendAboveLocked is sendLocked for a recursive watch on a node above: the client must not learn
// the name of a node below one that it may not read. In ZooKeeper it does (docs/protocol/watches.md
// 6).
func (t *watchTable) sendAboveLocked(s *Session, event *znode.Event) {
	if !event.Guarded() {
		t.sendLocked(s, event)
		return
	}
	e, ids := *event, *s.ids.Load()
	s.notify(e.Zxid, e.Type, e.Path, func() bool { return e.ReadableBy(ids) && e.NamedTo(ids, t.baseOf(s, e.Path)) })
}

// basesTried is how many ancestors that some connection watches recursively baseOf looks at.
const basesTried = 64

// baseOf returns the length of the deepest path above path that s watches recursively, that of the
// root's if it finds none. The state need not be locked.
func (t *watchTable) baseOf(s *Session, path string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	for tried := 0; path != "/" && tried < basesTried; {
		path = path[:max(1, strings.LastIndexByte(path, '/'))]
		if t.recursive[len(path)] == 0 {
			continue
		}
		if tried++; t.data.at[path][s]&recursive != 0 {
			return len(path)
		}
	}
	return len("/")
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
			list = append(list, Connection{s.Stats(), watches[i], *s.ids.Load()})
		}
	}
	return list
}
