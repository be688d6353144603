package quorum

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/rafttest"
)

// A power cut at any moment of a vote leaves no vote that was not cast: a member that is started
// again compares the log of each candidate.
//
// Defends: C1.
func TestPowerCutInAVote(t *testing.T) {
	for after := 5 * time.Millisecond; after < 90*time.Millisecond; after += 10 * time.Millisecond {
		inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
			const voter, second, first = 0, 1, 2
			c.leader()
			for led := -1; led != first; led = c.leader() {
				c.reps[first].transport.Stand(t.Context()) // it gets the first vote of the voter
				time.Sleep(time.Second)                    // virtual
			}
			c.recs[first].result(t, c.propose(first, createSession(9)))
			c.agree()
			c.crash(first)
			c.crash(second)
			candidates := map[int]impostor{}
			for _, i := range []int{first, second} {
				candidates[i] = c.impostor(hostName(i), MemberID(i+1))
				defer candidates[i].Transport.Close()
			}
			time.Sleep(3 * time.Second) // virtual
			to, term, last := serverOf(voter), c.reps[voter].raft.CurrentTerm(), c.reps[voter].raft.LastIndex()
			vote := func(i int, index, indexTerm uint64) bool {
				var resp raft.RequestVoteResponse
				_ = candidates[i].RequestVote(to, "", &raft.RequestVoteRequest{RPCHeader: rafttest.Header(i + 1), Term: term + 1,
					LastLogIndex: index, LastLogTerm: indexTerm}, &resp)
				return resp.Granted
			}
			c.disks[voter].SetSyncTime(20 * time.Millisecond)
			asked := make(chan struct{})
			go func() {
				defer close(asked)
				vote(second, last, term)
			}()
			time.Sleep(after) // virtual
			c.crash(voter)
			<-asked
			c.disks[voter].SetSyncTime(time.Millisecond)
			c.start(voter)
			time.Sleep(100 * time.Millisecond) // virtual
			if vote(first, 2, 1) {
				t.Errorf("a power cut after %v: the member votes for a candidate whose log ends at entry 2, its own at entry %d", after, last)
			}
		})
	}
}
