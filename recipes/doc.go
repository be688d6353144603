// Package recipes has locks, elections, barriers, queues, counters and groups for Go programs, on
// lockkeeper or on ZooKeeper. It is a client-side library over github.com/go-zookeeper/zk; it never
// imports a package of the server, and it never reports a lock as held that it cannot prove. Begin
// reading with Mutex in mutex.go, then place.go (the queue that all locks share), node.go (a
// contender's node), link.go (the connection), lease.go (the proof that a session lives) and
// grant.go.
//
//	session, err := recipes.Connect(recipes.Config{Servers: []string{"localhost:2181"}})
//	...
//	defer session.Close()
//	grant, err := recipes.NewMutex(session, "/locks/report", recipes.MutexOptions{}).Lock(ctx)
//	if err != nil {
//		return err // not held, and nothing left behind
//	}
//	defer grant.Unlock(ctx)
//
// # The locks
//
//	Mutex           fair; for one at a time
//	RWMutex         fair; readers share, a writer may become a reader
//	Semaphore       fair; for a number of holders, which may change
//	MultiMutex      several locks, all or none
//	MajorityMutex   one lock on several clusters
//	SimpleMutex     one node, with a herd, for comparison
//
// All of them give out grants. Mutex.Handle and RWMutex.Handle make a lock re-entrant,
// MutexOptions.LockDelay keeps it from the next one for a while if the holder vanishes, Hold
// acquires it again when it was lost, MutexOptions.Priority lets urgent contenders go first,
// MutexOptions.OnWait explains a wait, Session.Contenders lists the holders and the waiters.
// docs/guarantees.md has the guarantees of each, and their limits.
//
// # What a grant promises
//
// Lock returns a [Grant] when the caller's node is the first in the queue of the path and the
// cluster has confirmed its session within the last third of the session timeout. From then on:
//
//   - Nobody else is granted the lock before this grant has ended: by Unlock, or because it can no
//     longer be relied on. Then Lost is closed, Held is false, and Err says why.
//   - It cannot be relied on from two thirds of the session timeout after the newest proof was
//     asked for (ErrSilent). While a grant is held, a proof is asked for six times per timeout: a
//     sync, or on ZooKeeper, where a sync is no proof, a write that changes nothing. Its reply
//     proves that the session lived when it was sent, and the cluster gives the lock away later
//     than that. Disconnects that are shorter are not noticed.
//   - It ends at once when the session turns out to have expired (ErrExpired), or when somebody
//     deletes the lock's node (ErrDeleted). Such a deletion, and the forced closing of a session by
//     an operator, are the cases in which another may get the lock before the news arrives here.
//   - Token is larger than every earlier holder's.
//
// # What a pause does
//
// A process can be stopped at any instruction, by a signal, a hypervisor, a garbage collector, a
// page fault, for any time. If that happens between Held() and the write that Held() was to
// protect, the write is made by a process that has lost the lock. No lock service, no library, and
// no shorter timeout can prevent that. This package makes it rare, and harmless:
//
//   - A holder that resumes learns from the clock, not from messages: Held, Err and Lost compare
//     the monotonic time with the newest proof before they answer, so they are right after the
//     pause. A channel that was fetched from Lost before the pause is closed by the runtime's
//     timer, soon after the process runs again, but not before everything else in it.
//   - Token is for the resource that the lock protects. Send it along with every write; let the
//     resource refuse a token that is smaller than one it has seen. Then the late write of a
//     stopped holder is refused, however long it slept.
//   - Guard is for data that are in the cluster: a transaction that the cluster refuses when the
//     grant does not stand.
//
// The monotonic clock of Linux stands still while the machine is suspended or a virtual machine is
// paused and restored. A process that slept together with its clock learns of it from the cluster
// only, with the next reply. There the token is all there is.
//
// # Connections and sessions
//
// Locks belong to a ZooKeeper session, which survives the loss of a connection, but not its
// timeout. go-zookeeper then opens a new session by itself. For a recipe that is an end: grants of
// the old session are lost, a Lock that waits returns ErrExpired. Its place in the queue is gone;
// whether to queue up again, behind everybody, is for the caller to decide. The [Session] goes on.
//
// A server that hangs (a stopped process, a frozen machine) goes on accepting connections and
// answers nothing. [Connect] waits for a handshake, and for the answer to a request, no longer than
// a third of the session timeout, and then tries another server: the session survives, and so does
// a grant: its newest proof is at most half a timeout old by then. A server that hung is passed
// over once. When every server has hung, they get twice as long, in case that they are slow.
//
// Every request may be lost on its way, or its reply may. The recipes find out which before they go
// on, and do not leave that to the caller: when Lock or Unlock returns early because its ctx ended,
// a goroutine of the Session goes on until it is certain that no node is left, over any number of
// disconnects. Close ends the session and with it all that; it waits for the goroutines.
//
// # A process that is restarted
//
// With [Config].SessionFile a process that is killed, or that calls [Session.Detach], and is
// started again in place within the session timeout, takes up its locks: the id and the password of
// the session are in the file before the session's first request. When the new process asks for the
// same lock, election or group (by the same recipe, on the same path; a group also by the same id),
// it gets the node that is there, with its place in the queue and its token, and nobody else has
// had it in between:
//
//   - [Grant.Resumed] says so. The grant begins when the cluster has confirmed the session to the
//     new process; the time that the old one had left does not count.
//   - [Session.Resumed] lists the locks of the previous process, those that are still held and
//     those that are lost: with a session that has expired meanwhile, or because somebody has
//     deleted the node. Losses are logged, too.
//   - A lock that the new process does not take up within a session timeout is given back, with
//     [Session.GiveBack] earlier. Queue items, places in a DoubleBarrier, and a writer
//     that has become a reader ([Grant.Downgrade]) are not taken up.
//   - The token is the same, so a fence cannot tell a late write of the previous process, that is
//     still on its way, from one of the new process. Where that matters, unlock and lock again.
//
// Two processes on one session would both believe in its locks. A process takes up a session only
// when the one before has certainly ended: it holds a lock on the file until then (ErrInUse), as
// does every process that has inherited [Session.FileLock]. And the file says where it was written;
// in a copy, on another machine, or after a reboot, the session is left alone until it expires
// (ErrElsewhere). A file that is damaged or that others may read is an error of Connect.
//
// Close ends the session and removes the file; the empty file beside it, with ".lock" added to the
// name, stays. All that is held is noted in the file before Lock returns: a Lock and an Unlock take
// 2.7 ms instead of 0.95 ms with one member, and Connect and Lock take 3.4 ms in a session that is
// taken up, and 2.8 ms in a new one (BenchmarkSessionFile, ext4 on a virtual disk). It is for
// Linux, and for servers that list a session's nodes: lockkeeper, and ZooKeeper as of 3.6.
//
// # Not only locks
//
// [Election], [Barrier], [DoubleBarrier], [Counter], [Queue], [Group] and [OptimisticUpdate] follow
// the same rules: they end with an error that says so when the session expires ([Again] takes them
// up in the next one), leave nothing behind when a ctx ends, and settle the outcome of a request
// after a lost reply; where that cannot be known any more, the error is [ErrUnknown]. Each says
// which recipes of Curator and kazoo it shares its nodes with. Package [lockkeeper/recipes/fence]
// is for the resource that a lock protects. The page docs/guarantees.md has it all in one table.
//
// # Other libraries on the same path
//
// The nodes have Curator's names,
//
//	_c_<uuid>-lock-NNNNNNNNNN
//
// and a Mutex waits for every node of the path with a smaller number, whatever it is called, and
// for the leases of semaphores that are older than its node. Whether others wait for it is their
// affair:
//
//	Curator InterProcessMutex    waits
//	go-zookeeper Lock            waits
//	kazoo Lock                   does not, unless it is SharedLock
//
// SharedLock is a class of four lines, in docs/locks.md and in clients/shared_lock.py, that has
// kazoo give its nodes Curator's names, and wait for all. Without it kazoo may also be told
//
//	Lock(client, path, extra_lock_patterns=["-", "__"])
//
// and then waits for all, but Curator does not wait for it: kazoo's nodes are called
// <hex>__lock__NNNNNNNNNN, and Curator, which finds no "lock-" in the name, compares the whole of
// it with the other's number. (clients/SharedMutex.java is a Curator mutex that does wait.) The
// whole table, proved by TestLivePairs, is in docs/guarantees.md.
//
// Where a Lock meets a contender that may not wait for it, it logs a warning ([Config].Logger), and
// [Session.Contenders] says MayHold and MayIgnore.
//
// go-zookeeper's Lock fails if it finds a child that it cannot parse, Curator's takes every child
// for a contender. So keep other nodes off the path.
//
// # What it costs
//
// An uncontended Lock is two round trips (create; then, side by side, read the node back with a
// watch and list the queue), Unlock is one. A contender that waits costs nothing, and is woken
// once, when the node next before it goes; it then lists the queue again, with a proof beside it.
// Letting a more urgent one go first costs it two round trips and another look at the queue. A
// session that holds any number of grants asks for six proofs per session timeout: syncs, or on
// ZooKeeper writes.
package recipes
