package model

// notices has the early commit of member x: as a leader it sends the index, as a follower it takes
// the index up. Docs: docs/decisions/001-early-commit.md.
func (m *Model) notices(s *State, x int) {
	if !m.bounds.Early {
		return
	}
	if s.Members[x].Role == Leader {
		m.notify(s, x)
	}
	d, v := s.disk(x), s.server(x)
	for t := d.Term; int(t) <= m.bounds.Terms+1; t++ {
		if i := int(s.Clusters[s.cluster(x)-1].Terms[t].Early[v]); i > 0 {
			m.heed(s, x, t, i)
		}
	}
}

// notify has the leader x send followers the index of the newest entry on its own disk, if it is of
// its own term, and each of them is a majority with x.
func (m *Model) notify(s *State, x int) {
	d, config := s.disk(x), m.config(s, x)
	i := m.logs.length(d.Log)
	if !m.without(NoticeBehindDisk) {
		i -= int(d.Unsynced)
	}
	if m.logs.at(d.Log, i).Term != d.Term {
		return
	}
	me := s.server(x)
	for w := range Server(maxServers) {
		pair := config.Voters.has(w) && config.Voters.has(me) && config.Voters.majority(1<<me|1<<w)
		if w == me || !pair && !(m.without(NoticeToPair) && (config.Voters|config.Nonvoters).has(w)) {
			continue
		}
		n := m.from(s)
		if early := &n.term(x).Early[w]; int(*early) < i {
			*early = uint8(i)
			m.emit(s, n, Step{Action: Notice, A: uint8(x), B: uint8(w), C: uint8(i)})
		}
	}
}

// heed has member x apply up to index i as the leader of term t says: the entry there is the
// previous one of the notice, so x compares it, and x applies it when its own disk has it.
func (m *Model) heed(s *State, x int, t uint8, i int) {
	d, c := s.disk(x), s.cluster(x)
	log := d.Log
	if !m.without(NoticeBehindWrite) {
		log = m.durable(d)
	}
	same := m.logs.matches(log, s.Clusters[c-1].Terms[t].Log) >= i
	if i > m.logs.length(log) || !same && !m.without(NoticePrevious) {
		return
	}
	n := m.from(s)
	n.follow(x, t)
	m.committed(n, c, t, m.logs.first(log, i))
	if *n != *s {
		m.emit(s, n, Step{Action: Heed, A: uint8(x), B: t})
	}
}
