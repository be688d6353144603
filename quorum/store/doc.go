// Package store is the disk of a member: its log, its stable values (term, vote, identity) and its
// snapshots. It knows no other member and no leader, and never looks into an entry or a state. Open
// opens the stores and verifies all that they hold; NewRaftStore puts the layers on top of them
// that raft gets:
//
//	raft (main goroutine, one goroutine per follower, one that applies, one that takes snapshots)
//	  |  raft.LogStore                  |  raft.StableStore        |  raft.SnapshotStore
//	reads        a failed read stops    |                          |
//	LogCache     the newest entries     |                          |
//	backlog      a leader's disk writes |                          |
//	  |          while followers' do    |                          |
//	guard ------ a failed write stops; a term never falls          |
//	  |                                 |                          |
//	Log: wal.Log or boltLog             Stable: boltFile           snapshotFiles
//	  |                                 |                          |
//	raft.wal/                           raft.db                    snapshots/
//
//	stores.go     Stores: Open, OpenOn; the checks between the three
//	raftstore.go  RaftStore, the layers; Owner, the replica above them
//	values.go     the values of a member in the stable store; stable.go: term and vote
//	backlog.go    entries that are not durable yet; guard.go: failed writes and reads
//	log.go        the two kinds of log, convert.go: from one to the other
//	boltlog.go    a log in raft.db; boltfile.go: the file; boltpages.go: its pages
//	snapshots.go  snapshots in folders; conflict.go: one that contradicts the log
//
// # Promises
//
// StoreLogs of the log, Set of the stable store and Close of a snapshot return when their bytes are
// durable; the backlog returns earlier, with the permission of its Owner, and then Await says when.
// After a write that failed nothing is written any more. Open returns everything that was promised,
// or an error that names the file: ErrDamaged, ErrFormat (written by another version), ErrInUse,
// ErrLogKind. A write that a crash has cut short leaves nothing behind.
//
// # Goroutines
//
// RaftStore starts one, the flush loop, which writes the entries of the backlog until Close. A log
// writes its watermark from a timer. Everything else runs in the callers' goroutines; Owner names
// the goroutine of each of its calls. Stores that no member runs on are used by one goroutine.
//
// Lock: the locks of the backlog and of the guard are leaves; no call to the Owner is made under
// them, except Yield under none and WriteFailed under the guard's when a term or a vote is refused.
package store
