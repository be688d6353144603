package trace

import (
	"slices"

	"github.com/hashicorp/raft"
)

// upToDate reports whether a voter with the last entry own may vote for a candidate with the last
// entry of (Raft, section 5.4.1).
func upToDate(of, own Place) bool {
	if of.Term != own.Term {
		return of.Term > own.Term
	}
	return of.Index >= own.Index
}

// majority reports whether more than half of the voters are in the set.
func majority(voters []raft.ServerID, in func(raft.ServerID) bool) bool {
	n := 0
	for _, v := range voters {
		if in(v) {
			n++
		}
	}
	return 2*n > len(voters)
}

// oneApart reports whether two configurations differ by one voter at most, so that any two
// majorities of them meet (Ongaro's thesis, section 4.1).
func oneApart(a, b []raft.ServerID) bool {
	differ := 0
	for _, v := range a {
		if !slices.Contains(b, v) {
			differ++
		}
	}
	for _, v := range b {
		if !slices.Contains(a, v) {
			differ++
		}
	}
	return differ <= 1
}

// claim is an entry that a member has applied, though no majority that the events have shown holds
// it. It is explained when a configuration is seen that the leader had in its log by then.
type claim struct {
	event string
	entry *node
	holds map[uint64]map[raft.ServerID]uint64 // by term, at the time
}

// explained reports whether the holders were a majority of the voters of a configuration that the
// leader of a term had.
func (c claim) explained(w *world) bool {
	for n, holds := range c.holds {
		t := w.terms[n]
		for _, index := range holds {
			if index >= c.entry.Index && w.counted(t, index, holds) && w.has(t.tip, c.entry) {
				return true
			}
		}
	}
	return false
}

// counted reports whether the leader of a term may have committed the entry at index of its log,
// which has to be of its own term (Raft, section 5.4.2), by a configuration of its log that is not
// older than the one in force there: it counts by the newest in its log.
func (w *world) counted(t *term, index uint64, holds map[raft.ServerID]uint64) bool {
	n := w.at(t.tip, index)
	if n == nil || n.Term != t.tip.Term {
		return false
	}
	for config := t.tip.config; config != nil; config = config.parent.config {
		if majority(config.Voters, func(v raft.ServerID) bool { return holds[v] >= index }) {
			return true
		}
		if config == n.config || config.parent == nil {
			return false
		}
	}
	return false
}
