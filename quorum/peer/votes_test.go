package peer

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"
)

// A member without a log gives no vote and seeks none until it has caught up and that is on its
// disk; entries reach it meanwhile.
func TestVotesAreWithheld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &answering{}
		tr := newTransport(inner, 1, &fakeLocal{})
		var caughtUp bool
		saved, saveFails := 0, errors.New("disk full")
		tr.WithholdVotes(func(commit, term uint64) bool { return caughtUp && commit == 7 && term == 5 },
			func() error { saved++; return saveFails })
		granted := func() bool {
			answer := make(chan raft.RPCResponse, 1)
			go tr.hand(raft.RPC{Command: &raft.RequestVoteRequest{Term: 5}, RespChan: answer}, nil)
			synctest.Wait()
			select {
			case rpc := <-tr.Consumer():
				rpc.Respond(&raft.RequestVoteResponse{Granted: true}, nil)
			default:
			}
			return (<-answer).Response.(*raft.RequestVoteResponse).Granted
		}
		receive := func() {
			answer := make(chan raft.RPCResponse, 1)
			go tr.hand(raft.RPC{Command: &raft.AppendEntriesRequest{Term: 5, LeaderCommitIndex: 7}, RespChan: answer}, nil)
			rpc := <-tr.Consumer()
			rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
			<-answer
		}
		refused := func(when string) {
			t.Helper()
			if granted() {
				t.Errorf("%s: it gives its vote", when)
			}
			if err := tr.RequestVote("2", "", &raft.RequestVoteRequest{}, nil); !errors.Is(err, errVotesWithheld) {
				t.Errorf("%s: it requests votes: %v", when, err)
			}
			if err := tr.RequestPreVote("2", "", &raft.RequestPreVoteRequest{}, nil); !errors.Is(err, errVotesWithheld) {
				t.Errorf("%s: it requests pre-votes: %v", when, err)
			}
		}
		receive()
		refused("behind")
		caughtUp = true
		receive()
		refused("caught up, and not saved")
		saveFails = nil
		receive()
		if tr.VotesWithheld() || !granted() || saved != 2 {
			t.Errorf("caught up and saved %d times: votes withheld: %v", saved, tr.VotesWithheld())
		}
		tr.Close()
	})
}
