package model

// The sizes of a State. Bounds are at most these.
const (
	MaxMembers  = 4
	Disks       = 2 // of each member, one after the other
	MaxClusters = 2
	MaxTerm     = 5 // the first configuration is of term 1, elections begin with term 2
	maxServers  = MaxMembers * Disks
)

// nobody is a vote for no server.
const nobody Server = 0xff

// State is the durable and volatile state of all members, the requests that were ever sent, and the
// history that the invariants compare with. States are comparable.
type State struct {
	Members  [MaxMembers]Member
	Disks    [maxServers]Disk
	Clusters [MaxClusters]Cluster // in the order of their births
	Seconds  uint8                // the members (bits) whose first disk was replaced
	Writes   uint8                // of clients, so far
	Returns  uint8                // of disks that were away, so far
	Words    uint8                // of the operator, so far
	Broken   Invariant
}

// Role is the role of a process in its term.
type Role uint8

// The roles.
const (
	Follower Role = iota
	Candidate
	Leader
)

// Member is a process. A crash clears all of it but the disk that it has.
type Member struct {
	Disk    uint8             // the place of its disk, of Disks
	Role    Role              // in the term of the disk
	Votes   Set               // a candidate's
	Acked   [maxServers]uint8 // a leader's: the match index of each server
	Commit  uint8             // a leader's; 0 until it commits an entry of its own term
	Blank   Set               // disks that have answered as blank
	Word    uint8             // the members (bits) that never worked, by the operator's word
	Cluster uint8             // the cluster that it has joined with Rules.VolatileJoin
}

// Disk is a data directory. A transaction changes it as a whole.
type Disk struct {
	Cluster  uint8 // the cluster (from 1) that it has joined; 0: none
	Term     uint8
	VoteTerm uint8
	VoteFor  Server
	Log      LogID
}

// Cluster is a birth, and the requests that were sent in the cluster.
type Cluster struct {
	First     LogID // the first configuration, of whose disks the cluster's id is a digest
	Terms     [MaxTerm + 1]Term
	Committed LogID             // the history: committed entries
	In        [maxLog + 1]uint8 // by index: the term of the leader that committed the entry
	Answered  bool              // whether a client's write was answered
}

// maxLog is the length of the longest log.
const maxLog = 16

// Term is the requests of a term.
type Term struct {
	Stands [maxServers]LogID // RequestVote: the log of each candidate; 0: it did not stand
	Leader Server
	Log    LogID // AppendEntries: all that the leader sent, in slices
}

func firstState() State {
	var s State
	for i := range s.Disks {
		s.Disks[i].VoteFor = nobody
	}
	for i := range s.Clusters {
		for j := range s.Clusters[i].Terms {
			s.Clusters[i].Terms[j].Leader = nobody
		}
	}
	return s
}

// server is the disk that member m has now.
func (s *State) server(m int) Server { return Server(m*Disks + int(s.Members[m].Disk)) }

// cluster is the cluster that member m belongs to; 0: none.
func (s *State) cluster(m int) uint8 {
	if c := s.Disks[s.server(m)].Cluster; c != 0 {
		return c
	}
	return s.Members[m].Cluster
}

// mounted is the disks that the members have now.
func (s *State) mounted(members int) (all Set) {
	for m := range members {
		all |= 1 << s.server(m)
	}
	return all
}

// forget clears the volatile state of member m.
func (s *State) forget(m int) { s.Members[m] = Member{Disk: s.Members[m].Disk} }

// follow makes member m a follower of term.
func (s *State) follow(m int, term uint8) {
	p, d := &s.Members[m], &s.Disks[s.server(m)]
	if d.Term == term && p.Role == Follower {
		return
	}
	d.Term = term
	p.Role, p.Votes, p.Acked, p.Commit = Follower, 0, [maxServers]uint8{}, 0
}
