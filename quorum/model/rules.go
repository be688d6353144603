package model

// Rules change the protocol. The zero value is the protocol that is built.
type Rules struct {
	// Identity
	VotesByNumber bool // a vote counts for the member's number, whatever its disk
	AcksByNumber  bool // so does an acknowledgement
	ByNumber      bool // and servers of a configuration, clusters, streams: no disk ids at all

	// Birth and join
	BirthByMajority bool // a majority of blank voters gives birth, and any of them may
	VolatileJoin    bool // the cluster's id is not saved before the first answer
	RunningWord     bool // the word may name a member whose process is running
	SilentWord      bool // an answer does not say which members the word names
	FalseWord       bool // the word may name a member that has worked

	// Stable values
	HalfVote    bool // term and candidate of a vote are two transactions
	FallingTerm bool // a request of an older term takes the saved term back

	// Healing
	UnsettledChange bool // a leader changes members before an entry of its own term is committed
	HastyChange     bool // ... before the change before is committed
	LonelyChange    bool // a leader alone commits a change
	PromoteEmpty    bool // a new disk gets its vote before it has the log
	PromoteFirst    bool // ... before the old disk is removed
	SkipNonvoter    bool // ... in the same entry in which the old disk is removed
	AnyCandidate    bool // a voter grants votes to servers outside its configuration

	// Faults that are outside the protocol's assumptions
	LostMajority bool // disks are lost, never mind a majority
	SetBack      bool // a disk loses its newest entry, and its vote, and keeps its id
}

// Bounds limit an exploration.
type Bounds struct {
	Members  int       // 1 to MaxMembers
	Terms    int       // elections take place in terms 2 to Terms+1
	Writes   int       // of clients
	Replaced int       // disks that are replaced, in all
	Returns  int       // disks that come back, with what they had
	Words    int       // of the operator
	Changes  int       // Config entries of a log behind the first; 0: no healing
	Blank    bool      // begin with blank disks, else with a cluster that all have joined
	Find     Invariant // the only invariant that ends the exploration; Kept: any
	States   int       // the exploration ends with an error beyond that many; 0: no limit
}
