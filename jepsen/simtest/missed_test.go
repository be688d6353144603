package simtest

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
)

// Scenarios of clients that have missed something, or at members that have. They plant the bug of
// the command line, as the random simulations do.

const (
	missedHost = "10.0.3.3"
	missedPath = "/missed"
	otherPath  = "/other"
)

// missed is a cluster that keeps little of its log, a client of one follower, and one of the leader
// that writes.
type missed struct {
	c              *cluster
	leader, member *member
	reader, writer *zk.Conn
	at             *onlyServer // of the reader
}

// testMissed runs a scenario three times.
func testMissed(t *testing.T, scenario func(*missed)) {
	plant(t)
	seedRuntime(t, scenarioSeed())
	for i := range 3 {
		synctest.Test(t, func(t *testing.T) {
			c := newClusterOf(&recorder{T: t}, shape{voters: 3, tick: time.Second, snapCount: 50, trailing: 5, rest: 1}, uint64(i+1), newJournal(t, ""))
			m := &missed{c: c, leader: c.awaitLeader()}
			m.member = c.members[int(m.leader.id)%len(c.members)]
			m.at = onlyAt(m.member.clientAddr())
			m.reader = m.connect(missedHost, m.at)
			m.writer = m.connect(busyHost, onlyAt(m.leader.clientAddr()))
			for _, path := range []string{missedPath, otherPath} {
				if _, err := m.writer.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
					t.Errorf("create: %v", err)
				}
			}
			scenario(m)
			c.net.HealAll()
			m.reader.Close()
			m.writer.Close()
			c.shutdown()
		})
	}
}

func (m *missed) connect(host string, at *onlyServer) *zk.Conn {
	m.c.net.Host(host)
	conn, events, err := zk.Connect([]string{at.addr.Load().(string)}, 15*time.Second, zk.WithDialer(m.c.dialer(host)), zk.WithHostProvider(at),
		zk.WithLogger(zkLogger{m.c.journal, host}))
	if err != nil {
		m.c.t.Fatalf("connect: %v", err)
	}
	go func() {
		for range events { // or the library drops them with a warning
		}
	}()
	for wait := 0; conn.State() != zk.StateHasSession && wait < 100; wait++ {
		time.Sleep(100 * time.Millisecond)
	}
	return conn
}

// write writes a node n times and returns its last version.
func (m *missed) write(path string, times int) (version int32) {
	for i := range times {
		stat, err := m.writer.Set(path, fmt.Append(nil, i), -1)
		if err != nil {
			m.c.t.Errorf("write: %v", err)
			return version
		}
		version = stat.Version
	}
	return version
}

// sync has the reader see all that was written before.
func (m *missed) sync() {
	if _, err := m.reader.Sync(missedPath); err != nil {
		m.c.t.Errorf("sync: %v", err)
	}
}

// watch sets a watch with the reader; the returned function fails if the watch does not fire in
// time.
func (m *missed) watch() (fires func(what string)) {
	m.sync()
	_, _, events, err := m.reader.GetW(missedPath)
	if err != nil {
		m.c.t.Errorf("watch: %v", err)
	}
	return func(what string) {
		select {
		case ev := <-events:
			if ev.Type != zk.EventNodeDataChanged {
				m.c.t.Errorf("%s: it was told %v (%v) instead of the change", what, ev.Type, ev.Err)
			}
		case <-time.After(20 * time.Second):
			_, stat, err := m.reader.Get(missedPath)
			m.c.t.Errorf("%s: it is told nothing of the change in 20 s; it reads %+v, %v", what, stat, err)
		}
	}
}

// C4: sync on a member that hears late of writes, and a read behind it.
func TestSyncOnMemberThatHearsLate(t *testing.T) {
	testMissed(t, func(m *missed) {
		for late := 50 * time.Millisecond; late <= 350*time.Millisecond; late += 100 * time.Millisecond {
			m.c.net.SetLatency(m.leader.name, m.member.name, late, 0)
			version := m.write(missedPath, 3)
			m.sync()
			if _, stat, err := m.reader.Get(missedPath); err != nil || stat.Version < version {
				m.c.t.Errorf("a read behind a sync, on a member that hears %v late, shows %+v, %v; version %d had been acknowledged before", late, stat, err, version)
			}
		}
		m.c.usualLatency()
	})
}

// C3: a watched node changes while the client has no connection. It is told when it has one again,
// at another member too.
func TestWatchOverLostConnection(t *testing.T) {
	testMissed(t, func(m *missed) {
		for i := range 4 {
			fires := m.watch()
			for _, o := range m.c.members {
				m.c.net.Partition(missedHost, o.name)
				m.c.net.Break(missedHost, o.name)
			}
			m.write(missedPath, 1)
			if i%2 == 0 {
				m.at.addr.Store(m.leader.clientAddr())
			} else {
				m.at.addr.Store(m.member.clientAddr())
			}
			for _, o := range m.c.members {
				m.c.net.Heal(missedHost, o.name)
			}
			fires("a client that connects again")
		}
	})
}

// C3: a watched node changes while the client's member is cut off. The member is then sent a
// snapshot, without the change as such.
func TestWatchOverSnapshot(t *testing.T) {
	testMissed(t, func(m *missed) {
		fires := m.watch()
		m.c.mute(m.member)
		m.c.deafen(m.member)
		m.write(missedPath, 1)
		m.write(otherPath, 200)
		// By then the write is in a snapshot, and not in the log any more.
		time.Sleep(3 * time.Second)
		for _, o := range m.c.others(m.member) {
			m.c.net.Heal(m.member.name, o.name)
		}
		fires("a client of a member that was sent a snapshot")
	})
}

// C1: a client of a follower writes while the leader's disk hangs and the third member hears
// nothing. Then the follower is cut off, and the leader's power fails. The client's answered write
// is there for the two that go on.
//
// Defends: C1.
func TestCommitWaitsForTheLeadersDisk(t *testing.T) {
	testMissed(t, func(m *missed) {
		third := m.c.members[int(m.member.id)%len(m.c.members)]
		m.sync()
		m.c.net.Partition(m.leader.name, third.name)
		m.leader.paceDisk(time.Minute)
		var stat *zk.Stat
		var err error
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			stat, err = m.reader.Set(missedPath, []byte("kept"), -1)
		}()
		select {
		case <-answered:
			if err == nil {
				m.c.t.Errorf("version %d is acknowledged while one disk has it", stat.Version)
			}
		case <-time.After(2 * time.Second):
		}
		m.c.mute(m.member)
		m.c.deafen(m.member)
		m.leader.powerCut()
		m.leader.paceDisk(syncTime)
		m.c.net.Heal(m.leader.name, third.name)
		m.leader.start()
		m.at.addr.Store(third.clientAddr())
		m.c.net.Break(missedHost, m.member.name)
		<-answered
		if err != nil {
			return // it was told nothing
		}
		var now *zk.Stat
		for wait := 0; wait < 600; wait++ { // a minute, in which the two elect a leader
			if _, err = m.reader.Sync(missedPath); err == nil {
				if _, now, err = m.reader.Get(missedPath); err == nil {
					break
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
		if err != nil || now.Version < stat.Version {
			m.c.t.Errorf("version %d had been acknowledged; now it is %+v, %v", stat.Version, now, err)
		}
	})
}

// awaitSnapshot waits until the leader begins to send the member a snapshot, after this call.
func (m *missed) awaitSnapshot() {
	sent := &m.leader.running().Replica().Measures().SnapshotsSent
	before := sent.Load()
	for wait := 0; sent.Load() == before && wait < 6000; wait++ { // a minute
		time.Sleep(10 * time.Millisecond)
	}
	if sent.Load() == before {
		m.c.t.Errorf("the leader sends no snapshot")
	}
}

// C1: a leader sends a member a snapshot, and gives up when no answer comes. A newer one takes the
// member further, over the next connection. Then the rest of the first arrives, which the network
// had held back.
func TestSnapshotIsHeldBack(t *testing.T) {
	const (
		held   = 20 * time.Second       // longer than the leader waits for an answer
		answer = 400 * time.Millisecond // from the member
	)
	testMissed(t, func(m *missed) {
		over := make(chan struct{})
		defer close(over)
		go m.c.watchProgress(over)
		m.c.mute(m.member)
		m.c.deafen(m.member)
		m.write(otherPath, 200)
		time.Sleep(3 * time.Second) // until the entries are in a snapshot only
		m.c.net.SetLatency(m.member.name, m.leader.name, answer, 0)
		for _, o := range m.c.others(m.member) {
			m.c.net.Heal(m.member.name, o.name)
		}
		m.awaitSnapshot()
		// A connection takes two answers, one to TCP and one to its first bytes.
		time.Sleep(answer + answer/2)
		m.c.net.SetLatency(m.leader.name, m.member.name, held, 0)
		arrives := time.Now().Add(answer/2 + held)
		time.Sleep(held / 3)
		m.c.net.SetLatency(m.leader.name, m.member.name, time.Millisecond, 0)
		m.write(otherPath, 10)
		time.Sleep(time.Until(arrives) - time.Second)
		// A change back stays until it is seen.
		m.c.net.SetLatency(m.leader.name, m.member.name, 2*time.Second, 0)
		time.Sleep(4 * time.Second)
	})
}
