package server

import (
	"cmp"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/locknode"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

const (
	// foreignSiblings is the number of siblings that are read, the oldest first.
	foreignSiblings = 16
	// foreignAgain is the time for which a path is not logged again.
	foreignAgain = time.Hour
	// foreignPaths is the number of paths that are logged within that time.
	foreignPaths = 100
	// foreignPathBytes bounds a path in the log.
	foreignPathBytes = 256
)

// foreignLocks warns of locks of two libraries on one path. Each library looks for nodes with its
// own names only, so both may take the lock. No member can prevent that, but the member that the
// client of such a node is connected to logs a warning. docs/guarantees.md says which locks exclude
// each other.
type foreignLocks struct {
	log *slog.Logger
	// client returns the address of a session's client, if it is connected to this member.
	client func(wire.SessionID) (addr netip.Addr, connected bool)
	now    func() time.Time
	met    *atomic.Int64 // nodes of locks beside another library's

	mu     sync.Mutex
	logged map[string]bool // the shortened paths that were logged since since
	since  time.Time
}

// applied checks the node that a command has created, if its client is connected to this member. It
// is called inside the critical section in which the command is applied.
func (f *foreignLocks) applied(store *znode.Store, c *znode.Command, res *znode.Result) {
	request, ok := c.Body.(*znode.Request)
	if !ok || request.Op != wire.OpCreate && request.Op != wire.OpCreate2 ||
		res.Status != znode.Done || res.Code != wire.CodeOK || res.Stat.EphemeralOwner == 0 {
		return
	}
	other := foreignSibling(store, res.Path)
	if other == "" {
		return
	}
	addr, connected := f.client(c.Session)
	if !connected {
		return
	}
	f.met.Add(1)
	dir, name := locknode.Split(res.Path)
	if f.due(dir, f.now()) {
		f.log.Warn("two libraries lock one path, and one may not wait for the other: there may be two holders. "+
			"docs/guarantees.md, who excludes whom",
			"path", shorten(cmp.Or(dir, "/")), "node", shorten(name), "beside", shorten(other),
			"session", c.Session, "client", addr)
	}
}

// foreignSibling returns the name of a sibling of the node at path that is a lock's of another
// family, "" if there is none.
func foreignSibling(store *znode.Store, path string) string {
	dir, name := locknode.Split(path)
	family := locknode.LockFamily(name)
	if family == "" {
		return ""
	}
	looked := 0
	for sibling, data := range store.ChildrenInOrder(dir) {
		if looked++; looked > foreignSiblings {
			break
		}
		if other := locknode.LockFamily(sibling); other == "" || other == family {
			continue
		}
		own, _, _ := store.Get(path, []znode.Identity{{Scheme: "super"}})
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

// shorten bounds a client's name in a line of the log.
func shorten(s string) string {
	if len(s) > foreignPathBytes {
		return s[:foreignPathBytes] + "..."
	}
	return s
}
