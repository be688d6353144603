package quorum

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/simdisk"
	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/raftnet"
	"lockkeeper/quorum/store"
)

// wipe stops member i and gives it an empty disk.
func (c *cluster) wipe(i int) {
	c.stop(i)
	c.disks[i] = simdisk.New()
	c.disks[i].SetSyncTime(time.Millisecond)
}

// takenIn waits until the leader counts member i with the disk that it has, and no other disk of
// it.
func (c *cluster) takenIn(i int) {
	c.t.Helper()
	for range 600 {
		for at, r := range c.reps {
			if r == nil || c.cut[at] {
				continue
			}
			of := raftnet.DisksOf(r.Servers(), MemberID(i+1))
			if _, leads := r.leadership.settledTerm(); leads && len(of) == 1 && of[0].ID == c.reps[i].self {
				c.settle()
				return
			}
		}
		time.Sleep(100 * time.Millisecond) // virtual
	}
	c.t.Fatalf("member %d is not taken in with disk %v: %v", i+1, c.reps[i].cfg.Peers.Disk, c.anyone().Servers())
}

// judgeBirth waits for each voter that the word of the operator does not leave out, and for nobody
// else. The founder has the lowest number of those with the most recent import.
//
// Defends: C1.
func TestJudgeBirth(t *testing.T) {
	members := []Member{{ID: 1}, {ID: 2}, {ID: 3}, {ID: 4, Observer: true}}
	blank := func(disk uint64) peer.Hello {
		return peer.Hello{State: peer.Blank, Disk: peer.DiskID(disk), Listed: peer.Sum(members)}
	}
	with := func(h peer.Hello, change func(*peer.Hello)) peer.Hello { change(&h); return h }
	imported := func(term, index, digest uint64) func(*peer.Hello) {
		return func(h *peer.Hello) { h.Imported = peer.Imported{StateTerm: term, Index: index, Digest: digest} }
	}
	lost := with(blank(3), func(h *peer.Hello) { h.State = peer.Lost })
	otherLines := with(blank(4), func(h *peer.Hello) { h.Listed++ })
	for name, tt := range map[string]struct {
		without []MemberID
		two     peer.Hello // zero: it does not answer, like the next ones
		three   peer.Hello
		four    peer.Hello
		founder MemberID // NoMember: nobody, or it waits
		servers int
		waits   int
	}{
		"all":                          {two: blank(2), three: blank(3), four: blank(4), founder: 1, servers: 4},
		"no observer":                  {two: blank(2), three: blank(3), founder: 1, servers: 3},
		"an observer that is not well": {two: blank(2), three: blank(3), four: otherLines, founder: 1, servers: 3},
		"a voter is missing":           {two: blank(2), founder: 1, servers: 2, waits: 1},
		"it is left out":               {without: []MemberID{3}, two: blank(2), founder: 1, servers: 2},
		"one that is there is not":     {without: []MemberID{2}, two: blank(2), founder: 1, servers: 2, waits: 1},
		"a voter replaces a disk":      {two: blank(2), three: lost, founder: 1, servers: 2, waits: 1},
		"left out, it replaces one":    {without: []MemberID{3}, two: blank(2), three: lost, founder: 1, servers: 2, waits: 1},
		"the third has an import":      {two: blank(2), three: with(blank(3), imported(1, 9, 7)), founder: 3, servers: 3},
		"the newest import": {two: with(blank(2), imported(2, 1, 7)), three: with(blank(3), imported(1, 9, 7)),
			founder: 2, servers: 3},
		"the same import": {two: with(blank(2), imported(2, 1, 7)), three: with(blank(3), imported(2, 1, 7)),
			founder: 2, servers: 3},
		"imports that differ": {two: with(blank(2), imported(2, 1, 7)), three: with(blank(3), imported(2, 1, 8)),
			founder: 2, servers: 3, waits: 1},
		"an observer's import": {two: blank(2), three: blank(3), four: with(blank(4), imported(5, 5, 5)), founder: 1, servers: 3},
	} {
		answers := map[MemberID]peer.Hello{}
		for id, h := range map[MemberID]peer.Hello{2: tt.two, 3: tt.three, 4: tt.four} {
			if h.State != 0 {
				answers[id] = h
			}
		}
		b := judgeBirth(&Config{ID: 1, Members: members, DiskConfig: DiskConfig{Without: tt.without}}, blank(1), answers)
		if b.founder != tt.founder || len(b.servers) != tt.servers || len(b.waits) != tt.waits || b.cluster != 0 {
			t.Errorf("%s: %+v", name, b)
		}
	}
	exists := with(blank(3), func(h *peer.Hello) { h.State, h.Cluster, h.Counted = peer.Used, 7, 99 })
	if b := judgeBirth(&Config{ID: 1, Members: members}, blank(1), map[MemberID]peer.Hello{2: blank(2), 3: exists}); b.cluster != 7 || !b.foreign {
		t.Errorf("beside a cluster that counts another disk: %+v", b)
	}
}

// A cluster begins when all of its voters have answered, and not before.
//
// Defends: C1.
func TestFirstStartWaitsForAllVoters(t *testing.T) {
	out := &logged{}
	inCluster(t, 3, func(cfg *Config) { cfg.Logger = slog.New(slog.NewTextHandler(out, nil)) }, func(t *testing.T, c *cluster) {
		// inCluster has started all three. They have had no time to find each other.
		c.wipe(2)
		c.wipe(1)
		c.wipe(0)
		c.start(0)
		c.start(1)
		time.Sleep(time.Minute)
		for i := range 2 {
			if s := c.reps[i].Status(); s.Voters != 0 {
				t.Errorf("member %d takes part without member 3: %+v", i+1, s)
			}
		}
		if out.lines("member 3 at 10.0.0.3:2888 does not answer") == 0 || out.lines("serve -without N") == 0 {
			t.Errorf("the log does not say it:\n%s", out.b.String())
		}
		c.start(2)
		l := c.leader()
		c.recs[l].result(t, c.propose(l, createSession(9)))
		if got := c.counted(0); got != "1 2 3" {
			t.Errorf("raft counts %s", got)
		}
	})
}

// The operator names a member that has never worked. It becomes one of the cluster when it comes.
func TestFirstStartWithoutAMember(t *testing.T) {
	inCluster(t, 3, func(cfg *Config) {
		if cfg.ID != 3 {
			cfg.Without = []MemberID{3}
		}
	}, func(t *testing.T, c *cluster) {
		c.wipe(2)
		for i := range 2 {
			c.wipe(i)
			c.start(i)
		}
		l := c.leader()
		c.recs[l].result(t, c.propose(l, createSession(9)))
		if got := c.counted(l); got != "1 2" {
			t.Fatalf("raft counts %s", got)
		}
		c.start(2)
		if got := c.settle(); got != "1 2 3" {
			t.Fatal(got)
		}
		c.agree()
	})
}

// A member that has lost its disk and one that has never worked are no cluster, whichever members
// the operator leaves out.
//
// Defends: C1.
func TestLateFirstStartAndALostDisk(t *testing.T) {
	for name, without := range map[string][]MemberID{"": nil, "the word is kept in the unit file": {3}} {
		t.Run(name, func(t *testing.T) {
			word := []MemberID{3}
			inCluster(t, 3, func(cfg *Config) {
				if cfg.ID != 3 {
					cfg.Without = word
				}
			}, func(t *testing.T, c *cluster) {
				c.wipe(2)
				for i := range 2 {
					c.wipe(i)
					c.start(i)
				}
				c.recs[0].result(t, c.propose(c.leader(), createSession(9)))
				word = without
				c.stop(0)
				c.wipe(1)
				c.start(1)
				c.start(2)
				time.Sleep(time.Minute)
				for i := 1; i < 3; i++ {
					if s := c.reps[i].Status(); s.Voters != 0 {
						t.Errorf("member %d begins another history: %+v", i+1, s)
					}
				}
				// A majority of {1, 2} is gone. Members 2 and 3 know of the cluster, and wait for
				// it.
				c.start(0)
				time.Sleep(time.Minute)
				for i := range 3 {
					if s := c.reps[i].Status(); s.Leader != NoMember {
						t.Errorf("member %d follows %d", i+1, s.Leader)
					}
				}
				if c.reps[1].roster.Cluster() != 0 || c.reps[2].roster.Cluster() != 0 {
					t.Error("a disk without a log belongs to a cluster that cannot take it in")
				}
			})
		})
	}
}

// Disks are lost one after the other, on all members, and each is replaced without an operator.
//
// Defends: C1.
func TestLostDisksAreReplaced(t *testing.T) {
	for _, n := range []int{3, 4, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			inCluster(t, n, nil, func(t *testing.T, c *cluster) {
				c.recs[0].result(t, c.propose(c.leader(), createSession(9)))
				seq := uint64(0)
				for round := range 3 * n {
					i := round % n
					if round%2 == 0 {
						i = c.leader()
					}
					c.wipe(i)
					c.propose((i+1)%n, sequential(9, seq+1, "/n-"))
					c.start(i)
					seq++
					c.recs[(i+1)%n].result(t, sequential(9, seq, "/n-").Key())
					c.takenIn(i)
				}
				c.agree()
				if r := c.recs[0].result(t, c.propose(0, sequential(9, seq+1, "/n-"))); r.Path != fmt.Sprintf("/n-%010d", seq) {
					t.Errorf("%+v", r)
				}
			})
		})
	}
}

// A second process with the number of a member that works is not taken in, and the first works on.
// When the first has ended, the second replaces it; and when the second has, the first comes back.
//
// Defends: C1.
func TestSecondProcessWithANumber(t *testing.T) {
	out := &logged{}
	inCluster(t, 3, func(cfg *Config) { cfg.Logger = slog.New(slog.NewTextHandler(out, nil)) }, func(t *testing.T, c *cluster) {
		l := c.leader()
		f := (l + 1) % 3
		c.recs[l].result(t, c.propose(l, createSession(9)))
		first := c.disks[f]
		firstRep := c.reps[f]
		c.reps[f] = nil
		// Both are on one host, and the second one listens where the first one did.
		if err := firstRep.port.Move(hostName(f) + ":9999"); err != nil {
			t.Fatal(err)
		}
		c.disks[f] = simdisk.New()
		c.start(f)
		time.Sleep(time.Minute)
		if c.reps[f].Counted() {
			t.Fatal("the second process is counted while the first one answers")
		}
		c.propose(l, sequential(9, 1, "/n-"))
		if err := firstRep.Close(); err != nil {
			t.Fatal(err)
		}
		c.takenIn(f)
		second := raftnet.DiskOf(c.reps[f].self)
		c.stop(f)
		c.disks[f] = first.Crash()
		c.start(f)
		c.takenIn(f)
		if raftnet.DiskOf(c.reps[f].self) == second {
			t.Fatal("that is the second disk")
		}
		c.agree()
		if !strings.Contains(out.b.String(), "a second process has the number of a member that answers") {
			t.Errorf("the log does not say it:\n%s", out.b.String())
		}
	})
}

// A disk that is set back to an earlier state is found by what the others know that it has
// acknowledged, also by a leader that was elected since, and its member ends.
//
// Defends: C1.
func TestDiskThatIsSetBack(t *testing.T) {
	for _, newLeader := range []bool{false, true} {
		var ended chan error // of the bubble
		inCluster(t, 3, func(cfg *Config) {
			if ended == nil {
				ended = make(chan error, 3)
			}
			cfg.Listener.(*recorder).failed = func(err error) { ended <- err }
		}, func(t *testing.T, c *cluster) {
			l := c.leader()
			i := (l + 1) % 3
			c.recs[i].result(t, c.propose(l, createSession(9)))
			time.Sleep(time.Second)
			image := c.disks[i].Crash()
			c.disks[i] = image.Crash() // the member goes on with a copy
			c.net.Reset(hostName(i))
			c.stop(i)
			c.start(i)
			for n := range uint64(20) {
				c.recs[i].result(t, c.propose(c.leader(), sequential(9, n+1, "/n-")))
			}
			for range 20 { // the lease reports of all members carry what the leader knows
				for m := range c.reps {
					_, _, _ = c.reps[m].Touch(t.Context(), nil)
				}
				time.Sleep(50 * time.Millisecond)
			}
			c.crash(i)
			if newLeader {
				c.stop(c.leader())
				c.start(l)
				c.leader()
			}
			c.disks[i] = image
			c.start(i)
			if err := <-ended; !errors.Is(err, store.ErrOutdated) || !strings.Contains(err.Error(), "without entries that it had acknowledged") {
				t.Fatalf("new leader %v: %v", newLeader, err)
			}
			if !c.reps[i].disk.Broken() {
				t.Error("it goes on to vote and to acknowledge entries")
			}
			c.wipe(i)
			c.start(i)
			c.takenIn(i)
			c.agree()
		})
		ended = nil
	}
}
