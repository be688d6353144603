package model

import "slices"

// Invariant is what a state breaks of the contract.
type Invariant uint8

// The contract, C1 of ARCHITECTURE.md.
const (
	Kept        Invariant = iota // the state breaks nothing
	OneLeader                    // a term of a cluster has one leader
	OneEntry                     // an index of a cluster has one committed entry
	NothingLost                  // a leader has all that was committed in earlier terms
	OneCluster                   // clients get answers in one cluster only
)

func (i Invariant) String() string {
	return [...]string{"nothing", "two servers lead one term", "two entries are committed at one index",
		"a leader lacks a committed entry", "clients got answers in two clusters"}[i]
}

// breaks records that s breaks the invariant, if the exploration looks for it.
func (m *Model) breaks(s *State, i Invariant) {
	if m.bounds.Find == Kept || m.bounds.Find == i {
		s.Broken = i
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
	answered := 0
	for i := range s.Clusters {
		if s.Clusters[i].Answered {
			answered++
		}
	}
	if answered > 1 {
		m.breaks(s, OneCluster)
	}
}

// mayLose reports whether the disk of member x may be lost: the protocol promises nothing when a
// majority of a configuration in force is gone. In force are the newest committed one and those
// that follow it in a log, in each cluster that has had a leader: from then on the acknowledgement
// that completes a client's answer may be under way.
func (m *Model) mayLose(s *State, x int) bool {
	if m.rules.LostMajority {
		return true
	}
	left := s.mounted(m.bounds.Members) &^ (1 << s.server(x))
	for c := range s.Clusters {
		k := &s.Clusters[c]
		if !slices.ContainsFunc(k.Terms[:], func(t Term) bool { return t.Leader != nobody }) {
			continue
		}
		base := k.Committed
		if base == 0 {
			base = k.First
		}
		if !m.logs.config(base).Voters.majority(left) {
			return false
		}
		for y := range m.bounds.Members {
			log := s.Disks[s.server(y)].Log
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
