package quorum

import (
	"io"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/raftnet"
	"lockkeeper/quorum/store"
)

// above is the replica as the layers below it know it: the stores (store.Owner), the transport and
// the port (raftnet.Local), and raft itself (raft.FSM). They are built before the replica, which is
// built on them. So a call that needs the replica waits until connect; the stores ask nothing of
// the replica before raft runs.
type above struct {
	cfg       *Config
	connected chan struct{} // closed by connect
	r         *Replica      // set before connected is closed
}

var (
	_ store.Owner      = (*above)(nil)
	_ raftnet.Local    = (*above)(nil)
	_ raft.BatchingFSM = (*above)(nil)
)

func newAbove(cfg *Config) *above { return &above{cfg: cfg, connected: make(chan struct{})} }

// connect gives the layers below their replica. It is called once.
func (a *above) connect(r *Replica) {
	a.r = r
	close(a.connected)
}

func (a *above) replica() *Replica {
	<-a.connected
	return a.r
}

// Apply implements raft.FSM.
func (a *above) Apply(l *raft.Log) any { return a.replica().state.Apply(l) }

// ApplyBatch implements raft.BatchingFSM.
func (a *above) ApplyBatch(logs []*raft.Log) []any { return a.replica().state.ApplyBatch(logs) }

// Snapshot implements raft.FSM.
func (a *above) Snapshot() (raft.FSMSnapshot, error) { return a.replica().state.Snapshot() }

// Restore implements raft.FSM.
func (a *above) Restore(from io.ReadCloser) error { return a.replica().state.Restore(from) }

// Servers implements raftnet.Local.
func (a *above) Servers() []raft.Server { return a.replica().Servers() }

// Term implements raftnet.Local.
func (a *above) Term() uint64 {
	a.cfg.Yield()
	return a.replica().raft.CurrentTerm()
}

// Leader implements raftnet.Local.
func (a *above) Leader() raft.ServerID {
	a.cfg.Yield()
	_, id := a.replica().raft.LeaderWithID()
	return id
}

// LastIndex implements raftnet.Local.
func (a *above) LastIndex() uint64 {
	a.cfg.Yield()
	return a.replica().raft.LastIndex()
}

// EntryTerm implements raftnet.Local.
func (a *above) EntryTerm(index uint64) (term uint64, ok bool) { return a.replica().entryTerm(index) }

// AppliedIndex implements raftnet.Local.
func (a *above) AppliedIndex() uint64 { return a.replica().state.reached() }

// PrevTerm implements raftnet.Local. While the library takes an entry that a snapshot has replaced
// for its last one, it compares with that.
func (a *above) PrevTerm(index, term uint64) uint64 {
	if replaced := a.replica().disk.ReplacedTerm(index, term); replaced == term || a.replica().raft.LastIndex() == index {
		return replaced
	}
	return term
}

// AwaitDurable implements raftnet.Local.
func (a *above) AwaitDurable(index uint64, stop <-chan struct{}) error {
	return a.replica().disk.Await(index, stop)
}

// Heard implements raftnet.Local.
func (a *above) Heard(q *raft.AppendEntriesRequest) { a.replica().catchUp.noteCommit(q) }

// ReplicationBegan implements raftnet.Local.
func (a *above) ReplicationBegan(snapshot bool) {
	if snapshot {
		a.replica().measures.SnapshotsSent.Add(1)
	} else {
		a.replica().measures.PipelinesOpened.Add(1)
	}
}

// SnapshotTaken implements raftnet.Local.
func (a *above) SnapshotTaken(err error) { a.replica().catchUp.snapshotTaken(err) }

// SnapshotSent implements raftnet.Local.
func (a *above) SnapshotSent(to MemberID, err error) { a.replica().catchUp.snapshotSent(to, err) }

// Yield implements store.Owner.
func (a *above) Yield() { a.cfg.Yield() }

// WriteFailed implements store.Owner.
func (a *above) WriteFailed(err error) { a.cfg.Fatal(err) }

// ReadFailed implements store.Owner.
func (a *above) ReadFailed(err error) { a.replica().state.poison(err) }

// FlushFailed implements store.Owner. With the next entry that it is to store raft learns that it
// cannot, and leads no longer.
func (a *above) FlushFailed() { a.replica().raft.Barrier(0) }

// MayFlushLater implements store.Owner. Of a leader every commit needs an answer of a follower
// while there is another voter in the configuration that the entries are counted by, and in any
// configuration that is among them. A follower's answer means that the entries are durable.
func (a *above) MayFlushLater(entries []*raft.Log) bool {
	r := a.replica()
	return r.raft.State() == raft.Leader && needsOthers(r.self, r.Servers(), entries)
}

// Written implements store.Owner.
func (a *above) Written(entries []*raft.Log, start time.Time, later bool) {
	r := a.replica()
	m, took := &r.measures, time.Since(start)
	m.Fsync.Observe(int64(took))
	m.FsyncEntries.Observe(int64(len(entries)))
	if limit := a.cfg.SlowFsync; limit > 0 && took >= limit {
		m.SlowFsyncs.Add(1)
		r.trouble.Warn("fsync", "the disk of the log is slow: every update waits for it; "+
			"give dataLogDir a disk of its own, and look at what else uses this one (iostat -x 1)",
			"took", took.Round(time.Millisecond), "limit", limit, "entries", len(entries))
	}
	if last := entries[len(entries)-1]; later && last.Type == raft.LogCommand && r.transport.Wrote(last.Index, last.Term) {
		r.batcher.answerable()
	}
	if term, leads := r.leadership.leadingTerm(); leads && term == entries[0].Term {
		return
	}
	for _, l := range entries {
		if late := start.Round(0).Sub(l.AppendedAt); l.Type == raft.LogCommand && late >= 0 && !l.AppendedAt.IsZero() {
			m.Proposal.Observe(int64(late))
		}
	}
}

// needsOthers reports whether these entries are committed only with another voter's answer.
func needsOthers(self raft.ServerID, servers []raft.Server, entries []*raft.Log) bool {
	onlyVoter := func(servers []raft.Server) bool {
		return !slices.ContainsFunc(servers, func(s raft.Server) bool { return s.Suffrage == raft.Voter && s.ID != self })
	}
	return !onlyVoter(servers) && !slices.ContainsFunc(entries, func(l *raft.Log) bool {
		return l.Type == raft.LogConfiguration && onlyVoter(raft.DecodeConfiguration(l.Data).Servers)
	})
}
