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

// An entry that is handed to raft while it shuts down may never be answered by it. Nobody may wait
// for it for ever.
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

// Commands that arrive while an entry is in flight share the next one. That is proposed when the
// first completes, or after entryMaxWait; no more than entriesInFlight are in flight at once.
func TestCommandsShareTheNextEntry(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.recs[l].await(t, "leadership", func() bool { return c.recs[l].leads })
		c.recs[l].result(t, c.propose(l, createSession(9)))
		time.Sleep(time.Second) // virtual; by now the members and the cluster are in the state
		for _, d := range c.disks {
			d.SetSyncTime(40 * time.Millisecond)
		}
		before := c.reps[l].raft.LastIndex()
		for i := range 100 {
			c.propose(l, sequential(9, uint64(i+1), "/n-"))
			time.Sleep(time.Millisecond / 2)
			want := min(3, 1+uint64(time.Duration(i)*time.Millisecond/entryMaxWait))
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

// A full entry is proposed at once, and no entry has more than entryMaxCommands.
func TestFullEntriesDoNotWait(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.recs[l].await(t, "leadership", func() bool { return c.recs[l].leads })
		c.recs[l].result(t, c.propose(l, createSession(9)))
		for _, d := range c.disks {
			d.SetSyncTime(40 * time.Millisecond)
		}
		before := c.reps[l].raft.LastIndex()
		for i := range 2 * entryMaxCommands {
			c.propose(l, sequential(9, uint64(i+1), "/n-"))
		}
		synctest.Wait() // no time has passed
		if got := c.reps[l].raft.LastIndex() - before; got != 2 {
			t.Errorf("%d entries for one command and %d more at the same moment, want 2", got, 2*entryMaxCommands-1)
		}
		c.recs[l].result(t, c.propose(l, sequential(9, 2*entryMaxCommands+1, "/n-")))
		if got := c.reps[l].raft.LastIndex() - before; got != 3 {
			t.Errorf("%d entries in all, want 3", got)
		}
	})
}
