package model

// Action is the kind of a step: one transaction of one member, or a deed of a client, an operator
// or the environment.
type Action uint8

// The actions. A is a member in all of them.
const (
	// Faults and disks
	Crash   Action = iota // A's volatile state is gone
	Replace               // A's disk, by a blank one
	Return                // of A's other disk
	Damage                // without KeptDisks: A's disk loses its newest entry, and its vote
	Flush                 // A's disk has all entries of its log
	// Birth and join
	Bring // A, B and C are the numbers of entries that members 1 to 3 have imported
	Say   // the operator's word to A: the members B (bits) never worked
	Ask   // A asks member B, which answers as blank
	Birth // A begins cluster B
	Join  // A's blank disk joins cluster B
	// Elections
	Stand // A begins an election
	Adopt // A takes over term B, and does nothing else
	Half  // without VoteTransaction: A saves the term B of a vote, crashes, and has no candidate
	Vote  // A votes in term B for server C
	Lead  // A is elected, and appends the first entry of its term
	// Entries
	Store   // A stores the next entry of the leader of term B, and acknowledges it
	Cut     // A removes the entries that the leader of term B lacks, and crashes
	Ack     // A acknowledges entries that it has to the leader of term B
	Commit  // A, a leader, commits up to B
	Propose // a client's entry to A, a leader
	// Changes of the members
	Add     // A, a leader, adds server B as a nonvoter
	Remove  // A, a leader, removes server B
	Promote // A, a leader, gives server B a vote
	Swap    // without OneVoter: A, a leader, removes server C and gives B a vote in one entry
	// Early commit
	Notice // A, a leader, sends server B the early commit index C
	Heed   // A commits up to the early commit index of the leader of term B
	// Heartbeats
	Raise // without NewBeatsInLoop: a heartbeat of term B raises the term of A, and A goes on
	Check // without EqualBeatsInLoop: a heartbeat of A's term B has passed the check of the term
	Late  // ... and is saved, after whatever A has done meanwhile
	// Leases
	Connect   // the client connects to A
	Contact   // server B answers a heartbeat of A, a leader
	Prove     // without FromHeartbeat: the answer of server B reaches A
	Confirm   // the leader B confirms the session to A, which reports it
	Confirmed // without FromReport: the confirmation reaches A
	Move      // the client leaves its member for A, which proposes the attach
	Attached  // A answers the handshake of its client: the attach is applied
	Send      // A sends bytes to the client
	End       // A, a leader, proposes the end of the session
	Tick      // time passes; B is an error of a clock: see Clock
	Sleep     // A's machine is suspended
	Wake      // A's machine goes on
	// The session's commands
	Issue    // the client sends the next command on the connection that is its A-th
	Submit   // command C of connection B reaches the leader A, again perhaps
	Reattach // A, a leader, proposes that the client has connection B
	// Snapshots
	Apply   // A applies the committed entries that it has
	Install // A installs the first C entries' state of the leader of term B
	Restore // without RestoreInLog: A, a leader, replaces its state

	NumActions
)

// Step is an action with its operands.
type Step struct {
	Action  Action
	A, B, C uint8
}

// ActionInfo describes an action.
type ActionInfo struct {
	// Form is the command of a script. A is a member, named by its disk; the other operands have a
	// kind behind them: B:server, B:member, B:members, B:cluster, B:number, B:clock.
	Form   string
	Source string   // the line: of Ongaro's thesis, a decision page, UPSTREAM.md, or "environment"
	Code   []string // the functions that carry it out, each package.function or package.type.method
}

// Info describes the action.
func (a Action) Info() ActionInfo { return actionTable[a] }

const environment = "environment"

var actionTable = [NumActions]ActionInfo{
	Crash: {"A crashes and starts again", "thesis, 3.8",
		[]string{"quorum.Open", "quorum/store.Open"}},
	Replace: {"A is lost and replaced by a blank disk", "017, 1",
		[]string{"server/datadir.SetAside", "quorum.claimDisk"}},
	Return: {"A gives way to the member's other disk", "017, 7",
		[]string{"quorum.Open"}},
	Damage: {"A is set back", "017, 8",
		nil},
	Flush: {"A flushes its log", "thesis, 10.2.1",
		[]string{"quorum/store.backlog.flushLoop"}},

	Bring: {"members have imported A:number B:number C:number", "016",
		[]string{"quorum/store.Stores.WriteSnapshot"}},
	Say: {"A is told that B:members never worked", "017, 3",
		[]string{"quorum.judgeBirth"}},
	Ask: {"A asks B:member and hears that it is blank", "017, 2",
		[]string{"quorum.members.queryBirth", "quorum.engine.birthState"}},
	Birth: {"A begins cluster B:cluster", "017, 2",
		[]string{"quorum.members.begin"}},
	Join: {"A joins cluster B:cluster", "017, 4",
		[]string{"quorum.members.join"}},

	Stand: {"A stands for election", "thesis, 3.4 and 3.10; 011; UPSTREAM.md, 9",
		[]string{"raft.Raft.electSelf", "quorum.leadership.succeed", "quorum.leadership.electTarget",
			"quorum.leadership.handOver"}},
	Adopt: {"A takes over term B:number", "thesis, 3.3",
		[]string{"raft.Raft.requestVote"}},
	Half: {"A saves term B:number of a vote and crashes", "UPSTREAM.md, 16",
		[]string{"raft.Raft.persistVote"}},
	Vote: {"A votes in term B:number for C:server", "thesis, 3.4 and 3.6.1",
		[]string{"raft.Raft.requestVote", "quorum/store.guard.SetUint64", "quorum/store.boltFile.SetVote"}},
	Lead: {"A leads", "thesis, 3.4",
		[]string{"raft.Raft.runLeader"}},

	Store: {"A stores the next entry of term B:number", "thesis, 3.5",
		[]string{"raft.Raft.appendEntries", "quorum/store.backlog.StoreLogs"}},
	Cut: {"A cuts what the leader of term B:number lacks and crashes", "thesis, 3.5",
		[]string{"raft.Raft.appendEntries", "quorum/store.backlog.DeleteRange"}},
	Ack: {"A acknowledges its log to the leader of term B:number", "thesis, 3.5",
		[]string{"raft.Raft.appendEntries", "quorum/raftnet.Followers.noteAnswer"}},
	Commit: {"A commits up to B:number", "thesis, 3.6.2; 011",
		[]string{"raft.commitment.match", "quorum/raftnet.Transport.hold", "quorum.state.ApplyBatch"}},
	Propose: {"A appends a client's entry", "thesis, 3.5",
		[]string{"quorum.batcher.submit", "raft.Raft.dispatchLogs"}},

	Add: {"A adds nonvoter B:server", "017, 6; thesis, 4.2.1",
		[]string{"quorum.plan.bestStep", "quorum.members.take"}},
	Remove: {"A removes B:server", "017, 6; thesis, 4.1",
		[]string{"quorum.plan.bestStep", "quorum.members.take"}},
	Promote: {"A promotes B:server", "017, 6; thesis, 4.1",
		[]string{"quorum.plan.bestStep", "quorum.members.take"}},
	Swap: {"A promotes B:server and removes C:server", "thesis, 4.3",
		nil},

	Notice: {"A sends B:server the early commit index C:number", "001",
		[]string{"quorum/raftnet.Followers.Wrote", "quorum/raftnet.Followers.pendingCommitLocked",
			"quorum/raftnet.Followers.takeDue"}},
	Heed: {"A commits early as the leader of term B:number says", "001",
		[]string{"raft.Raft.appendEntries", "quorum.state.ApplyBatch"}},

	Raise: {"A hears a heartbeat of term B:number beside its main loop", "UPSTREAM.md, 15",
		[]string{"raft.Raft.processHeartbeat"}},
	Check: {"A checks a heartbeat of term B:number beside its main loop", "UPSTREAM.md, 15",
		[]string{"raft.Raft.processHeartbeat"}},
	Late: {"A saves the term of the heartbeat", "UPSTREAM.md, 15",
		[]string{"raft.Raft.processHeartbeat"}},

	Connect: {"A has the client's connection", environment,
		[]string{"session.lease.init"}},
	Contact: {"A is proven by B:server", "002, 2; UPSTREAM.md, 15",
		[]string{"quorum/raftnet.heartbeats.answer", "quorum/raftnet.Followers.noteAnswer"}},
	Prove: {"A hears the answer of B:server", "002, 2",
		[]string{"quorum/raftnet.Followers.noteAnswer"}},
	Confirm: {"A reports the session to B:server which confirms it", "002, 1 and 2",
		[]string{"session.leaseReports.send", "quorum.leases.touchAsLeader",
			"quorum/raftnet.Followers.ProvenAt", "session.tracker.touch", "session.connection.confirm"}},
	Confirmed: {"A hears the confirmation", "002, 2",
		[]string{"session.connection.confirm"}},
	Move: {"A gets the client from another member", "C7",
		[]string{"session.handshakes.propose"}},
	Attached: {"A answers the client's handshake", "002, 2",
		[]string{"session.handshakes.applied", "session.tracker.renew"}},
	Send: {"A sends bytes to the client", "002, 3",
		[]string{"session.lease.sendUntil"}},
	End: {"A proposes the end of the session", "002",
		[]string{"session.tracker.due", "session.tracker.expire"}},
	Tick: {"a tick passes B:clock", environment,
		[]string{"internal/clock.Clock.Now", "internal/clock.Clock.Awake"}},
	Sleep: {"A is suspended", environment,
		nil},
	Wake: {"A wakes", "002",
		[]string{"internal/clock.Clock.Woke"}},

	Issue: {"the client sends a command on connection A:number", "C5",
		[]string{"quorum.Replica.Propose"}},
	Submit: {"A appends command C:number of connection B:number", "C5",
		[]string{"quorum.forwarder.serveForward", "quorum.batcher.submit", "znode.Registry.next"}},
	Reattach: {"A appends the attach of connection B:number", "C2",
		[]string{"znode.Registry.attach"}},

	Apply: {"A applies", "thesis, 3.5",
		[]string{"quorum.state.ApplyBatch"}},
	Install: {"A installs the state at index C:number of term B:number", "thesis, 5.1; UPSTREAM.md, 4 and 17",
		[]string{"raft.Raft.installSnapshot", "quorum/raftnet.Transport.declineOld", "quorum.state.Restore"}},
	Restore: {"A replaces its state", "015",
		[]string{"raft.Raft.restoreUserSnapshot"}},
}
