package quorum

import (
	"sync/atomic"

	"lockkeeper/internal/histogram"
)

// Measures are what a Replica counts and times since its start, or since Reset. Durations are in
// nanoseconds. All of it may be read at any time.
type Measures struct {
	Fsync        histogram.Histogram // of a write to the log with its fsync
	FsyncEntries histogram.Histogram // entries in such a write
	SlowFsyncs   atomic.Int64        // of these writes, those that took Config.SlowFsync or longer
	Apply        histogram.Histogram // of an entry to the state, watches and replies included
	Snapshots    histogram.Histogram // of a snapshot, until it was durable
	NoSnapshots  atomic.Int64        // snapshots that failed

	Election histogram.Histogram // without a leader, until there was one
	Looking  atomic.Int64        // times that this member began to be without a leader
	// HandOvers counts the times that this leader had another voter stand, because its disk hung.
	HandOvers atomic.Int64
	// DisksReplaced counts the disks of members that this leader has begun to replace.
	DisksReplaced atomic.Int64

	// Of the entries that this member has proposed, as the leader.
	Queued          histogram.Histogram // commands that waited when an entry was made
	EntryCommands   histogram.Histogram
	EntryBytes      histogram.Histogram
	LastEntryBytes  atomic.Int64
	QuorumAck       histogram.Histogram // from raft's taking an entry until it was committed
	Proposals       atomic.Int64        // commands in them
	Commits         atomic.Int64        // commands committed
	SnapshotsSent   atomic.Int64        // to members whose next entry was no longer in the log
	PipelinesOpened atomic.Int64        // times that a member began to be sent entries of the log
	// SnapshotsNotDelivered counts those of SnapshotsSent that the member did not take.
	SnapshotsNotDelivered atomic.Int64

	SnapshotsNotTaken atomic.Int64 // that a leader has sent this member

	// These compare the wall clocks of the leader and of this member. What is negative is left out.
	Proposal    histogram.Histogram // of a follower: until an entry was here
	Propagation histogram.Histogram // until an entry was applied here

	Damaged atomic.Int64 // committed entries that could not be applied: the first stops the member
}

// Reset sets all to zero, except for Damaged.
func (m *Measures) Reset() {
	for _, h := range []*histogram.Histogram{&m.Fsync, &m.FsyncEntries, &m.Apply, &m.Snapshots, &m.Election, &m.Queued,
		&m.EntryCommands, &m.EntryBytes, &m.QuorumAck, &m.Proposal, &m.Propagation} {
		h.Reset()
	}
	for _, n := range []*atomic.Int64{&m.SlowFsyncs, &m.NoSnapshots, &m.Looking, &m.HandOvers, &m.DisksReplaced,
		&m.LastEntryBytes, &m.Proposals, &m.Commits, &m.SnapshotsSent, &m.PipelinesOpened, &m.SnapshotsNotDelivered,
		&m.SnapshotsNotTaken} {
		n.Store(0)
	}
}

// proposing counts an entry that is about to be proposed, when so many commands waited.
func (m *Measures) proposing(waiting, commands, bytes int) {
	m.Queued.Observe(int64(waiting))
	m.EntryCommands.Observe(int64(commands))
	m.EntryBytes.Observe(int64(bytes))
	m.LastEntryBytes.Store(int64(bytes))
	m.Proposals.Add(int64(commands))
}
