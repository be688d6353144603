// Package znode is the replicated state machine: the tree of nodes with their ACLs and quotas, the
// sessions, and the formats of the commands, log entries and snapshots that carry them. It has no
// goroutine, clock, random number, logging or I/O, and no lock: its caller keeps Apply and the
// reads apart. No result depends on the order of a map. Begin reading with Store.Apply in store.go,
// then tx.go and request.go (the effects of each command) and effect.go (the only functions that
// change a node).
//
// # Callers
//
//	quorum    DecodeEntry, Apply           for each entry of the log, in its order, one goroutine
//	          Snapshot, WriteTo, Release   Snapshot not during Apply; the rest from any goroutine
//	          Restore                      at start, and when a member has fallen far behind
//	session   the reads, Allowed           from any goroutine, not during Apply
//	          Command.Append, Command.Key  to propose a command and to find it again
//	tests     Check, Digest
//
// # Promises
//
// Apply is a function of the state, the term and the entry. Members that applied the same entries
// have the same state, and Digest is the same, whether or not they were restored from a snapshot on
// the way.
//
// A request that fails changes nothing but the session's lastSeq. A multi takes effect as a whole
// or not at all. All effects of a command carry one zxid and one time. Commands without an effect
// on the tree or on the set of sessions (attach, sync, checks, failed and refused commands) take no
// zxid.
//
// Each request of a connection takes effect at most once and in order: the state knows each
// session's generation (its connections, counted) and the last seq of that generation. A command
// that was applied is a Duplicate, one that skips a seq is a Gap, one from an older connection is
// Moved.
//
//	command                    generation, lastSeq after it    status
//	createSession              1, 0                            Done
//	request gen 1 seq 1        1, 1                            Done
//	request gen 1 seq 3        1, 1                            Gap: seq 2 was lost on the way
//	request gen 1 seq 2        1, 2                            Done
//	request gen 1 seq 2        1, 2                            Duplicate: it was sent again
//	attach gen 1               2, 0                            Done: a new connection
//	request gen 1 seq 3        2, 0                            Moved: left over from the old one
//
// Answers to requests, and the error that wins when there are several, are ZooKeeper's
// (docs/protocol/semantics.md, docs/protocol/wire.md sections 8 and 9), with these differences:
//
//   - Quotas are exact. ZooKeeper checks a quota against the applied usage, so that a burst or
//     a multi overshoots; its usage of a quota within a quota depends on the events since the
//     start, and it loses count while a stats node exists without limits.
//   - createTTL with a mode that is no TTL mode is BadArguments; parts of ZooKeeper crash.
//   - The pzxid of a parent without sequence numbers left goes on moving.
//
// # How it is built
//
//	Store         the front: Apply, the reads, Snapshot
//	  state       zxid, clock, members, and
//	    tree      nodes, families, index, ACLs, quotas, listings; knows no session and no command
//	    Registry  sessions, their last seqs, their ephemerals by slot; knows no tree
//	  tx          one command: decides which effects it has (tx.go, request.go, reconfig.go)
//	    effects   changes nodes, collects events, and can take all of it back
//
// The tree has its nodes in rows:
//
//	index     map: hash of a path -> slot
//	nodes     rows by slot: name and data, ACL, parent
//	more      rows of details: of nodes that are not persistent, were changed, or had a child
//	rings     by slot of nodes: the siblings
//	families  by slot of more: first child, sums of the nodes below, quota
//	acls      each different ACL once, with a count of its nodes
//
// All rows are in pages of 36. nodes and more are the content of a snapshot, shared with it and
// copied on write; the rest follows from them. A path is not stored: it is the names from the root
// on.
//
// A million nodes with 16 bytes of data take about 145 MB (TestSize; docs/scaling.md says where the
// bytes of a node go). Taking a snapshot copies the lists of pages; afterwards the first write to a
// page copies that page (2 KB).
package znode
