package model

import "slices"

// Invariant is a promise of the contract that a state breaks.
type Invariant uint8

// The contract: C1, C2, C5 and C6 of ARCHITECTURE.md.
const (
	Kept           Invariant = iota // the state breaks nothing
	OneLeader                       // a term of a cluster has one leader, which alone writes
	OneEntry                        // an index of a cluster has one committed entry
	NothingLost                     // a leader has all that was committed in earlier terms
	OneCluster                      // clients get answers in one cluster only
	TermsRise                       // a saved term never falls
	MajoritiesMeet                  // a lemma: two majorities that can act have a member in common
	Electable                       // a lemma: who can be elected has all committed entries
	LeaseKept                       // no client believes that its ended session lives
	ExactlyOnce                     // commands take effect once, in order, on one connection
	StateRises                      // the state of a process never goes back
	NumInvariants
)

var invariants = [NumInvariants]struct{ name, broken string }{
	Kept:           {"any", "nothing"},
	OneLeader:      {"one-leader", "two servers write in one term"},
	OneEntry:       {"one-entry", "two entries are committed at one index"},
	NothingLost:    {"nothing-lost", "a leader lacks a committed entry"},
	OneCluster:     {"one-cluster", "clients got answers in two clusters"},
	TermsRise:      {"terms-rise", "a saved term falls"},
	MajoritiesMeet: {"majorities-meet", "two majorities that can act do not meet"},
	Electable:      {"electable", "a member that can be elected lacks a committed entry"},
	LeaseKept:      {"lease-kept", "a client believes itself connected although its session has ended"},
	ExactlyOnce:    {"exactly-once", "a command takes effect twice, behind a gap, or on an older connection"},
	StateRises:     {"state-rises", "the state of a process goes back"},
}

// String is the fault of a state that breaks the invariant.
func (i Invariant) String() string { return invariants[i].broken }

// Name is the invariant's name for command lines.
func (i Invariant) Name() string { return invariants[i].name }

// InvariantNamed returns the invariant with this name; Kept is any.
func InvariantNamed(name string) (Invariant, bool) {
	for i, info := range invariants {
		if info.name == name {
			return Invariant(i), true
		}
	}
	return Kept, false
}

// breaks records that s breaks the invariant, if the exploration looks for it.
func (m *Model) breaks(s *State, i Invariant) {
	if s.Broken == Kept && (m.bounds.Find == Kept || m.bounds.Find == i) {
		s.Broken = i
	}
}

// compare checks the invariants about a step from s to n.
func (m *Model) compare(s, n *State, step Step) {
	if n.Broken != Kept {
		return
	}
	x := int(step.A)
	if x < m.bounds.Members && s.Members[x].Disk == n.Members[x].Disk && step.Action != Damage {
		if n.disk(x).Term < s.disk(x).Term {
			m.breaks(n, TermsRise)
		}
		if l := m.logs.length(n.Members[x].Applied); l > 0 && l < m.logs.length(s.Members[x].Applied) {
			m.breaks(n, StateRises)
		}
	}
	if m.bounds.Lemmas {
		m.lemmas(n)
	}
}

// led records that v leads term t of cluster c with a log whose last entry is the leader's first.
func (m *Model) led(s *State, c uint8, t uint8, v Server, log LogID) {
	k := &s.Clusters[c-1]
	if k.Terms[t].Leader != nobody {
		m.breaks(s, OneLeader)
	}
	k.Terms[t].Leader, k.Terms[t].Log = v, log
	same := m.logs.common(k.Committed, log)
	for i := same + 1; i <= m.logs.length(k.Committed); i++ {
		if k.In[i] < t {
			m.breaks(s, NothingLost)
		}
	}
}

// committed records that the leader of term t of cluster c has committed the entries of log.
func (m *Model) committed(s *State, c uint8, t uint8, log LogID) {
	k := &s.Clusters[c-1]
	n := m.logs.length(k.Committed)
	same := m.logs.common(k.Committed, log)
	if same < min(n, m.logs.length(log)) {
		m.breaks(s, OneEntry)
		return
	}
	if same == m.logs.length(log) {
		return
	}
	for i := n + 1; i <= m.logs.length(log); i++ {
		k.In[i] = t
		if m.logs.at(log, i).Kind == Write {
			k.Answered = true
		}
	}
	k.Committed = log
	for later := int(t) + 1; later <= m.bounds.Terms+1; later++ {
		if l := &k.Terms[later]; l.Leader != nobody && m.logs.common(l.Log, log) < m.logs.length(log) {
			m.breaks(s, NothingLost)
		}
	}
	answered := 0
	for i := range s.Clusters {
		if s.Clusters[i].Answered {
			answered++
		}
	}
	if answered > 1 {
		m.breaks(s, OneCluster)
	}
	if m.logs.all[log].session.twice {
		m.breaks(s, ExactlyOnce)
	}
	if m.logs.all[log].ended && !s.Session.Ended {
		s.Session.Ended = true
		if s.Session.Belief > 0 {
			m.breaks(s, LeaseKept)
		}
	}
}

// lemmas checks what the proofs of the contract rest on.
func (m *Model) lemmas(s *State) {
	for y := range m.bounds.Members {
		c := s.cluster(y)
		if c == 0 {
			continue
		}
		electors := m.config(s, y).Voters
		votes := m.electorate(s, y) & electors
		if !electors.has(s.server(y)) || !electors.majority(votes) {
			continue
		}
		committed := s.Clusters[c-1].Committed
		if m.logs.common(s.disk(y).Log, committed) < m.logs.length(committed) {
			m.breaks(s, Electable)
		}
		for x := range m.bounds.Members {
			if x != y && s.cluster(x) == c && s.Members[x].Role == Leader && m.apart(s, x, votes, electors) {
				m.breaks(s, MajoritiesMeet)
			}
		}
	}
}

// apart reports whether the leader x can commit an entry while another member is elected in a later
// term with votes of the electors, by majorities without a member in common. A member acknowledges
// to x until it has heard of a later term.
func (m *Model) apart(s *State, x int, votes, electors Set) bool {
	voters := m.config(s, x).Voters
	var acks Set
	for y := range m.bounds.Members {
		if s.cluster(y) == s.cluster(x) && s.disk(y).Term <= s.disk(x).Term {
			acks |= 1 << s.server(y)
		}
	}
	acks &= voters
	return voters.majority(acks) && (acks|votes).size() >= voters.size()/2+1+electors.size()/2+1
}

// electorate is the disks that vote for member y, if it stands in a new term.
func (m *Model) electorate(s *State, y int) (votes Set) {
	mine := m.logs.last(s.disk(y).Log)
	for z := range m.bounds.Members {
		if s.cluster(z) == s.cluster(y) && m.logs.last(s.disk(z).Log).UpToDate(mine) {
			votes |= 1 << s.server(z)
		}
	}
	return votes
}

// mayLose reports whether the disk of member x may be lost: the protocol promises nothing when a
// majority of a configuration in force is gone. In force are the newest committed one and those
// that follow it in a log, in each cluster that has had a leader: from then on the acknowledgement
// that completes a client's answer may be under way.
func (m *Model) mayLose(s *State, x int) bool {
	if m.without(KeptMajority) {
		return true
	}
	left := s.mounted(m.bounds.Members) &^ (1 << s.server(x))
	for c := range s.Clusters {
		k := &s.Clusters[c]
		if !slices.ContainsFunc(k.Terms[:], func(t Term) bool { return t.Leader != nobody }) {
			continue
		}
		base := k.Committed
		if m.logs.all[base].config == 0 {
			base = k.First
		}
		if !m.logs.config(base).Voters.majority(left) {
			return false
		}
		for y := range m.bounds.Members {
			log := s.disk(y).Log
			if int(s.cluster(y)) != c+1 || m.logs.all[log].config <= m.logs.all[base].config {
				continue
			}
			if !m.logs.config(log).Voters.majority(left) {
				return false
			}
		}
	}
	return true
}
