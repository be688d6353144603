package peer

import (
	"errors"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// voteFilter keeps a member without a log from voting, and from being voted for. The library would
// let it vote for anybody (UPSTREAM.md, 7); but it may be a voter that has lost its disk, and with
// it entries that are committed because it once had them. It may vote when it has everything again
// that a leader knew to be committed in its own term, or when the cluster itself begins.
//
// It is between the network and the library, of members that began without a log and only until
// they are restarted.
type voteFilter struct {
	caughtUp func(commit, term uint64) bool
	save     func() error
	next     rpcHandler
	over     atomic.Bool // the member may vote
}

// errVotesWithheld is why a member is not to stand for election.
var errVotesWithheld = errors.New("peer: this member began without a log, and has not got all of it yet")

// WithholdVotes keeps this member from voting until it has caught up. Raft must not have been
// started.
//
// The function caughtUp says whether this member has everything up to commit, which a leader of
// that term knew to be committed; save records on the disk that the member may vote.
func (t *Transport) WithholdVotes(caughtUp func(commit, term uint64) bool, save func() error) {
	t.votes = &voteFilter{caughtUp: caughtUp, save: save, next: t.pass}
}

// VotesWithheld says whether this member must not vote yet.
func (t *Transport) VotesWithheld() bool { return t.votes.withheld() }

// AllowVotes lets this member vote from now on.
func (t *Transport) AllowVotes() {
	if t.votes != nil {
		t.votes.end()
	}
}

func (v *voteFilter) withheld() bool { return v != nil && !v.over.Load() }

// filter passes requests of peers on, but for votes. It is called by several goroutines at once.
func (v *voteFilter) filter(rpc raft.RPC, stop <-chan struct{}) {
	switch req := rpc.Command.(type) {
	case *raft.AppendEntriesRequest:
		v.append(rpc, req, stop)
	case *raft.RequestVoteRequest:
		rpc.Respond(&raft.RequestVoteResponse{RPCHeader: req.RPCHeader}, nil)
	case *raft.RequestPreVoteRequest:
		rpc.Respond(&raft.RequestPreVoteResponse{RPCHeader: req.RPCHeader}, nil)
	default:
		v.next(rpc, stop)
	}
}

// append passes a leader's entries on, and looks at what has come of it before the leader gets the
// answer: a member that a leader takes for caught up, and may make a voter, must be able to vote
// after a restart, too.
func (v *voteFilter) append(rpc raft.RPC, req *raft.AppendEntriesRequest, stop <-chan struct{}) {
	answer, leader := make(chan raft.RPCResponse, 1), rpc.RespChan
	rpc.RespChan = answer
	v.next(rpc, stop)
	select {
	case resp := <-answer:
		if req.LeaderCommitIndex > 0 && v.caughtUp(req.LeaderCommitIndex, req.Term) {
			v.end()
		}
		leader <- resp
	case <-stop:
	}
}

// end lets the member vote from now on, if that can be saved.
func (v *voteFilter) end() {
	if v.save() == nil {
		v.over.Store(true)
	}
}
