package model

// Goal is a rare state that Reach can look for, to be played with real members.
type Goal struct {
	Name, Help string
	Bounds     Bounds // in which it is found
	Reached    func(*Model, *State) bool
}

// Goals are the rare states that have names.
var Goals = []Goal{
	{"deposed-unflushed", "a deposed leader has entries that are not on its disk, and another leader has committed",
		Bounds{Members: 3, Terms: 2, Entries: 1, Parallel: true, Led: true}, deposedUnflushed},
	{"two-leaders", "a leader of an older term leads beside one that has committed",
		Bounds{Members: 3, Terms: 2, Led: true}, twoLeaders},
	{"acknowledged-then-voted", "a member has voted for another server since it acknowledged an uncommitted entry",
		Bounds{Members: 3, Terms: 2, Entries: 1, Led: true}, acknowledgedThenVoted},
	{"lost-in-change", "a disk is lost while the leader's newest configuration is not committed",
		Bounds{Members: 4, Voters: 3, Terms: 2, Lost: 1, Changes: 1, Led: true}, lostInChange},
	{"early-then-lost", "an early commit is applied, and the leader that sent it has crashed before it committed",
		Bounds{Members: 3, Terms: 2, Entries: 1, Early: true, Parallel: true, Led: true}, earlyThenLost},
	{"conflicting-log", "a member has two entries or more of a term that a later leader has replaced",
		Bounds{Members: 3, Terms: 2, Entries: 2, Led: true}, conflictingLog},
	{"changed-twice", "two leaders have each a configuration of its own that is not committed",
		Bounds{Members: 3, Terms: 2, Changes: 1, Remove: true, Led: true}, changedTwice},
	{"confirmed-by-deposed", "a member counts a confirmation by a leader that has a successor",
		Bounds{Members: 3, Terms: 2, Lease: 3, Led: true, Steady: true}, confirmedByDeposed},
}

// GoalNamed returns the goal with this name.
func GoalNamed(name string) (Goal, bool) {
	for _, g := range Goals {
		if g.Name == name {
			return g, true
		}
	}
	return Goal{}, false
}

// leaders calls f with each pair of members that lead, the second in a later term.
func (m *Model) leaders(s *State, f func(old, now int) bool) bool {
	for x := range m.bounds.Members {
		for y := range m.bounds.Members {
			both := s.Members[x].Role == Leader && s.Members[y].Role == Leader && s.cluster(x) == s.cluster(y)
			if both && s.disk(x).Term < s.disk(y).Term && f(x, y) {
				return true
			}
		}
	}
	return false
}

func deposedUnflushed(m *Model, s *State) bool {
	for x := range m.bounds.Members {
		d := s.disk(x)
		if d.Unsynced == 0 || s.Members[x].Role == Leader {
			continue
		}
		for y := range m.bounds.Members {
			if s.Members[y].Role == Leader && s.disk(y).Term == d.Term && s.Members[y].Commit > 0 {
				return true
			}
		}
	}
	return false
}

func twoLeaders(m *Model, s *State) bool {
	return m.leaders(s, func(_, now int) bool { return s.Members[now].Commit > 0 })
}

func acknowledgedThenVoted(m *Model, s *State) bool {
	for x := range m.bounds.Members {
		p := &s.Members[x]
		if p.Role != Leader {
			continue
		}
		for y := range m.bounds.Members {
			d := s.disk(y)
			other := d.VoteFor != s.server(x) && d.VoteFor != s.server(y)
			if y != x && other && d.VoteTerm > s.disk(x).Term && p.Acked[s.server(y)] > p.Commit {
				return true
			}
		}
	}
	return false
}

func lostInChange(m *Model, s *State) bool {
	for x := range m.bounds.Members {
		pending := m.logs.all[s.disk(x).Log].config > int(s.Members[x].Commit)
		if s.Members[x].Role == Leader && pending && s.Members[x].Commit > 0 && s.Seconds != 0 {
			return true
		}
	}
	return false
}

func earlyThenLost(m *Model, s *State) bool {
	k := &s.Clusters[0]
	t := m.logs.at(k.Committed, m.logs.length(k.Committed)).Term
	leader := k.Terms[t].Leader
	if m.logs.length(k.Committed) < 3 || leader == nobody || s.leads(leader, t) {
		return false
	}
	for _, i := range k.Terms[t].Early {
		if int(i) == m.logs.length(k.Committed) && s.disk(leader.member()).Term == t {
			return true
		}
	}
	return false
}

func conflictingLog(m *Model, s *State) bool {
	k := &s.Clusters[0]
	for x := range m.bounds.Members {
		log := s.disk(x).Log
		if s.cluster(x) == 1 && m.logs.common(log, k.Committed) < m.logs.length(k.Committed) &&
			m.logs.common(log, k.Committed)+2 <= m.logs.length(log) {
			return true
		}
	}
	return false
}

func changedTwice(m *Model, s *State) bool {
	pending := func(x int) bool {
		log := s.disk(x).Log
		return m.logs.all[log].config > m.logs.common(log, s.Clusters[0].Committed)
	}
	return m.leaders(s, func(old, now int) bool { return pending(old) && pending(now) })
}

func confirmedByDeposed(m *Model, s *State) bool {
	at := int(s.Session.At) - 1
	return at >= 0 && s.Members[at].Lease.Confirmed > 0 && m.leaders(s, func(old, now int) bool {
		return s.Members[old].Lease.Due == m.full() && s.Members[now].Commit > 0
	})
}
