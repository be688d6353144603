package simtest

import (
	"context"
	"testing"
	"time"

	"lockkeeper/quorum"
	"lockkeeper/znode"
)

// Scenarios of operators who change the members in the configuration files, and of members that
// stood alone before.

// counted is the number of members of the cluster, as a member sees it.
func (m *member) counted() (n int) {
	m.running().view(func(s *znode.Store) {
		ms, _ := s.Members()
		n = len(ms)
	})
	return n
}

// The file of the leader has lost a server line, and the others have theirs: the members stay.
func TestFileOfOneMember(t *testing.T) {
	inDisks(t, directedShape, func(c *cluster) {
		c.each((*member).start)
		// A leader with other lines than the others gives way to one of them at once, so it is
		// asked to lead again and again.
		l, other := c.awaitLeader(), c.members[0]
		if other == l {
			other = c.members[1]
		}
		for _, line := range c.lines() {
			if line.ID != other.id {
				l.file = append(l.file, line)
			}
		}
		l.stop()
		l.start()
		for range 5 {
			if at := c.awaitLeader(); at != l {
				ctx, cancel := context.WithTimeout(context.Background(), operatorPatience)
				_ = at.running().Replica().TransferLeadership(ctx, quorum.MemberID(l.id), nil)
				cancel()
			}
			time.Sleep(time.Second)
			if n := l.counted(); n != 3 {
				c.t.Errorf("one file makes the cluster one of %d members", n)
			}
		}
		if !l.write("/a") {
			c.t.Error("the cluster does not serve")
		}
		time.Sleep(30 * time.Second)
		c.settled(30 * time.Second)
		for _, m := range c.members {
			if n := m.counted(); n != 3 || !m.has("/a") {
				c.t.Errorf("m%d counts %d members", m.id, n)
			}
		}
	})
}

// Files change on one member after the other, and the cluster follows them down to two members and
// back to three. Answered updates stay.
func TestFilesOfAllMembers(t *testing.T) {
	inDisks(t, directedShape, func(c *cluster) {
		c.each((*member).start)
		c.awaitLeader()
		if !c.members[0].write("/a") {
			c.t.Error("the cluster does not serve")
		}
		gone := c.members[2]
		gone.stop()
		for _, m := range c.members[:2] {
			m.stop()
			m.file = c.lines()[:2]
			m.start()
			c.awaitLeader()
		}
		time.Sleep(15 * time.Second)
		if n := c.members[0].counted(); n != 2 || !c.members[0].write("/b") {
			c.t.Errorf("%d members, two files have two", n)
		}
		gone.disk = blank()
		c.witness.replaced(gone)
		gone.start()
		for _, m := range c.members[:2] {
			m.stop()
			m.file = nil
			m.start()
			c.awaitLeader()
		}
		time.Sleep(15 * time.Second)
		c.settled(30 * time.Second)
		for _, m := range c.members {
			if n := m.counted(); n != 3 || !m.has("/a") || !m.has("/b") {
				c.t.Errorf("m%d counts %d members", m.id, n)
			}
		}
	})
}

// A member that stood alone takes its data into a cluster of three while power fails.
func TestPowerFailsWhenOneBecomesThree(t *testing.T) {
	inDisks(t, directedShape, func(c *cluster) {
		first := c.members[0]
		first.alone = true
		first.start()
		if !first.write("/one") {
			c.t.Error("m1 does not serve alone")
		}
		first.stop()
		first.alone = false
		c.each((*member).start)
		for range 5 {
			time.Sleep(300 * time.Millisecond)
			first.powerCut()
			first.start()
		}
		c.awaitLeader()
		time.Sleep(10 * time.Second)
		c.settled(30 * time.Second)
		for _, m := range c.members {
			if n := m.counted(); n != 3 || !m.has("/one") {
				c.t.Errorf("m%d counts %d members", m.id, n)
			}
		}
	})
}
