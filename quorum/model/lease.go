package model

// The lease of one session with a timeout T, Bounds.Lease ticks (decision 002). Two messages take
// no time here, because the same message, sent later, gives a longer lease: a heartbeat is answered
// when it is sent, and a report is confirmed when it is sent. Bytes to the client take as long as
// they may, a tick. "Younger than T/3" includes T/3, the bound of these moments.

// Clock is the error of a clock in one tick.
type Clock uint8

// The errors. A slow clock does not count the tick, a fast one counts it twice. The clock of member
// x is slow with SlowMember+x and fast with FastMember+x.
const (
	RightClocks Clock = iota
	SlowClient
	SlowMember
	FastMember = SlowMember + MaxMembers
)

// third is T/3: how long a confirmation allows a member to send.
func (m *Model) third() uint8 { return uint8(m.bounds.Lease / 3) }

// inFlight is the ticks that bytes take to the client at most.
const inFlight = 1

// full is 1 + the ticks from the extension of a session to its end, on the leader.
func (m *Model) full() uint8 {
	ticks := m.bounds.Lease
	if !m.without(HalfTick) {
		ticks += inFlight
	}
	if !m.without(SpeedMargin) {
		ticks += m.bounds.Errors
	}
	return uint8(ticks) + 1
}

// age is an age as Lease keeps it: 0 if it allows nothing any more.
func (m *Model) age(age uint8) uint8 {
	if age > m.third()+1 {
		return 0
	}
	return age
}

// newer is the smaller of two ages.
func newer(a, b uint8) uint8 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

func (m *Model) asleep(s *State, x int) bool {
	if !s.Members[x].Lease.Asleep {
		return false
	}
	n := m.from(s)
	l := &n.Members[x].Lease
	l.Asleep = false
	if !m.without(SuspendsCount) { // Clock.Woke: nothing from before the suspend counts
		l.Confirmed, l.Proposed, l.Contact, l.Answers, l.Under = 0, 0, [maxServers]uint8{}, 0, false
	}
	m.emit(s, n, Step{Action: Wake, A: uint8(x)})
	return true
}

// track begins the deadline of the session on the new leader x.
func (m *Model) track(s *State, x int) {
	if m.bounds.Lease == 0 {
		return
	}
	s.Members[x].Lease.Due = m.full()
	if m.without(FullLease) {
		s.Members[x].Lease.Due = 1
	}
}

// renew gives the session its full timeout when the leader x applies the attach of a connection,
// among the entries behind the commit index before.
func (m *Model) renew(s *State, x int, before int) {
	log, commit := s.disk(x).Log, int(s.Members[x].Commit)
	for i := before + 1; i <= commit; i++ {
		if m.logs.at(log, i).Kind == Attach && !m.logs.all[m.logs.first(log, commit)].ended && m.bounds.Lease > 0 {
			s.Members[x].Lease.Due = m.full()
		}
	}
}

// leases has the steps of member x with the session.
func (m *Model) leases(s *State, x int) {
	if m.bounds.Lease == 0 {
		return
	}
	if int(s.Session.Sleeps) < m.bounds.Suspends {
		n := m.from(s)
		n.Session.Sleeps++
		n.Members[x].Lease.Asleep = true
		m.emit(s, n, Step{Action: Sleep, A: uint8(x)})
	}
	switch at := int(s.Session.At); {
	case at == x+1 && m.attached(s, x):
		m.serve(s, x)
	case at != x+1 && int(s.Session.Moves) < m.bounds.Moves:
		n := m.from(s)
		n.Session.Moves++
		n.Session.At, n.Session.Belief = uint8(x+1), 0 // it knows that it is disconnected
		n.Members[x].Lease.Proposed = 1
		m.emit(s, n, Step{Action: Move, A: uint8(x)})
	}
	if s.Members[x].Role == Leader {
		m.prove(s, x)
		m.end(s, x)
		m.reattach(s, x, int(s.Session.Moves)+1)
	}
}

// attached reports whether member x has applied the attach of the client's newest connection. It
// may not have heard of the session's end.
func (m *Model) attached(s *State, x int) bool {
	log := m.durable(s.disk(x))
	log = m.logs.first(log, m.logs.common(log, s.Clusters[s.cluster(x)-1].Committed))
	return m.logs.all[log].session.Generation == uint64(s.Session.Moves)+1
}

// serve has the steps of member x, which has the client's connection.
func (m *Model) serve(s *State, x int) {
	l := &s.Members[x].Lease
	for y := range m.bounds.Members {
		q := &s.Members[y]
		if q.Role != Leader || q.Lease.Asleep || s.cluster(y) != s.cluster(x) {
			continue
		}
		from, ok := m.extends(s, y)
		if !ok {
			continue
		}
		n := m.from(s)
		n.Members[y].Lease.Due = m.full()
		if m.without(FromReport) {
			n.Members[x].Lease.Under = true
		} else {
			n.Members[x].Lease.Confirmed = newer(l.Confirmed, from)
		}
		if *n != *s {
			m.emit(s, n, Step{Action: Confirm, A: uint8(x), B: uint8(s.server(y))})
		}
	}
	if l.Proposed != 0 {
		n := m.from(s)
		n.Members[x].Lease.Confirmed, n.Members[x].Lease.Proposed = l.Proposed, 0
		if m.without(FromAttach) {
			n.Members[x].Lease.Confirmed = 1
		}
		m.emit(s, n, Step{Action: Attached, A: uint8(x)})
	}
	if l.Under {
		n := m.from(s)
		n.Members[x].Lease.Under, n.Members[x].Lease.Confirmed = false, 1
		m.emit(s, n, Step{Action: Confirmed, A: uint8(x)})
	}
	// A leader that has committed the end closes the connection.
	closed := m.logs.all[m.logs.first(s.disk(x).Log, int(s.Members[x].Commit))].ended
	if (l.Confirmed != 0 || m.without(AllSilent)) && !closed {
		n := m.from(s)
		n.Session.Belief = inFlight + 2*m.third()
		if s.Session.Ended {
			m.breaks(n, LeaseKept)
		}
		if *n != *s {
			m.emit(s, n, Step{Action: Send, A: uint8(x)})
		}
	}
}

// extends reports whether the leader y extends the session, and the age from which it confirms it.
// It has applied what is committed up to its first entry, so it knows of an end in an earlier term,
// and it remembers the end that it has proposed itself.
func (m *Model) extends(s *State, y int) (from uint8, ok bool) {
	q := &s.Members[y]
	settled := q.Commit > 0 || m.without(SettledLeases)
	closed := q.Lease.Due == 0 && !m.without(ClosedLeases)
	if !settled || closed || m.logs.all[m.logs.first(s.disk(y).Log, int(q.Commit))].ended {
		return 0, false
	}
	if m.without(ProvenLeases) {
		return 1, true
	}
	from = m.proven(s, y)
	return from, from != 0
}

// proven is the age of the newest moment at which a majority of the newest configuration followed
// the leader y; 0: none.
func (m *Model) proven(s *State, y int) uint8 {
	voters := m.config(s, y).Voters
	for age := uint8(1); age <= m.third()+1; age++ {
		var have Set
		for w, at := range s.Members[y].Lease.Contact {
			if at != 0 && at <= age || Server(w) == s.server(y) {
				have |= 1 << w
			}
		}
		if voters.majority(have) {
			return age
		}
	}
	return 0
}

// prove has the heartbeats of the leader x and their answers. Those that name the term and the
// leader of the voter are answered beside its main loop, the others by it.
func (m *Model) prove(s *State, x int) {
	term, voters := s.disk(x).Term, m.config(s, x).Voters
	for y := range m.bounds.Members {
		w := s.server(y)
		if y == x || !voters.has(w) || s.Members[y].Lease.Asleep || s.cluster(y) != s.cluster(x) {
			continue
		}
		if l := &s.Members[x].Lease; l.Answers.has(w) {
			n := m.from(s)
			n.Members[x].Lease.Answers &^= 1 << w
			n.Members[x].Lease.Contact[w] = 1
			m.emit(s, n, Step{Action: Prove, A: uint8(x), B: uint8(w)})
		}
		deposed := s.disk(y).Term > term
		if deposed && !m.without(EqualTerms) {
			continue
		}
		n := m.from(s)
		if !deposed {
			n.follow(y, term)
		}
		if m.without(FromHeartbeat) {
			n.Members[x].Lease.Answers |= 1 << w
		} else {
			n.Members[x].Lease.Contact[w] = 1
		}
		if *n != *s {
			m.emit(s, n, Step{Action: Contact, A: uint8(x), B: uint8(w)})
		}
	}
}

// end has the leader x propose the end of the session when its deadline has passed.
func (m *Model) end(s *State, x int) {
	if s.Members[x].Lease.Due != 1 || m.logs.all[s.disk(x).Log].ended {
		return
	}
	n := m.from(s)
	n.Members[x].Lease.Due = 0
	connection := m.logs.all[m.logs.first(s.disk(x).Log, int(s.Members[x].Commit))].session.Generation
	m.append(s, n, x, Entry{Kind: Ending, Value: uint8(connection)}, Step{Action: End})
}

// connects has the client connect to a member, before anything else happens, and again when the
// member has crashed.
func (m *Model) connects(s *State) (first bool) {
	if m.bounds.Lease == 0 || s.Session.At != 0 {
		return false
	}
	for x := range m.bounds.Members {
		n := m.from(s)
		n.Session.At = uint8(x + 1)
		m.emit(s, n, Step{Action: Connect, A: uint8(x)})
	}
	return true
}

// time has time pass, with all clocks right or one wrong.
func (m *Model) time(s *State) {
	if m.bounds.Lease == 0 {
		return
	}
	m.tick(s, RightClocks)
	if int(s.Session.Errors) >= m.bounds.Errors {
		return
	}
	for c := SlowClient; c < FastMember+Clock(m.bounds.Members); c++ {
		if c < SlowMember+Clock(m.bounds.Members) || c >= FastMember {
			m.tick(s, c)
		}
	}
}

// tick has a tick pass, with the error of a clock. Deadlines are by the clock that stands still
// while the machine is suspended, ages by the one that goes on.
func (m *Model) tick(s *State, c Clock) {
	n := m.from(s)
	if n.Session.Belief > 0 && c != SlowClient {
		n.Session.Belief--
	}
	for x := range m.bounds.Members {
		l := &n.Members[x].Lease
		ticks := uint8(1)
		switch c {
		case SlowMember + Clock(x):
			ticks = 0
		case FastMember + Clock(x):
			ticks = 2
		}
		if l.Due > 1 && (!l.Asleep || m.without(DeadlinesSleep)) {
			l.Due = max(l.Due, ticks+1) - ticks
		}
		if l.Asleep && m.without(SuspendsCount) {
			continue
		}
		if l.Confirmed != 0 {
			l.Confirmed = m.age(l.Confirmed + ticks)
		}
		if l.Proposed != 0 && (l.Proposed <= m.third() || !m.without(FromAttach)) {
			l.Proposed = m.age(l.Proposed + ticks)
		}
		for w, at := range l.Contact {
			if at != 0 {
				l.Contact[w] = m.age(at + ticks)
			}
		}
	}
	if *n == *s {
		return
	}
	if c != RightClocks {
		n.Session.Errors++
	}
	m.emit(s, n, Step{Action: Tick, B: uint8(c)})
}
