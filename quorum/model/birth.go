package model

// blank reports whether member x answers as blank: it belongs to no cluster. Imported entries are
// no log of a cluster.
func (m *Model) blank(s *State, x int) bool {
	log := s.disk(x).Log
	return s.cluster(x) == 0 && (log == 0 || m.logs.all[log].config == 0)
}

// birth has the steps of a blank member x before there is a cluster.
func (m *Model) birth(s *State, x int) {
	if !m.bounds.Blank || !m.blank(s, x) {
		return
	}
	if x == 0 && m.bounds.Import > 0 && *s == firstState() {
		m.bring(s)
	}
	m.say(s, x)
	p := &s.Members[x]
	required := (Set(1)<<m.bounds.Voters - 1) &^ Set(p.Word)
	if !m.founds(s, x, required) {
		return
	}
	voters := Set(1) << s.server(x)
	for y := range m.bounds.Members {
		of := Set(1<<Disks-1) << (y * Disks)
		voters |= p.Blank & of
		v := Set(1) << s.server(y)
		refused := s.Members[y].Word&(1<<x) != 0 && !m.without(WordInAnswer)
		if y == x || !required.has(Server(y)) || !m.blank(s, y) || refused || p.Blank&v != 0 {
			continue
		}
		n := m.from(s)
		n.Members[x].Blank = p.Blank&^of | v
		m.emit(s, n, Step{Action: Ask, A: uint8(x), B: uint8(y)})
	}
	need := required.size()
	if m.without(EveryVoter) {
		need = m.bounds.Voters/2 + 1
	}
	if voters.size() >= need {
		m.begin(s, x, voters)
	}
}

// founds reports whether member x may begin the cluster: it has the lowest number of those with the
// newest imported data. The others' data are those of the disks that answered; a disk that is
// replaced meanwhile makes x ask again.
func (m *Model) founds(s *State, x int, required Set) bool {
	if m.without(EveryVoter) {
		return true
	}
	for y := range m.bounds.Voters {
		if y == x || !required.has(Server(y)) {
			continue
		}
		mine, other := m.logs.last(s.disk(x).Log), m.logs.last(s.disk(y).Log)
		if m.bounds.Import == 0 || m.without(NewestImport) || !m.blank(s, y) {
			mine, other = Place{}, Place{}
		}
		if mine != other && mine.UpToDate(other) || other == mine && y < x {
			return false
		}
	}
	return true
}

// begin has member x begin a cluster of these voters.
func (m *Model) begin(s *State, x int, voters Set) {
	if m.without(DiskIDs) {
		voters = 0
		for y := range m.bounds.Voters {
			voters |= 1 << (y * Disks)
		}
	}
	n := m.from(s)
	first := m.logs.add(s.disk(x).Log, Entry{Term: 1, Kind: Config, Voters: voters})
	for c := range n.Clusters {
		if k := &n.Clusters[c]; k.First == 0 || k.First == first {
			k.First = first
			m.crash(n, x)
			d := n.disk(x)
			d.Cluster, d.Term, d.Log = uint8(c+1), max(d.Term, 1), first
			m.emit(s, n, Step{Action: Birth, A: uint8(x), B: uint8(c + 1)})
			return
		}
	}
}

// say has the operator's words to member x.
func (m *Model) say(s *State, x int) {
	if int(s.Words) >= m.bounds.Words || s.Members[x].Word != 0 {
		return
	}
	for word := Set(1); word < 1<<m.bounds.Members; word++ {
		if word.has(Server(x)) || !m.wordIsTrue(s, word) {
			continue
		}
		n := m.from(s)
		n.Words++
		n.Members[x].Word, n.Members[x].Blank = uint8(word), 0
		m.emit(s, n, Step{Action: Say, A: uint8(x), B: uint8(word)})
	}
}

// wordIsTrue reports whether the members of word never worked, and are not running: a process that
// is stopped has forgotten which blank disks have answered it.
func (m *Model) wordIsTrue(s *State, word Set) bool {
	for y := range m.bounds.Members {
		if !word.has(Server(y)) {
			continue
		}
		for k := range Disks {
			if d := &s.Disks[y*Disks+k]; (d.Cluster != 0 || d.Log != 0) && !m.without(TrueWord) {
				return false
			}
		}
		if p := &s.Members[y]; (p.Blank != 0 || p.Word != 0) && !m.without(WordNotRunning) {
			return false
		}
	}
	return true
}

// bring has the imports from a ZooKeeper of three servers. A majority of them has the entries that
// ZooKeeper has answered.
func (m *Model) bring(s *State) {
	most := m.bounds.Import
	for a := range most + 1 {
		for b := range most + 1 {
			for c := range most + 1 {
				n := m.from(s)
				for x, length := range [3]int{a, b, c} {
					d := n.disk(x)
					for i := range length {
						d.Log = m.logs.add(d.Log, Entry{Term: 1, Kind: Write, Value: uint8(i + 1)})
					}
					d.Term = 1
				}
				middle := max(min(a, b), min(max(a, b), c))
				k := &n.Clusters[0]
				for x := range 3 {
					if log := n.disk(x).Log; m.logs.length(log) == middle {
						k.Committed = log
					}
				}
				for i := range middle {
					k.In[i+1] = 1
				}
				m.emit(s, n, Step{Action: Bring, A: uint8(a), B: uint8(b), C: uint8(c)})
			}
		}
	}
}

// join has the joins of the blank disk of member x: a request of a cluster, to this very disk, has
// arrived. Answering it is another transaction.
func (m *Model) join(s *State, x int) {
	v := s.server(x)
	for c := range s.Clusters {
		if !m.addressed(s, uint8(c+1), v) {
			continue
		}
		n := m.from(s)
		n.Members[x].Blank, n.Members[x].Word = 0, 0
		if m.without(DurableJoin) {
			n.Members[x].Cluster = uint8(c + 1)
		} else {
			n.Disks[v].Cluster = uint8(c + 1)
		}
		m.emit(s, n, Step{Action: Join, A: uint8(x), B: uint8(c + 1)})
	}
}

// addressed reports whether any request of cluster c was ever sent to v.
func (m *Model) addressed(s *State, c uint8, v Server) bool {
	for t := range s.Clusters[c-1].Terms {
		term := &s.Clusters[c-1].Terms[t]
		if m.sent(term, uint8(t), v) > 0 {
			return true
		}
		for w, log := range term.Stands {
			_, ok := m.identity(v, m.logs.config(log).Voters, m.without(DiskInVotes))
			if ok && Server(w) != v && !(m.without(DiskInVotes) && w/Disks == v.member()) {
				return true
			}
		}
	}
	return false
}
