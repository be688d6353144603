// Package datadir owns the data directories of a member: dataDir and dataLogDir of its Config.
//
//	lockkeeper.lock   locked while a process uses the directory
//	myid, initialize  files of the operator
//	raft.db raft.wal/ snapshots/   the stores of package quorum
//	aside-TIME/       stores that were set aside: damaged, or outdated
//	version-2/        ZooKeeper's files
//
// [Open] creates, locks and checks them for a start; [Lock] only locks them. [SetAside] moves the
// stores of a lost disk away, [AwaitRoom] waits for a full disk, and [Advice] says how an operator
// repairs files that cannot be used. The package opens no store: packages server and offline do.
package datadir
