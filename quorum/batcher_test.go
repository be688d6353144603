package quorum

import (
	"errors"
	"io"
	"testing"
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
