package session

import (
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Stats are the figures of this member's work.
type Stats struct {
	Counters
	Outstanding   int // requests that are not answered
	Connections   int // that hold a session
	Sessions      int // of the whole cluster
	Ephemerals    int
	Watches       WatchCounts
	StateBytes    int64 // of the nodes, as Limits.DataBytes counts them
	Held          int64 // bytes of unsent output and unanswered requests
	WatchBytes    int64 // memory of the watches, as it is counted
	LocalSessions int   // sessions of read-only mode
	Leases        int   // of sessions of the cluster, on the leader; else -1
}

// Measures returns the measures, which change while they are read.
func (m *Manager) Measures() *Measures { return &m.stats.Measures }

// Stats returns the statistics of this member.
func (m *Manager) Stats() Stats {
	s := Stats{Watches: m.watches.counts(), Held: m.gate.Memory.Held(), WatchBytes: m.watches.held(),
		StateBytes: m.gate.StateBytes(), LocalSessions: m.readOnly.count(), Leases: m.tracker.count()}
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

// Watches returns the watch table.
func (m *Manager) Watches() *WatchTable { return &m.watches }

// WatchedBy returns the paths that the connection of a session watches, sorted.
func (m *Manager) WatchedBy(id wire.SessionID) []string {
	s := m.connected.get(id)
	if s == nil {
		return nil
	}
	return m.watches.by(&s.connection)
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

// Deadlines lists the leases of all sessions of the cluster, the earliest first. Only the leader
// has them; leads says whether this member does.
func (m *Manager) Deadlines() (list []Deadline, leads bool) { return m.tracker.list() }
