package raftnet

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/clock"
	"lockkeeper/internal/rafttest"

	"github.com/hashicorp/raft"
)

// A follower is sent an early commit once, when it was sent the entry and the leader has it on its
// disk.
func TestEarlyCommitIsSentOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		servers string // rafttest.Servers
		early   bool
	}{
		"two": {"12.34", true}, "three": {"123.4", true}, "four": {"1234", false},
		"an observer": {"13.24", false}, "a leader without a vote": {"23.14", false},
		"only the follower votes": {"2.134", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := newTransport(rafttest.ServerID(1), &fakeLocal{servers: rafttest.Servers(tt.servers)})
				defer newAnswering(tr).far.Close()
				defer tr.Close()
				p, far := pipelineTo(t, tr)
				defer func() { p.Close() }()
				pending := func(when string, want uint64) {
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
						t.Errorf("%s the commit index for it is %d, want %d", when, got, want)
					}
				}
				send := func(q *raft.AppendEntriesRequest) { mustAppend(t, p, q) }
				answer := func() {
					far.send(rpcAppend, &raft.AppendEntriesResponse{Term: 5, Success: true, LastLog: 1}, nil)
					<-p.Consumer()
				}
				send(carrying(0))
				answer()
				pending("before there is anything", 0)
				if early := tr.Wrote(1, 5); early != tt.early {
					t.Errorf("what is written can be committed early: %v", early)
				}
				pending("before it is sent", 0)
				send(carrying(1))
				pending("when it is sent and written", 1)
				tr.Wrote(1, 5)
				answer()
				pending("when it has it", 0)

				send(carrying(2))
				pending("before it is written", 0)
				send(carrying(3))
				tr.Wrote(2, 5)
				pending("when more is sent than is written", 2)
				tr.Wrote(3, 4)
				pending("in a term that is over", 0)
				tr.Wrote(3, 5)
				pending("when all is written", 3)

				p.Close()
				p, far = pipelineTo(t, tr)
				pending("over another pipeline", 0)
				send(carrying(3))
				pending("when it is sent once more", 3)
				tr.Wrote(4, 5)
				send(carrying(5))
				pending("when more is sent behind it", 4)
			})
		})
	}
}

// TestNewerTermEndsTheWaitForContact: a leader that waits for contact with a follower goes on when
// that answers a heartbeat with a newer term. The library steps down for the answer to its next
// request; without one, the follower would be refused its elections and refuse the leader.
func TestNewerTermEndsTheWaitForContact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		self, other := rafttest.ServerID(1), rafttest.ServerID(2)
		local := &fakeLocal{term: 5, leader: self, servers: rafttest.Servers("12.3")}
		tr := newTransport(self, local)
		tr.net = newNetwork(newFakePort(), local, nil, nil)
		defer tr.Close()
		returned := make(chan struct{})
		go func() {
			tr.awaitContact(other, 5)
			close(returned)
		}()
		heartbeat := func(term uint64) (over bool) {
			tr.answered(other, "", time.Now(), &raft.AppendEntriesRequest{Term: 5}, &raft.AppendEntriesResponse{Term: term})
			time.Sleep(2 * contactStep)
			synctest.Wait()
			select {
			case <-returned:
				return true
			default:
				return false
			}
		}
		if heartbeat(4) {
			t.Fatal("the wait ends for an answer of an older term")
		}
		if !heartbeat(6) {
			t.Error("the wait goes on after an answer of a newer term")
		}
	})
}

// What leases rely on (C6): a majority of the voters that the newest configuration has, and of
// nobody else.
func TestProofOfLeadershipCountsThoseWhoVoteNow(t *testing.T) {
	now := time.Now()
	ago := func(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }
	for _, tt := range []struct {
		about    string
		voters   string // their numbers; member 1 leads
		others   string
		contacts map[raft.ServerID]int // seconds ago
		want     time.Time
	}{
		{"alone", "1", "", nil, now},
		{"three, nobody has answered", "123", "", nil, time.Time{}},
		{"three", "123", "", map[raft.ServerID]int{rafttest.ServerID(2): 5, rafttest.ServerID(3): 9}, ago(5)},
		{"two more have just got their vote", "12345", "", map[raft.ServerID]int{rafttest.ServerID(2): 5, rafttest.ServerID(3): 9}, ago(9)},
		{"and half of them is no majority", "12345", "", map[raft.ServerID]int{rafttest.ServerID(2): 5}, time.Time{}},
		{"four need three", "1234", "", map[raft.ServerID]int{rafttest.ServerID(2): 1, rafttest.ServerID(3): 2, rafttest.ServerID(4): 3}, ago(2)},
		{"observers do not count", "123", "45", map[raft.ServerID]int{rafttest.ServerID(4): 1, rafttest.ServerID(5): 1, rafttest.ServerID(3): 9}, ago(9)},
		{"nor a member that is no voter any more", "134", "2", map[raft.ServerID]int{rafttest.ServerID(2): 1, rafttest.ServerID(3): 9}, ago(9)},
		{"nor a member that has been removed", "134", "", map[raft.ServerID]int{rafttest.ServerID(2): 1, rafttest.ServerID(4): 9}, ago(9)},
		{"nor this member, when it votes no longer", "234", "1", map[raft.ServerID]int{rafttest.ServerID(2): 1}, time.Time{}},
		{"which then needs two others", "234", "1", map[raft.ServerID]int{rafttest.ServerID(2): 1, rafttest.ServerID(4): 7}, ago(7)},
	} {
		tr := newTransport(rafttest.ServerID(1), &fakeLocal{servers: rafttest.Servers(tt.voters + "." + tt.others)})
		const term = 7
		for id, seconds := range tt.contacts {
			tr.answered(id, "", ago(seconds), &raft.AppendEntriesRequest{Term: term}, &raft.AppendEntriesResponse{Term: term, Success: true})
		}
		if got := tr.ProvenAt(term, now); !got.Equal(tt.want) {
			t.Errorf("%s: proven %v ago, want %v ago", tt.about, now.Sub(got), now.Sub(tt.want))
		}
		if len(tt.contacts) > 0 {
			if got := tr.ProvenAt(term+1, now); !got.IsZero() {
				t.Errorf("%s: what was answered in an earlier term proves the next one: %v", tt.about, got)
			}
		}
		tr.Close()
	}
}

// A leader that was suspended has no proof of its leadership until followers have answered requests
// that it has sent since it woke, however short the suspend was.
//
// Defends: C6.
func TestProofOfLeadershipIsNewerThanASuspend(t *testing.T) {
	const term = 7
	var asleep time.Duration
	tr := newTransport(rafttest.ServerID(1), &fakeLocal{servers: rafttest.Servers("123")})
	defer tr.Close()
	tr.clock = clock.New(time.Now, func() time.Duration { return asleep })
	answered := func(start time.Time) {
		tr.answered(rafttest.ServerID(2), "", start, &raft.AppendEntriesRequest{Term: term}, &raft.AppendEntriesResponse{Term: term, Success: true})
	}
	before := tr.clock.Now()
	answered(before)
	if at := tr.ProvenAt(term, tr.clock.Now()); !at.Equal(before) {
		t.Errorf("proven at %v, want %v", at, before)
	}
	for _, asleep = range []time.Duration{20 * time.Millisecond, time.Hour} {
		woke := tr.clock.Now()
		answered(before) // it was in the socket
		if at := tr.ProvenAt(term, woke); !at.IsZero() {
			t.Errorf("after %v: proven %v before the wake-up", asleep, woke.Sub(at))
		}
		before = tr.clock.Now()
		answered(before)
		if at := tr.ProvenAt(term, before); !at.Equal(before) {
			t.Errorf("after %v: proven at %v, want %v", asleep, at, before)
		}
	}
}

// Operators wait for the count of synced followers before they stop the next member: one that is
// down does not count, one that is a few entries behind under load does.
func TestSyncedFollowersAnswerAndAreNotBehind(t *testing.T) {
	const term = 7
	now := time.Now()
	tr := newTransport(rafttest.ServerID(1), &fakeLocal{servers: rafttest.Servers("12.3")})
	defer tr.Close()
	answered := func(id raft.ServerID, secondsAgo int, args raft.AppendEntriesRequest, resp raft.AppendEntriesResponse) {
		args.Term, resp.Term = term, term
		tr.answered(id, "", now.Add(-time.Duration(secondsAgo)*time.Second), &args, &resp)
	}
	entries := func(prev uint64, n int, commit uint64) raft.AppendEntriesRequest {
		return raft.AppendEntriesRequest{PrevLogEntry: prev, Entries: make([]*raft.Log, n), LeaderCommitIndex: commit}
	}
	heartbeat, ok := raft.AppendEntriesRequest{}, raft.AppendEntriesResponse{Success: true}
	expect := func(about string, followers, observers int) {
		t.Helper()
		if f, o := tr.Synced(now.Add(-5 * time.Second)); f != followers || o != observers {
			t.Errorf("%s: %d followers and %d observers are synced, want %d and %d", about, f, o, followers, observers)
		}
	}

	answered(rafttest.ServerID(2), 4, heartbeat, ok)
	expect("a heartbeat says nothing of the log", 0, 0)
	answered(rafttest.ServerID(2), 4, entries(0, 5, 3), ok)
	answered(rafttest.ServerID(3), 4, entries(0, 5, 9), ok)
	expect("one has more than was committed, the other less", 1, 0)
	answered(rafttest.ServerID(3), 4, entries(5, 4, 9), ok)
	expect("both have it", 1, 1)
	tr.Commit(9, term)
	expect("more is committed since", 1, 1)

	now = now.Add(4 * time.Second)
	expect("no answer for longer than 5 s", 0, 0)
	answered(rafttest.ServerID(2), 1, heartbeat, ok)
	answered(rafttest.ServerID(3), 1, heartbeat, ok)
	expect("heartbeats, of one that has all and one that gets nothing any more", 0, 1)
	answered(rafttest.ServerID(2), 1, entries(5, 4, 9), ok)
	expect("it has caught up", 1, 1)

	p, _ := pipelineTo(t, tr)
	p.Close()
	expect("the connection has ended", 0, 1)
	answered(rafttest.ServerID(2), 0, heartbeat, ok)
	expect("a heartbeat over another one", 0, 1)
	answered(rafttest.ServerID(2), 0, entries(9, 0, 9), ok)
	expect("it is back", 1, 1)
	answered(rafttest.ServerID(2), 0, entries(9, 1, 9), raft.AppendEntriesResponse{LastLog: 2})
	expect("it has lost its log", 0, 1)
}

// The library sees that a follower has an entry when this member has it on its disk. What commits
// nothing it sees at once.
func TestAnswersAreHeldBack(t *testing.T) {
	for _, tt := range []struct {
		about string
		index uint64 // of the entry in the request; 0: none
		ans   answer
		held  bool
	}{
		{"entries", 3, ok, true},
		{"entries that are durable", 2, ok, false},
		{"no entries", 0, ok, false},
		{"refused", 3, answer{term: 5}, false},
		{"a later term", 3, answer{term: 6}, false},
	} {
		t.Run(tt.about, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := make(chan struct{})
				tr := newTransport(rafttest.ServerID(1), &fakeLocal{durable: func(index uint64, _ <-chan struct{}) error {
					if index > 2 {
						<-disk
					}
					return nil
				}})
				defer tr.Close()
				p, far := pipelineTo(t, tr)
				mustAppend(t, p, carrying(tt.index))
				far.answer(tt.ans)
				got := rafttest.Begin(func() error { <-p.Consumer(); return nil })
				if _, passed := got(); passed == tt.held {
					t.Errorf("passed on before it is durable: %v", passed)
				}
				tr.mu.Lock()
				heard := tr.followers[rafttest.ServerID(2)] != nil
				tr.mu.Unlock()
				if follows := tt.ans.term == 5; heard != follows {
					t.Errorf("it follows: %v; noted at once: %v", follows, heard)
				}
				close(disk)
				if tt.held {
					if _, passed := got(); !passed {
						t.Error("not passed on when it is durable")
					}
				}
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Answers that are held back when the disk fails are never passed on, nor any after them; and
// nobody has to wait to get rid of one.
func TestAnswersAreDroppedWhenTheDiskFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := make(chan struct{})
		tr := newTransport(rafttest.ServerID(1), &fakeLocal{durable: func(uint64, <-chan struct{}) error {
			<-disk
			return syscall.EIO
		}})
		defer tr.Close()
		p, far := pipelineTo(t, tr)
		mustAppend(t, p, carrying(1))
		far.answer(ok)
		close(disk)
		for range 3 * inFlightMax { // a bubble in which this cannot go on ends the test
			mustAppend(t, p, carrying(1))
			far.answer(ok)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if n := len(p.Consumer()); n != 0 {
			t.Errorf("%d answers were passed on", n)
		}
	})
}
