package simtest

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// C1: a member votes, and its power fails before it hears of the leader that it has elected. Then
// another member, which has heard of nothing, stands for election in the same term.
func TestVoteOutlivesPowerCut(t *testing.T) {
	plant(t)
	seedRuntime(t, 1)
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, newJournal(t, ""))
		c.awaitLeader()
		c.each(forgetful)
		for range 5 {
			c.settled(30 * time.Second)
			old := c.awaitLeader()
			other, late := c.others(old)[0], c.others(old)[1]
			late.stop()
			// What the next leader writes arrives long after it is elected.
			c.net.SetLatency(old.name, other.name, 100*time.Millisecond, 0)
			c.net.SetLatency(other.name, old.name, 100*time.Millisecond, 0)
			old.powerCut()
			old.start()
			elected, voter := old, other
			if c.awaitElection() == fmt.Sprintf("m%d", other.id) {
				elected, voter = other, old
			}
			voter.powerCut()
			c.net.Partition(elected.name, voter.name)
			c.net.Partition(elected.name, late.name)
			late.start()
			time.Sleep(400 * time.Millisecond) // it is to stand for election before the voter does
			voter.start()
			c.awaitElection() // if it is in the same term, the witness notices
			c.net.HealAll()
			c.usualLatency()
			if c.t.Failed() {
				break
			}
		}
		c.shutdown()
	})
}

// awaitElection waits until somebody is elected, and returns who.
func (c *cluster) awaitElection() string {
	c.t.Helper()
	before := len(c.witness.won())
	for range 60_000 {
		if won := c.witness.won(); len(won) > before {
			return won[before]
		}
		time.Sleep(time.Millisecond)
	}
	c.t.Error("nobody is elected within a minute")
	return ""
}
