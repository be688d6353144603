package peer

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"

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

// ClusterID names a cluster: see raftnet.BirthOf.
type ClusterID = znode.ClusterID

// Identity is a member with its disk, and the cluster that it belongs to; 0: none yet.
type Identity struct {
	Member  MemberID
	Disk    DiskID
	Cluster ClusterID
}
