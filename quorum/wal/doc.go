// Package wal is a write-ahead log in segment files, the raft.LogStore of a member with
// logStore=wal. It promises that entries are durable when StoreLogs returns, and that Open returns
// all of them, or an error that names the damaged file; Open removes the torn end of a write that a
// crash interrupted. The package never knows of replicas, terms or votes, starts no goroutine but
// the timer of the watermark, and touches no file other than through [FS], which tests and the
// simulator replace. Begin reading with [Log.StoreLogs] in log.go; segment.go has the format of the
// files, recovery.go the checks of a start.
package wal
