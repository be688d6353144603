package quorum

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/store"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// state is the replicated state of this member: the applied entries, snapshots, waits for an index.
type state struct {
	*engine
	leadership *leadership
	batcher    *batcher
	outbox     *outbox

	full chan struct{} // capacity 1: the log has grown enough for a snapshot
	// snapshotting is full while a snapshot is being written, or a leader's installed: raft's index
	// of the newest one could fall otherwise (UPSTREAM.md, 20). Capacity 1.
	snapshotting chan struct{}
	changed      chan struct{} // capacity 1: the members may have changed

	replayedIndex atomic.Uint64         // the log was applied up to here before raft was started
	poisoned      atomic.Pointer[error] // why no entry can be applied any more
	passedIndex   uint64                // the newest entry that raft has passed to ApplyBatch

	// Lock: mu is taken before any lock of the listener, and before the outbox's.
	mu       sync.RWMutex
	lockedAt time.Time // when ApplyBatch took mu
	content
}

// content is the state, and where in the log it is. Lock: state.mu.
type content struct {
	store        *znode.Store
	imported     bool // the state is the imported one, and nothing came after
	appliedIndex uint64
	compaction   compaction
	newest       savedSnapshot
}

// savedSnapshot is the newest snapshot on this member's disk; zero if there is none.
type savedSnapshot struct {
	zxid wire.Zxid
	at   time.Time
}

// newState makes the state that was loaded the replicated one.
func newState(e *engine, l *leadership, b *batcher, o *outbox, from loaded) *state {
	s := &state{engine: e, leadership: l, batcher: b, outbox: o, full: make(chan struct{}, 1),
		snapshotting: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		content: from.content}
	s.replayedIndex.Store(from.appliedIndex)
	s.clock.set(s.store.ClockMs())
	s.fullLocked()
	return s
}

// loaded is what a member reads from its stores before raft runs.
type loaded struct {
	content
	brought peer.Imported // the import of a blank disk; zero: none
}

// load reads the state that is known to be committed. Errors: store.ErrFormat, store.ErrDamaged;
// they name the file.
func load(cfg *Config) (from loaded, err error) {
	stores := &cfg.Stores
	saved, newest, err := loadSnapshot(stores)
	if err != nil {
		return from, err
	}
	from.compaction = newCompaction(cfg)
	from.useStore(saved, cfg.KeepQuotas)
	if from.imported, err = isImport(stores, newest); err != nil {
		return from, fmt.Errorf("quorum: %w", err)
	}
	if from.imported {
		from.brought = peer.Imported{StateTerm: newest.Term, Index: newest.Index, Digest: saved.Digest()}
	}
	from.newest = savedSnapshot{saved.Zxid(), newest.At}
	from.compaction.restart(saved.Counts().DataSizeBytes)
	c, err := stores.DiscardConflict()
	if err != nil {
		return from, err
	}
	if c != nil {
		cfg.Logger.Warn("the log is discarded: a snapshot from a leader contradicts it, so its end was never committed",
			"first", c.First, "last", c.Last, "snapshot", c.Snapshot)
	}
	err = from.applyCommitted(stores, newest.Index+1)
	return from, err
}

// View is Replica.View.
func (s *state) View(f func(*znode.Store)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if observe := s.cfg.ObserveView; observe != nil {
		observe(func() { f(s.store) })
		return
	}
	f(s.store)
}

// Members is Replica.Members.
func (s *state) Members() ([]znode.Member, wire.Zxid) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.store.Members()
}

// change returns the members as Members does, and the change under way; nil: there is none.
func (s *state) change() (members []znode.Member, version wire.Zxid, change *znode.Change) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	members, version = s.store.Members()
	return members, version, s.store.Change()
}

// applied is the index of the newest entry that is in the state.
func (s *state) applied() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.appliedIndex
}

// reached is the index up to which everything has been applied or passed over, since the start too.
func (s *state) reached() uint64 { return max(s.raft.AppliedIndex(), s.replayedIndex.Load()) }

// hasApplied reports whether everything up to index is in the state of this member.
func (s *state) hasApplied(index uint64) bool {
	applied := s.applied()
	if applied >= index {
		return true
	}
	if s.raft.AppliedIndex() < index {
		return false
	}
	// The library has passed it on; commands may wait for their turn to be applied.
	for i := index; i > applied; i-- {
		var l raft.Log
		switch err := s.disk.GetLog(i, &l); {
		case errors.Is(err, raft.ErrLogNotFound):
			return true // it is in a snapshot
		case err != nil || l.Type == raft.LogCommand:
			return false
		}
	}
	return true
}

// lead tells the listener that this member leads. Everything from before its term is applied.
func (s *state) lead() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg.Listener.Lead(s.store)
	if s.imported {
		// The newest snapshot may be the imported one, which only the founder has written again
		// with the configuration: nobody takes it without.
		s.compaction.retry()
		s.fullLocked()
	}
}

// membersMayDiffer makes the change loop look.
func (s *state) membersMayDiffer() { signal(s.changed) }

// Apply implements raft.FSM.
func (s *state) Apply(l *raft.Log) any {
	s.ApplyBatch([]*raft.Log{l})
	return nil
}

// ApplyBatch implements raft.BatchingFSM.
//
// Invariant: applying a command, telling the listener and publishing the new state are one critical
// section; a reader is wholly before a command or wholly after it. An entry is one too, unless it
// takes long.
func (s *state) ApplyBatch(logs []*raft.Log) []any {
	// A deposed leader may still write the entries that its successor has committed.
	if last := logs[len(logs)-1]; s.disk.Lacks(last.Index) {
		if err := s.disk.Flushed(last.Index); err != nil {
			s.poison(fmt.Errorf("quorum: %s: entry %d of term %d is to be applied, and is not on the disk: %w",
				s.cfg.Stores.LogName, last.Index, last.Term, err))
			return make([]any, len(logs))
		}
	}
	s.batcher.answerable()
	for _, l := range logs {
		s.passedIndex = l.Index
		if l.Type == raft.LogConfiguration {
			s.membersMayDiffer()
		}
		if l.Type != raft.LogCommand {
			continue
		}
		if l.Index <= s.replayedIndex.Load() {
			s.transport.Commit(l.Index, l.Term)
			continue
		}
		entry, err := decodeEntry(&s.cfg.Stores, l)
		if err != nil {
			s.poison(err)
		}
		if s.poisoned.Load() != nil {
			break
		}
		s.mu.Lock()
		start := time.Now()
		s.lockedAt = start
		s.store.Apply(l.Term, entry, s.commandApplied)
		s.appliedIndex = l.Index
		s.grownLocked(len(entry.Commands), len(l.Data))
		s.mu.Unlock()
		s.observe(l, entry, start)
		s.transport.Commit(l.Index, l.Term)
		s.cfg.Stores.Log.SetCommitIndex(l.Index)
	}
	s.outbox.applied()
	return make([]any, len(logs))
}

// slowApply is how long an entry may take to be applied without a warning. Readers get their turn
// in between (lockedMax).
const slowApply = 500 * time.Millisecond

// observe records that an entry has been applied, which began at start.
func (s *state) observe(l *raft.Log, entry *znode.Entry, start time.Time) {
	now := time.Now()
	m, took := &s.measures, now.Sub(start)
	m.Apply.Observe(int64(took))
	if took >= slowApply {
		s.trouble.Warn("apply", "an entry took long to apply, and what follows it waited: this machine is "+
			"overloaded, or sessions "+
			"with many ephemeral nodes or nodes with many watches have ended (mntr: watch_count, ephemerals_count)",
			"took", took.Round(time.Millisecond), "limit", slowApply, "commands", len(entry.Commands), "index", l.Index)
	}
	_, leads := s.leadership.leadingTerm()
	s.clock.applied(entry.ClockMs, leads)
	if late := s.cfg.Now().UnixMilli() - entry.TimeMs; late >= 0 {
		m.Propagation.Observe(late * int64(time.Millisecond))
	}
	if term, leads := s.leadership.leadingTerm(); leads && term == l.Term {
		m.Commits.Add(int64(len(entry.Commands)))
		if !l.AppendedAt.IsZero() {
			m.QuorumAck.Observe(int64(start.Sub(l.AppendedAt)))
		}
	}
}

// commandApplied runs after each command, inside the critical section.
func (s *state) commandApplied(c *znode.Command, res *znode.Result) {
	s.cfg.Listener.Applied(s.store, c, res)
	if res.Deferred || c.Kind() >= znode.KindMembers && c.Kind() <= znode.KindReconfigured {
		s.membersMayDiffer()
	}
	if res.Status != znode.Gap {
		s.outbox.settle(c.Key())
	} else if s.outbox.gap(c.Key()) {
		s.cfg.Listener.Undeliverable(c.Key())
	}
	if time.Since(s.lockedAt) > lockedMax {
		s.mu.Unlock() // lets waiting readers in
		s.mu.Lock()
		s.lockedAt = time.Now()
	}
}

// lockedMax is after how long readers get their turn between two commands of an entry: many may be
// in one, and a session that ends deletes thousands of nodes.
const lockedMax = 10 * time.Millisecond

// applyCommitted brings the state from the entry from on up to the last one that is known to be
// committed. raft begins with the snapshot and goes on when a leader sends a commit index, but a
// member that serves without a leader (read-only mode) must not go back in time by that. Entries
// that raft applies a second time are skipped.
//
// The entries behind that one are decoded only. Errors: store.ErrFormat, store.ErrDamaged; they
// name the log.
func (c *content) applyCommitted(stores *store.Stores, from uint64) error {
	return eachLog(stores, from, func(l *raft.Log) error {
		if l.Type != raft.LogCommand {
			return nil
		}
		entry, err := decodeEntry(stores, l)
		if err != nil || l.Index > stores.Log.CommitIndex() {
			return err
		}
		c.store.Apply(l.Term, entry, func(*znode.Command, *znode.Result) {})
		c.appliedIndex = l.Index
		c.compaction.add(len(entry.Commands), len(l.Data))
		return nil
	})
}

// poison stops the member: going on without a committed entry would make this replica differ from
// the others. Until it has stopped nothing is applied, and so nothing answered.
func (s *state) poison(err error) {
	if s.poisoned.CompareAndSwap(nil, &err) {
		s.measures.Damaged.Add(1)
		s.cfg.Listener.Failed(err)
	}
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

// Restore implements raft.FSM: the leader has sent a snapshot, because the next entry of this
// member is no longer in the leader's log.
func (s *state) Restore(rc io.ReadCloser) error {
	defer rc.Close()
	state, err := znode.Restore(rc)
	if err != nil {
		return fmt.Errorf("quorum: restore snapshot from the leader: %w", err)
	}
	if of, own := state.Cluster(), s.roster.Cluster(); of != 0 && of != own {
		err := fmt.Errorf("%w: a snapshot of cluster %v was sent to this member of cluster %v", errOtherCluster, of,
			own)
		s.poison(err)
		return err
	}
	if s.imported && s.appliedIndex == 0 {
		if err := SameHistory(s.store, state); err != nil {
			err = fmt.Errorf("%w (%w)", errForeign, err)
			s.poison(errors.Join(err, s.disk.Stable().SetUint64([]byte(store.Import), importForeign)))
			return err
		}
	}
	c, err := s.disk.RemoveConflict()
	if err != nil {
		return err
	}
	if c != nil {
		s.log.Warn("entries that were never committed are removed: the leader's snapshot contradicts them",
			"first", c.First, "last", c.Last, "term", c.Term)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.useStore(state, s.cfg.KeepQuotas)
	if end, _ := s.disk.LastIncluded(); end > 0 {
		s.appliedIndex = end
	}
	s.clock.set(state.ClockMs())
	s.imported = false
	s.replayedIndex.Store(0)
	s.compaction.restart(s.store.Counts().DataSizeBytes)
	s.newest = savedSnapshot{state.Zxid(), s.cfg.Now()}
	s.cfg.Listener.Restored(state)
	s.membersMayDiffer()
	s.log.Info("state replaced by a snapshot from the leader", "zxid", state.Zxid())
	return nil
}

// useStore makes a state that has been restored this member's.
func (c *content) useStore(store *znode.Store, keepQuotas bool) {
	if keepQuotas {
		store.KeepQuotas()
	}
	c.store = store
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
			err = s.takeSnapshot(ctx)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) &&
			!errors.Is(err, raft.ErrRaftShutdown) {
			s.log.Warn("no snapshot taken, the log goes on growing", "err", err)
			sleep(ctx, snapshotRetry)
			s.mu.Lock()
			s.compaction.retry()
			s.fullLocked()
			s.mu.Unlock()
		}
	}
}

// takeSnapshot has a snapshot taken, behind one that is being written or installed. It goes on when
// ctx ends. Errors: those of ctx and of the library.
func (s *state) takeSnapshot(ctx context.Context) error {
	select {
	case s.snapshotting <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("another one is being written or installed, %w", ctx.Err())
	}
	done := make(chan error, 1)
	s.futures.Go(func() {
		f := s.raft.Snapshot()
		endWith(f, s.down)
		err := f.Error()
		<-s.snapshotting
		done <- err
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("it goes on, %w", ctx.Err())
	}
}

// beginInstall is raftnet.Local.BeginInstall.
func (s *state) beginInstall(limit time.Duration, stop <-chan struct{}) (end func(), ok bool) {
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case s.snapshotting <- struct{}{}:
		return func() { <-s.snapshotting }, true
	case <-late.C:
	case <-stop:
	}
	return nil, false
}

// SnapshotInfo is about a snapshot on the disk.
type SnapshotInfo struct {
	Index uint64
	Bytes int64
}

// newestSnapshot is Replica.Snapshot.
func (s *state) newestSnapshot() (info SnapshotInfo, err error) {
	newest, err := s.cfg.Stores.Newest()
	if err == nil && newest != nil {
		info = SnapshotInfo{Index: newest.Index, Bytes: newest.Size}
	}
	return info, err
}

// TakeSnapshot is Replica.TakeSnapshot.
func (s *state) TakeSnapshot(ctx context.Context) (SnapshotInfo, error) {
	err := s.takeSnapshot(ctx)
	if err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return SnapshotInfo{}, fmt.Errorf("quorum: take a snapshot: %w", err)
	}
	return s.newestSnapshot()
}

// LastSnapshot is Replica.LastSnapshot.
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
	n, err := s.snap.WriteTo(&pacedWriter{w: sink, since: start})
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

// pacedBytes is how much a pacedWriter writes at a time. A snapshot file waits for the disk after
// as much (store's writeBackBytes).
const pacedBytes = 1 << 20

// pacedWriter rests after each pacedBytes for as long as it took to make and write them. A snapshot
// of a million nodes is half a second of work for a processor and the disk; without rests, an
// update has to wait for its turn at each step of its way through the member meanwhile.
type pacedWriter struct {
	w       io.Writer
	since   time.Time // the end of the newest rest
	written int       // bytes since then
}

// Write implements io.Writer.
func (p *pacedWriter) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	if p.written += n; p.written >= pacedBytes {
		time.Sleep(time.Since(p.since))
		p.since, p.written = time.Now(), 0
	}
	return n, err
}

// Release implements raft.FSMSnapshot.
func (s *fsmSnapshot) Release() {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	s.snap.Release()
}

// Freeze is Replica.Freeze.
func (s *state) Freeze() *LiveSnapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &LiveSnapshot{Snapshot: s.store.Snapshot(), state: s}
}

// LiveSnapshot is the state of a replica at one moment. While it is held, changed nodes take their
// memory twice.
type LiveSnapshot struct {
	*znode.Snapshot
	state *state
}

// Release gives the snapshot up.
func (s *LiveSnapshot) Release() {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	s.Snapshot.Release()
}
