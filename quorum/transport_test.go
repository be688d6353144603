package quorum

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// Early commit: where a leader and one follower are a majority, a follower applies what it has
// written without waiting for the leader to hear of that. A command of a follower takes two
// messages; with more voters it takes four.
func TestEarlyCommitSavesTwoMessages(t *testing.T) {
	const hop = 10 * time.Millisecond
	for _, c := range []struct {
		members, hops int
	}{{2, 2}, {3, 2}, {4, 4}, {5, 4}} {
		t.Run(fmt.Sprint(c.members, " members"), func(t *testing.T) {
			hops := c.hops
			inCluster(t, c.members, nil, func(t *testing.T, c *cluster) {
				l := c.leader()
				f := (l + 1) % len(c.reps)
				c.recs[f].result(t, c.propose(f, createSession(9)))
				for i := range c.reps {
					for j := range c.reps {
						if i != j {
							c.net.SetLatency(hostName(i), hostName(j), hop, 0)
						}
					}
				}
				time.Sleep(5 * time.Second)
				for seq := range uint64(20) {
					time.Sleep(time.Second + time.Duration(seq)*7*time.Millisecond)
					start := time.Now()
					c.recs[f].result(t, c.propose(f, sequential(9, seq+1, "/n-")))
					// The disks take a millisecond.
					if took := time.Since(start); took < time.Duration(hops)*hop || took > time.Duration(hops)*hop+hop/2 {
						t.Errorf("command %d took %v, want %d messages of %v", seq+1, took, hops, hop)
					}
				}
				c.agree()
			})
		})
	}
}

// A follower is sent an early commit once, when it was sent the entry and the leader has it on its
// disk.
func TestEarlyCommitIsSentOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		voters []raft.ServerID
		early  bool
	}{
		"two": {[]raft.ServerID{"1", "2"}, true}, "three": {[]raft.ServerID{"1", "2", "3"}, true}, "four": {[]raft.ServerID{"1", "2", "3", "4"}, false},
		"an observer": {[]raft.ServerID{"1", "3"}, false}, "a leader without a vote": {[]raft.ServerID{"2", "3"}, false},
		"only the follower votes": {[]raft.ServerID{"2"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var servers []raft.Server
				for _, id := range []raft.ServerID{"1", "2", "3", "4"} {
					s := raft.Server{ID: id, Suffrage: raft.Nonvoter}
					if slices.Contains(tt.voters, id) {
						s.Suffrage = raft.Voter
					}
					servers = append(servers, s)
				}
				tr := newTransport(&asked{}, 1, func() []raft.Server { return servers })
				defer tr.close()
				p, far := pipelineTo(t, tr)
				defer func() { p.Close() }()
				told := func(when string, want uint64) {
					t.Helper()
					var got uint64
					for synctest.Wait(); len(far.got) > 0; synctest.Wait() {
						if f := <-far.got; f.kind == rpcNotice {
							if q := f.req; q.Term != 5 || q.PrevLogTerm != 5 || q.PrevLogEntry != q.LeaderCommitIndex || len(q.Entries) > 0 || got != 0 {
								t.Errorf("%s: noticed %+v, and %d before", when, q, got)
							}
							got = f.req.LeaderCommitIndex
						}
					}
					if !tt.early {
						want = 0
					}
					if got != want {
						t.Errorf("%s it is told of %d, want %d", when, got, want)
					}
				}
				send := func(q *raft.AppendEntriesRequest) { mustAppend(t, p, q) }
				answer := func() {
					far.send(rpcAppend, &raft.AppendEntriesResponse{Term: 5, Success: true, LastLog: 1}, nil)
					<-p.Consumer()
				}
				send(carrying(0))
				answer()
				told("before there is anything", 0)
				if early := tr.wrote(1, 5); early != tt.early {
					t.Errorf("what is written can be told early: %v", early)
				}
				told("before it is sent", 0)
				send(carrying(1))
				told("when it is sent and written", 1)
				tr.wrote(1, 5)
				answer()
				told("when it has it", 0)

				send(carrying(2))
				told("before it is written", 0)
				send(carrying(3))
				tr.wrote(2, 5)
				told("when more is sent than is written", 2)
				tr.wrote(3, 4)
				told("in a term that is over", 0)
				tr.wrote(3, 5)
				told("when all is written", 3)

				p.Close()
				p, far = pipelineTo(t, tr)
				told("over another pipeline", 0)
				send(carrying(3))
				told("when it is sent once more", 3)
				tr.wrote(4, 5)
				send(carrying(5))
				told("when more is sent behind it", 4)
			})
		})
	}
}

// A follower that was sent an early commit does not apply an entry that is not on its own disk: one
// disk is no majority.
func TestEarlyCommitWaitsForTheFollowersDisk(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		const slow = 20 * time.Second
		l := c.leader()
		f := (l + 1) % 3
		c.recs[f].result(t, c.propose(f, createSession(9)))
		for i, d := range c.disks {
			if i != l {
				d.SetSyncTime(slow)
			}
		}
		key := c.propose(f, createSession(10))
		time.Sleep(slow - time.Second)
		if index := c.reps[l].raft.LastIndex(); !has(t, c.disks[l], index) || has(t, c.disks[f], index) {
			t.Fatalf("entry %d is not on the leader's disk, or on the follower's already", index)
		}
		for i, r := range c.recs {
			if _, answered := r.results[key]; answered {
				t.Errorf("member %d (leader %d) has applied what one disk has", i+1, l+1)
			}
		}
		for _, d := range c.disks {
			d.SetSyncTime(time.Millisecond)
		}
		for _, r := range c.recs {
			r.result(t, key)
		}
		c.agree()
	})
}
