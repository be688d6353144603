package trace

import (
	"slices"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/model"
)

// majority reports whether more than half of the voters are in the set.
func majority(voters []raft.ServerID, in func(raft.ServerID) bool) bool {
	n := 0
	for _, v := range voters {
		if in(v) {
			n++
		}
	}
	return model.Majority(n, len(voters))
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

// unseen reports whether the holders may have been a majority of a configuration that the leader of
// a term had in its log, and lost in a crash before it was written or sent: a voter more or less
// than the newest that the events have shown. A leader has one such change at most, behind an entry
// of its term that is committed.
func (c claim) unseen(w *world) bool {
	for n, holds := range c.holds {
		t := w.terms[n]
		config := t.tip.config
		if w.committed.of(n) == nil || config == nil || !w.has(w.committed, config) || !w.has(t.tip, c.entry) {
			continue
		}
		has := func(v raft.ServerID) bool { return holds[v] >= c.entry.Index }
		voters := config.Voters
		have := 0
		for _, v := range voters {
			if has(v) {
				have++
			}
		}
		less := have < len(voters) && model.Majority(have, len(voters)-1)
		more := false
		for v := range holds {
			more = more || has(v) && !slices.Contains(voters, v)
		}
		if less || more && model.Majority(have+1, len(voters)+1) {
			return true
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
