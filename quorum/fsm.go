package quorum

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/mutant"
	"lockkeeper/quorum/store"
	"lockkeeper/znode"
)

// fsm is the raft library's view of the replica. The library calls it from one goroutine.
type fsm struct{ *Replica }

var _ raft.BatchingFSM = fsm{}

// Apply implements raft.FSM.
func (f fsm) Apply(l *raft.Log) any {
	f.ApplyBatch([]*raft.Log{l})
	return nil
}

// ApplyBatch implements raft.BatchingFSM.
//
// Invariant: applying a command, telling the listener and publishing the new state are one critical
// section; a reader is wholly before a command or wholly after it. An entry is one too, unless it
// takes long.
func (f fsm) ApplyBatch(logs []*raft.Log) []any {
	// A deposed leader may still write the entries that its successor has committed.
	if last := logs[len(logs)-1]; f.disk.Lacks(last.Index) {
		if err := f.disk.Flushed(last.Index); err != nil {
			f.poison(fmt.Errorf("quorum: %s: entry %d of term %d is to be applied, and is not on the disk: %w", f.cfg.Stores.LogName, last.Index, last.Term, err))
			return make([]any, len(logs))
		}
	}
	f.batcher.answerable()
	for _, l := range logs {
		f.passedIndex = l.Index
		if l.Type == raft.LogConfiguration {
			f.membersMayDiffer()
		}
		if l.Type != raft.LogCommand {
			continue
		}
		if l.Index <= f.replayedIndex.Load() {
			f.transport.Commit(l.Index, l.Term)
			continue
		}
		entry, err := znode.DecodeEntry(l.Data)
		if err != nil {
			f.poison(fmt.Errorf("quorum: %s: entry %d of term %d: %w", f.cfg.Stores.LogName, l.Index, l.Term, err))
		}
		if f.poisoned.Load() != nil {
			break
		}
		f.mu.Lock()
		start := time.Now()
		f.lockedAt = start
		f.store.Apply(l.Term, entry, f.commandApplied)
		f.appliedIndex = l.Index
		f.grownLocked(len(entry.Commands), len(l.Data))
		f.mu.Unlock()
		f.Replica.applied(l, entry, start)
		f.transport.Commit(l.Index, l.Term)
		f.cfg.Stores.Log.SetCommitIndex(l.Index)
	}
	f.outbox.applied()
	return make([]any, len(logs))
}

// applyCommitted brings the state up to the last entry that is known to be committed. raft begins
// with the snapshot and goes on when a leader sends a commit index, but a member that serves
// without a leader (read-only mode) must not go back in time by that. What raft applies a second
// time is skipped.
//
// The entries behind that one are decoded only. Errors: store.ErrFormat, store.ErrDamaged; they
// name the log.
func (r *Replica) applyCommitted() error {
	newest, err := r.cfg.Stores.Newest()
	if err != nil {
		return err
	}
	from := uint64(0)
	if newest != nil {
		from = newest.Index
	}
	last, err := r.cfg.Stores.Log.LastIndex()
	if err != nil {
		return fmt.Errorf("quorum: read log: %w", err)
	}
	for i := from + 1; i <= last; i++ {
		var l raft.Log
		if err := r.cfg.Stores.Log.GetLog(i, &l); err != nil {
			return fmt.Errorf("quorum: read log: %w", err)
		}
		if l.Type != raft.LogCommand {
			continue
		}
		entry, err := znode.DecodeEntry(l.Data)
		if err != nil {
			return fmt.Errorf("quorum: %s: entry %d of term %d: %w", r.cfg.Stores.LogName, l.Index, l.Term, unreadable(err))
		}
		if i > r.cfg.Stores.Log.CommitIndex() {
			continue
		}
		r.store.Apply(l.Term, entry, func(*znode.Command, *znode.Result) {})
		r.appliedIndex = i
		r.replayedIndex.Store(i)
		r.grownLocked(len(entry.Commands), len(l.Data))
	}
	return nil
}

// poison stops the member: going on without a committed entry would make this replica differ from
// the others. Until it has stopped nothing is applied, and so nothing answered.
func (r *Replica) poison(err error) {
	if r.poisoned.CompareAndSwap(nil, &err) {
		r.measures.Damaged.Add(1)
		r.cfg.Fatal(err)
	}
}

// commandApplied runs after each command, inside the critical section.
func (r *Replica) commandApplied(c *znode.Command, res *znode.Result) {
	r.cfg.Listener.Applied(r.store, c, res)
	if res.Deferred || c.Kind() >= znode.KindMembers && c.Kind() <= znode.KindReconfigured {
		r.membersMayDiffer()
	}
	if res.Status != znode.Gap {
		r.outbox.settle(c.Key())
	} else if r.outbox.gap(c.Key()) {
		r.cfg.Listener.Undeliverable(c.Key())
	}
	if time.Since(r.lockedAt) > lockedMax {
		r.mu.Unlock() // lets waiting readers in
		r.mu.Lock()
		r.lockedAt = time.Now()
	}
}

// lockedMax is after how long readers get their turn between two commands of an entry: many may be
// in one, and a session that ends deletes thousands of nodes.
const lockedMax = 10 * time.Millisecond

// Snapshot implements raft.FSM.
func (f fsm) Snapshot() (raft.FSMSnapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.poisoned.Load(); err != nil {
		return nil, *err
	}
	if f.passedIndex < f.replayedIndex.Load() || f.store.Restoring() {
		// Raft would take this state for an earlier one; or a part of it is in the log only.
		return nil, raft.ErrNothingNewToSnapshot
	}
	f.compaction.restart(f.store.Counts().DataSizeBytes)
	return &snapshot{snap: f.store.Snapshot(), replica: f.Replica}, nil
}

// Restore implements raft.FSM: the leader has sent a snapshot, because what this member lacks is no
// longer in the leader's log.
func (f fsm) Restore(rc io.ReadCloser) error {
	defer rc.Close()
	state, err := znode.Restore(rc)
	if err != nil {
		return fmt.Errorf("quorum: restore snapshot from the leader: %w", err)
	}
	if of, own := state.Cluster(), f.roster.Cluster(); of != 0 && of != own && !mutant.On(mutant.ClustersMix) {
		err := fmt.Errorf("%w: a snapshot of cluster %v was sent to this member of cluster %v", errOtherCluster, of, own)
		f.poison(err)
		return err
	}
	if f.imported && f.appliedIndex == 0 {
		if err := SameHistory(f.store, state); err != nil {
			err = fmt.Errorf("%w (%w)", errForeign, err)
			f.poison(errors.Join(err, f.disk.Stable().SetUint64([]byte(store.Import), importForeign)))
			return err
		}
	}
	c, err := f.disk.RemoveConflict()
	if err != nil {
		return err
	}
	if c != nil {
		f.log.Warn("entries that were never committed are removed: the leader's snapshot contradicts them",
			"first", c.First, "last", c.Last, "term", c.Term)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.useStore(state)
	if end, ok := f.disk.SnapshotEnd(); ok {
		f.appliedIndex = end
	}
	f.clock.set(state.ClockMs())
	f.imported = false
	f.replayedIndex.Store(0)
	f.compaction.restart(f.store.Counts().DataSizeBytes)
	f.newest = savedSnapshot{state.Zxid(), f.cfg.Now()}
	f.cfg.Listener.Restored(state)
	f.membersMayDiffer()
	f.log.Info("state replaced by a snapshot from the leader", "zxid", state.Zxid())
	return nil
}

// useStore makes a state that has been restored this member's.
func (r *Replica) useStore(store *znode.Store) {
	if r.cfg.KeepQuotas {
		store.KeepQuotas()
	}
	r.store = store
}

// snapshot writes one point in time of the state while entries go on being applied.
type snapshot struct {
	snap    *znode.Snapshot
	replica *Replica
}

// Persist implements raft.FSMSnapshot.
func (s *snapshot) Persist(sink raft.SnapshotSink) error {
	start := time.Now()
	n, err := s.snap.WriteTo(sink)
	if err == nil {
		err = sink.Close()
	}
	if err != nil {
		_ = sink.Cancel()
		s.replica.measures.NoSnapshots.Add(1)
		// The log is still complete, so nothing is lost; the next try may succeed.
		s.replica.log.Error("snapshot failed", "err", err)
		return fmt.Errorf("quorum: write snapshot: %w", err)
	}
	s.replica.mu.Lock()
	s.replica.newest = savedSnapshot{s.snap.Zxid(), s.replica.cfg.Now()}
	s.replica.mu.Unlock()
	s.replica.measures.Snapshots.ObserveSince(start)
	s.replica.log.Info("snapshot taken", "id", sink.ID(), "bytes", n, "took", time.Since(start).Round(time.Millisecond))
	return nil
}

// Release implements raft.FSMSnapshot.
func (s *snapshot) Release() {
	s.replica.mu.Lock()
	defer s.replica.mu.Unlock()
	s.snap.Release()
}
