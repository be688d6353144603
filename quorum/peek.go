package quorum

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/mutant"
	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/store"
)

// The values of store.Standing. It is written at each start, and only read by Peek.
const (
	standingAlone   = 1
	standingCluster = 2
)

// recordStanding saves whether raft counts a member alone or those of a cluster.
func recordStanding(s *store.Stores, servers []raft.Server) error {
	now := uint64(standingCluster)
	if servers[0].Address == peer.AloneAddr {
		now = standingAlone
	}
	if known, err := s.Number(store.Standing); err == nil && known == now {
		return nil
	}
	return s.SetNumber(store.Standing, now)
}

// claim returns the id of the disk. It refuses stores that belong to another member: a member that
// runs with the vote of another could vote twice. Stores without an identity become this member's,
// with a new id.
func claim(s *store.Stores, id MemberID) (peer.DiskID, error) {
	identity, err := s.Identity()
	switch {
	case err != nil:
		return 0, err
	case identity.Disk == 0:
		disk := peer.NewDiskID()
		if mutant.On(mutant.DiskByNumber) {
			disk = peer.DiskID(id)
		}
		return disk, s.SetIdentity(store.Identity{Owner: uint64(id), Disk: uint64(disk)})
	case identity.Owner != uint64(id):
		return 0, fmt.Errorf("quorum: %s holds the log and the votes of member %d, and this is member %d: compare myid and dataDir with the server lines",
			s.StableName, identity.Owner, id)
	}
	return peer.DiskID(identity.Disk), nil
}

// Owner says whose a log directory is.
type Owner struct {
	Member  MemberID // NoMember: it is nobody's yet
	Disk    peer.DiskID
	Cluster peer.ClusterID // 0: none yet
	// Alone says that the member stood alone, InCluster that it was one of a cluster. Neither is
	// known of one that has not begun.
	Alone, InCluster bool
	Kind             store.LogKind
	// Outdated is why the files must not be used any more; empty: they may.
	Outdated string
}

// Peek reads whose a log directory is, and verifies raft.db, without changing anything. Errors name
// the file: store.ErrInUse, while a member runs on it, store.ErrDamaged, store.ErrFormat.
func Peek(logDir string) (o Owner, err error) {
	err = store.Peek(logDir, func(s *store.Stores, kind store.LogKind) error {
		identity, err := s.Identity()
		cluster, err2 := s.Number(store.Cluster)
		standing, err3 := s.Number(store.Standing)
		o = Owner{Member: NoMember, Disk: peer.DiskID(identity.Disk), Cluster: peer.ClusterID(cluster),
			Alone: standing == standingAlone, InCluster: standing == standingCluster, Kind: kind}
		if identity.Disk != 0 {
			o.Member = MemberID(identity.Owner)
		}
		var err4 error
		o.Outdated, err4 = s.Retired()
		return errors.Join(err, err2, err3, err4)
	})
	if !o.Alone && o.Cluster != 0 && o.Cluster != peer.BirthOf([]raft.Server{{ID: peer.ServerID(o.Member, o.Disk)}}) {
		o.InCluster = true
	}
	return o, err
}
