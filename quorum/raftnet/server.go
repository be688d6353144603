package raftnet

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
)

// AloneAddr stands for the address of a member alone in the configuration that it writes.
const AloneAddr raft.ServerAddress = "standalone"

// ServerID is raft's name of a member with a disk: "3-00c0ffee00c0ffee". A member with a replaced
// disk is another server, which has cast no vote and acknowledged no entry of the old one.
func ServerID(id peer.MemberID, disk peer.DiskID) raft.ServerID {
	return raft.ServerID(strconv.Itoa(int(id)) + "-" + disk.String())
}

// ParseServer is the reverse of ServerID. It reports false for everything that ServerID does not
// return.
func ParseServer(id raft.ServerID) (peer.MemberID, peer.DiskID, bool) {
	number, hex, _ := strings.Cut(string(id), "-")
	n, err := strconv.ParseUint(number, 10, 8)
	if err != nil {
		return peer.NoMember, 0, false
	}
	d, err := strconv.ParseUint(hex, 16, 64)
	if err != nil || d == 0 || ServerID(peer.MemberID(n), peer.DiskID(d)) != id {
		return peer.NoMember, 0, false
	}
	return peer.MemberID(n), peer.DiskID(d), true
}

// IDOf is the member of a server. It is NoMember for the empty ID, which is raft's for no server.
func IDOf(id raft.ServerID) peer.MemberID {
	member, _, _ := ParseServer(id)
	return member
}

// DiskOf is the disk of a server; 0 for the empty ID.
func DiskOf(id raft.ServerID) peer.DiskID {
	_, disk, _ := ParseServer(id)
	return disk
}

// DisksOf are the servers of a member, a voter first: two while its disk is being replaced.
func DisksOf(servers []raft.Server, id peer.MemberID) (of []raft.Server) {
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

// BirthOf is the ClusterID of the cluster that begins with these servers. Their disks are random,
// so no two clusters have the same one.
func BirthOf(servers []raft.Server) peer.ClusterID {
	var ids []string
	for _, s := range servers {
		ids = append(ids, string(s.ID))
	}
	slices.Sort(ids)
	sum := sha256.Sum256([]byte(strings.Join(ids, " ")))
	return max(1, peer.ClusterID(binary.BigEndian.Uint64(sum[:])))
}

// portView is a Local in the words of the port.
type portView struct{ Local }

// ForPort returns l in the words of the port.
func ForPort(l Local) peer.Local { return portView{l} }

// Servers implements peer.Local.
func (v portView) Servers() []peer.Server {
	servers := v.Local.Servers()
	list := make([]peer.Server, len(servers))
	for i, s := range servers {
		id, disk, _ := ParseServer(s.ID)
		list[i] = peer.Server{Member: id, Disk: disk, Voter: s.Suffrage == raft.Voter}
	}
	return list
}

// Leader implements peer.Local.
func (v portView) Leader() (leader peer.Server, known bool) {
	id, disk, known := ParseServer(v.Local.Leader())
	return peer.Server{Member: id, Disk: disk, Voter: true}, known
}
