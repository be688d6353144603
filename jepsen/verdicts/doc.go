// Package verdicts compares the verdict of package locknode, on who holds a lock, with the
// libraries that take it. It has tests only.
//
// The tests make some hundred random directories on a server: nodes of one library's lock with
// numbers in any order, and nodes beside them that do not contend, or not for that library. Then
// they ask the library of each of its nodes whether it gets the lock: Curator's drivers of
// InterProcessMutex, InterProcessReadWriteLock and LeaderLatch, kazoo's Lock, WriteLock and
// ReadLock (testdata), and a new contender of package recipes. They compare with Session.Contenders
// of the directory.
//
// # The programs' protocol
//
// The programs read a line "ASK PATH NODE" for each question, where ASK is the kind of lock, and
// answer it with "in" or "waits". They end with their standard input.
//
// # Goroutines
//
// None of its own; the test makes and inspects several directories at a time.
package verdicts
