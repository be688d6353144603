package model

// acknowledge records at the leader x that v has the first n entries of its log.
func (m *Model) acknowledge(s *State, x int, v Server, n int) {
	e := m.logs.config(s.disk(x).Log)
	if m.without(NewestConfiguration) {
		e.Voters |= 1 << v // it may be a voter of the committed one
	}
	if id, ok := m.identity(v, e.Voters|e.Nonvoters, m.without(DiskInAcks)); ok {
		p := &s.Members[x]
		p.Acked[id] = max(p.Acked[id], uint8(n))
	}
}

// sent is the number of entries that the leader of a term may have sent to v: those up to the
// configuration that removes it.
func (m *Model) sent(term *Term, t uint8, v Server) int {
	if term.Leader != nobody && m.without(DiskInAcks) && term.Leader.member() == v.member() {
		return 0 // no number sends to itself
	}
	log := term.Log
	for log != 0 {
		l := &m.logs.all[log]
		e := m.logs.config(log)
		if _, ok := m.identity(v, e.Voters|e.Nonvoters, m.without(DiskInAcks)); ok {
			if m.without(NewestConfiguration) {
				return m.logs.length(term.Log) // the one that removes v does not count yet
			}
			return len(l.entries)
		}
		if l.config == 0 || e.Term != t {
			return 0 // the leader began with this configuration
		}
		log = m.logs.first(log, l.config-1)
	}
	return 0
}

// Delivery is the entries that the leader of term t may have sent to the disk of member x, and the
// number of them that its log has, as Raft compares logs; 0 entries if there is no such request.
func (m *Model) Delivery(s *State, x int, t uint8) (log LogID, same int) {
	v, term := s.server(x), &s.Clusters[s.cluster(x)-1].Terms[t]
	if term.Leader == nobody || term.Leader == v {
		return 0, 0
	}
	log = m.logs.first(term.Log, m.sent(term, t, v))
	return log, m.logs.matches(s.Disks[v].Log, log)
}

// entries has the steps of member x when entries of a leader arrive. A request with several entries
// is one step for each: a crash may leave any number of them, and an acknowledgement of fewer
// entries promises less.
func (m *Model) entries(s *State, x int) {
	v := s.server(x)
	d := &s.Disks[v]
	for t := uint8(2); int(t) <= m.bounds.Terms+1; t++ {
		if t < d.Term && !m.without(RisingTerms) || s.Members[x].Role == Leader && t == d.Term {
			continue
		}
		log, same := m.Delivery(s, x, t)
		sent := m.logs.length(log)
		if sent == 0 {
			continue
		}
		m.receive(s, x, t, d.Log, same, Ack)
		if same < sent {
			kept := same
			if have := m.logs.length(d.Log); m.without(PreviousEntry) && have < sent {
				kept = have
			}
			m.receive(s, x, t, m.logs.add(m.logs.first(d.Log, kept), m.logs.at(log, kept+1)), kept+1, Store)
		}
		if same < min(sent, m.logs.length(d.Log)) {
			n := m.from(s)
			n.disk(x).Unsynced = 0
			m.crash(n, x)
			n.follow(x, t)
			n.Disks[v].Log = m.logs.first(d.Log, same)
			m.emit(s, n, Step{Action: Cut, A: uint8(x), B: t})
		}
	}
}

// receive has member x keep log, and acknowledge the first n entries to the leader of term t. Its
// write waits for those that are under way, so the log is synced then.
func (m *Model) receive(s *State, x int, t uint8, log LogID, n int, action Action) {
	next := m.from(s)
	v := next.server(x)
	next.follow(x, t)
	d := &next.Disks[v]
	stored := log != d.Log
	d.Log, d.Unsynced = log, 0
	if stored && (m.without(DurableAcks) || m.without(NoticeBehindWrite)) {
		d.Unsynced = min(s.Disks[v].Unsynced, uint8(n-1)) + 1
	}
	w := next.Clusters[next.cluster(x)-1].Terms[t].Leader
	if next.leads(w, t) && (!stored || !m.without(NoticeBehindWrite)) {
		m.acknowledge(next, w.member(), v, n)
	}
	if *next != *s {
		m.emit(s, next, Step{Action: action, A: uint8(x), B: t})
	}
}

// leader has the steps of the leader x with its log.
func (m *Model) leader(s *State, x int) {
	m.commit(s, x)
	if m.bounds.Commands == 0 && int(s.Entries) < m.bounds.Entries {
		n := m.from(s)
		n.Entries++
		m.append(s, n, x, Entry{Kind: Write, Value: n.Entries}, Step{Action: Propose})
	}
}

// commit has the leader x commit the newest entry of its term that a majority has. Acknowledgements
// by others are held back until its own disk has the entry.
func (m *Model) commit(s *State, x int) {
	p, d := &s.Members[x], s.disk(x)
	config := m.config(s, x)
	last := m.logs.length(d.Log)
	if !m.without(HeldAcks) {
		last -= int(d.Unsynced)
	}
	for i := last; i > int(p.Commit); i-- {
		var have Set
		for v, n := range p.Acked {
			if int(n) >= i {
				have |= 1 << v
			}
		}
		e := m.logs.at(d.Log, i)
		alone := m.without(MajorityForChanges) && e.Kind == Config
		if e.Term != d.Term && !m.without(OwnTermCommits) || !config.Voters.majority(have) && !alone {
			continue
		}
		n := m.from(s)
		n.Members[x].Commit = uint8(i)
		m.renew(n, x, int(p.Commit))
		m.committed(n, n.cluster(x), d.Term, m.logs.first(d.Log, i))
		m.emit(s, n, Step{Action: Commit, A: uint8(x), B: uint8(i)})
		break
	}
}

// append has the leader x append an entry of its term.
func (m *Model) append(s, n *State, x int, e Entry, step Step) {
	v := n.server(x)
	d := &n.Disks[v]
	if m.logs.length(d.Log) == maxLog {
		panic("model: the bounds need longer logs")
	}
	e.Term = d.Term
	d.Log = m.logs.add(d.Log, e)
	m.unsynced(n, x)
	if term := n.term(x); term.Leader == v {
		term.Log = d.Log
	} else {
		m.breaks(n, OneLeader)
	}
	m.acknowledge(n, x, v, m.logs.length(d.Log))
	step.A = uint8(x)
	m.emit(s, n, step)
}
