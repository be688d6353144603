package quorum

import (
	"testing"
	"time"
)

// A leader whose connections have broken, and who takes new ones, goes on leading.
func TestBrokenConnectionsEndNoLeadership(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.recs[l].await(t, "leadership", func() bool { return c.recs[l].leads })
		c.recs[l].result(t, c.propose(l, createSession(9)))
		term := c.reps[l].raft.CurrentTerm()
		for i := range uint64(5) {
			for f := range c.reps {
				if f != l {
					c.net.Break(hostName(l), hostName(f))
				}
			}
			time.Sleep(2 * time.Second)
			c.recs[l].result(t, c.propose((l+1)%3, sequential(9, i+1, "/n-")))
		}
		if now := c.reps[l].raft.CurrentTerm(); c.leader() != l || now != term {
			t.Errorf("member %d leads in term %d, before it was member %d in term %d", c.leader()+1, now, l+1, term)
		}
	})
}
