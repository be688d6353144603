package simtest

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/znode"
)

// The scenarios of this file are about disks and addresses (C1). The ledger notices two histories.

// inDisks runs f with a cluster that nobody has started.
func inDisks(t *testing.T, s shape, f func(c *cluster)) {
	plant(t)
	seedRuntime(t, scenarioSeed())
	synctest.Test(t, func(t *testing.T) {
		c := clusterOn(&recorder{T: t}, newNetwork(scenarioSeed()), "10.0.0.", s, 1, newJournal(t, ""))
		f(c)
		c.shutdown()
	})
}

// writerHost is where the client of write runs.
const writerHost = "10.0.5.1"

// write has a client of a member create a node, and reports whether it is told within 15 s that it
// has.
func (m *member) write(path string) bool {
	m.c.net.Host(writerHost)
	conn, _, err := zk.Connect([]string{m.clientAddr()}, 20*time.Second, zk.WithDialer(m.c.dialer(writerHost)),
		zk.WithLogger(zkLogger{m.c.journal, "writer"}))
	if err != nil {
		m.c.t.Errorf("connect: %v", err)
		return false
	}
	defer conn.Close()
	created := make(chan error, 1)
	go func() {
		_, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
		created <- err
	}()
	select {
	case err := <-created:
		return err == nil
	case <-time.After(15 * time.Second):
		return false
	}
}

func (m *member) has(path string) (yes bool) {
	m.running().view(func(s *znode.Store) { _, yes = s.Node(path) })
	return yes
}

// wipe has a member lose its disk while it is down.
func (m *member) wipe() {
	m.kill()
	m.disk = blank()
	m.c.witness.replaced(m)
}

// Members 1 and 2 work, and member 3 was never started. Member 1 is down, member 2 has lost its
// disk, and member 3 is started for the first time: the two are no cluster.
func TestLateFirstStartAfterALostDisk(t *testing.T) {
	inDisks(t, directedShape, func(c *cluster) {
		one, two, three := c.members[0], c.members[1], c.members[2]
		one.startWithout(3)
		two.startWithout(3)
		time.Sleep(10 * time.Second)
		if !one.write("/kept") {
			c.t.Error("members 1 and 2 do not work without member 3")
		}
		one.stop()
		two.wipe()
		two.start()
		three.start()
		time.Sleep(time.Minute)
		two.write("/other")
		for _, m := range []*member{two, three} {
			if m.has("/other") {
				c.t.Errorf("m%d has another history", m.id)
			}
		}
		one.start()
		time.Sleep(time.Minute)
		if !one.has("/kept") {
			c.t.Error("member 1 has lost a write")
		}
	})
}

// A write is on members 1 and 2 only. Member 2 loses its disk, and member 1 is cut off: member 3
// and the new disk elect nobody. When member 1 is back, nothing is lost, and the disk is taken in.
func TestReplacedDiskHasNoVote(t *testing.T) {
	inDisks(t, directedShape, func(c *cluster) {
		c.each((*member).start)
		l := c.awaitLeader()
		lost, late := c.others(l)[0], c.others(l)[1]
		c.settled(30 * time.Second)
		late.stop()
		if !l.write("/kept") {
			c.t.Error("a write is not answered though two of three work")
		}
		for _, m := range c.others(l) {
			c.net.Partition(l.name, m.name)
		}
		lost.wipe()
		lost.start()
		late.start()
		time.Sleep(time.Minute)
		late.write("/other")
		c.net.HealAll()
		time.Sleep(10 * time.Second)
		c.settled(30 * time.Second)
		if !late.has("/kept") {
			c.t.Errorf("an answered write is lost")
		}
	})
}

// The disk of a leader hangs for minutes. Another voter takes over.
func TestLeaderWhoseDiskHangs(t *testing.T) {
	inDisks(t, directedShape, func(c *cluster) {
		c.each((*member).start)
		for round := range directedRounds {
			c.settled(30 * time.Second)
			l := c.awaitLeader()
			l.hang(true)
			if !c.others(l)[0].write(fmt.Sprintf("/n%d", round)) {
				c.t.Errorf("no write for 15 s while the disk of m%d hangs, and the other two are well", l.id)
			}
			time.Sleep(2 * time.Minute)
			l.hang(false)
			time.Sleep(10 * time.Second)
		}
	})
}

func (m *member) hang(on bool) {
	m.lock()
	defer m.unlock()
	m.disk.Hang(on)
}

// Two clusters of members 1, 2 and 3 are on one network, and the addresses of both members 3 are
// exchanged for a while. Nobody gets the data of the other cluster.
func TestAddressesOfTwoClustersAreExchanged(t *testing.T) {
	s := directedShape
	s.anyPeerAddr = true // without the other line of defence
	s.snapCount, s.trailing = 10, 1
	inDisks(t, s, func(x *cluster) {
		y := clusterOn(x.t, x.net, "10.0.9.", s, 2, newJournal(x.t.T, ""))
		x.each((*member).start)
		y.each((*member).start)
		x.awaitLeader()
		y.awaitLeader()
		x.members[0].write("/x")
		for i := range 20 {
			x.members[0].write(fmt.Sprintf("/x%d", i))
		}
		y.members[0].write("/y")
		for range 4 { // the terms of the first are ahead
			x.awaitLeader().powerCut()
			x.each((*member).start)
			time.Sleep(10 * time.Second)
		}
		x.settled(30 * time.Second)
		y.settled(30 * time.Second)
		x.redirect.Store(&map[string]string{x.members[2].name: y.members[2].name})
		y.redirect.Store(&map[string]string{y.members[2].name: x.members[2].name})
		for round := range 3 {
			for _, c := range []*cluster{x, y} {
				c.members[2].powerCut()
				c.members[2].start()
			}
			time.Sleep(20 * time.Second)
			x.members[0].write(fmt.Sprintf("/more%d", round))
			time.Sleep(20 * time.Second)
		}
		x.redirect.Store(nil)
		y.redirect.Store(nil)
		for _, c := range []*cluster{x, y} { // connections that are open stay where they lead
			c.each((*member).powerCut)
			c.each((*member).start)
		}
		time.Sleep(20 * time.Second)
		x.settled(30 * time.Second)
		y.settled(30 * time.Second)
		for i := range x.members {
			if m := x.members[i]; !m.has("/x") || m.has("/y") {
				x.t.Errorf("m%d of the first cluster has the data of the other", m.id)
			}
			if m := y.members[i]; !m.has("/y") || m.has("/x") {
				x.t.Errorf("m%d of the second cluster has the data of the other", m.id)
			}
		}
		y.each((*member).stop)
		y.ending.Wait()
	})
}

// The bytes of a log are damaged on each member in turn. The member sets its files aside and gets
// the data from the others.
func TestDamagedDisksAreReplaced(t *testing.T) {
	inDisks(t, directedShape, func(c *cluster) {
		c.each((*member).start)
		c.awaitLeader()
		for round := range 2 * len(c.members) {
			m := c.members[round%len(c.members)]
			c.others(m)[0].write(fmt.Sprintf("/n%d", round))
			c.settled(30 * time.Second)
			m.stop()
			where := m.damage(c.torn)
			m.start()
			time.Sleep(20 * time.Second)
			c.settled(30 * time.Second)
			if !m.has(fmt.Sprintf("/n%d", round)) {
				c.t.Errorf("m%d does not have the data after damage to %s", m.id, where)
			}
		}
		if c.setAside == 0 {
			c.t.Error("no files were set aside")
		}
	})
}

// The newest snapshot of each member in turn is damaged. The member names it, sets its files aside
// and gets the data from the others.
//
// Defends: C1.
func TestDamagedSnapshotsAreReplaced(t *testing.T) {
	s := directedShape
	s.snapCount, s.trailing = 5, 1
	inDisks(t, s, func(c *cluster) {
		c.each((*member).start)
		c.awaitLeader()
		for round := range 2 * len(c.members) {
			m := c.members[round%len(c.members)]
			for i := range 6 {
				c.others(m)[i%2].write(fmt.Sprintf("/n%d-%d", round, i))
			}
			time.Sleep(5 * time.Second)
			c.settled(30 * time.Second)
			m.stop()
			if !m.damageSnapshot(c.torn) {
				c.t.Errorf("m%d has no snapshot", m.id)
			}
			m.start()
			time.Sleep(20 * time.Second)
			c.settled(30 * time.Second)
			if !m.has(fmt.Sprintf("/n%d-5", round)) {
				c.t.Errorf("m%d does not have the data after damage to its snapshot", m.id)
			}
		}
		if c.setAside != 2*len(c.members) {
			c.t.Errorf("files were set aside %d times, snapshots damaged %d times", c.setAside, c.damagedSnapshots)
		}
	})
}
