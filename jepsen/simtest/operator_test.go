package simtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/quorum"
	"lockkeeper/server"
	"lockkeeper/znode"
)

// The faults of this file are acts of operators, while things break.

// operatorPatience is how long an operator waits for an answer.
const operatorPatience = 20 * time.Second

// transfer has the leadership transferred to somebody who may not be reached: then the leader takes
// nothing for a while and goes on leading.
func (n *nemesis) transfer() func() {
	asked, to := n.any(), n.voter()
	undo := func() {}
	if n.rng.IntN(2) == 0 {
		undo = n.cut(n.leader(), to)
	}
	for range 2 + n.rng.IntN(7) {
		n.note("m%d is asked to have m%d lead", asked.id, to.id)
		if p := asked.running(); p != nil {
			ctx, cancel := context.WithTimeout(context.Background(), operatorPatience)
			err := p.Replica().TransferLeadership(ctx, quorum.MemberID(to.id), nil)
			cancel()
			n.note("transferred: %v", err)
		}
		time.Sleep(time.Duration(n.rng.IntN(700)) * time.Millisecond)
		asked, to = n.any(), n.voter()
	}
	return undo
}

// voter is any member that votes.
func (n *nemesis) voter() *member { return n.members[n.rng.IntN(n.c.shape.voters)] }

// superDigest is of the super user, with the password "test", of clusters with changes of members.
const superDigest = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="

// line is the server line of the member.
func (m *member) line(observer bool) server.Member {
	l := server.Member{ID: m.id, Host: m.name, PeerPort: peerPort, ElectionPort: peerPort + 1000, Observer: observer}
	if m.c.shape.changes {
		l.ClientAddr = m.clientAddr() // reconfig insists on one
	}
	return l
}

// lines are the server lines of the members, as they are while nobody changes them.
func (c *cluster) lines() (list []server.Member) {
	for _, m := range c.members {
		list = append(list, m.line(m.observer))
	}
	return list
}

// operatorHost is where the operator works.
const operatorHost = "10.0.6.1"

// reconfig has the operator request a change of the members, of one of them that answers, and
// reports whether it was made. An error tells nothing: the change may be made later.
func (c *cluster) reconfig(what string, request func(*zk.Conn) error) bool {
	return c.reconfigAt(c.servers(), what, request)
}

// reconfigAt is reconfig of these servers.
func (c *cluster) reconfigAt(servers []string, what string, request func(*zk.Conn) error) bool {
	c.net.Host(operatorHost)
	conn, _, err := zk.Connect(servers, operatorPatience, zk.WithDialer(c.dialer(operatorHost)),
		zk.WithLogger(zkLogger{c.journal, "operator"}))
	if err != nil {
		c.t.Errorf("connect: %v", err)
		return false
	}
	defer conn.Close()
	answered := make(chan error, 1)
	go func() {
		err := conn.AddAuth("digest", []byte("super:test"))
		if err == nil {
			err = request(conn)
		}
		answered <- err
	}()
	select {
	case err = <-answered:
	case <-time.After(operatorPatience):
		err = context.DeadlineExceeded
	}
	c.journal.printf("operator: %s: %v", what, err)
	return err == nil
}

// changeMembers has an operator add the spare machine, remove a member, or change the role of one,
// half the time with another fault while the change is under way.
// The members are as they were when all is healed (restoreMembers), or earlier.
func (n *nemesis) changeMembers() func() {
	if !n.c.shape.changes || n.neighbour != nil && n.neighbour.exchanged {
		return func() {}
	}
	var joining, leaving []string
	what, m := "", n.any()
	switch kind := n.rng.IntN(4); {
	case kind < 2 && !n.c.spare.used:
		m = n.c.spare
		n.addSpare()
		observer := n.rng.IntN(3) == 0
		what, joining = "add", []string{m.line(observer).String()}
	case kind == 2:
		what, leaving = "remove", []string{fmt.Sprint(m.id)}
	default:
		if n.rng.IntN(2) == 0 {
			m = n.leader()
		}
		what, joining = "change the role of", []string{m.line(n.rng.IntN(2) == 0).String()}
	}
	var request sync.WaitGroup
	request.Go(func() {
		if n.c.reconfig(fmt.Sprintf("%s m%d", what, m.id), func(conn *zk.Conn) error {
			_, err := conn.IncrementalReconfig(joining, leaving, -1)
			return err
		}) {
			n.changed.Add(1)
		}
	})
	meanwhile := func() {}
	if n.rng.IntN(2) == 0 {
		n.pause(1)
		meanwhile = n.disturbChange()
	}
	request.Wait()
	return func() {
		meanwhile()
		if n.rng.IntN(4) == 0 {
			n.bringBackMembers()
		}
	}
}

// disturbChange is a fault while the members are being changed.
func (n *nemesis) disturbChange() func() {
	switch n.rng.IntN(6) {
	case 0:
		return n.down(n.leader(), (*member).powerCutInWrite)
	case 1:
		return n.down(n.any(), (*member).kill)
	case 2:
		return n.isolate(n.leader())
	case 3:
		return n.isolate(n.any())
	case 4:
		return n.slowLinks(time.Second)
	}
	return n.loseDisk()
}

// addSpare starts the spare machine, on a blank disk or on the one that it had when it was removed.
func (n *nemesis) addSpare() {
	m := n.c.spare
	if n.rng.IntN(2) == 0 {
		m.disk = blank()
		n.c.witness.replaced(m)
	}
	m.used = true
	n.members = n.c.machines()
	m.start()
}

// bringBackMembers requests the members that the cluster has while nobody changes them.
func (n *nemesis) bringBackMembers() bool {
	var lines []string
	for _, m := range n.c.lines() {
		lines = append(lines, m.String())
	}
	return n.c.reconfig("the members as they were", func(conn *zk.Conn) error {
		_, err := conn.Reconfig(lines, -1)
		return err
	})
}

// restoreMembers makes the members those that they are while nobody changes them, and stops the
// spare machine. Everything else is healed.
func (n *nemesis) restoreMembers() {
	if !n.c.shape.changes {
		return
	}
	for start := time.Now(); !n.c.asBefore(); {
		if time.Since(start) > restoreLimit {
			n.c.t.Errorf("after %v: an operator cannot restore the members for %v though all is healed", n.c.journal.age(), restoreLimit)
			return
		}
		n.bringBackMembers()
		time.Sleep(time.Second)
	}
	if n.c.spare.used {
		n.c.spare.stop()
		n.c.spare.used = false
		n.members = n.c.members
	}
}

const restoreLimit = 3 * time.Minute

// asBefore reports whether the leader has the members that the cluster has while nobody changes
// them, and no change is under way.
func (c *cluster) asBefore() (yes bool) {
	l := c.leader()
	if l == nil || l.running() == nil {
		return false
	}
	l.running().view(func(s *znode.Store) {
		members, _ := s.Members()
		yes = s.Change() == nil && slices.Equal(members, c.lines())
	})
	return yes
}
