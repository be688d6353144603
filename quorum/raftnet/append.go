package raftnet

import "github.com/hashicorp/raft"

// fit makes a leader's request of entries one that the library takes as Raft prescribes
// (UPSTREAM.md, 19).
//
// Entries that only a snapshot has are taken off. They are committed, so they are the leader's. The
// library refuses the request, because the entry before them is not in the log; the leader, which
// does not know that they have arrived, goes further back, to a snapshot of its own that is older,
// and begins anew.
//
// A commit counts up to the last entry of the request (Raft, figure 2, AppendEntries, 5): no later
// one has been compared with the leader's. The library counts it up to the end of the log.
func (n *network) fit(q *raft.AppendEntriesRequest) {
	end, term := n.local.LastIncluded()
	if q.PrevLogEntry < end && !isHeartbeat(q) {
		included := min(end-q.PrevLogEntry, uint64(len(q.Entries)))
		q.PrevLogEntry, q.PrevLogTerm, q.Entries = end, term, q.Entries[included:]
	}
	q.PrevLogTerm = n.local.PrevTerm(q.PrevLogEntry, q.PrevLogTerm)
	q.LeaderCommitIndex = min(q.LeaderCommitIndex, q.PrevLogEntry+uint64(len(q.Entries)))
}
