package quorum

import (
	"slices"
	"testing"

	"lockkeeper/wire"
)

// Observers that are in the list of members from the first start hear from the leader before they
// have queried the others. They are members of its cluster then, and are known as such: what is
// proposed at them is applied everywhere.
func TestObserversFromTheFirstStart(t *testing.T) {
	const voters, members = 3, 5
	change := func(cfg *Config) {
		cfg.Members = slices.Clone(cfg.Members)
		for i := voters; i < members; i++ {
			cfg.Members[i].Observer = true
		}
	}
	inCluster(t, members, change, func(t *testing.T, c *cluster) {
		// In the second round they have on their disks what the leader sent them in the first.
		for round := range 2 {
			for i := range members {
				key := c.propose(i, createSession(wire.SessionID(10*round+i+1)))
				for j := range members {
					c.recs[j].result(t, key)
				}
			}
			for i := range members {
				if round == 0 {
					c.crash(i)
				}
			}
			if round == 0 {
				for i := range members {
					c.start(i)
				}
			}
		}
		c.agree()
	})
}
