package quorum

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/simdisk"
	"lockkeeper/znode"
)

// listOf has the members of a configuration file, as in "1 2 3o": observers have an o.
func listOf(text string) (list []Member) {
	for _, word := range strings.Fields(text) {
		var n int
		_, _ = fmt.Sscan(strings.TrimSuffix(word, "o"), &n)
		list = append(list, Member{ID: MemberID(n), Addr: hostName(n-1) + ":2888", Observer: strings.HasSuffix(word, "o")})
	}
	return list
}

// roll restarts members with these server lines, one after the other, as an operator does who has
// edited their files. New ones are started.
func (c *cluster) roll(list string, numbers ...int) {
	c.t.Helper()
	for _, n := range numbers {
		i := n - 1
		c.files[i] = listOf(list)
		for len(c.reps) <= i {
			c.disks, c.recs, c.reps = append(c.disks, nil), append(c.recs, nil), append(c.reps, nil)
			c.disks[len(c.disks)-1] = simdisk.New()
			c.t.Cleanup(func() { c.stop(i) })
		}
		known := c.reps[i] != nil
		c.stop(i)
		c.start(i)
		if known {
			c.leader()
		}
	}
}

// stays checks that raft goes on to count these members for a minute.
func (c *cluster) stays(want string) {
	c.t.Helper()
	time.Sleep(time.Minute) // virtual
	if l := c.leader(); c.counted(l) != want || c.agreed(l) != want {
		c.t.Fatalf("raft counts %q, the members are %q, want %q", c.counted(l), c.agreed(l), want)
	}
}

// The members follow the files of a majority, its leader's among them, and of all new ones.
//
// Defends: C1.
func TestMembersOfTheFiles(t *testing.T) {
	for name, tt := range map[string]struct {
		members int
		steps   func(c *cluster)
		want    string
	}{
		"one is added": {3, func(c *cluster) { c.roll("1 2 3 4", 4, 1, 2, 3) }, "1 2 3 4"},
		"it starts last": {3, func(c *cluster) {
			c.roll("1 2 3 4", 1, 2, 3)
			c.stays("1 2 3")
			c.roll("1 2 3 4", 4)
		}, "1 2 3 4"},
		"two are added":        {3, func(c *cluster) { c.roll("1 2 3 4 5", 4, 5, 3, 2, 1) }, "1 2 3 4 5"},
		"an observer is added": {3, func(c *cluster) { c.roll("1 2 3 4o", 4, 1, 2, 3) }, "1 2 3 4o"},
		"one is removed while it runs": {4, func(c *cluster) {
			c.roll("1 2 3", 1, 2, 3)
		}, "1 2 3"},
		"two that are stopped are removed": {5, func(c *cluster) {
			c.stop(3)
			c.stop(4)
			c.roll("1 2 3", 1, 2, 3)
		}, "1 2 3"},
		"one takes the place of another": {3, func(c *cluster) {
			c.stop(2)
			c.roll("1 2 4", 4, 1, 2)
		}, "1 2 4"},
		"a voter becomes an observer":   {4, func(c *cluster) { c.roll("1 2 3 4o", 4, 3, 2, 1) }, "1 2 3 4o"},
		"every member gets a role back": {3, func(c *cluster) { c.roll("1 2 3o", 3, 2, 1); c.settle(); c.roll("1 2 3", 1, 2, 3) }, "1 2 3"},
		"a new one does not answer":     {3, func(c *cluster) { c.roll("1 2 3 4", 1, 2, 3) }, "1 2 3"},
		"a new one has other lines":     {3, func(c *cluster) { c.roll("1 2 3 4", 1, 2, 3); c.roll("1 2 3 4 5", 4) }, "1 2 3"},
		"two lists, each with half": {4, func(c *cluster) {
			c.roll("1 2 3 4 5", 5, 1, 2)
			c.roll("1 2 3 4 6", 6, 3, 4)
		}, "1 2 3 4"},
		"a typo in one file": {3, func(c *cluster) {
			c.roll("1 2 3 4", 4, 1, 2)
			c.roll("1 2 3 5", 3)
		}, "1 2 3 4"},
		"the leader is not restarted": {3, func(c *cluster) {
			for i := range 3 {
				if l := c.leader(); l != i {
					c.roll("1 2 3 4", i+1)
				}
			}
			c.roll("1 2 3 4", 4)
		}, "1 2 3 4"},
		"a file without one that runs": {3, func(c *cluster) { c.roll("1 2", 1); c.roll("1 2 3", 2, 3) }, "1 2 3"},
		"an old file comes back": {3, func(c *cluster) {
			c.roll("1 2 3 4", 4, 1, 2, 3)
			c.settle()
			c.roll("1 2 3", 3)
		}, "1 2 3 4"},
		"one that stays has not been heard of": {5, func(c *cluster) {
			c.stop(3)
			c.roll("1 2 3 4", 1, 2, 3)
		}, "1 2 3 4 5"},
		"one that stays comes back with its old file": {5, func(c *cluster) {
			c.stop(3)
			c.roll("1 2 3 4", 1, 2, 3)
			c.start(3)
		}, "1 2 3 4"},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, tt.members, nil, func(t *testing.T, c *cluster) {
				c.recs[c.leader()].result(t, c.propose(c.leader(), createSession(9)))
				tt.steps(c)
				c.stays(tt.want)
				l := c.leader()
				c.recs[l].result(t, c.propose(l, sequential(9, 1, "/n-")))
				if _, version := c.reps[l].Members(); version != 0 {
					t.Errorf("the members have version %v: that is for reconfig", version)
				}
			})
		})
	}
}

// Files change again and again, for members that crash and whose leader is cut off. No command is
// lost or doubled, and the members end as those of the files.
func TestFilesChangeUnderPartitions(t *testing.T) {
	inCluster(t, 5, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.recs[l].result(t, c.propose(l, createSession(9)))
		var seq uint64
		for round, list := range []string{"1 2 3 4 5 6", "1 2 3 4 5", "1 2 3 4 5o", "1 2 3 4 5 6o", "1 2 3 4 5 6", "1 2 3 4 5"} {
			for n, m := range listOf(list) {
				for range 5 {
					seq++
					at := c.leader()
					c.recs[at].result(t, c.propose(at, sequential(9, seq, "/n-")))
				}
				c.roll(list, int(m.ID))
				time.Sleep(time.Duration(round*n*97) * time.Millisecond)
				switch at := c.leader(); (round + n) % 3 {
				case 0:
					c.isolate(at)
					time.Sleep(3 * time.Second)
					c.heal()
				case 1:
					c.crash(at)
					c.start(at)
				}
			}
			if got := c.settle(); got != list {
				c.stays(list) // the change had not begun yet
			}
			if !strings.Contains(list, "6") {
				c.stop(5)
			}
		}
		last := c.propose(c.leader(), sequential(9, seq+1, "/n-"))
		for i := range 5 {
			if r := c.recs[i].result(t, last); r.Path != fmt.Sprintf("/n-%010d", seq) {
				t.Fatalf("member %d: %+v", i+1, r)
			}
		}
		c.agree()
	})
}

// Once reconfig was enabled its members count, whatever the files say, also when it is disabled
// again.
func TestFilesDoNotCountAfterReconfig(t *testing.T) {
	on := true
	inCluster(t, 3, func(cfg *Config) {
		if on {
			cfg.Flags |= znode.Reconfig
		}
	}, func(t *testing.T, c *cluster) {
		c.leader()
		c.roll("1 2 3 4", 4, 1, 2, 3)
		c.stays("1 2 3")
		on = false
		c.roll("1 2 3 4", 4, 1, 2, 3)
		c.stays("1 2 3")
	})
}

// The change goes on with the next leader, and a leader of another list does not end it.
func TestLeaderDiesInAChangeOfTheFiles(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		c.recs[c.leader()].result(t, c.propose(c.leader(), createSession(9)))
		c.roll("1 2 3 4 5", 4, 5, 1, 2)
		for range 3 {
			c.crash(c.leader())
			time.Sleep(time.Second)
			for i, r := range c.reps {
				if r == nil {
					c.start(i)
				}
			}
		}
		c.stays("1 2 3 4 5")
		c.agree()
	})
}
