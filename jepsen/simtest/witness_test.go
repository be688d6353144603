package simtest

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"lockkeeper/wire"
)

// witness looks at the members' log lines at once:
//
//   - one member at most is elected in a term (C1);
//   - when a session expires, its client's library does not say that it is connected (C6).
type witness struct {
	c *cluster
	// strict: no library hears anything late, and so their reports count.
	strict bool

	mu        sync.Mutex
	winners   map[uint64]string // by term: the member, and how often its disk was replaced before
	disks     map[string]int    // how often the disk of each member was replaced
	elections []string          // who won each, the oldest first
	roles     map[string]string // in raft, by member: follower, candidate or leader
	libraries []library
	expired   int // sessions of these libraries
}

// library is a client's. Strictly: it hears nothing late in any simulation.
type library struct {
	conn     *zk.Conn
	strictly bool
}

func newWitness(c *cluster) *witness {
	return &witness{c: c, winners: make(map[uint64]string), disks: make(map[string]int),
		roles: make(map[string]string)}
}

// logged is called for each line that a member logs.
func (w *witness) logged(who string, r slog.Record) {
	attr := func(key string) (v any) {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == key {
				v = a.Value.Any()
			}
			return v == nil
		})
		return v
	}
	switch r.Message {
	case "entering follower state", "entering candidate state", "entering leader state": // the same
		w.mu.Lock()
		w.roles[who] = strings.Fields(r.Message)[1]
		w.mu.Unlock()
	case "election won": // the raft library's words
		if term, ok := attr("term").(uint64); ok {
			w.elected(who, term)
		} else {
			w.c.t.Errorf("%s was elected, but its log does not say in which term", who)
		}
	case "session expired":
		if id, ok := attr("session").(wire.SessionID); ok {
			w.sessionExpired(who, int64(id))
		} else {
			w.c.t.Errorf("a session expired on %s, but its log does not say which", who)
		}
	}
}

func (w *witness) elected(who string, term uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	disk := fmt.Sprintf("%s with its disk %d", who, w.disks[who]+1)
	if other := w.winners[term]; other != "" && other != disk {
		w.c.t.Errorf("after %v: two leaders in term %d: %s and %s", w.c.journal.age(), term, other, disk)
	}
	w.winners[term] = disk
	w.elections = append(w.elections, who)
}

// replaced is called when a member that does not run has got another disk.
func (w *witness) replaced(m *member) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.disks[fmt.Sprintf("m%d", m.id)]++
}

// won lists who has won an election, the first one first.
func (w *witness) won() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.elections)
}

// role is the member's role in raft.
func (w *witness) role(m *member) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.roles[fmt.Sprintf("m%d", m.id)]
}

// sessionExpired is called when a member has applied the end of a session.
func (w *witness) sessionExpired(who string, id int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.libraries {
		if l.conn.SessionID() != id {
			continue
		}
		w.expired++
		if (w.strict || l.strictly) && l.conn.State() == zk.StateHasSession {
			w.c.t.Errorf("after %v: session %#x has expired on %s, and its client's library says that it is connected", w.c.journal.age(), id, who)
		}
	}
}

// watch takes note of a library.
func (w *witness) watch(conn *zk.Conn) { w.add(library{conn: conn}) }

// watchStrictly takes note of a library that hears nothing late.
func (w *witness) watchStrictly(conn *zk.Conn) { w.add(library{conn: conn, strictly: true}) }

func (w *witness) add(l library) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.libraries = append(w.without(l.conn), l)
}

// forget is called before a library is closed.
func (w *witness) forget(conn *zk.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.libraries = w.without(conn)
}

func (w *witness) without(conn *zk.Conn) []library {
	return slices.DeleteFunc(w.libraries, func(l library) bool { return l.conn == conn })
}
