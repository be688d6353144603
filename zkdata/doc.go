// Package zkdata reads and writes the files in which ZooKeeper keeps its data: snapshots, in all
// compressions that ZooKeeper has, and transaction logs (docs/protocol/admin.md section 7). Load
// makes of a directory the state that ZooKeeper itself would have after a start on it, and
// WriteSnapshot writes a snapshot that ZooKeeper reads. It is for moving from ZooKeeper to
// lockkeeper and back: a member reads such files once, before its first start.
//
// The package never writes to its input files, has no goroutine, no clock and no network, and knows
// no cluster: which of several directories counts is decided elsewhere. Memory is bounded by the
// size of the state, which Limits bound, and of the largest transaction. A length in a file is
// believed only as far as bytes follow.
//
// Begin with Load (dir.go). It reads the newest valid snapshot (snapshot.go) and applies the
// transactions that follow it (txnlog.go, txn.go) to a State (state.go), as ZooKeeper's DataTree
// does.
//
//	dir.go        Load, List: the files of a server, and the state that a start reads from them
//	snapshot.go   ReadSnapshot, State.WriteSnapshot
//	txnlog.go     LogReader: the records of one transaction log
//	txn.go        Txn: one transaction, and its types
//	state.go      State: sessions and nodes; Apply
//	store.go      State.Store and FromStore: lockkeeper's state of ZooKeeper's, and back
package zkdata
