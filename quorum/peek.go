package quorum

import (
	"encoding/binary"
	"fmt"
	"path/filepath"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"lockkeeper/quorum/peer"
)

// standingKey is where the stable store keeps whether the member stands alone: standingAlone or
// standingCluster. It is written at each start, and only read by Peek.
var standingKey = []byte("lockkeeper/standing")

const (
	standingAlone   = 1
	standingCluster = 2
)

// recordStanding keeps whether raft counts a member alone or those of a cluster, for Peek.
func (s *Stores) recordStanding(servers []raft.Server) error {
	now := uint64(standingCluster)
	if servers[0].Address == peer.AloneAddr {
		now = standingAlone
	}
	if known, err := storedNumber(s.Stable, standingKey); err == nil && known == now {
		return nil
	}
	if err := s.Stable.SetUint64(standingKey, now); err != nil {
		return fmt.Errorf("quorum: write to %s: %w", s.stableName(), err)
	}
	return nil
}

// Owner says whose a log directory is.
type Owner struct {
	Member  MemberID // NoMember: it is nobody's yet
	Disk    peer.DiskID
	Cluster peer.ClusterID // 0: none yet
	// Alone says that the member stood alone, InCluster that it was one of a cluster. Neither is
	// known of one that has not begun.
	Alone, InCluster bool
	Kind             LogKind
	// Outdated is why the files must not be used any more; empty: they may.
	Outdated string
}

// Peek reads whose a log directory is, and verifies raft.db, without changing anything. Errors name
// the file: ErrInUse, while a member runs on it, ErrDamaged, ErrFormat.
func Peek(logDir string) (o Owner, err error) {
	path := filepath.Join(logDir, logFileName)
	if err := verifyBoltFile(path); err != nil {
		return o, fmt.Errorf("quorum: %s: %w", path, err)
	}
	db, err := raftboltdb.New(boltOptions(path, true))
	if err != nil {
		return o, fmt.Errorf("quorum: %s: %w", path, err)
	}
	defer db.Close()
	f := &boltFile{db: db, path: path}
	o.Member, o.Kind = NoMember, LogBolt
	for key, use := range map[string]func([]byte){
		string(identityKey): func(v []byte) {
			if len(v) == 16 {
				o.Member, o.Disk = MemberID(binary.BigEndian.Uint64(v)), peer.DiskID(binary.BigEndian.Uint64(v[8:]))
			}
		},
		string(clusterKey):  func(v []byte) { o.Cluster = peer.ClusterID(number(v)) },
		string(standingKey): func(v []byte) { o.Alone, o.InCluster = number(v) == standingAlone, number(v) == standingCluster },
		string(segmentsKey): func(v []byte) {
			if len(v) > 0 {
				o.Kind = LogWAL
			}
		},
		string(outdatedKey): func(v []byte) { o.Outdated = string(v) },
	} {
		v, err := f.value([]byte(key))
		if err != nil {
			return o, err
		}
		use(v)
	}
	if !o.Alone && o.Cluster != 0 && o.Cluster != peer.BirthOf([]raft.Server{{ID: peer.ServerID(o.Member, o.Disk)}}) {
		o.InCluster = true
	}
	return o, nil
}

func number(v []byte) uint64 {
	if len(v) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(v)
}
