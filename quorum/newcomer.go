package quorum

import (
	"errors"
	"sync"

	"github.com/hashicorp/raft"
)

// newcomer keeps a member without a log from voting, and from being voted for. The library would let it vote for anybody (UPSTREAM.md, 7); but
// it may be a voter that has lost its disk, and with it entries that are committed because it once had them. It may vote when
// it has everything again that a leader knew to be committed in its own term, or when the cluster itself begins. That is
// remembered on the disk.
//
// It stands between those who ask and the library, of members that began without a log and only until they are restarted.
type newcomer struct {
	r    *Replica
	next rpcHandler

	mu   sync.Mutex
	over bool
}

// newcomerKey is where the stable store keeps that the member may not vote yet.
var newcomerKey = []byte("lockkeeper/newcomer")

// startNewcomer begins to keep this member from voting, if it has no log or has still not caught up.
func (r *Replica) startNewcomer(known bool) error {
	stable := r.cfg.Stores.Stable
	mark, err := stable.GetUint64(newcomerKey)
	if err != nil && err.Error() != "not found" { // as in claim
		return err
	}
	if r.cfg.alone() || known && mark == 0 {
		return nil
	}
	if err := stable.SetUint64(newcomerKey, 1); err != nil {
		return err
	}
	r.newcomer = &newcomer{r: r, next: r.transport.hand}
	r.transport.hand, r.transport.mayStand = r.newcomer.pass, r.mayStand
	return nil
}

// pass passes on what peers ask, but for votes. It is called by several of them at once.
func (n *newcomer) pass(rpc raft.RPC, stop <-chan struct{}) {
	switch req := rpc.Command.(type) {
	case *raft.AppendEntriesRequest:
		if !n.mayVote() {
			n.append(rpc, req, stop)
			return
		}
	case *raft.RequestVoteRequest:
		if !n.mayVote() {
			rpc.Respond(&raft.RequestVoteResponse{RPCHeader: req.RPCHeader}, nil)
			return
		}
	case *raft.RequestPreVoteRequest:
		if !n.mayVote() {
			rpc.Respond(&raft.RequestPreVoteResponse{RPCHeader: req.RPCHeader}, nil)
			return
		}
	}
	n.next(rpc, stop)
}

// append passes a leader's entries on, and looks at what has come of it before the leader hears: whom it takes for a member that has
// everything, and may make a voter, must be able to vote after a restart, too.
func (n *newcomer) append(rpc raft.RPC, req *raft.AppendEntriesRequest, stop <-chan struct{}) {
	answer := make(chan raft.RPCResponse, 1)
	asked := rpc.RespChan
	rpc.RespChan = answer
	n.next(rpc, stop)
	select {
	case resp := <-answer:
		if n.caughtUp(req) {
			n.end()
		}
		asked <- resp
	case <-stop:
	}
}

// caughtUp says whether this member has everything that the leader knew to be committed when it sent req. The last entry of that must be
// of the leader's own term, or it may not know yet what others have committed.
func (n *newcomer) caughtUp(req *raft.AppendEntriesRequest) bool {
	commit := req.LeaderCommitIndex
	if commit == 0 || n.r.raft.CommitIndex() < commit {
		return false
	}
	var entry raft.Log
	if err := n.r.cfg.Stores.Log.GetLog(commit, &entry); err == nil {
		return entry.Term == req.Term
	}
	// It is no longer in the log, or never was: a snapshot has it.
	list, err := n.r.cfg.Stores.Snapshots.List()
	return err == nil && len(list) > 0 && list[0].Index >= commit && list[0].Term == req.Term
}

func (n *newcomer) mayVote() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.over
}

// errNewcomer is why a newcomer is not voted for.
var errNewcomer = errors.New("quorum: this member began without a log, and has not got all of it yet")

// mayStand says whether this member may ask others for their vote.
func (r *Replica) mayStand() error {
	if r.newcomer != nil && !r.newcomer.mayVote() {
		return errNewcomer
	}
	return nil
}

// end lets the member vote from now on.
func (n *newcomer) end() {
	if err := n.r.guard.SetUint64(newcomerKey, 0); err != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.over = true
}
