package quorum

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/raftnet"
	"lockkeeper/quorum/store"
	"lockkeeper/znode"
)

// The values of store.Standing. It is written at each start, and only read by Peek.
const (
	standingAlone   = 1
	standingCluster = 2
)

// recordStanding saves whether raft counts a member alone or the members of a cluster.
func recordStanding(s *store.Stores, servers []raft.Server) error {
	now := uint64(standingCluster)
	if servers[0].Address == raftnet.AloneAddr {
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
		return disk, s.SetIdentity(store.Identity{Owner: uint64(id), Disk: uint64(disk)})
	case identity.Owner != uint64(id):
		return 0, fmt.Errorf("quorum: %s holds the log and the votes of member %d, and this is member %d: compare "+
			"myid and dataDir with the server lines",
			s.StableName, identity.Owner, id)
	}
	return peer.DiskID(identity.Disk), nil
}

// Owner is the member that a log directory belongs to.
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

// Peek reads the owner of a log directory, and verifies raft.db, without changing anything. Errors
// name the file: store.ErrInUse, while a member runs on it, store.ErrDamaged, store.ErrFormat.
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
	if !o.Alone && o.Cluster != 0 && o.Cluster != raftnet.BirthOf([]raft.Server{{ID: raftnet.ServerID(o.Member,
		o.Disk)}}) {
		o.InCluster = true
	}
	return o, err
}

// loadSnapshot restores the newest snapshot. Without one the state is empty, and the snapshot's
// index is 0.
func loadSnapshot(s *store.Stores) (*znode.Store, *store.Snapshot, error) {
	newest, err := s.Newest()
	if err != nil {
		return nil, nil, err
	}
	if newest == nil {
		return znode.New(), &store.Snapshot{SnapshotMeta: &raft.SnapshotMeta{}}, nil
	}
	r, err := newest.Open()
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	saved, err := znode.Restore(r)
	if err != nil {
		return nil, nil, fmt.Errorf("quorum: restore snapshot %s: %w", newest.Name, unreadable(err))
	}
	return saved, newest, nil
}

// unreadable is an error of package znode about stored bytes as one of package store:
// ErrFormat, ErrDamaged, or err itself.
func unreadable(err error) error {
	switch {
	case errors.Is(err, znode.ErrNewer):
		return fmt.Errorf("%w: %w", store.ErrFormat, err)
	case errors.Is(err, znode.ErrDamaged):
		return fmt.Errorf("%w: %w", store.ErrDamaged, err)
	}
	return err
}

// LastState is the state after the last entry of the log of a member that does not run, and that
// entry's term. Entries at the end of the log may not be committed, as in ZooKeeper's logs: of
// several members the one with the greatest term and zxid has all that was acknowledged.
func LastState(s store.Stores) (last *znode.Store, term uint64, err error) {
	if err := checkImport(&s); err != nil {
		return nil, 0, err
	}
	last, newest, err := loadSnapshot(&s)
	if err != nil {
		return nil, 0, err
	}
	term = newest.Term
	err = eachLog(&s, newest.Index+1, func(l *raft.Log) error {
		if term = l.Term; l.Type != raft.LogCommand {
			return nil
		}
		entry, err := decodeEntry(&s, l)
		if err == nil {
			last.Apply(term, entry, func(*znode.Command, *znode.Result) {})
		}
		return err
	})
	return last, term, err
}

// EachEntry calls each with the entries of a member's log, in order, from an index on. Raft's own
// entries have no znode.Entry.
func EachEntry(s store.Stores, from uint64, each func(index, term uint64, entry *znode.Entry) error) error {
	first, _, err := store.Bounds(s.Log)
	if err != nil {
		return fmt.Errorf("quorum: read log: %w", err)
	}
	return eachLog(&s, max(from, first), func(l *raft.Log) error {
		if l.Type != raft.LogCommand {
			return each(l.Index, l.Term, nil)
		}
		entry, err := decodeEntry(&s, l)
		if err != nil {
			return err
		}
		return each(l.Index, l.Term, entry)
	})
}

// eachLog calls each with the entries of a log, in order, from an index on, which must be there if
// a later one is.
func eachLog(s *store.Stores, from uint64, each func(*raft.Log) error) error {
	last, err := s.Log.LastIndex()
	if err != nil {
		return fmt.Errorf("quorum: read log: %w", err)
	}
	for i := from; i <= last; i++ {
		var l raft.Log
		if err := s.Log.GetLog(i, &l); err != nil {
			return fmt.Errorf("quorum: read log: %w", err)
		}
		if err := each(&l); err != nil {
			return err
		}
	}
	return nil
}

// decodeEntry decodes the commands of an entry. Errors: store.ErrFormat, store.ErrDamaged; they
// name the log.
func decodeEntry(s *store.Stores, l *raft.Log) (*znode.Entry, error) {
	entry, err := znode.DecodeEntry(l.Data)
	if err != nil {
		return nil, fmt.Errorf("quorum: %s: entry %d of term %d: %w", s.LogName, l.Index, l.Term, unreadable(err))
	}
	return entry, nil
}

// aloneConfiguration is raft's configuration of a member that stands alone.
func aloneConfiguration(self raft.ServerID) raft.Configuration {
	return raft.Configuration{Servers: []raft.Server{{Suffrage: raft.Voter, ID: self, Address: raftnet.AloneAddr}}}
}

// The values of store.Import.
const (
	importComplete = iota // or there was none
	importBegun
	importForeign // the leader has the data of another ensemble
)

// checkImport is an error if an import has begun and not come to its end, or the cluster has the
// data of another ensemble.
func checkImport(s *store.Stores) error {
	stage, err := s.Number(store.Import)
	switch {
	case err != nil:
		return err
	case stage == importBegun:
		err = errors.New("an import has not been completed: run it again")
	case stage == importForeign:
		err = errForeign
	}
	if err != nil {
		return fmt.Errorf("quorum: %s: %w", s.StableName, err)
	}
	return nil
}

var errForeign = errors.New("the data that were imported here are not of the ensemble whose data the leader has: " +
	"nothing was " +
	"changed in ZooKeeper's files. Look at the addresses in the configuration files; if this member belongs to that " +
	"cluster, remove " +
	"its raft.db, raft.wal and snapshots, and start it without an import")
