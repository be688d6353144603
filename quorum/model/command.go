package model

// The commands of one session: (generation, seq), each sent once by the client, and forwarded again
// and again by its member, so that each leader may append it at any time, several times. The state
// decides when it is applied; see session in log.go.

// command is the Value of an entry with a command.
func command(generation, seq int) uint8 { return uint8(generation<<4 | seq) }

// commands has the leader x append commands of the session, and the attach of its next connection.
func (m *Model) commands(s *State, x int) {
	if m.bounds.Commands == 0 {
		return
	}
	if int(s.Entries) >= m.bounds.Entries {
		return
	}
	for g := 1; g <= maxGeneration; g++ {
		for seq := 1; seq <= int(s.Session.Sent[g-1]); seq++ {
			n := m.from(s)
			n.Entries++
			step := Step{Action: Submit, B: uint8(g), C: uint8(seq)}
			m.append(s, n, x, Entry{Kind: Write, Value: command(g, seq)}, step)
		}
	}
	m.reattach(s, x, maxGeneration)
}

// reattach has the leader x append the attach of this connection, if its log lacks it. Behind the
// end of the session it would have no effect.
func (m *Model) reattach(s *State, x int, connection int) {
	if l := &m.logs.all[s.disk(x).Log]; int(l.session.Generation) >= connection || l.ended {
		return
	}
	n := m.from(s)
	if m.bounds.Commands > 0 {
		n.Entries++
	}
	m.append(s, n, x, Entry{Kind: Attach}, Step{Action: Reattach, B: uint8(connection)})
}

// issue has the client send its next command. It uses a connection from when its attach is
// committed, and none before it.
func (m *Model) issue(s *State) {
	if m.bounds.Commands == 0 {
		return
	}
	g := int(m.logs.all[s.Clusters[0].Committed].session.Generation)
	if int(s.Session.Sent[g-1]) < m.bounds.Commands {
		n := m.from(s)
		n.Session.Sent[g-1]++
		m.emit(s, n, Step{Action: Issue, A: uint8(g)})
	}
}
