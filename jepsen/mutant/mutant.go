package mutant

import "fmt"

// Mutation is one planted bug; the zero value is none.
type Mutation int

// The mutations. Table describes them.
const (
	None Mutation = iota
	SkippedFsync
	VoteNotPersisted
	VoteNotSynced
	LeaseFromConfirmation
	LeaseUnproven
	AnswersWithoutLease
	GapTaken
	AppliedTwice
	OldConnectionServed
	WatchAfterReply
	ReadOvertakesWrite
	EarlySnapshot
	SnapshotForgetsTurns
	RestoreKeepsConnections
	ZxidRepeats
	LocalSync
	ExpiryWithoutCommit
	EphemeralsInTwoSteps
	StaleWatches
	OldSnapshotInstalled
	GateOpen
	CommitBeforeDisk
	DirectoryNotSynced
	TornWriteKept
	LeaseSleeps
	TimeNeverGoesBack
	BirthByMajority
	ClustersMix
	DiskByNumber
	HalfVote
	HeartbeatPath
	HangingLeaderStays
	ImportJoins
	FileOfOne
	TrustedSync
	TurnWithoutLook
	LostCreateForgotten
	DelayIgnored
	WriterPassesReaders
	LeaseTooMany
	LockBesideIgnored
	NodeOfAnother
	LostPartHeld
	MinorityHeld
	StillWrites
	LeaderAgain
	OpenedUnchecked
	LateUnmarked
	WaitUnsynced
	CommitTwice
	DoneInDoubt
	MembersUnsynced
	HoldUntold
	UnlockedEarly
	GuardUnchecked
	CountStays
	GoneUnnoticed
	LeaderUnsynced
	MemberStays
	UrgentPasses
	YieldsForEver
	TokenKept
	MoveUnsettled
	LeaseKept
	UrgentPassesHTTP
	YieldsForEverHTTP
	TokenKeptHTTP
	end
)

// Entry describes a mutation.
type Entry struct {
	Mutation Mutation
	Name     string // on the command line
	Promise  string // of the contract, that it breaks
	Where    string // the file that is changed
	What     string // the fault
	// Quick: the simulations catch it within seconds.
	Quick bool
	// Refused: the protocol does not explain the events of the members (quorum/model/trace). Then a
	// simulation that only the clients' checks have failed has not caught it.
	Refused bool
	// Scenario is the test of jepsen/simtest that aims at it, with the name of a script of the
	// model if there is one; "" if it is for the random simulations to catch.
	Scenario string
	// Recipe is the drill of package recipes that catches it, for the simulations have no recipes:
	// TestPlantedBugs in testdata/recipes_test.go. "" if it is for the simulations.
	Recipe string
}

// Table lists all mutations, in the order of their constants.
var Table = []Entry{
	{SkippedFsync, "skipped-fsync", "C1", "quorum/wal/segment.go", "the log does not sync what it writes; a power cut loses some of it", true, true, "", ""},
	{VoteNotPersisted, "vote-not-persisted", "C1", "quorum/store/guard.go", "votes are not written down at all: a member may vote twice in a term", true, true, "TestVoteOutlivesPowerCut", ""},
	{VoteNotSynced, "vote-not-synced", "C1", "jepsen/simtest/mutation_test.go", "votes are not synced: a member may vote again after a power cut", true, true, "TestVoteOutlivesPowerCut", ""},
	{LeaseFromConfirmation, "lease-from-confirmation", "C6", "quorum/lease.go", "a lease counts from when its confirmation arrives, not from before the report was sent", true, true, "TestMarginWhenConfirmationsAreLate", ""},
	{LeaseUnproven, "lease-unproven", "C6", "quorum/raftnet/followers.go", "a leader confirms leases without looking whether a quorum still follows it", true, true, "TestMarginWhenFollowersAreLate", ""},
	{AnswersWithoutLease, "answers-without-lease", "C6", "session/lease.go", "clients are answered while their lease is unconfirmed", false, true, "", ""},
	{GapTaken, "gap-taken", "C2", "znode/session.go", "a request is applied though one before it was lost", true, true, "TestRequestWaitsForTheOneBeforeIt", ""},
	{AppliedTwice, "applied-twice", "C5", "znode/session.go", "a request that is sent to the leader again is applied again", true, true, "", ""},
	{OldConnectionServed, "old-connection-served", "C2", "znode/session.go", "what a replaced connection still had in flight takes effect", false, true, "", ""},
	{WatchAfterReply, "watch-after-reply", "C3", "session/manager.go", "watches fire after the reply that shows the change", true, true, "", ""},
	{ReadOvertakesWrite, "read-overtakes-write", "C2", "session/session.go", "reads are answered though a write before them is outstanding", true, true, "", ""},
	{EarlySnapshot, "early-snapshot", "C1", "jepsen/simtest/mutation_test.go", "a snapshot is acknowledged, and the log cut, before it is on the disk", true, true, "", ""},
	{SnapshotForgetsTurns, "snapshot-forgets-turns", "C5", "znode/snapshot.go", "a restored snapshot has forgotten which requests of each session have been applied", false, true, "", ""},
	{RestoreKeepsConnections, "restore-keeps-connections", "C3", "session/manager.go", "clients stay connected to a member whose state a snapshot has replaced", true, true, "TestWatchOverSnapshot", ""},
	{ZxidRepeats, "zxid-repeats", "C1", "znode/effect.go", "two updates of a term get the same zxid", true, true, "", ""},
	{LocalSync, "local-sync", "C4", "session/session.go", "sync is answered by the member alone", true, true, "TestSyncOnMemberThatHearsLate", ""},
	{ExpiryWithoutCommit, "expiry-without-commit", "C7", "session/expiry.go", "the leader expires sessions in its own state, without a command in the log", false, true, "", ""},
	{EphemeralsInTwoSteps, "ephemerals-in-two-steps", "C7", "znode/tx.go", "a session's ephemerals go in two steps", false, true, "", ""},
	{StaleWatches, "stale-watches", "C3", "session/execute.go", "a client that connects again is not notified of what it has missed", true, true, "TestWatchOverLostConnection", ""},
	{OldSnapshotInstalled, "old-snapshot-installed", "C1", "quorum/raftnet/snapshot.go", "a snapshot that comes late takes the state back", true, true, "TestSnapshotIsHeldBack", ""},
	{GateOpen, "gate-open", "C1", "quorum/raftnet/transport.go", "what a leader has not written to its disk yet counts as written", true, true, "TestCounterexamples/held-acks", ""},
	{CommitBeforeDisk, "commit-before-disk", "C1", "quorum/raftnet/followers.go", "a leader sends a follower an early commit before the entry is on its own disk", true, true, "TestCommitWaitsForTheLeadersDisk", ""},
	{DirectoryNotSynced, "directory-not-synced", "C1", "quorum/wal/segment.go", "the name of a new segment is not made durable; a power cut loses the file", true, true, "", ""},
	{TornWriteKept, "torn-write-kept", "C1", "quorum/wal/segment.go", "the checksum of a batch's content is not verified; what a power cut leaves of it is taken for whole", true, true, "TestPowerFailsDuringWrites", ""},
	{LeaseSleeps, "lease-sleeps", "C6", "session/lease.go", "leases do not count the time for which the machine was suspended", true, true, "TestSuspendedMemberIsSilent", ""},
	{TimeNeverGoesBack, "time-never-goes-back", "C8", "znode/store.go", "the time of the state stays where one leader's wall clock has put it", true, true, "TestWrongClockOfOneLeaderPasses", ""},
	{BirthByMajority, "birth-by-majority", "C1", "quorum/birth.go", "a cluster begins when a majority of its voters is blank, whatever the others are", true, true, "TestLateFirstStartAfterALostDisk", ""},
	{ClustersMix, "clusters-mix", "C1", "quorum/peer/port.go", "members do not look at the cluster and the disk that the other end says it is of", true, true, "TestAddressesOfTwoClustersAreExchanged", ""},
	{DiskByNumber, "disk-by-number", "C1", "quorum/disk.go", "a disk that replaces another one has its id, and so its vote", true, true, "TestReplacedDiskHasNoVote", ""},
	{HalfVote, "half-vote", "C1", "quorum/store/stable.go", "term and candidate of a vote are saved one after the other", true, true, "TestCounterexamples/vote-transaction", ""},
	{HeartbeatPath, "heartbeat-path", "C1", "quorum/raftnet/transport.go", "heartbeats change the term beside the main loop of the raft library, and a saved term may fall", true, true, "TestHeartbeatIsLateForAVote", ""},
	{HangingLeaderStays, "hanging-leader-stays", "C1", "quorum/transfer.go", "a leader whose disk hangs goes on leading", true, false, "TestLeaderWhoseDiskHangs", ""},
	{ImportJoins, "import-joins", "C1", "quorum/plan.go", "a member with imported data joins a cluster that has others, and keeps them", true, true, "TestImportFindsAClusterAtWork", ""},
	{FileOfOne, "file-of-one", "C1", "quorum/filemembers.go", "the leader changes the members to those of its own file, whatever the files of the others say", true, true, "TestFileOfOneMember", ""},
	{TrustedSync, "trusted-sync", "recipes", "recipes/lease.go", "every sync is taken for a proof, whatever the server says of it", true, false, "", "mutex"},
	{TurnWithoutLook, "turn-without-look", "recipes", "recipes/place.go", "a contender takes the lock when the node before its own has gone, without a look at those before that", true, false, "", "mutex"},
	{LostCreateForgotten, "lost-create-forgotten", "recipes", "recipes/node.go", "a node whose creation was not answered is looked for without a write before", true, false, "", "mutex"},
	{DelayIgnored, "delay-ignored", "recipes", "recipes/delay.go", "the lock delay of a holder that has vanished is over at once", true, false, "", "delay"},
	{WriterPassesReaders, "writer-passes-readers", "recipes", "recipes/place.go", "a writer waits for no reader", true, false, "", "rwmutex"},
	{LeaseTooMany, "lease-too-many", "recipes", "recipes/semaphore.go", "a semaphore has a lease more than it may", true, false, "", "semaphore"},
	{LockBesideIgnored, "lock-beside-ignored", "recipes", "recipes/semaphore.go", "a semaphore does not wait for the locks on its path", true, false, "", "semaphore-mutex"},
	{NodeOfAnother, "node-of-another", "recipes", "recipes/node.go", "a simple lock's node is taken for our own, whoever made it", true, false, "", "simple"},
	{LostPartHeld, "lost-part-held", "recipes", "recipes/multi.go", "several locks count as held when one of them is lost", true, false, "", "multi"},
	{MinorityHeld, "minority-held", "recipes", "recipes/multi.go", "half of the clusters, rounded down, are a majority", true, false, "", "majority"},
	{StillWrites, "still-writes", "recipes", "recipes/rwmutex.go", "a writer lets readers in before it counts as one of them", true, false, "", "rwmutex"},
	{LeaderAgain, "leader-again", "recipes", "recipes/grant.go", "a leadership that was lost stands again with the next proof", true, false, "", "election"},
	{OpenedUnchecked, "opened-unchecked", "recipes", "recipes/barrier.go", "a double barrier is opened though a member that was counted has gone", true, false, "", "doublebarrier"},
	{LateUnmarked, "late-unmarked", "recipes", "recipes/barrier.go", "who comes late into a double barrier does not say that it is inside", true, false, "", "doublebarrier"},
	{WaitUnsynced, "wait-unsynced", "recipes", "recipes/barrier.go", "who waits for a barrier believes a server that is behind", true, false, "", "barrier"},
	{CommitTwice, "commit-twice", "recipes", "recipes/request.go", "a change whose answer was lost is made again", true, false, "", "counter"},
	{DoneInDoubt, "done-in-doubt", "recipes", "recipes/queue.go", "an item counts as done when nobody knows", true, false, "", "queue"},
	{MembersUnsynced, "members-unsynced", "recipes", "recipes/group.go", "the members of a group are those that a server knows that is behind", true, false, "", "group"},
	{HoldUntold, "hold-untold", "recipes", "recipes/mutex.go", "Hold does not say that the lock was lost before its function had finished", true, false, "", "hold"},
	{UnlockedEarly, "unlocked-early", "recipes", "recipes/mutex.go", "the first of several unlocks of a handle gives the lock back", true, false, "", "handle"},
	{GuardUnchecked, "guard-unchecked", "recipes", "recipes/grant.go", "a guarded write does not ask for the lock's node", true, false, "", "guard"},
	{CountStays, "count-stays", "recipes", "recipes/semaphore.go", "a number of leases that has become smaller is overlooked", true, false, "", "semaphore-count"},
	{GoneUnnoticed, "gone-unnoticed", "recipes", "recipes/place.go", "a contender does not notice that its node was deleted", true, false, "", "operator"},
	{LeaderUnsynced, "leader-unsynced", "recipes", "recipes/election.go", "the leader that is shown first is the one that a server knows that is behind", true, false, "", "observe"},
	{MemberStays, "member-stays", "recipes", "recipes/group.go", "a member whose data have changed is shown as it was", true, false, "", "watch"},
	{UrgentPasses, "urgent-passes", "recipes", "recipes/place.go", "an urgent contender does not wait for those in front of it", true, false, "", "priority"},
	{YieldsForEver, "yields-for-ever", "recipes", "recipes/place.go", "a contender yields to each more urgent one, and starves", true, false, "", "priority"},
	{TokenKept, "token-kept", "recipes", "recipes/node.go", "a contender that has yielded keeps the token of its first node", true, false, "", "priority"},
	{MoveUnsettled, "move-unsettled", "recipes", "recipes/node.go", "a move to the end of the queue that was not answered is taken for one that was not made", true, false, "", "priority"},
	{LeaseKept, "lease-kept", "recipes", "recipes/place.go", "a contender that leaves the gate of a semaphore to a more urgent one keeps its lease", true, false, "", "priority-semaphore"},
	{UrgentPassesHTTP, "urgent-passes-http", "locks", "server/httplock/contender.go", "an urgent contender over HTTP does not wait for those in front of it", true, false, "TestUrgentOverHTTP", ""},
	{YieldsForEverHTTP, "yields-for-ever-http", "locks", "server/httplock/contender.go", "a contender over HTTP yields to each more urgent one, and starves", true, false, "TestUrgentOverHTTP", ""},
	{TokenKeptHTTP, "token-kept-http", "locks", "server/httplock/contender.go", "a contender over HTTP that has yielded keeps the token of its first node", true, false, "TestUrgentOverHTTP", ""},
}

// active is the mutation that is switched on.
var active Mutation

// On says whether a mutation is switched on.
func On(m Mutation) bool { return Compiled && active == m }

// Use switches a mutation on by its name, and all others off; "" switches all off. It must be
// called before anything runs. Errors: the name is unknown; the binary has no mutations.
func Use(name string) error {
	active = None
	if name == "" {
		return nil
	}
	if !Compiled {
		return fmt.Errorf("mutant: %s: this binary was built without the overlay", name)
	}
	for _, e := range Table {
		if e.Name == name {
			active = e.Mutation
			return nil
		}
	}
	return fmt.Errorf("mutant: there is no mutation %q", name)
}
