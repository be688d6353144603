package quorum

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/rafttest"
	"lockkeeper/internal/simdisk"
)

// The library saves a vote as two values. They are one transaction here, whichever store has them,
// and the one that comes first is not visible before the other.
func TestVoteIsOneTransaction(t *testing.T) {
	file, err := openBoltFile(filepath.Join(t.TempDir(), logFileName))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for name, store := range map[string]Stable{"raft.db": file, "simulated": simdisk.New()} {
		t.Run(name, func(t *testing.T) {
			g := &guardedStore{Stable: store, fatal: func(err error) { t.Error(err) }, released: make(chan struct{})}
			saved := func() (uint64, string) {
				term, err := storedNumber(store, keyVoteTerm)
				candidate, _ := store.Get(keyVoteCandidate)
				if err != nil {
					t.Error(err)
				}
				return term, string(candidate)
			}
			for i, candidate := range []string{"1", "2"} {
				term := uint64(5 + i)
				beforeTerm, before := saved()
				if err := errors.Join(g.SetUint64(keyTerm, term), g.SetUint64(keyVoteTerm, term)); err != nil {
					t.Fatal(err)
				}
				if gotTerm, got := saved(); gotTerm != beforeTerm || got != before {
					t.Errorf("half a vote is saved: term %d for %q", gotTerm, got)
				}
				if err := g.Set(keyVoteCandidate, []byte(candidate)); err != nil {
					t.Fatal(err)
				}
				if gotTerm, got := saved(); gotTerm != term || got != candidate {
					t.Errorf("saved: term %d for %q, want %d for %q", gotTerm, got, term, candidate)
				}
			}
		})
	}
}

// A power cut at any moment of a vote leaves no vote that was not cast: a member that is started
// again compares the log of each candidate.
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

// What the library must never save stops the member: a term below the saved one, in which the
// member may have voted, and a second vote in a term.
func TestTermsNeverFall(t *testing.T) {
	for _, tt := range []struct {
		about string
		write func(g *guardedStore) error
		want  string
	}{
		{"an older term", func(g *guardedStore) error { return g.SetUint64(keyTerm, 6) }, "the term falls from 7 to 6"},
		{"a vote of an older term", func(g *guardedStore) error {
			return errors.Join(g.SetUint64(keyVoteTerm, 6), g.Set(keyVoteCandidate, []byte("1")))
		}, "a vote of term 6 in term 7"},
		{"a second vote", func(g *guardedStore) error {
			return errors.Join(g.SetUint64(keyVoteTerm, 7), g.Set(keyVoteCandidate, []byte("2")))
		}, "a vote of term 7 after one of term 7"},
	} {
		t.Run(tt.about, func(t *testing.T) {
			var fatal error
			disk := simdisk.New()
			g := &guardedStore{Stable: disk, fatal: func(err error) { fatal = err }, released: make(chan struct{})}
			if err := errors.Join(g.SetUint64(keyTerm, 7), g.SetUint64(keyVoteTerm, 7), g.Set(keyVoteCandidate, []byte("1"))); err != nil {
				t.Fatal(err)
			}
			if err := tt.write(g); err == nil || fatal == nil || !strings.Contains(fatal.Error(), tt.want) {
				t.Errorf("write: %v, the member ends with %v, want %q", err, fatal, tt.want)
			}
			if term, _ := disk.GetUint64(keyTerm); term != 7 {
				t.Errorf("the saved term is %d", term)
			}
			if candidate, _ := disk.Get(keyVoteCandidate); string(candidate) != "1" {
				t.Errorf("the saved vote is for %q", candidate)
			}
		})
	}
}
