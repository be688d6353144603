package model

// Rule is a part of the protocol that Rules can take away, or an assumption about its environment.
type Rule uint8

// The rules, by the mechanism that they belong to.
const (
	// Identity: docs/decisions/017-a-member-is-its-disk.md
	DiskIDs Rule = iota
	DiskInVotes
	DiskInAcks
	// Birth and join
	EveryVoter
	DurableJoin
	WordNotRunning
	WordInAnswer
	NewestImport
	// Votes
	VoteTransaction
	RisingTerms
	UpToDateVotes
	KnownCandidates
	// Entries
	PreviousEntry
	OwnTermCommits
	DurableAcks
	// Changes of the members
	SettledChanges
	OneChange
	MajorityForChanges
	NewestConfiguration
	OneVoter
	CaughtUpVoters
	OldDiskFirst
	// The leader's disk, in parallel, and early commit
	HeldAcks
	NoticeBehindDisk
	NoticeToPair
	NoticePrevious
	NoticeBehindWrite
	// Heartbeats beside the main loop
	NewBeatsInLoop
	EqualBeatsInLoop
	EqualTerms
	// Leases
	HalfTick
	SpeedMargin
	ProvenLeases
	FromReport
	FromHeartbeat
	FullLease
	SettledLeases
	ClosedLeases
	AllSilent
	SuspendsCount
	DeadlinesSleep
	FromAttach
	EndNamesConnection
	// The session's commands
	DropRepeats
	RefuseGaps
	RefuseMoved
	// Snapshots and restore
	DeclineOld
	DropConflict
	RestoreInLog
	// Assumptions
	TrueWord
	KeptMajority
	KeptDisks

	NumRules
)

// RuleInfo describes a rule.
type RuleInfo struct {
	Name  string // for command lines and scripts
	Page  string // the argument: a decision page, an item of UPSTREAM.md, the thesis
	Taken string // the protocol without it
}

// Info describes the rule.
func (r Rule) Info() RuleInfo { return ruleTable[r] }

func (r Rule) String() string { return ruleTable[r].Name }

// ruleTable has the rules, in their order.
var ruleTable = [NumRules]RuleInfo{
	DiskIDs: {"disk-ids", "017, 1",
		"servers are numbers of members, in votes, acknowledgements and configurations"},
	DiskInVotes: {"disk-in-votes", "017, 5",
		"a vote counts for the member's number, whatever its disk"},
	DiskInAcks: {"disk-in-acks", "017, 5",
		"an acknowledgement counts for the member's number, whatever its disk"},
	EveryVoter: {"every-voter", "017, 2",
		"a majority of blank voters gives birth, and any of them may"},
	DurableJoin: {"durable-join", "017, 4",
		"the cluster's id is not saved before the first answer"},
	WordNotRunning: {"word-not-running", "017, 3",
		"the operator's word may name a member that is running"},
	WordInAnswer: {"word-in-answer", "017, 3",
		"an answer does not say which members the word names"},
	NewestImport: {"newest-import", "016",
		"the lowest number begins the cluster, whatever data it has imported"},
	VoteTransaction: {"vote-transaction", "UPSTREAM.md, 16",
		"term and candidate of a vote are two transactions"},
	RisingTerms: {"rising-terms", "UPSTREAM.md, 15",
		"a request of an older term takes the saved term back"},
	UpToDateVotes: {"up-to-date-votes", "thesis, 3.6.1",
		"a voter does not compare the logs"},
	KnownCandidates: {"known-candidates", "017, 5",
		"a voter grants votes to servers outside its configuration"},
	PreviousEntry: {"previous-entry", "thesis, 3.5",
		"a follower does not compare the previous entry"},
	OwnTermCommits: {"own-term-commits", "thesis, 3.6.2",
		"a leader commits entries of earlier terms by counting"},
	DurableAcks: {"durable-acks", "thesis, 3.8",
		"a follower acknowledges an entry before it is on its disk"},
	SettledChanges: {"settled-changes", "thesis, 4.1 (2015)",
		"a leader changes members before an entry of its own term is committed"},
	OneChange: {"one-change", "thesis, 4.1",
		"a leader changes members before the change before is committed"},
	MajorityForChanges: {"majority-for-changes", "thesis, 4.1",
		"a leader alone commits a change"},
	NewestConfiguration: {"newest-configuration", "thesis, 4.1",
		"the newest committed configuration counts, not the newest"},
	OneVoter: {"one-voter", "thesis, 4.1",
		"a disk is exchanged for another in one entry"},
	CaughtUpVoters: {"caught-up-voters", "017, 6",
		"a new disk gets its vote before it has the log"},
	OldDiskFirst: {"old-disk-first", "017, 6",
		"a new disk gets its vote before the old one is removed"},
	HeldAcks: {"held-acks", "011",
		"followers' acknowledgements count before the leader's disk has the entry"},
	NoticeBehindDisk: {"notice-behind-disk", "001, 1",
		"an early commit is sent before the leader's disk has the entry"},
	NoticeToPair: {"notice-to-pair", "001, 3",
		"an early commit is sent although leader and follower are no majority"},
	NoticePrevious: {"notice-previous", "001",
		"a follower does not compare the entry that an early commit names"},
	NoticeBehindWrite: {"notice-behind-write", "001",
		"a follower applies an early commit before its disk has the entry"},
	NewBeatsInLoop: {"new-beats-in-loop", "UPSTREAM.md, 15",
		"a heartbeat raises the term beside the main loop"},
	EqualBeatsInLoop: {"equal-beats-in-loop", "UPSTREAM.md, 15",
		"a heartbeat of the current term is checked, then saved, beside the main loop"},
	EqualTerms: {"equal-terms", "UPSTREAM.md, 15",
		"heartbeats of older terms are answered beside the main loop"},
	HalfTick: {"half-tick", "002",
		"deadlines do not count the time that the last bytes take"},
	SpeedMargin: {"speed-margin", "002",
		"deadlines do not count that clocks differ in speed"},
	ProvenLeases: {"proven-leases", "002, 2",
		"a leader confirms without a proof of its leadership"},
	FromReport: {"from-report", "002, 2",
		"a confirmation counts from its arrival"},
	FromHeartbeat: {"from-heartbeat", "002, 2",
		"a proof counts from the answer's arrival"},
	FullLease: {"full-lease", "002, 2",
		"a new leader does not give each session its full timeout"},
	SettledLeases: {"settled-leases", "002, 2",
		"a leader confirms before it has applied the entries of earlier terms"},
	ClosedLeases: {"closed-leases", "002",
		"a leader confirms after it has proposed the session's end"},
	AllSilent: {"all-silent", "002",
		"only answers to pings wait for a confirmation"},
	SuspendsCount: {"suspends-count", "002",
		"a lease ages by a clock that stands still during a suspend"},
	DeadlinesSleep: {"deadlines-sleep", "002",
		"deadlines go on while the leader is suspended"},
	FromAttach: {"from-attach", "002, 2",
		"the lease of a new connection counts from the answer, not from the request"},
	EndNamesConnection: {"end-names-connection", "C7",
		"the end that was proposed for an older connection ends the session"},
	DropRepeats: {"drop-repeats", "C5",
		"a command that was sent again is executed again"},
	RefuseGaps: {"refuse-gaps", "C2",
		"a command is executed although the one before it is lost"},
	RefuseMoved: {"refuse-moved", "C2",
		"a command of an older connection is executed"},
	DeclineOld: {"decline-old", "UPSTREAM.md, 4",
		"a snapshot that is older than the state is installed"},
	DropConflict: {"drop-conflict", "UPSTREAM.md, 17",
		"a snapshot leaves the conflicting log behind it"},
	RestoreInLog: {"restore-in-log", "015",
		"a leader replaces its state alone (raft.Restore)"},
	TrueWord: {"true-word", "017, 3",
		"the operator's word names a member that has worked"},
	KeptMajority: {"kept-majority", "017",
		"disks are lost, never mind a majority"},
	KeptDisks: {"kept-disks", "017, 8",
		"a disk loses its newest entry and its vote, and keeps its id"},
}

// RuleNamed returns the rule with this name.
func RuleNamed(name string) (Rule, bool) {
	for r := range NumRules {
		if r.Info().Name == name {
			return r, true
		}
	}
	return 0, false
}

// Rules is a set of rules that the protocol lacks. The zero value is the protocol that is built.
type Rules uint64

// Without is the set of these rules.
func Without(rules ...Rule) (out Rules) {
	for _, r := range rules {
		out |= 1 << r
	}
	return out
}

func (r Rules) has(rule Rule) bool { return r&(1<<rule) != 0 }

// Bounds limit an exploration. A mechanism with the zero bound is switched off.
type Bounds struct {
	Members int // 1 to MaxMembers
	Voters  int // the first of them, in the first configuration; 0: all
	Terms   int // elections take place in terms 2 to Terms+1
	Entries int // that are proposed for clients

	Lost    int  // disks that are replaced, in all
	Returns int  // disks that come back, with their data
	Changes int  // configurations of a log behind the first; 0: no changes of members
	Remove  bool // leaders remove any voter, as an operator asks

	Steady bool // no process crashes

	Led    bool // begin with a leader of term 2, the first entry of which all voters have
	Blank  bool // begin with blank disks, otherwise with a cluster that all voters have joined
	Words  int  // of the operator, in Blank
	Import int  // entries of a ZooKeeper that members may have imported, in Blank

	Parallel  bool // a leader writes its disk in parallel
	Early     bool // early commit
	Snapshots bool // states, snapshots and restores
	Commands  int  // of a session's connection, among Entries
	Lease     int  // the session's timeout in ticks, a multiple of 3
	Errors    int  // ticks that a clock misses or doubles, in Lease
	Suspends  int  // of machines, in Lease
	Moves     int  // of the client to another member, at most 1, in Lease

	Lemmas bool      // also look for states from which the contract is broken, as MajoritiesMeet
	Find   Invariant // the only invariant that ends the exploration; Kept: any
	States int       // the exploration ends with an error beyond that many; 0: no limit
}
