package peer

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/raft"

	"lockkeeper/znode"
)

// DiskID names a data directory: a random number, never 0, which the directory gets when it is
// created. A member that comes back with an empty disk has another one
// (docs/decisions/017-a-member-is-its-disk.md).
type DiskID uint64

// NewDiskID draws a DiskID.
func NewDiskID() DiskID {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return max(1, DiskID(binary.BigEndian.Uint64(b[:])))
}

// String has 16 hexadecimal digits.
func (d DiskID) String() string { return fmt.Sprintf("%016x", uint64(d)) }

// ClusterID names a cluster: see BirthOf.
type ClusterID = znode.ClusterID

// BirthOf is the ClusterID of the cluster that begins with these servers. Their disks are random,
// so no two clusters have the same one.
func BirthOf(servers []raft.Server) ClusterID {
	var ids []string
	for _, s := range servers {
		ids = append(ids, string(s.ID))
	}
	slices.Sort(ids)
	sum := sha256.Sum256([]byte(strings.Join(ids, " ")))
	return max(1, ClusterID(binary.BigEndian.Uint64(sum[:])))
}

// Identity is a member with its disk, and the cluster that it belongs to; 0: none yet.
type Identity struct {
	Member  MemberID
	Disk    DiskID
	Cluster ClusterID
}

// ServerID is raft's name of a member with a disk: "3-00c0ffee00c0ffee". A member whose disk was
// replaced is another server, which has cast no vote and acknowledged no entry of the old one.
func ServerID(id MemberID, disk DiskID) raft.ServerID {
	return raft.ServerID(strconv.Itoa(int(id)) + "-" + disk.String())
}

// ParseServer is the reverse of ServerID. It reports false for everything that ServerID does not
// return.
func ParseServer(id raft.ServerID) (MemberID, DiskID, bool) {
	number, hex, _ := strings.Cut(string(id), "-")
	n, err := strconv.ParseUint(number, 10, 8)
	if err != nil {
		return NoMember, 0, false
	}
	d, err := strconv.ParseUint(hex, 16, 64)
	if err != nil || d == 0 || ServerID(MemberID(n), DiskID(d)) != id {
		return NoMember, 0, false
	}
	return MemberID(n), DiskID(d), true
}

// IDOf is the member of a server. It is NoMember for the empty ID, which is raft's for no server.
func IDOf(id raft.ServerID) MemberID {
	member, _, _ := ParseServer(id)
	return member
}

// DiskOf is the disk of a server; 0 for the empty ID.
func DiskOf(id raft.ServerID) DiskID {
	_, disk, _ := ParseServer(id)
	return disk
}

// DisksOf are the servers of a member, a voter first: two while its disk is being replaced.
func DisksOf(servers []raft.Server, id MemberID) (of []raft.Server) {
	for _, s := range servers {
		switch {
		case IDOf(s.ID) != id:
		case s.Suffrage == raft.Voter:
			of = slices.Insert(of, 0, s)
		default:
			of = append(of, s)
		}
	}
	return of
}

// counts reports whether a server is among these.
func counts(servers []raft.Server, id raft.ServerID) bool {
	return slices.ContainsFunc(servers, func(s raft.Server) bool { return s.ID == id })
}
