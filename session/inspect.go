package session

import (
	"cmp"
	"slices"
	"time"

	"lockkeeper/wire"
)

// Watch is one entry of the data table: who watches which path.
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

// Deadline is when a session expires if nobody hears from it until then.
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
	for _, l := range t.leases {
		list = append(list, Deadline{Session: l.id, At: l.deadline})
	}
	t.mu.Unlock()
	slices.SortFunc(list, func(a, b Deadline) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(uint64(a.Session), uint64(b.Session)))
	})
	return list, leads
}
