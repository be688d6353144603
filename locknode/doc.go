// Package locknode knows the layouts of lock nodes: the names that libraries give them, and the
// request that a name stands for. Given the nodes of a queue it determines the holders of the lock
// and the contenders that wait for it.
//
// It is pure: nodes go in, contenders come out. Package recipes reads the nodes as a client does,
// package server for GET /fence, the console from the state of a member, and the command lockkeeper
// inspect from files. All of them agree: there is one table of names ([Layout]), one order of a
// queue ([Sort]) and one judgement ([Resolve]).
//
// # What is a lock
//
// All that anybody holds by way of ephemeral nodes: see [Place]. A node with a sequence number, or
// with the name of a kazoo semaphore's lease, contends for its parent. Curator's semaphore has two
// queues below its path, kazoo's has one beside it. An ephemeral node with any other name is a lock
// by itself, with one holder.
//
// Who waits for whom between libraries is in docs/guarantees.md; [Contender.MayIgnore] says it of a
// queue. [Deadlocks] finds sessions that wait for themselves over any number of locks.
package locknode
