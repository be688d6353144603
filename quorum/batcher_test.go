package quorum

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// nothing is a state machine without a state.
type nothing struct{}

func (nothing) Apply(*raft.Log) any                 { return nil }
func (nothing) Snapshot() (raft.FSMSnapshot, error) { return nil, errors.New("no snapshots") }
func (nothing) Restore(r io.ReadCloser) error       { return r.Close() }

// An entry that is handed to raft while it shuts down may never be answered by it. Nobody may wait for it for ever.
func TestEntriesEndWithRaft(t *testing.T) {
	for range 20 {
		store, snapshots := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
		addr, transport := raft.NewInmemTransport("")
		c := raft.DefaultConfig()
		c.LocalID, c.Logger, c.BatchApplyCh = "one", hclog.NewNullLogger(), true
		servers := raft.Configuration{Servers: []raft.Server{{ID: c.LocalID, Address: addr}}}
		if err := raft.BootstrapCluster(c, store, store, snapshots, transport, servers); err != nil {
			t.Fatal(err)
		}
		r, err := raft.NewRaft(c, nothing{}, store, store, snapshots, transport)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Shutdown().Error(); err != nil {
			t.Fatal(err)
		}
		down := make(chan struct{})
		f := r.Apply([]byte("late"), 0)
		endWith(f, down)
		answered := make(chan error, 1)
		go func() { answered <- f.Error() }()
		select {
		case <-answered:
			continue // it was refused; the library chooses at random
		case <-time.After(20 * time.Millisecond):
		}
		close(down)
		select {
		case <-answered:
			return
		case <-time.After(10 * time.Second):
			t.Fatal("an entry that raft has left behind does not end")
		}
	}
	t.Error("raft answers everything by now: endWith is needed no more")
}

// Commands that come while an entry is under way gather in the next one. That follows when the first is through, or, if that takes
// long, entrySpacing after it; and no more than entriesInFlight are under way at once.
func TestCommandsGatherWhileAnEntryIsUnderWay(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.recs[l].await(t, "leadership", func() bool { return c.recs[l].leads })
		c.recs[l].result(t, c.propose(l, createSession(9)))
		for _, d := range c.disks {
			d.SetSyncTime(40 * time.Millisecond)
		}
		before := c.reps[l].raft.LastIndex()
		for i := range 100 {
			c.propose(l, sequential(9, uint64(i+1), "/n-"))
			time.Sleep(time.Millisecond / 2)
			want := min(3, 1+uint64(time.Duration(i)*time.Millisecond/entrySpacing))
			if got := c.reps[l].raft.LastIndex() - before; i < 35 && got != want {
				t.Fatalf("%d entries after %d commands in as many milliseconds, want %d", got, i+1, want)
			}
			time.Sleep(time.Millisecond / 2)
		}
		c.recs[l].result(t, c.propose(l, sequential(9, 101, "/n-")))
		if got := c.reps[l].raft.LastIndex() - before; got > 15 {
			t.Errorf("%d entries for 101 commands", got)
		}
	})
}

// Of those whose commands wait when an entry is through, it may have answered none who had asked before a follower could apply it, early as
// that may be (early commit), and all who asked after that. Then more than those that were in it are not waited for.
func TestWhoIsAnsweredEarlyIsNotExpectedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatcher(nil, nil)
		defer b.close()
		b.paused = true
		ask := func(n int) {
			if err := b.submit(t.Context(), make([][]byte, n)); err != nil {
				t.Error(err)
			}
		}
		for round := range 2 {
			ask(2)
			b.answering() // a follower
			ask(3)
			b.answering() // the leader
			if b.asked != 2 {
				t.Errorf("round %d: %d of the 5 commands count as asked for before, want 2", round, b.asked)
			}
			b.mu.Lock()
			b.nextLocked()
			b.mu.Unlock()
		}
	})
}
