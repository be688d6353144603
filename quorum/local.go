package quorum

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/store"
)

// local is what the peer port and raft's transport know of this member.
type local struct{ *Replica }

var _ peer.Local = local{}

// Term implements peer.Local.
func (l local) Term() uint64 {
	l.cfg.Yield()
	return l.raft.CurrentTerm()
}

// Leader implements peer.Local.
func (l local) Leader() raft.ServerID {
	l.cfg.Yield()
	_, id := l.raft.LeaderWithID()
	return id
}

// Servers implements peer.Local.
func (l local) Servers() []raft.Server { return l.servers() }

// LastIndex implements peer.Local.
func (l local) LastIndex() uint64 {
	l.cfg.Yield()
	return l.raft.LastIndex()
}

// EntryTerm implements peer.Local.
func (l local) EntryTerm(index uint64) (term uint64, ok bool) { return l.entryTerm(index) }

// AppliedIndex implements peer.Local.
func (l local) AppliedIndex() uint64 { return l.state.reached() }

// PrevTerm implements peer.Local. While the library takes an entry that a snapshot has replaced for
// its last one, it compares with that.
func (l local) PrevTerm(index, term uint64) uint64 {
	if replaced := l.disk.ReplacedTerm(index, term); replaced == term || l.raft.LastIndex() == index {
		return replaced
	}
	return term
}

// AwaitDurable implements peer.Local.
func (l local) AwaitDurable(index uint64, stop <-chan struct{}) error {
	return l.disk.Await(index, stop)
}

// Heard implements peer.Local.
func (l local) Heard(q *raft.AppendEntriesRequest) { l.catchUp.heard(q) }

// SnapshotTaken implements peer.Local.
func (l local) SnapshotTaken(err error) { l.catchUp.snapshotTaken(err) }

// SnapshotSent implements peer.Local.
func (l local) SnapshotSent(to MemberID, err error) { l.catchUp.snapshotSent(to, err) }

// owner is what the stores of this member know of it.
type owner struct {
	*Replica
	// running is raft once it runs: the stores are asked before Replica.raft is set.
	running atomic.Pointer[raft.Raft]
}

var _ store.Owner = (*owner)(nil)

// Yield implements store.Owner.
func (o *owner) Yield() { o.cfg.Yield() }

// WriteFailed implements store.Owner.
func (o *owner) WriteFailed(err error) { o.cfg.Fatal(err) }

// ReadFailed implements store.Owner.
func (o *owner) ReadFailed(err error) { o.state.poison(err) }

// FlushFailed implements store.Owner. With the next entry that it is to store raft learns that it
// cannot, and leads no longer.
func (o *owner) FlushFailed() { o.running.Load().Barrier(0) }

// MayFlushLater implements store.Owner. Of a leader every commit needs an answer of a follower
// while there is another voter in the configuration that the entries are counted by, and in any
// configuration that is among them. A follower's answer means that the entries are durable.
func (o *owner) MayFlushLater(entries []*raft.Log) bool {
	if lib := o.running.Load(); lib == nil || lib.State() != raft.Leader {
		return false
	}
	return needsOthers(o.self, o.servers(), entries)
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

// Written implements store.Owner.
func (o *owner) Written(entries []*raft.Log, start time.Time, later bool) {
	now := time.Now()
	m, took := &o.measures, now.Sub(start)
	m.Fsync.Observe(int64(took))
	m.FsyncEntries.Observe(int64(len(entries)))
	if limit := o.cfg.SlowFsync; limit > 0 && took >= limit {
		m.SlowFsyncs.Add(1)
		o.trouble.Warn("fsync", "the disk of the log is slow: every update waits for it; "+
			"give dataLogDir a disk of its own, and look at what else uses this one (iostat -x 1)",
			"took", took.Round(time.Millisecond), "limit", limit, "entries", len(entries))
	}
	if last := entries[len(entries)-1]; later && last.Type == raft.LogCommand && o.transport.Wrote(last.Index, last.Term) {
		o.batcher.answerable()
	}
	if term, leads := o.leadership.leadingTerm(); leads && term == entries[0].Term {
		return
	}
	for _, l := range entries {
		if late := start.Round(0).Sub(l.AppendedAt); l.Type == raft.LogCommand && late >= 0 && !l.AppendedAt.IsZero() {
			m.Proposal.Observe(int64(late))
		}
	}
}
