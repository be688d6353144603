package model

// snapshots has the steps of member x with its state: it applies committed entries, and installs
// the state of a leader in place of a log. A snapshot arrives late, or again, as every message.
func (m *Model) snapshots(s *State, x int) {
	if !m.bounds.Snapshots {
		return
	}
	m.apply(s, x)
	d, v := s.disk(x), s.server(x)
	for t := d.Term; int(t) <= m.bounds.Terms+1; t++ {
		term := &s.Clusters[s.cluster(x)-1].Terms[t]
		if term.Leader == nobody || term.Leader == v || s.Members[x].Role == Leader && t == d.Term {
			continue
		}
		for i := 2; i <= int(term.Snapshot); i++ {
			m.install(s, x, t, i)
		}
	}
	if m.without(RestoreInLog) && s.Members[x].Role == Leader && int(s.Entries) < m.bounds.Entries {
		n := m.from(s)
		n.Entries++
		d := n.disk(x)
		d.Log = m.logs.add(d.Log, Entry{Term: d.Term, Kind: Restored})
		m.committed(n, n.cluster(x), d.Term, d.Log) // it serves the new state at once
		m.emit(s, n, Step{Action: Restore, A: uint8(x)})
	}
}

// apply has member x apply the committed entries that are on its disk. It may hear of the commit in
// several ways, early ones too.
func (m *Model) apply(s *State, x int) {
	c := s.cluster(x) - 1
	log := m.durable(s.disk(x))
	log = m.logs.first(log, m.logs.common(log, s.Clusters[c].Committed))
	if m.logs.length(log) <= m.logs.length(s.Members[x].Applied) {
		return
	}
	n := m.from(s)
	n.Members[x].Applied = log
	if n.Members[x].Role == Leader {
		n.term(x).Snapshot = uint8(m.logs.length(log))
	}
	m.emit(s, n, Step{Action: Apply, A: uint8(x)})
}

// install has member x install the state of the first i entries of the leader of term t. Of its log
// it keeps the entries behind it, if the log has the same entry there.
func (m *Model) install(s *State, x int, t uint8, i int) {
	d := s.disk(x)
	state := m.logs.first(s.Clusters[s.cluster(x)-1].Terms[t].Log, i)
	if i <= m.logs.length(s.Members[x].Applied) && !m.without(DeclineOld) {
		return
	}
	n := m.from(s)
	n.follow(x, t)
	n.Members[x].Applied = state
	e := n.disk(x)
	e.Log, e.Unsynced = state, 0
	if m.logs.matches(d.Log, state) == i || m.without(DropConflict) {
		for j := i + 1; j <= m.logs.length(d.Log); j++ {
			e.Log = m.logs.add(e.Log, m.logs.at(d.Log, j))
		}
	}
	if w := n.term(x).Leader; n.leads(w, t) {
		m.acknowledge(n, w.member(), n.server(x), i)
	}
	if *n != *s {
		m.emit(s, n, Step{Action: Install, A: uint8(x), B: t, C: uint8(i)})
	}
}
