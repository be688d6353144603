package raftnet

import (
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// heartbeats answers the heartbeats of the leader that this member follows. They must not wait for
// the disk, as the library's main loop does while it writes the log or the term: a leader steps
// down when its followers are silent for the election timeout.
//
// The library has a handler for heartbeats that changes term and role beside its main loop, so that
// a deposed leader writes entries of its successor's term, and a term falls back below a
// vote's (UPSTREAM.md, 15). It is not called. A heartbeat that would change anything waits for the
// main loop. One of the current term, from the leader that the main loop has learned of, changes
// only the time of the last contact: it is answered here, and the main loop hears of it as soon as
// it can.
//
// The answer says that this member was at that term after the request had come. It is true: the
// library votes, and stores entries, in a newer term only after CurrentTerm returns that term.
type heartbeats struct {
	local Local
	// passing says that the main loop has not taken the last heartbeat yet. There is one at a time.
	passing atomic.Bool
}

// isHeartbeat reports whether a request only names the leader.
func isHeartbeat(q *raft.AppendEntriesRequest) bool {
	return q.Term != 0 && len(q.Addr) > 0 && q.PrevLogEntry == 0 && q.PrevLogTerm == 0 &&
		len(q.Entries) == 0 && q.LeaderCommitIndex == 0
}

// answer answers a request of a member. It returns nil if that is not a heartbeat that confirms the
// term and the leader of this member: the library is to answer it.
func (h *heartbeats) answer(from raft.ServerID, q *raft.AppendEntriesRequest) *raft.AppendEntriesResponse {
	if !isHeartbeat(q) || q.Term != h.local.Term() || h.local.Leader() != from {
		return nil
	}
	return &raft.AppendEntriesResponse{RPCHeader: q.RPCHeader, Term: q.Term, LastLog: h.local.LastIndex(),
		Success: true}
}

// pass has the library's main loop hear of a heartbeat, unless it has not taken the one before.
func (n *network) pass(q *raft.AppendEntriesRequest) {
	if !n.beats.passing.CompareAndSwap(false, true) {
		return
	}
	n.wg.Go(func() {
		n.hand(raft.RPC{Command: q, RespChan: make(chan raft.RPCResponse, 1)}, n.port.Done())
		n.beats.passing.Store(false)
	})
}
