package session

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Stats is what a Manager knows of the work of this member.
type Stats struct {
	Counters
	Outstanding int // requests that are not answered
	Connections int // that hold a session
	Sessions    int // of the whole cluster
	Ephemerals  int
	Watches     WatchCounts
	StateBytes  int64 // of the nodes, as Limits.DataBytes counts them
	Held        int64 // bytes of unsent output and unanswered requests
	WatchBytes  int64 // memory of the watches, as it is counted
}

// Measures returns what is measured.
func (m *Manager) Measures() *Measures { return &m.stats.Measures }

// Stats returns the statistics of this member.
func (m *Manager) Stats() Stats {
	s := Stats{Watches: m.watches.counts(), Held: m.gate.Memory.Held(), WatchBytes: m.watches.held(),
		StateBytes: m.gate.StateBytes()}
	m.replica.View(func(store *znode.Store) {
		c := store.Counts()
		s.Sessions, s.Ephemerals = c.Sessions, c.Ephemerals
	})
	for _, c := range m.connected.all() {
		s.Connections++
		s.Outstanding += c.queued()
	}
	m.stats.mu.Lock()
	defer m.stats.mu.Unlock()
	s.Counters = m.stats.Counters
	s.Refused = m.gate.Refused()
	return s
}

// ResetStats sets counters and latencies to zero (the four-letter word srst).
func (m *Manager) ResetStats() {
	m.stats.mu.Lock()
	defer m.stats.mu.Unlock()
	m.stats.Counters = Counters{}
	m.gate.ResetRefused()
	m.stats.reset()
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

// WatchersOf returns how many connections watch a node, in the table in which there are more.
func (m *Manager) WatchersOf(path string) int {
	t := &m.watches
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(len(t.data.at[path]), len(t.child.at[path]))
}

// WatchedBy returns the paths that the connection of a session watches, sorted.
func (m *Manager) WatchedBy(id wire.SessionID) []string {
	s := m.connected.get(id)
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
	all := m.connected.all()
	watches := make([]int, len(all))
	t := &m.watches
	t.mu.Lock()
	for i, s := range all {
		watches[i] = len(s.watched)
	}
	t.mu.Unlock()
	for i, s := range all {
		if s.local == nil {
			list = append(list, Connection{s.Stats(), watches[i], m.cfg.Auth.ownIdentities(*s.ids.Load())})
		}
	}
	return list
}

// Leases returns how many leases this member keeps; false if it does not lead.
func (m *Manager) Leases() (n int, leads bool) {
	t := m.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.leases), t.leading
}

// Deadline is when a session expires if no member hears from its client until then.
type Deadline struct {
	Session wire.SessionID
	At      time.Time
}

// Deadlines lists the leases of all sessions of the cluster, the earliest first. Only the leader
// has them; leads says whether this member does.
func (m *Manager) Deadlines() (list []Deadline, leads bool) {
	t := m.tracker
	t.mu.Lock()
	leads = t.leading
	now := t.clock.Awake()
	for _, l := range t.leases {
		list = append(list, Deadline{Session: l.id, At: time.Now().Add(l.deadline.Sub(now))})
	}
	t.mu.Unlock()
	slices.SortFunc(list, func(a, b Deadline) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(uint64(a.Session), uint64(b.Session)))
	})
	return list, leads
}
