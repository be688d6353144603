package quorum

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/store"
)

// alone stops all members, empties their disks, and has member i+1 stand alone until it has n
// nodes.
func (c *cluster) alone(i, n int) {
	c.t.Helper()
	for at := range c.reps {
		if at != i && c.reps[at] != nil {
			c.wipe(at)
		}
	}
	c.wipe(i)
	files, change := c.files[i], c.change
	c.files[i] = []Member{{ID: 1}}
	c.change = func(cfg *Config) { cfg.ID = 1 }
	stores := store.Stores{Stable: c.disks[i]}
	if err := stores.SetIdentity(store.Identity{Owner: 1, Disk: uint64(5000 + i)}); err != nil {
		c.t.Fatal(err)
	}
	c.start(i)
	c.change = change
	for {
		if _, leads := c.reps[i].leadership.settledTerm(); leads {
			break
		}
		time.Sleep(time.Millisecond) // virtual
	}
	c.recs[i].result(c.t, c.propose(i, createSession(9)))
	for seq := range n {
		c.recs[i].result(c.t, c.propose(i, sequential(9, uint64(seq+1), "/n-")))
	}
	c.stop(i)
	c.files[i] = files
}

// nodes is the number of nodes that alone has made, on member i+1.
func (c *cluster) nodes(i int) int {
	names, _, _ := c.reps[i].state.store.Children("/", nil)
	n := 0
	for _, name := range names {
		if strings.HasPrefix(name, "n-") {
			n++
		}
	}
	return n
}

// A member that stood alone takes its data into a cluster, whichever member starts first.
func TestOneBecomesThree(t *testing.T) {
	for name, order := range map[string][]int{"it starts first": {0, 1, 2}, "it starts last": {1, 2, 0}, "another number": {1, 0, 2}} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
				old := 0
				if name == "another number" {
					old = 2
				}
				c.alone(old, 40)
				for k, i := range order {
					c.start(i)
					time.Sleep(10 * time.Second)
					if s := c.reps[i].Status(); k < 2 && s.Leader != NoMember {
						t.Fatalf("member %d: %+v, and not all have answered", i+1, s)
					}
				}
				if got := c.settle(); got != "1 2 3" {
					t.Fatal(got)
				}
				c.recs[0].result(t, c.propose(0, sequential(9, 41, "/n-")))
				c.agree()
				for i := range 3 {
					if n := c.nodes(i); n != 41 {
						t.Errorf("member %d has %d nodes", i+1, n)
					}
				}
				// From now on it is a cluster like any other.
				c.stop(old)
				c.recs[(old+1)%3].result(t, c.propose((old+1)%3, sequential(9, 42, "/n-")))
				c.start(old)
				c.leader()
				c.agree()
			})
		})
	}
}

// Power fails again and again on the way from one member to three.
func TestPowerFailsWhileOneBecomesThree(t *testing.T) {
	for after := range 20 {
		inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
			c.alone(0, 5)
			for i := range 3 {
				c.start(i)
			}
			time.Sleep(time.Duration(after) * 100 * time.Millisecond)
			c.crash(0)
			c.start(0)
			if got := c.settle(); got != "1 2 3" || c.nodes(0) != 5 {
				t.Fatalf("after %d: raft counts %q, %d nodes", after, got, c.nodes(0))
			}
			c.agree()
		})
	}
}

// Two members that stood alone do not begin two clusters with the same server lines, and none
// begins beside one that other disks have begun.
//
// Defends: C1.
func TestOneDoesNotBecomeThreeBesideOthersData(t *testing.T) {
	out := &logged{}
	inCluster(t, 3, func(cfg *Config) { cfg.Logger = slog.New(slog.NewTextHandler(out, nil)) }, func(t *testing.T, c *cluster) {
		c.alone(0, 3)
		kept := c.disks[0]
		c.alone(1, 4)
		c.disks[0] = kept
		for i := range 3 {
			c.start(i)
		}
		time.Sleep(time.Minute)
		for i := range 3 {
			if s := c.reps[i].Status(); s.Leader != NoMember || s.Voters > 1 {
				t.Errorf("member %d: %+v", i+1, s)
			}
		}
		if out.lines("member 2 at 10.0.0.2:2888 has data of its own") == 0 || out.lines("member 1 at 10.0.0.1:2888 has data of its own") == 0 {
			t.Errorf("the log does not say it:\n%s", out.b.String())
		}
		c.wipe(1)
		c.start(1)
		if got := c.settle(); got != "1 2 3" || c.nodes(2) != 3 {
			t.Fatalf("raft counts %q, %d nodes", got, c.nodes(2))
		}
	})
}

// judgeGrowth waits for each voter that the word of the operator does not leave out.
func TestJudgeGrowth(t *testing.T) {
	members := []Member{{ID: 1}, {ID: 2}, {ID: 3}, {ID: 4, Observer: true}}
	blank := peer.Hello{State: peer.Blank, Disk: 2, Listed: peer.Sum(members)}
	with := func(change func(*peer.Hello)) *peer.Hello { h := blank; change(&h); return &h }
	for name, tt := range map[string]struct {
		without []MemberID
		three   *peer.Hello
		four    *peer.Hello
		waits   int
	}{
		"all":                   {three: &blank, four: &blank},
		"no observer":           {three: &blank},
		"a voter is missing":    {waits: 1},
		"it is left out":        {without: []MemberID{3}},
		"one has data":          {three: with(func(h *peer.Hello) { h.State, h.Cluster = peer.Used, 8 }), waits: 1},
		"left out, it has data": {without: []MemberID{3}, three: with(func(h *peer.Hello) { h.State, h.Cluster = peer.Used, 8 }), waits: 1},
		"an observer has data":  {three: &blank, four: with(func(h *peer.Hello) { h.State, h.Cluster = peer.Used, 8 }), waits: 1},
		"it was taken in":       {three: with(func(h *peer.Hello) { h.State, h.Cluster = peer.Used, 7 })},
		"one has an import":     {three: with(func(h *peer.Hello) { h.Index = 1 }), waits: 1},
		"one has lost its disk": {three: with(func(h *peer.Hello) { h.State = peer.Lost }), waits: 1},
		"other lines":           {three: with(func(h *peer.Hello) { h.Listed++ }), waits: 1},
	} {
		answers := map[MemberID]peer.Hello{2: blank}
		for id, h := range map[MemberID]*peer.Hello{3: tt.three, 4: tt.four} {
			if h != nil {
				answers[id] = *h
			}
		}
		if waits := judgeGrowth(&Config{ID: 1, Members: members, DiskConfig: DiskConfig{Without: tt.without}}, 7, answers); len(waits) != tt.waits {
			t.Errorf("%s: %q", name, waits)
		}
	}
}
