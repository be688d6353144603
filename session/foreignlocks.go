package session

import (
	"bytes"
	"cmp"
	"strings"
	"sync"
	"time"

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

// lockFamilies are the endings, in front of the sequence number, of the names of locks' nodes, and
// the family whose members know each other. Package recipes has a table of its own, for clients.
var lockFamilies = []struct{ ending, family string }{
	{"lock-", "lock-"},                                 // Curator's mutex, go-zookeeper, recipes
	{"__WRIT__", "__WRIT__"}, {"__READ__", "__WRIT__"}, // Curator's read-write lock, recipes
	{"__lock__", "__lock__"}, {"__rlock__", "__lock__"}, // kazoo
}

// lockFamily returns the family of a lock's node, "" for others.
func lockFamily(name string) string {
	base, ok := znode.SequentialBase(name)
	if !ok {
		return ""
	}
	for _, f := range lockFamilies {
		if strings.HasSuffix(base, f.ending) {
			return f.family
		}
	}
	if strings.HasPrefix(base, "x-") && strings.HasSuffix(base, "-") {
		return "x-" // ZooKeeper's own recipes
	}
	return ""
}

var recipesInfo = []byte(`{"by":"lockkeeper/recipes"`)

// waitsForAll says whether the owner of a lock's node is known to wait for all families: it is
// package recipes, which says so in the node's data, or go-zookeeper, which writes its UUID without
// dashes.
func waitsForAll(name string, data []byte) bool {
	const digits = 32
	id, protected := strings.CutPrefix(name, "_c_")
	return bytes.HasPrefix(data, recipesInfo) || protected && len(id) > digits && !strings.Contains(id[:digits], "-")
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
		if !waitsForAll(name, own) || !waitsForAll(sibling, data) {
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
