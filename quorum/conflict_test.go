package quorum

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/rafttest"
	"lockkeeper/quorum/store"
	"lockkeeper/znode"
)

// A follower that has uncommitted entries of its own, up to or beyond the end of the snapshot that
// its leader sends it, takes part again: raft's rule is to discard a log that conflicts with the
// snapshot (hashicorp/raft#697; UPSTREAM.md, 17). The leader
// does not send the same snapshot again and again, and nobody applies what was not committed.
func TestSnapshotInAConflictingLog(t *testing.T) {
	for name, own := range map[string]uint64{"up to its end": 0, "beyond its end": 10} {
		for _, crash := range []bool{false, true} {
			if crash {
				name += ", power cut"
			}
			t.Run(name, func(t *testing.T) {
				inCluster(t, 3, func(cfg *Config) { cfg.TrailingEntries = 1 }, func(t *testing.T, c *cluster) {
					testSnapshotInAConflictingLog(t, c, own, crash)
				})
			})
		}
	}
}

func testSnapshotInAConflictingLog(t *testing.T, c *cluster, own uint64, crash bool) {
	f := c.leader()
	c.recs[f].result(t, c.propose(f, createSession(9)))
	c.agree()
	agreed := c.reps[f].raft.LastIndex()
	c.isolate(f)
	diverge := func(n uint64) {
		for range n {
			c.reps[f].raft.Apply(znode.AppendEntry(nil, c.reps[f].stamp(), [][]byte{createSession(66).Append(nil)}), 0)
		}
		synctest.Wait()
	}
	diverge(1) // before it gives up its leadership
	diverge(own + 2)
	l := c.leader()
	c.recs[l].result(t, c.propose(l, createSession(10)))
	info, err := c.reps[l].TakeSnapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	last := c.reps[f].raft.LastIndex()
	t.Logf("agreed up to %d; the follower has entries up to %d, the snapshot up to %d", agreed, last, info.Index)
	if own == 0 && last != info.Index || own > 0 && last <= info.Index {
		t.Fatal("not the case that is to be tested")
	}
	time.Sleep(time.Minute) // virtual: the leader gives up requests from before the snapshot
	c.heal()
	c.recs[f].await(t, "the snapshot", func() bool { return c.recs[f].restored > 0 })
	if crash {
		c.crash(f)
		c.start(f)
	}
	c.leader()
	c.recs[l].result(t, c.propose(l, createSession(11)))
	began := c.reps[l].measures.SnapshotsSent.Load()
	c.agree()
	for range 3 {
		time.Sleep(10 * time.Second) // virtual
		c.agree()
	}
	if n := c.reps[l].measures.SnapshotsSent.Load(); n > began+1 {
		t.Errorf("the leader has sent %d snapshots in half a minute", n-began)
	}
	if c.knows(f, 66) {
		t.Error("the follower has applied what was never committed")
	}
	c.must(c.reps[f].TransferLeadership(c.ctx(time.Minute), MemberID(f+1), nil))
	c.recs[f].result(t, c.propose(f, createSession(12)))
	other := 3 - f - l
	c.crash(other)
	c.start(other)
	c.crash(f)
	c.start(f)
	c.leader()
	c.agree()
}

// A follower is writing a snapshot of its own when its leader sends a newer one. The end of its own
// does not take the end of its log back (hashicorp/raft#248; UPSTREAM.md, 20).
//
// Defends: C1.
func TestSnapshotBesideAnInstallation(t *testing.T) {
	inCluster(t, 3, func(cfg *Config) { cfg.TrailingEntries = 1 }, func(t *testing.T, c *cluster) {
		l := c.leader()
		f := (l + 1) % 3
		c.recs[f].result(t, c.propose(l, createSession(9)))
		c.isolate(f)
		for i := range uint64(100) {
			c.recs[l].result(t, c.propose(l, sequential(9, i+1, "/n-")))
		}
		if _, err := c.reps[l].TakeSnapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // the leader gives up requests from before the snapshot
		c.disks[f].SetSyncTime(10 * time.Second)
		own := make(chan error, 1)
		go func() {
			_, err := c.reps[f].TakeSnapshot(t.Context())
			own <- err
		}()
		synctest.Wait() // its write has begun
		c.disks[f].SetSyncTime(time.Millisecond)
		c.heal()
		if err := <-own; err != nil {
			t.Fatal(err)
		}
		if c.reps[f].measures.SnapshotsNotTaken.Load() == 0 {
			t.Error("the snapshot of the leader was not refused meanwhile")
		}
		c.recs[f].await(t, "the snapshot of the leader", func() bool { return c.recs[f].restored > 0 })
		time.Sleep(10 * time.Second)
		if got, want := c.reps[f].raft.LastIndex(), c.reps[l].raft.LastIndex(); got != want {
			t.Errorf("the log of the follower ends with %d, the leader's with %d", got, want)
		}
		c.agree()
	})
}

// A follower has compacted its log further than its leader, which does not know that the entries
// have arrived, sends them again. The follower takes the request: it has them in its snapshot
// (UPSTREAM.md, 19).
func TestEntriesOfASnapshotAreSentAgain(t *testing.T) {
	const f = 2
	short := func(cfg *Config) {
		if cfg.ID == f+1 {
			cfg.TrailingEntries = 1
		}
	}
	inCluster(t, 3, short, func(t *testing.T, c *cluster) {
		l := c.leader()
		if l == f {
			c.must(c.reps[f].TransferLeadership(c.ctx(time.Minute), 1, nil))
			l = c.leader()
		}
		c.recs[f].result(t, c.propose(l, createSession(9)))
		for i := range uint64(100) {
			c.recs[f].result(t, c.propose(l, sequential(9, i+1, "/n-")))
		}
		c.must(c.reps[f].raft.Snapshot().Error())
		leader := c.impostor(hostName(l), MemberID(l+1))
		defer leader.Transport.Close()
		for _, restart := range []bool{false, true} {
			if restart {
				c.crash(f)
				c.start(f)
				c.leader()
			}
			last := c.reps[f].raft.LastIndex()
			if first, _, err := store.Bounds(c.reps[f].disk.Log()); err != nil || first+1 < last {
				t.Fatalf("the log of the follower begins with %d and ends with %d: %v", first, last, err)
			}
			for from := last - 30; from <= last; from += 10 {
				request := &raft.AppendEntriesRequest{RPCHeader: rafttest.Header(l + 1), Term: c.reps[l].raft.CurrentTerm(),
					PrevLogEntry: from - 1, LeaderCommitIndex: last}
				request.PrevLogTerm, _ = c.reps[l].entryTerm(from - 1)
				for i := from; i < from+10 && i <= last; i++ {
					var entry raft.Log
					c.must(c.reps[l].disk.GetLog(i, &entry))
					request.Entries = append(request.Entries, &entry)
				}
				var answer raft.AppendEntriesResponse
				err := leader.AppendEntries(c.reps[f].self, "", request, &answer)
				if err != nil { // the stream led to the process before
					err = leader.AppendEntries(c.reps[f].self, "", request, &answer)
				}
				if err != nil || !answer.Success {
					t.Errorf("entries from %d on, of %d, restart %v: %+v, %v", from, last, restart, answer, err)
				}
			}
		}
		c.agree()
	})
}

// A follower that has got a snapshot, and entries behind it, takes the first of those again: the
// leader does not know that they have arrived.
func TestEntriesBehindASnapshotAreSentAgain(t *testing.T) {
	few := func(cfg *Config) { cfg.TrailingEntries = 1 }
	inCluster(t, 3, few, func(t *testing.T, c *cluster) {
		l := c.leader()
		f := (l + 1) % 3
		c.recs[f].result(t, c.propose(l, createSession(9)))
		c.wipe(f)
		for i := range uint64(300) {
			c.recs[l].result(t, c.propose(l, sequential(9, i+1, "/n-")))
		}
		if err := c.reps[l].raft.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
		c.start(f)
		c.takenIn(f)
		c.recs[f].result(t, c.propose(l, sequential(9, 301, "/n-")))
		list, err := c.disks[f].List()
		if err != nil || len(list) == 0 {
			t.Fatal("the follower was sent no snapshot", err)
		}
		end := list[0]
		if first, _, err := store.Bounds(c.reps[f].disk.Log()); err != nil || first != end.Index+1 {
			t.Fatalf("the log begins with %d behind a snapshot that ends with %d: %v", first, end.Index, err)
		}
		leader := c.impostor(hostName(l), MemberID(l+1))
		defer leader.Transport.Close()
		request := &raft.AppendEntriesRequest{RPCHeader: rafttest.Header(l + 1), Term: c.reps[l].raft.CurrentTerm(),
			PrevLogEntry: end.Index, PrevLogTerm: end.Term}
		var answer raft.AppendEntriesResponse
		if err := leader.AppendEntries(c.reps[f].self, "", request, &answer); err != nil || !answer.Success {
			t.Errorf("behind entry %d of term %d: %+v, %v", end.Index, end.Term, answer, err)
		}
	})
}
