package model

// beats has the heartbeats that member x handles beside its main loop. In the protocol that is
// built these change nothing but the time of the last contact (leases), so there are no steps here;
// hashicorp/raft has two that change the term.
func (m *Model) beats(s *State, x int) {
	p, d := &s.Members[x], s.disk(x)
	for t := d.Term; int(t) <= m.bounds.Terms+1; t++ {
		leader := s.Clusters[s.cluster(x)-1].Terms[t].Leader
		if leader == nobody || leader == s.server(x) {
			continue
		}
		if m.without(NewBeatsInLoop) && t > d.Term && p.Role == Leader {
			n := m.from(s)
			n.disk(x).Term = t // and the main loop goes on as a leader
			m.emit(s, n, Step{Action: Raise, A: uint8(x), B: t})
		}
		if m.without(EqualBeatsInLoop) && t == d.Term && p.Beat != t {
			n := m.from(s)
			n.Members[x].Beat = t
			m.emit(s, n, Step{Action: Check, A: uint8(x), B: t})
		}
	}
	if p.Beat != 0 {
		n := m.from(s)
		n.follow(x, p.Beat)
		n.Members[x].Beat = 0
		m.emit(s, n, Step{Action: Late, A: uint8(x)})
	}
}
