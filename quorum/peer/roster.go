package peer

import (
	"hash/crc32"
	"slices"
	"sync"

	"lockkeeper/znode"
)

// MemberID numbers a member: the N of its server.N line and the content of its myid file, 0 to 255;
// or it is NoMember.
type MemberID int16

// NoMember is the MemberID of no member: of the leader while none is known, for example.
const NoMember MemberID = -1

// Member is one machine of the cluster as the configuration names it.
type Member struct {
	ID       MemberID
	Addr     string // host:port of the peer port
	Observer bool   // replicates but does not vote
}

// Server is a disk that counts, and whether it votes.
type Server struct {
	Member MemberID
	Disk   DiskID
	Voter  bool
}

// Local is this member as the port asks it. Its methods are called by several
// goroutines, from Port.Start on.
type Local interface {
	// Servers are the disks that the newest configuration in the log counts, committed or not. A
	// member has two while its disk is being replaced.
	Servers() []Server
	// Leader is the disk that leads; false: this member knows none.
	Leader() (leader Server, known bool)
}

// Sum is a checksum, never 0, of who the members are and which of them vote; not of their
// addresses.
func Sum(members []Member) uint32 {
	var votes [256]byte
	for _, m := range members {
		votes[m.ID] = 1
		if m.Observer {
			votes[m.ID] = 2
		}
	}
	return max(1, crc32.ChecksumIEEE(votes[:]))
}

// formerAddrs bounds the former addresses of a member that are still tried: it may not have learned
// yet that it has moved.
const formerAddrs = 2

// Roster is where the members are. The log counts them by number and disk only.
type Roster struct {
	file  []Member // of the configuration
	local Local

	reconfig bool // the agreed members count more than the file

	mu     sync.Mutex
	birth  ClusterID             // of this member's cluster; 0 while it has none
	agreed map[MemberID]string   // of the members in the state
	coming map[MemberID]string   // of the change under way
	former map[MemberID][]string // the newest first
}

// NewRoster makes the roster of a member with these members in its configuration file. With
// reconfig, the members that have been agreed upon count more than the file.
func NewRoster(file []Member, reconfig bool, local Local) *Roster {
	return &Roster{file: file, local: local, reconfig: reconfig, agreed: map[MemberID]string{},
		coming: map[MemberID]string{},
		former: map[MemberID][]string{}}
}

// Update records the members that have been agreed upon, and the members of the change under way.
func (r *Roster) Update(agreed, coming []znode.Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := addrsOf(agreed)
	for id, old := range r.agreed {
		if addr, ok := now[id]; ok && addr != old {
			r.former[id] = slices.Insert(r.former[id], 0, old)
			r.former[id] = r.former[id][:min(len(r.former[id]), formerAddrs)]
		}
	}
	r.agreed, r.coming = now, addrsOf(coming)
}

func addrsOf(ms []znode.Member) map[MemberID]string {
	addrs := map[MemberID]string{}
	for _, m := range ms {
		addrs[MemberID(m.ID)] = m.PeerAddr()
	}
	return addrs
}

// addrs are the addresses at which a member may be, the most likely first. As long as reconfig is
// not enabled it is the one in this member's own file, and no other: members may see each other at
// different addresses.
func (r *Roster) addrs(id MemberID) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	add := func(addr string) {
		if addr != "" && !slices.Contains(all, addr) {
			all = append(all, addr)
		}
	}
	file := ""
	for _, m := range r.file {
		if m.ID == id {
			file = m.Addr
		}
	}
	if file != "" && !r.reconfig {
		return []string{file}
	}
	add(r.agreed[id])
	add(r.coming[id])
	for _, addr := range r.former[id] {
		add(addr)
	}
	add(file)
	return all
}

// isPeer reports whether a member with that disk may take part, as far as this one knows: the log
// counts it, or it is a member under whose number the log counts no disk yet. One that knows no
// members yet accepts all.
func (r *Roster) isPeer(id MemberID, disk DiskID) bool {
	servers := r.local.Servers()
	if len(servers) == 0 {
		return true
	}
	if counted := countedDisk(servers, id, disk); counted != 0 {
		return counted == disk
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, agreed := r.agreed[id]
	_, coming := r.coming[id]
	return agreed || coming
}

// countedDisk is the disk that counts under the number of a member: that one if it does, else a
// voter's if there is one; 0: none.
func countedDisk(servers []Server, id MemberID, disk DiskID) (counted DiskID) {
	for _, s := range servers {
		switch {
		case s.Member != id:
		case s.Disk == disk:
			return disk
		case s.Voter || counted == 0:
			counted = s.Disk
		}
	}
	return counted
}

// Cluster is the cluster that this member belongs to; 0 for none.
func (r *Roster) Cluster() ClusterID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.birth
}

// SetCluster records the cluster that this member belongs to.
func (r *Roster) SetCluster(birth ClusterID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.birth = birth
}
