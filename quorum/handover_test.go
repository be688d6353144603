package quorum

import (
	"sync/atomic"
	"testing"
	"time"

	"lockkeeper/internal/clock"
	"lockkeeper/znode"
)

// applied returns the time until a command is applied on a member, and fails after a minute.
func (c *cluster) applied(i int, key znode.Key) time.Duration {
	c.t.Helper()
	start := time.Now()
	for time.Since(start) < time.Minute {
		c.recs[i].mu.Lock()
		_, done := c.recs[i].results[key]
		c.recs[i].mu.Unlock()
		if done {
			return time.Since(start)
		}
		time.Sleep(time.Millisecond) // virtual
	}
	c.t.Fatalf("member %d has not applied %v within a minute", i+1, key)
	return 0
}

// handOvers counts those of all members.
func (c *cluster) handOvers() (n int64) {
	for _, r := range c.reps {
		n += r.measures.HandOvers.Load()
	}
	return n
}

// A leader with a disk that hangs hands over. Its own clients are cut off while the disk hangs, and
// the member follows when the disk answers again.
func TestLeaderWithAHangingDiskHandsOver(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		f := (l + 1) % 3
		c.recs[l].result(t, c.propose(l, createSession(9)))
		c.agree()
		c.disks[l].SetSyncTime(10 * time.Minute)
		if took := c.applied(f, c.propose(f, sequential(9, 1, "/n-"))); took > 2*time.Second {
			t.Errorf("a write took %v", took)
		}
		time.Sleep(5 * time.Second) // virtual
		if _, _, err := c.reps[f].Touch(t.Context(), nil); err != nil {
			t.Errorf("a lease of a member that is well: %v", err)
		}
		if _, _, err := c.reps[l].Touch(t.Context(), nil); err == nil {
			t.Error("a lease of the member with the disk that hangs is confirmed")
		}
		term := c.reps[f].raft.CurrentTerm()
		for seq := uint64(2); seq < 60; seq++ {
			c.applied(f, c.propose(f, sequential(9, seq, "/n-")))
			time.Sleep(5 * time.Second) // virtual
		}
		if now := c.reps[f].raft.CurrentTerm(); now != term || c.reps[f].Leader() == MemberID(l+1) {
			t.Errorf("term %d, was %d; member %d leads, and member %d hangs", now, term, c.reps[f].Leader(), l+1)
		}
		if n := c.handOvers(); n != 1 {
			t.Errorf("handed over %d times, want once", n)
		}
		c.disks[l].SetSyncTime(time.Millisecond)
		time.Sleep(11 * time.Minute) // virtual: the writes that hang take their time
		c.leader()
		c.agree()
	})
}

// A leader stays where another one would be no better: all disks are as slow, or no majority is
// there without it.
func TestLeaderStaysWhereItsDiskIsNotTheOnlyOne(t *testing.T) {
	for _, tt := range []struct {
		about   string
		members int
		slow    []int // as seen from the leader
	}{
		{"all are slow", 3, []int{0, 1, 2}},
		{"another one is slow", 3, []int{0, 1}},
		{"two voters", 2, []int{0}},
		{"a follower is slow", 3, []int{1}},
	} {
		t.Run(tt.about, func(t *testing.T) {
			inCluster(t, tt.members, nil, func(t *testing.T, c *cluster) {
				l := c.leader()
				c.recs[l].result(t, c.propose(l, createSession(9)))
				c.agree()
				term := c.reps[l].raft.CurrentTerm()
				for _, i := range tt.slow {
					c.disks[(l+i)%tt.members].SetSyncTime(2 * time.Second)
				}
				for seq := uint64(1); seq <= 10; seq++ {
					c.applied(l, c.propose(l, sequential(9, seq, "/n-")))
				}
				if now := c.reps[l].raft.CurrentTerm(); now != term || c.handOvers() != 0 {
					t.Errorf("term %d, was %d; handed over %d times", now, term, c.handOvers())
				}
			})
		})
	}
}

// A leader that was suspended hands over to no voter before it has heard of it again. It still
// tells prompt voters from slow ones.
func TestPromptVotersAfterASuspend(t *testing.T) {
	var asleep atomic.Int64
	counting := func(c *Config) {
		c.Clock = clock.New(time.Now, func() time.Duration { return time.Duration(asleep.Load()) })
	}
	inCluster(t, 3, counting, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.recs[l].result(t, c.propose(l, createSession(9)))
		c.agree()
		time.Sleep(time.Second) // virtual: the followers' answers
		expect := func(when string, want bool) {
			t.Helper()
			if _, ok := c.reps[l].leadership.promptVoter(c.reps[l].raft.LastIndex(), NoMember); ok != want {
				t.Errorf("%s: a majority of prompt voters: %v, want %v", when, ok, want)
			}
		}
		expect("before the suspend", true)
		asleep.Add(int64(time.Hour))
		expect("after it", false)
		time.Sleep(time.Second) // virtual: heartbeats
		expect("after answered heartbeats", true)
		for _, d := range c.disks {
			d.SetSyncTime(2 * time.Second)
		}
		c.applied(l, c.propose(l, sequential(9, 1, "/n-")))
		expect("after a slow write", false)
	})
}

// Each change of leader within a minute doubles the time until the next hand-over.
func TestHandOversBecomeRare(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		r := c.reps[c.leader()]
		limit := r.cfg.heartbeatTimeout()
		for n, want := range []time.Duration{limit, limit, 2 * limit, 4 * limit, 8 * limit, 16 * limit, 16 * limit} {
			r.leadership.mu.Lock()
			r.leadership.changes.list = make([]LeaderChange, n)
			for i := range r.leadership.changes.list {
				r.leadership.changes.list[i].seen = time.Now()
			}
			r.leadership.mu.Unlock()
			if got := r.leadership.handOverWait(); got != want {
				t.Errorf("after %d changes: %v, want %v", n, got, want)
			}
		}
		time.Sleep(handOverMemory) // virtual
		if got := r.leadership.handOverWait(); got != limit {
			t.Errorf("a minute later: %v, want %v", got, limit)
		}
	})
}
