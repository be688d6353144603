package model

// faults has the crashes of member x, and the changes of its disk. A crash takes away the memory
// and the unsynced entries, in one step: a process that is down is one that takes no step.
func (m *Model) faults(s *State, x int) {
	p, d := &s.Members[x], s.disk(x)
	if !m.bounds.Steady && (*p != (Member{Disk: p.Disk}) || d.Unsynced > 0) {
		n := m.from(s)
		m.crash(n, x)
		m.emit(s, n, Step{Action: Crash, A: uint8(x)})
	}
	if d.Unsynced > 0 {
		n := m.from(s)
		n.disk(x).Unsynced = 0
		m.emit(s, n, Step{Action: Flush, A: uint8(x)})
	}
	m.otherDisk(s, x)
	if m.without(KeptDisks) && m.logs.length(d.Log) > 1 {
		n := m.from(s)
		m.crash(n, x)
		e := n.disk(x)
		e.Log = m.logs.all[d.Log].prefix
		e.Term, e.VoteTerm, e.VoteFor = m.logs.at(e.Log, m.logs.length(e.Log)).Term, 0, nobody
		m.emit(s, n, Step{Action: Damage, A: uint8(x)})
	}
}

// otherDisk has the loss of the disk of member x, and the return of one that it had.
func (m *Model) otherDisk(s *State, x int) {
	second := s.Seconds&(1<<x) != 0
	if !second && Set(s.Seconds).size() < m.bounds.Lost && m.mayLose(s, x) {
		n := m.from(s)
		m.crash(n, x)
		if m.bounds.Returns == 0 {
			*n.disk(x) = Disk{VoteFor: nobody} // nobody will ever see it again
		}
		n.Seconds |= 1 << x
		n.Members[x].Disk = 1
		m.emit(s, n, Step{Action: Replace, A: uint8(x)})
	}
	if second && int(s.Returns) < m.bounds.Returns && m.mayLose(s, x) {
		n := m.from(s)
		m.crash(n, x)
		n.Returns++
		n.Members[x].Disk = 1 - n.Members[x].Disk
		m.emit(s, n, Step{Action: Return, A: uint8(x)})
	}
}

// unsynced notes that the newest entry of the leader x is in memory only, where the leader writes
// its disk in parallel.
func (m *Model) unsynced(s *State, x int) {
	if m.bounds.Parallel {
		s.disk(x).Unsynced++
	}
}
