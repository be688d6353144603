// Package quorum is replication: the hashicorp/raft node of a member, its log and snapshots, the
// batching of commands into entries, the way of commands to the leader, the membership, and the
// proof of leadership that leases rely on. It never looks into a command, and it does not know that
// clients exist. Begin with Replica (replica.go): Open puts a member together, Propose takes a
// command.
//
//	replica.go      Replica: Open, Propose, View, Status, Close
//	outbox.go       this member's commands until they are applied
//	forward.go      the forward stream, from a follower's outbox to the leader
//	batcher.go      the leader's queue: commands become entries (linger.go: when)
//	fsm.go          entries are applied; snapshots of the state are taken and restored
//	compaction.go   when a snapshot is due, and how much of the log stays behind it
//	control.go      follows changes of the leader: starts and stops what a leader or a follower needs
//	lease.go        the lease stream, and leases of this member's sessions
//	claims.go       the claims stream: does a session exist that this member does not know?
//	catchup.go      has this member applied what leaders have sent it?
//	stop.go         the stop stream: may a member stop now?
//	transfer.go     a leader makes another voter the leader
//	succession.go   a voter replaces a leader whose process has ended
//	birth.go        the first start; query.go: what members without a leader ask each other
//	newcomers.go    disks that are to replace others
//	members.go      who the members are; change.go makes raft count them
//	disk.go         what the stores tell the replica; peek.go: whose a log directory is
//	store, peer     the disk of a member; the port between members
//
// # A command, step by step
//
//  1. Propose encodes it and puts it into the outbox, where it stays until this member has applied
//     it.
//  2. The outbox sends it over the route, of which there is one at a time: to the batcher of this
//     member if it leads, else over the forward stream, one ordered connection to the leader's peer
//     port, where commands of many clients share frames (linger).
//  3. The leader's batcher puts the commands that wait into one entry and proposes it to raft
//     (linger).
//  4. raft writes it on a majority of the voters, on the leader and the followers at the same time
//     (package store, backlog), and commits it; package peer sends followers the commit index at once, over the
//     stream that has brought the entry. With two or three voters it need not wait for the commit
//     (early commit, peer.Transport).
//  5. Every member applies it (fsm) and tells its Listener. The member that proposed it recognises
//     its own.
//
// A command may be lost between 2 and 4, with a leader or a stream. Then every open command is sent
// again, in order. The state machine skips a command that it has applied already (Duplicate), and
// refuses one that arrives while one before it is missing (Gap); that is sent again. When that
// would be in vain, because the one before it was given up or the leader refuses the command for
// good, it is given up, and the Listener is told (Undeliverable).
//
// # Leadership and leases
//
// A leader may have been deposed without knowing it yet. So what it confirms to other members
// counts only from the last moment at which a quorum of voters still answered it in its term
// (peer.Transport.ProvenAt): no other leader was elected before that moment, and a new leader gives
// every session its full timeout.
//
// # Goroutines
//
//	name          owner      waits for                          ends
//	controlLoop   Replica    leadership and doubt signals       Close
//	snapshotLoop  Replica    the log to have grown enough       Close
//	changeLoop    Replica    the members to have changed        Close
//	queryLoop     Replica    a cluster to belong to             Close
//	catchUpLoop   Replica    the commit index of a leader to    Close
//	                         be applied
//	route         control    a connection to the leader, its    when the leader changes, Close
//	                         end; unsent commands left to it
//	succeed       Replica    its turn to replace a leader whose within 0.5 s,
//	                         process has ended                  Close
//	electTarget   Replica    the answer of the voter that is    with raft
//	                         to lead
//	completeLoop  batcher    entries in flight                  Close
//	flushLoop     store      a leader's entries to write        Close
//
// Package peer has those of the streams between members.
//
// The raft library has its own: one main loop, one that applies, one that takes snapshots, and two
// per follower while leading.
//
// # Locks
//
// Order: Replica.mu (the state), then the locks of the Listener, then outbox.mu. stateMu,
// batcher.mu and the locks of packages store and peer are leaves: nothing is locked and nobody is
// called under them, except that the batcher gives raft its entries.
package quorum
