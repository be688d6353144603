// Package quorum is replication: the hashicorp/raft node of a member, the batching of commands into
// entries, the way of commands to the leader, the membership, and the proof of leadership that
// leases rely on. It never looks into a command, and it does not know that clients exist. Begin
// with Replica (replica.go): Open puts a member together, Propose takes a command.
//
// A part calls only parts below it:
//
//	replica.go     Replica, which has the parts: Open, Close, Status
//	control.go     control: follows changes of the leader, starts and stops routes and leases
//	query.go       members: queries between members without a leader
//	change.go      members: makes raft count the members; filemembers.go, plan.go: which step is next
//	stop.go        stops: may a member stop now?
//	members.go     members: who they are, and disks that are to replace others; birth.go: first start
//	catchup.go     catchUp: has this member applied what leaders have sent it?
//	claims.go      claims: does a session exist that this member does not know?
//	snapshot.go    state: snapshots are taken and written
//	state.go       state: the applied entries, under its lock; compaction.go: when a snapshot is due
//	lease.go       leases of this member's sessions; the stream of questions to the leader
//	forward.go     forwarder: from this member's outbox to the leader
//	transfer.go    leadership: a leader makes another voter the leader
//	leadership.go  leadership: who leads, under its lock; the decision to stand for election
//	outbox.go      outbox: this member's commands until they are applied
//	batcher.go     batcher: the leader's queue, commands become entries; linger
//	engine.go      engine: raft, its stores, the port; every part knows its member by it
//	recover.go     a new cluster from a surviving disk; import.go; disk.go: a member's disk, read
//	raftnet, peer  raft's transport; the port between members; store: the disk of a member
//
// # How a member is put together
//
// Open builds from leaf to root, and each layer gets those below it as arguments:
//
//	load          the state, from the stores
//	newEngine     stores -> store.RaftStore -> peer.Port -> raftnet.Transport -> raft
//	newReplica    outbox, batcher -> leadership -> state -> members -> ... -> control
//	run           the port accepts connections, the loops begin
//
// Raft needs its state machine, and the transport and the stores ask this member about itself,
// before there is a Replica. All of them get above, whose calls wait for connect.
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
//     (package store, backlog), and commits it; package raftnet sends followers the commit index at
//     once, over the stream that has brought the entry. With two or three voters it need not wait
//     for the commit (early commit, raftnet.Transport).
//  5. Every member applies it (state) and tells its Listener. The member that proposed it knows
//     it again.
//
// A command may be lost between 2 and 4, with a leader or a stream. Then every open command is sent
// again, in order. The state machine skips a command that it has applied already (Duplicate), and
// refuses one that arrives while one before it is missing (Gap); that is sent again. When that
// would be in vain, because the one before it was given up or the leader refuses the command for
// good, it is given up, and the Listener is told (Undeliverable).
//
// # Leadership and leases
//
// A leader may have been deposed without knowing it yet. So its confirmations to other members
// count only from the last moment at which a quorum of voters still answered it in its term
// (raftnet.Transport.ProvenAt): no other leader was elected before that moment, and a new leader
// gives every session its full timeout.
//
// # Goroutines
//
//	name          owner       waits for                          ends
//	controlLoop   control     leadership and doubt signals       Close
//	snapshotLoop  state       the log to have grown enough       Close
//	changeLoop    members     the members to have changed        Close
//	queryLoop     members     a cluster to belong to             Close
//	diskLoop      leadership  the next look at the write to the  Close
//	                          log
//	catchUpLoop   catchUp     the commit index of a leader to    Close
//	                          be applied
//	route         control     a connection to the leader, its    when the leader changes, Close
//	                          end; unsent commands left to it
//	succeed       leadership  its turn to replace a leader whose within 0.5 s,
//	                          process has ended                  Close
//	electTarget   leadership  the answer of the voter that is    with raft
//	                          to lead
//	completeLoop  batcher     entries in flight                  Close
//	flushLoop     store       a leader's entries to write        Close
//
// Packages peer and raftnet have the goroutines of the streams between members.
//
// The raft library has its own: one main loop, one that applies, one that takes snapshots, and two
// per follower while leading.
//
// # Locks
//
// Order: state.mu, then the locks of the Listener, then outbox.mu. leadership.mu, members.mu,
// catchUp.mu, stops.mu, batcher.mu and the locks of the packages below are leaves: nothing is
// locked and nobody is called under them, except that the batcher gives raft its entries. The mu of
// a leaderStream is held for one question at a time, and taken before all others.
package quorum
