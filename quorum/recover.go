package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
	"lockkeeper/znode"
)

// Survivor is what there is of a cluster on the disk of a member that does not run, or in a
// snapshot: a snapshot has State, LastTerm and LastIndex only.
type Survivor struct {
	Member  MemberID
	Disk    peer.DiskID
	Cluster peer.ClusterID
	// Term is the newest term that the member has taken part in.
	Term uint64
	// LastTerm and LastIndex are those of the last entry. Of several disks the one with the greater
	// (LastTerm, LastIndex) has all that the other one has, and that was ever answered.
	LastTerm, LastIndex uint64
	// CommitIndex is an index up to which entries are known to be committed.
	CommitIndex uint64
	// Voters are the numbers of those in the newest configuration in the log.
	Voters []MemberID
	// Servers are those of that configuration.
	Servers []raft.Server
	State   *znode.Store
}

// Survey reads the disk of a member that does not run. Entries at the end of the log may not be
// committed: a survey takes them for true, because they may have been answered.
func Survey(s Stores) (*Survivor, error) {
	v := &Survivor{Member: NoMember}
	identity, err := s.Stable.Get(identityKey)
	switch {
	case err != nil && !isAbsent(err):
		return nil, fmt.Errorf("quorum: read identity of %s: %w", s.stableName(), err)
	case len(identity) == 16:
		v.Member = MemberID(binary.BigEndian.Uint64(identity))
		v.Disk = peer.DiskID(binary.BigEndian.Uint64(identity[8:]))
	}
	if v.Cluster, err = s.cluster(); err != nil {
		return nil, err
	}
	if v.Term, err = storedNumber(s.Stable, keyTerm); err != nil {
		return nil, fmt.Errorf("quorum: read term of %s: %w", s.stableName(), err)
	}
	if v.State, v.LastTerm, err = LastState(s); err != nil {
		return nil, err
	}
	list, err := s.Snapshots.List()
	if err != nil {
		return nil, fmt.Errorf("quorum: list snapshots: %w", err)
	}
	var servers []raft.Server
	if len(list) > 0 {
		v.LastIndex, v.CommitIndex, servers = list[0].Index, list[0].Index, list[0].Configuration.Servers
	}
	last, err := s.Log.LastIndex()
	if err != nil {
		return nil, fmt.Errorf("quorum: read log: %w", err)
	}
	first, err := s.Log.FirstIndex()
	if err != nil {
		return nil, fmt.Errorf("quorum: read log: %w", err)
	}
	for i := max(first, v.LastIndex+1); i <= last && last > 0; i++ {
		var l raft.Log
		if err := s.Log.GetLog(i, &l); err != nil {
			return nil, fmt.Errorf("quorum: read log: %w", err)
		}
		if l.Type == raft.LogConfiguration {
			servers = raft.DecodeConfiguration(l.Data).Servers
		}
	}
	v.LastIndex, v.CommitIndex = max(v.LastIndex, last), max(v.CommitIndex, s.Log.CommitIndex())
	v.Servers = servers
	for _, srv := range servers {
		if srv.Suffrage == raft.Voter {
			v.Voters = append(v.Voters, peer.IDOf(srv.ID))
		}
	}
	return v, nil
}

// Time is the wall clock of the leader that made the newest entry; zero without any.
func (v *Survivor) Time() time.Time {
	if ms := v.State.TimeMs(); ms > 0 {
		return time.UnixMilli(ms)
	}
	return time.Time{}
}

// termsUnseen is how many terms the old cluster may have gone on without the surviving disk. The
// zxids of the new cluster begin behind those of all of them, so no fencing token is given twice.
const termsUnseen = 1 << 16

// Recover makes empty stores those of the only voter of a new cluster that begins with the state of
// a survivor. The ID, Members and Stores of cfg are those that Open will get; its members count,
// not those of the old cluster, and the others are taken in when they come with empty disks. It
// returns the id of the new cluster. Like an import it can be repeated if it does not come to its
// end. Errors: ErrNotEmpty, those of the stores.
func Recover(cfg Config, from *Survivor) (peer.ClusterID, error) {
	s := &cfg.Stores
	if err := s.isEmpty(); err != nil {
		return 0, err
	}
	disk, err := s.claim(cfg.ID)
	if err != nil {
		return 0, err
	}
	self := peer.ServerID(cfg.ID, disk)
	servers := raft.Configuration{Servers: []raft.Server{{Suffrage: raft.Voter, ID: self, Address: raft.ServerAddress(self)}}}
	if cfg.alone() {
		servers = aloneConfiguration(self)
	}
	cluster := peer.BirthOf(servers.Servers)
	from.State.RenameCluster(cluster)
	snap := from.State.Snapshot()
	defer snap.Release()
	term, index := max(from.Term, from.LastTerm)+termsUnseen, max(from.LastIndex, 1)
	for _, step := range []func() error{
		func() error { return s.Stable.SetUint64(importKey, importBegun) },
		func() error { return s.writeSnapshot(servers, index, max(from.LastTerm, 1), snap) },
		func() error { return s.Stable.SetUint64(keyTerm, term) },
		func() error { return s.Stable.SetUint64(clusterKey, uint64(cluster)) },
		func() error { return s.Stable.SetUint64(importKey, importComplete) },
	} {
		if err := step(); err != nil {
			return 0, fmt.Errorf("quorum: recover: %w", err)
		}
	}
	return cluster, nil
}

// SurviveSnapshot is the Survivor of a state that was saved with 'lockkeeper snapshot save'.
func SurviveSnapshot(state *znode.Store) (*Survivor, error) {
	zxid := uint64(state.Zxid())
	if zxid == 0 {
		return nil, errors.New("quorum: recover: the snapshot has no update")
	}
	return &Survivor{Member: NoMember, Cluster: state.Cluster(), LastTerm: max(1, zxid>>32), LastIndex: max(1, zxid&0xffffffff), State: state}, nil
}
