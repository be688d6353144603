package model

// elections has the steps of member x that have to do with votes. A member may stand at any moment:
// after a timeout, in place of a leader whose process has ended, or because the leader hands over.
// So the argument for each of these is the same, and none depends on time.
func (m *Model) elections(s *State, x int) {
	v, c, p := s.server(x), s.cluster(x), &s.Members[x]
	d := &s.Disks[v]
	config := m.config(s, x)
	me, voter := m.identity(v, config.Voters, m.without(DiskInVotes))
	if voter && p.Role != Leader && int(d.Term) <= m.bounds.Terms {
		n := m.from(s)
		n.follow(x, d.Term+1)
		e := &n.Disks[v]
		e.VoteTerm, e.VoteFor = e.Term, v
		n.Members[x].Role, n.Members[x].Votes = Candidate, 1<<me
		n.Clusters[c-1].Terms[e.Term].Stands[v] = d.Log
		m.emit(s, n, Step{Action: Stand, A: uint8(x)})
	}
	if p.Role == Candidate && config.Voters.majority(p.Votes) {
		m.elected(s, x)
	}
	for t := d.Term; int(t) <= m.bounds.Terms+1; t++ {
		for w, log := range s.Clusters[c-1].Terms[t].Stands {
			if log != 0 && Server(w) != v {
				m.vote(s, x, t, Server(w), log)
			}
		}
	}
}

// elected makes member x the leader of its term.
func (m *Model) elected(s *State, x int) {
	n := m.from(s)
	v := n.server(x)
	d, p := &n.Disks[v], &n.Members[x]
	d.Log = m.logs.add(d.Log, Entry{Term: d.Term, Kind: Noop})
	m.unsynced(n, x)
	p.Role, p.Votes = Leader, 0
	m.track(n, x)
	m.acknowledge(n, x, v, m.logs.length(d.Log))
	m.led(n, n.cluster(x), d.Term, v, d.Log)
	m.emit(s, n, Step{Action: Lead, A: uint8(x)})
}

// vote has the steps of member x when w, with this log, asks for its vote in term t, which is not
// below its own.
func (m *Model) vote(s *State, x int, t uint8, w Server, log LogID) {
	v, p := s.server(x), &s.Members[x]
	d := &s.Disks[v]
	id, sent := m.identity(v, m.known(s, x, log, 0).Voters, m.without(DiskInVotes))
	if m.without(DiskInVotes) && w.member() == x {
		return // no number sends to itself
	}
	config := m.known(s, x, d.Log, 0)
	_, voter := m.identity(w, config.Voters, m.without(DiskIDs))
	_, known := m.identity(w, config.Voters|config.Nonvoters, m.without(DiskIDs))
	if !sent || config.Kind == Config && !known && !m.without(KnownCandidates) {
		return // it refuses, and keeps its term
	}
	if t > d.Term {
		n := m.from(s)
		n.follow(x, t)
		m.emit(s, n, Step{Action: Adopt, A: uint8(x), B: t})
	}
	again := d.VoteTerm == t && d.VoteFor == w
	upToDate := m.logs.last(d.Log).UpToDate(m.logs.last(log)) || m.without(UpToDateVotes)
	fresh := d.VoteTerm < t && upToDate
	stranger := config.Kind == Config && !voter && !m.without(KnownCandidates)
	if stranger || p.Role == Leader && t == d.Term || !again && !fresh {
		return
	}
	n := m.from(s)
	n.follow(x, t)
	e := &n.Disks[v]
	e.VoteTerm, e.VoteFor = t, w
	if y := w.member(); n.server(y) == w && n.Members[y].Role == Candidate && n.Disks[w].Term == t {
		n.Members[y].Votes |= 1 << id
	}
	m.emit(s, n, Step{Action: Vote, A: uint8(x), B: t, C: uint8(w)})
	if m.without(VoteTransaction) && d.VoteTerm < t {
		n = m.from(s)
		m.crash(n, x)
		n.follow(x, t)
		n.Disks[v].VoteTerm = t
		m.emit(s, n, Step{Action: Half, A: uint8(x), B: t})
	}
}
