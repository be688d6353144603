package simtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/quorum"
)

// C1: a member votes, and its power fails before it hears of the leader that it has elected. Then
// another member, which has heard of nothing, stands for election in the same term.
func TestVoteOutlivesPowerCut(t *testing.T) {
	plant(t)
	seedRuntime(t, scenarioSeed())
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, newJournal(t, ""))
		c.awaitLeader()
		c.each(forgetful)
		for range 5 {
			c.settled(30 * time.Second)
			old := c.awaitLeader()
			other, late := c.others(old)[0], c.others(old)[1]
			late.stop()
			// The writes of the next leader arrive long after it is elected.
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

// C1: the leadership moves twice, and a voter with a slow disk hears late of the leader in between:
// just when it saves the next term, in order to vote. It stays in that term.
func TestHeartbeatIsLateForAVote(t *testing.T) {
	plant(t)
	seedRuntime(t, scenarioSeed())
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, newJournal(t, ""))
		rng := rand.New(rand.NewPCG(1, 1))
		for range 10 * directedRounds {
			old := c.awaitLeader()
			between, voter := c.others(old)[0], c.others(old)[1]
			late := 300 * time.Millisecond
			c.net.SetLatency(between.name, voter.name, late, 0)
			time.Sleep(time.Second)
			voter.paceDisk(time.Duration(50+rng.IntN(150)) * time.Millisecond)
			var moving sync.WaitGroup
			move := func(from, to *member) {
				moving.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
					defer cancel()
					// It may fail.
					_ = from.running().Replica().TransferLeadership(ctx, quorum.MemberID(to.id), nil)
				})
			}
			move(old, between)
			time.Sleep(late - time.Duration(rng.IntN(40))*time.Millisecond)
			move(between, old)
			time.Sleep(time.Duration(rng.IntN(10)) * time.Millisecond)
			c.net.Partition(between.name, old.name)
			c.net.SetLatency(old.name, voter.name, 2*time.Second, 0)
			time.Sleep(time.Second)
			voter.paceDisk(syncTime)
			moving.Wait()
			c.net.HealAll()
			c.usualLatency()
			c.settled(30 * time.Second)
			if c.t.Failed() {
				break
			}
		}
		c.shutdown()
	})
}
