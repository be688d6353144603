package session

import (
	"cmp"
	"strings"
	"sync"
	"time"

	"lockkeeper/locknode"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Locks are made by clients, out of sequential ephemeral nodes. Each library looks for nodes with
// its own names only, so that two libraries on one path may both take the lock. No member can
// prevent that; but the member whose client creates such a node detects it and logs a warning.
// docs/guarantees.md says which locks exclude each other.
//
// For each ephemeral node that clients of this member create, the end of its name is checked. If it
// is the name of a lock, the first foreignSiblings of its siblings are read.

const (
	// foreignSiblings is how many siblings are read, the oldest first.
	foreignSiblings = 16
	// foreignAgain is how long a path is not logged again.
	foreignAgain = time.Hour
	// foreignPaths is how many paths are logged within that time.
	foreignPaths = 100
	// foreignPathBytes is how much of a path is logged.
	foreignPathBytes = 256
)

// lockFamily returns the family of a lock's node, "" for others.
func lockFamily(name string) string {
	switch locknode.KindOf(name) {
	case locknode.KindRead, locknode.KindWrite:
		return locknode.Family(locknode.Layout(name))
	}
	return ""
}

// foreignLocks detects paths on which there are locks of several families.
type foreignLocks struct {
	mu     sync.Mutex
	logged map[string]bool // the paths, shortened, that were logged since since
	since  time.Time
}

// find returns the name of a sibling of the node at path that is a lock's of another family, "" if
// there is none.
func (*foreignLocks) find(store *znode.Store, path string) string {
	slash := strings.LastIndexByte(path, '/')
	name := path[slash+1:]
	family := lockFamily(name)
	if family == "" {
		return ""
	}
	looked := 0
	for sibling, data := range store.ChildrenInOrder(path[:slash]) {
		if looked++; looked > foreignSiblings {
			break
		}
		if other := lockFamily(sibling); other == "" || other == family {
			continue
		}
		own, _, _ := store.Get(path, []znode.Identity{superIdentity})
		if !locknode.WaitsForAll(name, own) || !locknode.WaitsForAll(sibling, data) {
			return sibling
		}
	}
	return ""
}

// due reports whether a path is to be logged now.
func (f *foreignLocks) due(path string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.logged == nil || now.Sub(f.since) >= foreignAgain {
		f.logged, f.since = map[string]bool{}, now
	}
	path = shorten(path)
	if f.logged[path] || len(f.logged) >= foreignPaths {
		return false
	}
	f.logged[path] = true
	return true
}

// warnOfForeignLock is called when a client of this member has made a node.
func (s *Session) warnOfForeignLock(store *znode.Store, res *znode.Result) {
	if res.Stat.EphemeralOwner == 0 {
		return
	}
	m := s.m
	other := m.foreign.find(store, res.Path)
	if other == "" {
		return
	}
	slash := strings.LastIndexByte(res.Path, '/')
	dir, name := res.Path[:slash], res.Path[slash+1:]
	m.stats.inc(&m.stats.ForeignLocks)
	if m.foreign.due(dir, m.cfg.Now()) {
		m.log.Warn("two libraries lock one path, and one may not wait for the other: there may be two holders. "+
			"docs/guarantees.md, who excludes whom",
			"path", shorten(cmp.Or(dir, "/")), "node", shorten(name), "beside", shorten(other),
			"session", s.id, "client", s.addr)
	}
}

// shorten bounds what a client's names make of a line of the log.
func shorten(s string) string {
	if len(s) > foreignPathBytes {
		return s[:foreignPathBytes] + "..."
	}
	return s
}

// isCreate says whether op is one of those that make one node.
func isCreate(op wire.Op) bool { return op == wire.OpCreate || op == wire.OpCreate2 }
