package quorum

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/rafttest"
	"lockkeeper/internal/simdisk"
	"lockkeeper/znode"
)

// While the leader's disk is slow, nothing that it has not written is answered, though both
// followers have it. It goes on leading for an election timeout, for heartbeats do not wait. When
// its power fails it comes back with a shorter log, and finds the entry with the others.
//
// Defends: C1.
func TestSlowDiskOfTheLeaderHoldsBackAnswers(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprint("crash ", crash), func(t *testing.T) {
			inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
				l := c.leader()
				c.recs[l].result(t, c.propose(l, createSession(9)))
				const slow = 400 * time.Millisecond // the election timeout is 500 ms
				c.disks[l].SetSyncTime(slow)
				key := c.propose(l, createSession(10))
				time.Sleep(slow - 100*time.Millisecond)
				index := c.reps[l].raft.LastIndex()
				for i := range 3 {
					if n := has(t, c.disks[i], index); n != (i != l) {
						t.Errorf("member %d (leader %d) has the entry on its disk: %v", i+1, l+1, n)
					}
					if _, answered := c.recs[i].results[key]; answered {
						t.Errorf("member %d has applied what the leader's disk does not have", i+1)
					}
				}
				if got := c.leader(); got != l || c.reps[l].transport.ProvenAt(c.reps[l].raft.CurrentTerm(), time.Now()).Before(time.Now().Add(-time.Second)) {
					t.Errorf("member %d leads, it was %d", got+1, l+1)
				}
				if crash {
					c.crash(l)
					if has(t, c.disks[l], index) {
						t.Fatal("the leader has the entry on its disk")
					}
					c.disks[l].SetSyncTime(time.Millisecond)
					c.start(l)
				} else {
					c.disks[l].SetSyncTime(time.Millisecond)
				}
				for i := range 3 {
					c.recs[i].result(t, key)
				}
				c.leader()
				c.agree()
			})
		})
	}
}

// A leader with a slow disk is deposed while it still writes entries, which the others have. Its
// successor's commit index arrives before the successor's entries, as after a link that reorders.
// The member applies the entries when it has written them, and does not stop.
//
// Defends: C1.
func TestDeposedLeaderAppliesWhatItHasWritten(t *testing.T) {
	stops := func(cfg *Config) { cfg.Listener.(*recorder).failed = func(err error) { t.Error(err) } }
	inCluster(t, 3, stops, func(t *testing.T, c *cluster) {
		l := c.leader()
		f := (l + 1) % 3
		c.recs[l].result(t, c.propose(l, createSession(9)))
		const slow = 20 * time.Second
		for _, d := range c.disks {
			d.SetSyncTime(300 * time.Millisecond) // too slow for the leader to hand over
		}
		c.disks[l].SetSyncTime(slow)
		c.propose(l, createSession(10)) // written from now on
		time.Sleep(time.Second)
		key := c.propose(l, createSession(11)) // written from 20 s on, until 40 s
		time.Sleep(4 * time.Second)
		last, term := c.reps[l].raft.LastIndex(), c.reps[l].raft.CurrentTerm()
		c.isolate(l) // it steps down
		time.Sleep(2 * time.Second)
		c.crash((l + 2) % 3)
		c.crash(f)
		c.heal()
		successor := c.impostor(hostName(f), MemberID(f+1))
		defer successor.Transport.Close()
		commit := &raft.AppendEntriesRequest{RPCHeader: rafttest.Header(f + 1), Term: term + 1,
			PrevLogEntry: last, PrevLogTerm: term, LeaderCommitIndex: last}
		for c.reps[l].raft.CommitIndex() < last && !has(t, c.disks[l], last) {
			time.Sleep(time.Millisecond) // virtual
			_ = successor.AppendEntries(serverOf(l), "", commit, &raft.AppendEntriesResponse{})
		}
		if has(t, c.disks[l], last) {
			t.Fatalf("entry %d is on the disk already", last)
		}
		if _, applied := c.recs[l].results[key]; applied {
			t.Error("an entry is applied before it is on the disk")
		}
		for !has(t, c.disks[l], last) {
			time.Sleep(time.Second)
		}
		c.recs[l].result(t, key)
		c.disks[l].SetSyncTime(time.Millisecond)
	})
}

// has reports whether a power cut now would leave an entry on a disk.
func has(t *testing.T, d *simdisk.Disk, index uint64) bool {
	t.Helper()
	left := d.Crash()
	left.SetSyncTime(0)
	s := simStores(t, left)
	defer s.Close()
	err := s.Log.GetLog(index, new(raft.Log))
	if err != nil && !errors.Is(err, raft.ErrLogNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

// A leader whose disk hangs hears of a successor all the same, and follows it when the disk is
// back.
func TestLeaderIsDeposedWhileItsDiskHangs(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.recs[l].result(t, c.propose(l, createSession(9)))
		c.isolate(l)
		c.disks[l].SetSyncTime(30 * time.Second)
		lost := c.propose(l, createSession(10)) // written long after there is another leader
		time.Sleep(10 * time.Second)
		next := c.leader()
		c.recs[next].result(t, c.propose(next, createSession(11)))
		c.disks[l].SetSyncTime(time.Millisecond)
		c.heal()
		// Its own command is still in its outbox, and is handed over again.
		for i := range 3 {
			c.recs[i].result(t, lost)
			c.recs[i].result(t, createSession(11).Key())
		}
		c.agree()
	})
}

// A leader whose write has failed in the background leads no longer, even while nobody has ended
// it.
func TestLeaderWithAFailedDiskStepsDown(t *testing.T) {
	fails := func(cfg *Config) { cfg.Listener.(*recorder).failed = func(error) {} }
	inCluster(t, 3, fails, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.recs[l].await(t, "leadership", func() bool { return c.recs[l].leads })
		c.disks[l].Fail(syscall.EIO)
		key := c.propose((l+1)%3, createSession(9))
		c.recs[(l+1)%3].result(t, key)
		c.recs[(l+2)%3].result(t, key)
		if c.recs[l].leads || len(c.recs[l].results) != 0 {
			t.Error("a member that has lost its disk goes on")
		}
	})
}

// From two voters to one and back: a leader that commits alone has all of it on its disk. That
// nothing is ever applied before is what fsm.ApplyBatch looks at, in all tests.
//
// Defends: C1.
func TestClusterShrinksToOneVoterAndGrows(t *testing.T) {
	inChanging(t, 2, func(t *testing.T, c *cluster) {
		old := c.change
		c.change = func(cfg *Config) { old(cfg); cfg.Flags |= znode.LoneVoter }
		for i := range 2 {
			c.stop(i)
		}
		for i := range 2 {
			c.start(i)
		}
		l := c.leader()
		o := 1 - l
		c.propose(l, createSession(9))
		c.disks[l].SetSyncTime(50 * time.Millisecond) // slower than everything else
		seq := uint64(0)
		for range 3 {
			for _, observer := range []bool{true, false} {
				result := make(chan error, 1)
				go func() { result <- c.reps[l].AddMember(c.ctx(time.Minute), line(o, observer)) }()
				for range 20 {
					seq++
					c.propose(l, sequential(9, seq, "/n-"))
					time.Sleep(10 * time.Millisecond)
				}
				c.must(<-result)
				last := sequential(9, seq, "").Key()
				c.recs[l].result(t, last)
				index := c.reps[l].raft.AppliedIndex()
				c.crash(l)
				if !has(t, c.disks[l], index) {
					t.Fatalf("observer %v: entry %d was answered, and the leader comes back without it", observer, index)
				}
				c.start(l)
				l, o = c.leader(), 1-c.leader()
				c.recs[l].await(t, "the state", func() bool { return c.recs[l].times[last] > 0 || c.recs[l].leads })
				c.disks[o].SetSyncTime(time.Millisecond)
				c.disks[l].SetSyncTime(50 * time.Millisecond)
			}
		}
		c.agree()
	})
}

// A leader may precede its disk only while others must acknowledge its entries, in the
// configuration before an entry and in the one behind it.
//
// Defends: C1.
func TestOnlyVoterWaitsForItsDisk(t *testing.T) {
	for _, tt := range []struct {
		about  string
		voters string // of the configuration in force
		next   string // of the configuration that is stored; "" for none
		ahead  bool
	}{
		{"three", "123", "", true},
		{"two", "12", "", true},
		{"alone", "1", "", false},
		{"alone with observers", "1.23", "", false},
		{"a third", "12.3", "123", true},
		{"a second", "1.2", "12", false},
		{"the last of the others goes", "12", "1.2", false},
		{"the leader goes", "12", "2.1", true},
		{"the leader has gone", "2.1", "", true},
	} {
		logs := rafttest.Entries(1, 1)
		if tt.next != "" {
			logs[0].Type, logs[0].Data = raft.LogConfiguration, raft.EncodeConfiguration(raft.Configuration{Servers: rafttest.Servers(tt.next)})
		}
		if got := needsOthers(rafttest.ServerID(1), rafttest.Servers(tt.voters), logs); got != tt.ahead {
			t.Errorf("%s: precedes its disk: %v", tt.about, got)
		}
	}
}
