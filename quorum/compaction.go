package quorum

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// compaction decides when the next snapshot is taken, and how many entries stay in the log behind
// it (the trailing entries).
//
// A snapshot is due when the log has grown by more than a half of what Config says since the newest
// one, and by all of it at most; the limit is drawn anew each time (docs/protocol/admin.md:
// snapCount/2 + random(snapCount/2)). All members apply the same entries: with a fixed limit they
// would write their snapshots at the same moment, and clients would find no member as fast as
// usual.
//
// If Config has no number of commands, the log also grows to at least a half, or with the same
// factor a quarter, of the size of the state: a snapshot of a million nodes costs a member more
// than 100 000 commands do, and a start applies these sooner than it reads the nodes.
type compaction struct {
	// What was applied since the newest snapshot, and the limits: the commands count when there are
	// minBytes of them.
	commands           int
	bytes              int64
	dueCommands        int
	minBytes, dueBytes int64

	maxCommands int
	maxBytes    int64
	byState     bool       // Config has no number of commands
	rng         *rand.Rand // seeded with the member's number: members differ

	trailing []int64 // sizes of the newest entries, a ring
	next     int     // where in the ring the next entry belongs
	known    int     // how many sizes are in it
}

// newCompaction makes one that is to be restarted before it is used.
func newCompaction(cfg *Config) compaction {
	c := compaction{
		maxCommands: cfg.SnapshotCommands,
		maxBytes:    cfg.SnapshotLogBytes,
		byState:     cfg.SnapshotCommands == 0,
		rng:         rand.New(rand.NewPCG(uint64(cfg.ID), 1)),
		trailing:    make([]int64, cfg.TrailingEntries),
	}
	if c.byState {
		c.maxCommands = defaultSnapshotCommands
	}
	return c
}

// restart counts from a snapshot of so many bytes of paths and data.
func (c *compaction) restart(stateBytes int64) {
	part := 1 - c.rng.Float64()/2
	c.commands, c.bytes, c.minBytes = 0, 0, 0
	c.dueCommands = int(math.Ceil(part * float64(c.maxCommands)))
	c.dueBytes = int64(part * float64(c.maxBytes))
	if c.byState {
		c.minBytes = int64(part * float64(stateBytes) / 2)
	}
}

// add counts an entry of so many commands and bytes.
func (c *compaction) add(commands, bytes int) {
	c.commands += commands
	c.bytes += int64(bytes)
	if n := len(c.trailing); n > 0 {
		c.trailing[c.next] = int64(bytes)
		c.next = (c.next + 1) % n
		c.known = min(c.known+1, n)
	}
}

// due reports whether a snapshot is to be taken.
func (c *compaction) due() bool {
	return c.commands >= c.dueCommands && c.bytes >= c.minBytes || c.bytes >= c.dueBytes
}

// retry makes a snapshot due again, after one that failed.
func (c *compaction) retry() { c.bytes = max(c.bytes, c.dueBytes) }

// minTrailing entries stay in any case: with fewer, the uncommitted entries of a deposed leader
// could reach further back than the log of its successor.
const minTrailing = 16

// keep is how many of the newest entries have together at most maxBytes, and at least minTrailing.
// Of entries that are older than those whose sizes are known it assumes that they fit: they were
// kept by the same rule.
func (c *compaction) keep(maxBytes int64) uint64 {
	n := len(c.trailing)
	sum := int64(0)
	for i := range c.known {
		sum += c.trailing[(c.next-1-i+2*n)%n]
		if sum > maxBytes {
			return uint64(max(i, min(minTrailing, n)))
		}
	}
	return uint64(n)
}

// grownLocked records that an entry was applied.
func (s *state) grownLocked(commands, bytes int) {
	s.compaction.add(commands, bytes)
	s.fullLocked()
}

// fullLocked wakes the snapshot loop if a snapshot is due.
func (s *state) fullLocked() {
	if s.compaction.due() {
		signal(s.full)
	}
}

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

// savedSnapshot is the newest snapshot on this member's disk; zero if there is none.
type savedSnapshot struct {
	zxid wire.Zxid
	at   time.Time
}

// LastSnapshot returns the zxid of the newest snapshot on this member's disk, and when it was
// taken; 0 and the zero time if there is none.
func (s *state) LastSnapshot() (wire.Zxid, time.Time) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.newest.zxid, s.newest.at
}

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
	return &snapshot{snap: s.store.Snapshot(), state: s}, nil
}

// snapshot writes one point in time of the state while entries go on being applied.
type snapshot struct {
	snap  *znode.Snapshot
	state *state
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
func (s *snapshot) Release() {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	s.snap.Release()
}
