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
	_        [0]uint64 // for frontier: the alignment, and a size that is a multiple of 8
	Members  [MaxMembers]Member
	Disks    [maxServers]Disk
	Clusters [MaxClusters]Cluster // in the order of their births
	Session  Session
	Seconds  uint8 // the members (bits) whose first disk was replaced
	Entries  uint8 // that were proposed for clients, so far
	Returns  uint8 // of disks that were away, so far
	Words    uint8 // of the operator, so far
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
	Cluster uint8             // the cluster that it has joined without DurableJoin
	Beat    uint8             // the term of a heartbeat beside the main loop; 0: none
	Applied LogID             // the state: the entries that are applied, in Bounds.Snapshots
	Lease   Lease             // in Bounds.Lease
}

// Disk is a data directory. A transaction changes it as a whole.
type Disk struct {
	Cluster  uint8 // the cluster (from 1) that it has joined; 0: none
	Term     uint8
	VoteTerm uint8
	VoteFor  Server
	Unsynced uint8 // the newest entries of Log that a crash takes away
	Log      LogID
}

// Cluster is a birth, and the requests that were sent in the cluster.
type Cluster struct {
	First     LogID // the first configuration, of whose disks the cluster's id is a digest
	Terms     [MaxTerm + 1]Term
	Committed LogID             // the history: committed entries
	In        [maxLog + 1]uint8 // by index: the term of the leader that committed the entry
	Answered  bool              // a client's entry was answered
}

// maxLog is the length of the longest log.
const maxLog = 16

// Term is the requests of a term.
type Term struct {
	Stands   [maxServers]LogID // RequestVote: the log of each candidate; 0: it did not stand
	Leader   Server
	Snapshot uint8             // InstallSnapshot: the longest state that the leader had
	Log      LogID             // AppendEntries: all that the leader sent, in slices
	Early    [maxServers]uint8 // notices: the highest early commit index for each server
}

// Lease is the part of a member in the lease of the session. Ages count ticks of the member's
// clock from 1; 0 stands for never, and for longer ago than a lease.
type Lease struct {
	Confirmed uint8             // the age of the newest confirmation
	Proposed  uint8             // the age of the attach that the member has proposed for the client
	Due       uint8             // a leader's: 1 + the ticks until it ends the session; 0: untracked
	Contact   [maxServers]uint8 // a leader's: the age of the newest proof by each server
	Answers   Set               // heartbeats that were answered, the answers under way
	Under     bool              // a confirmation is under way
	Asleep    bool              // the machine is suspended
}

// Session is the one session of the model, and its client.
type Session struct {
	At     uint8                // 1 + the member that the client is connected to; 0: none
	Belief uint8                // ticks for which the client believes itself connected
	Ended  bool                 // the end of the session is committed
	Errors uint8                // ticks that a clock missed or doubled, so far
	Sleeps uint8                // suspends, so far
	Moves  uint8                // of the client to another member, so far
	Sent   [maxGeneration]uint8 // by generation - 1: the commands that were sent on the connection
}

// maxGeneration is the number of connections of the session, one after the other.
const maxGeneration = 2

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

// disk is the data directory that member m has now.
func (s *State) disk(m int) *Disk { return &s.Disks[s.server(m)] }

// cluster is the cluster that member m belongs to; 0: none.
func (s *State) cluster(m int) uint8 {
	if c := s.disk(m).Cluster; c != 0 {
		return c
	}
	return s.Members[m].Cluster
}

// term is the requests of the term that member m is in.
func (s *State) term(m int) *Term { return &s.Clusters[s.cluster(m)-1].Terms[s.disk(m).Term] }

// mounted is the disks that the members have now.
func (s *State) mounted(members int) (all Set) {
	for m := range members {
		all |= 1 << s.server(m)
	}
	return all
}

// leads reports whether server v is the disk of a process that leads term t.
func (s *State) leads(v Server, t uint8) bool {
	x := v.member()
	return s.server(x) == v && s.Members[x].Role == Leader && s.Disks[v].Term == t
}

// follow makes member m a follower of term.
func (s *State) follow(m int, term uint8) {
	p, d := &s.Members[m], s.disk(m)
	if d.Term == term && p.Role == Follower {
		return
	}
	d.Term = term
	p.Role, p.Votes, p.Acked, p.Commit = Follower, 0, [maxServers]uint8{}, 0
	l := &p.Lease
	*l = Lease{Confirmed: l.Confirmed, Proposed: l.Proposed, Under: l.Under, Asleep: l.Asleep}
}

// crash clears the volatile state of member x: memory, and the entries that are not synced.
func (m *Model) crash(s *State, x int) {
	d := s.disk(x)
	d.Log, d.Unsynced = m.durable(d), 0
	s.Members[x] = Member{Disk: s.Members[x].Disk}
	if int(s.Session.At) == x+1 {
		s.Session.At = 0
	}
}

// durable is the log that the disk has after a crash.
func (m *Model) durable(d *Disk) LogID {
	return m.logs.first(d.Log, m.logs.length(d.Log)-int(d.Unsynced))
}
