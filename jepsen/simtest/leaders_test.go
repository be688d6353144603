package simtest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/quorum"
)

// causeOf is the newest change of leader that a member knows of.
func causeOf(m *member) (c quorum.LeaderChange) {
	if p := m.running(); p != nil {
		if changes := p.Replica().LeaderChanges(); len(changes) > 0 {
			c = changes[0]
		}
	}
	return c
}

// Each member says why the leader changed, as far as it can tell: after a start, a killed leader, a
// power cut, a leader that is cut off, and a transfer.
func TestLeaderCauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, newJournal(t, ""))
		others := func(leader *member) (list []*member) {
			for _, m := range c.members {
				if m != leader {
					list = append(list, m)
				}
			}
			return list
		}
		// Members that were there are to know the cause, and from which leader to which.
		want := func(about string, before, after *member, cause string, of ...*member) {
			t.Helper()
			for _, m := range of {
				got := causeOf(m)
				ok := got.Cause == cause && got.Leader == quorum.MemberID(after.id) && !got.At.IsZero() && got.Term > 0
				if before == nil {
					ok = ok && got.Before == quorum.NoMember
				} else {
					ok = ok && got.Before == quorum.MemberID(before.id)
				}
				if !ok {
					t.Errorf("%s: m%d has %+v, want %q, to m%d", about, m.id, got, cause, after.id)
				}
			}
		}
		settle := func() *member {
			c.settled(30 * time.Second)
			time.Sleep(3 * time.Second)
			return c.awaitLeader()
		}
		leader := settle()
		want("the start", nil, leader, quorum.CauseStart, c.members...)

		old := leader
		old.kill()
		time.Sleep(5 * time.Second)
		leader = c.awaitLeader()
		want("a leader that is killed", old, leader, quorum.CauseEnded, others(old)...)
		if gap := causeOf(leader).Gap; gap <= 0 || gap > 2*time.Second {
			t.Errorf("without a leader for %v", gap)
		}
		old.start()
		leader = settle()
		want("a member that has started", nil, leader, quorum.CauseStart, old)

		old = leader
		old.powerCut()
		time.Sleep(10 * time.Second)
		leader = c.awaitLeader()
		want("a leader without power", old, leader, quorum.CauseTimeout, others(old)...)
		old.start()
		settle()

		old = c.awaitLeader()
		for _, m := range others(old) {
			c.net.Partition(old.name, m.name)
		}
		time.Sleep(10 * time.Second)
		leader = c.awaitLeader()
		want("a leader that is cut off", old, leader, quorum.CauseTimeout, others(old)...)
		c.net.HealAll()
		c.usualLatency()
		settle()
		want("a leader that was cut off", old, leader, quorum.CauseLost, old)

		old = c.awaitLeader()
		to := others(old)[0]
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := old.running().Replica().TransferLeadership(ctx, quorum.MemberID(to.id), nil); err != nil {
			t.Fatal(err)
		}
		settle()
		want("a transfer", old, to, quorum.CauseTransfer, c.members...)
		c.shutdown()
	})
}
