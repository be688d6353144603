package quorum

import (
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/simdisk"
)

// A leader whose connections have broken, and that accepts new ones, goes on leading.
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

// A member alone waits for nobody: the disk is all that its first election, and every later one,
// takes. A slow disk does not make it begin again.
func TestMemberAloneLeadsAtOnce(t *testing.T) {
	for _, syncTime := range []time.Duration{0, 100 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			disk := simdisk.New()
			disk.SetSyncTime(syncTime)
			for start := range uint64(2) {
				began, written := time.Now(), disk.Writes()
				rec := newRecorder()
				r, err := Open(Config{ID: 1, Members: []Member{{ID: 1}}, Stores: simStores(t, disk),
					Listener: rec, Logger: testLogger()})
				if err != nil {
					t.Fatal(err)
				}
				rec.await(t, "leadership", func() bool { return rec.leads })
				if took, writing := time.Since(began), time.Duration(disk.Writes()-written)*syncTime; took > writing {
					t.Errorf("start %d with syncs of %v: it leads after %v, of which %v were for the disk", start, syncTime, took, writing)
				}
				// The first configuration is of term 1.
				if term := r.raft.CurrentTerm(); term != 2+start {
					t.Errorf("start %d with syncs of %v: it leads in term %d", start, syncTime, term)
				}
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// The voters of a leader that has died do not get into each other's way, though an election takes
// longer than they wait for each other: a voter that has voted for another does not stand. It takes
// eight writes one after the other, three of them before the first message.
func TestSuccessorsDoNotDisturbEachOther(t *testing.T) {
	for syncTime := time.Millisecond; 3*syncTime < successionStep; syncTime += time.Millisecond {
		inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
			l := c.leader()
			c.recs[l].await(t, "leadership", func() bool { return c.recs[l].leads })
			c.recs[l].result(t, c.propose(l, createSession(9)))
			time.Sleep(time.Second)
			for _, d := range c.disks {
				d.SetSyncTime(syncTime)
			}
			began := time.Now()
			c.net.Kill(hostName(l))
			c.stop(l)
			next := c.leader()
			c.recs[next].await(t, "leadership", func() bool { return c.recs[next].leads })
			if took := time.Since(began); took > 20*time.Millisecond+9*syncTime {
				t.Errorf("with syncs of %v the next one leads after %v", syncTime, took)
			}
		})
	}
}
