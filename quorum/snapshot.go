package quorum

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// snapshotRetry is the pause after a snapshot that failed, because the disk is full for example.
const snapshotRetry = time.Minute

// snapshotLoop has a snapshot taken, and the log compacted, when one is due.
func (s *state) snapshotLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.full:
		}
		s.mu.RLock()
		due, keep := s.compaction.due() && !s.store.Restoring(), s.compaction.keep(s.cfg.TrailingBytes)
		s.mu.RUnlock()
		if !due {
			continue // a signal from before the newest one, or during a restore: its end follows
		}
		rc := s.raft.ReloadableConfig()
		rc.TrailingLogs = keep
		err := s.raft.ReloadConfig(rc)
		if err == nil {
			err = s.raft.Snapshot().Error()
		}
		if err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) && !errors.Is(err, raft.ErrRaftShutdown) {
			s.log.Warn("no snapshot taken, the log goes on growing", "err", err)
			sleep(ctx, snapshotRetry)
			s.mu.Lock()
			s.compaction.retry()
			s.fullLocked()
			s.mu.Unlock()
		}
	}
}

// SnapshotInfo is about a snapshot on the disk.
type SnapshotInfo struct {
	Index uint64
	Bytes int64
}

// newestSnapshot returns the newest snapshot, zero if there is none.
func (s *state) newestSnapshot() (info SnapshotInfo, err error) {
	newest, err := s.cfg.Stores.Newest()
	if err == nil && newest != nil {
		info = SnapshotInfo{Index: newest.Index, Bytes: newest.Size}
	}
	return info, err
}

// TakeSnapshot writes a snapshot now, and compacts the log. If nothing has been applied since the
// newest one, that is returned.
func (s *state) TakeSnapshot(ctx context.Context) (SnapshotInfo, error) {
	f := s.raft.Snapshot()
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		if err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
			return SnapshotInfo{}, fmt.Errorf("quorum: take a snapshot: %w", err)
		}
		return s.newestSnapshot()
	case <-ctx.Done():
		return SnapshotInfo{}, fmt.Errorf("quorum: take a snapshot: it goes on, %w", ctx.Err())
	}
}

// LastSnapshot returns the zxid of the newest snapshot on this member's disk, and when it was
// taken; 0 and the zero time if there is none.
func (s *state) LastSnapshot() (wire.Zxid, time.Time) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.newest.zxid, s.newest.at
}

var _ raft.BatchingFSM = (*state)(nil)

// Snapshot implements raft.FSM.
func (s *state) Snapshot() (raft.FSMSnapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.poisoned.Load(); err != nil {
		return nil, *err
	}
	if s.passedIndex < s.replayedIndex.Load() || s.store.Restoring() {
		// Raft would take this state for an earlier one; or a part of it is in the log only.
		return nil, raft.ErrNothingNewToSnapshot
	}
	s.compaction.restart(s.store.Counts().DataSizeBytes)
	return &fsmSnapshot{snap: s.store.Snapshot(), state: s}, nil
}

// fsmSnapshot writes one point in time of the state while entries go on being applied.
type fsmSnapshot struct {
	snap  *znode.Snapshot
	state *state
}

// Persist implements raft.FSMSnapshot.
func (s *fsmSnapshot) Persist(sink raft.SnapshotSink) error {
	start := time.Now()
	n, err := s.snap.WriteTo(sink)
	if err == nil {
		err = sink.Close()
	}
	if err != nil {
		_ = sink.Cancel()
		s.state.measures.NoSnapshots.Add(1)
		// The log is still complete, so nothing is lost; the next try may succeed.
		s.state.log.Error("snapshot failed", "err", err)
		return fmt.Errorf("quorum: write snapshot: %w", err)
	}
	s.state.mu.Lock()
	s.state.newest = savedSnapshot{s.snap.Zxid(), s.state.cfg.Now()}
	s.state.mu.Unlock()
	s.state.measures.Snapshots.ObserveSince(start)
	s.state.log.Info("snapshot taken", "id", sink.ID(), "bytes", n, "took", time.Since(start).Round(time.Millisecond))
	return nil
}

// Release implements raft.FSMSnapshot.
func (s *fsmSnapshot) Release() {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	s.snap.Release()
}
