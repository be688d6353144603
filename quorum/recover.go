package quorum

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/raftnet"
	"lockkeeper/quorum/store"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Origin says where in the history of its old cluster a state is that is imported.
type Origin struct {
	// Term is the newest term, or epoch, that the member has taken part in. A leader of this
	// cluster will have a later one.
	Term uint64
	// Of two members the one with the greater (StateTerm, Index) has all that the other one has.
	// Equal ones have the same state.
	StateTerm, Index uint64
}

// ErrNotEmpty says that there is no place for an import: the member has data already.
var ErrNotEmpty = errors.New("there are data already")

// Import writes a state as the snapshot with which a member starts, instead of an empty one. Every
// voter may bring one. The founder of the cluster is a voter with the greatest Origin (judgeBirth),
// and the others get the state from it. The ID, Members and Stores of cfg are those that Open will
// get. An import that does not come to an end can be repeated; Open refuses to start before.
func Import(cfg Config, from Origin, data *znode.Store) error {
	s := &cfg.Stores
	if err := isEmpty(s); err != nil {
		return err
	}
	disk, err := claim(s, cfg.ID)
	if err != nil {
		return err
	}
	// A member of a cluster gets the first configuration when the cluster begins.
	var servers raft.Configuration
	if cfg.alone() {
		servers = aloneConfiguration(raftnet.ServerID(cfg.ID, disk))
	}
	snap := data.Snapshot()
	defer snap.Release()
	return inSteps("import",
		func() error { return s.SetNumber(store.Import, importBegun) },
		func() error { return s.WriteSnapshot(servers, from.Index, from.StateTerm, snap) },
		func() error { return s.SetNumber(store.Term, max(from.Term, from.StateTerm)) },
		func() error { return s.SetNumber(store.ImportIndex, max(from.Index, 1)) },
		func() error { return s.SetNumber(store.Import, importComplete) },
	)
}

// inSteps takes steps in order, up to the first that fails.
func inSteps(what string, steps ...func() error) error {
	for _, do := range steps {
		if err := do(); err != nil {
			return fmt.Errorf("quorum: %s: %w", what, err)
		}
	}
	return nil
}

// isEmpty is ErrNotEmpty if the stores hold anything but an import that was not completed.
func isEmpty(s *store.Stores) error {
	importing, err := s.Number(store.Import)
	if err != nil || importing == importBegun {
		return err
	}
	used, err := raft.HasExistingState(s.Log, s.Stable, s.Snapshots)
	if err != nil {
		return fmt.Errorf("quorum: %s: %w", s.LogName, err)
	}
	if used {
		return fmt.Errorf("quorum: %s: %w", s.LogName, ErrNotEmpty)
	}
	return nil
}

// Importable reports whether the stores hold nothing, or an import that was not completed.
func Importable(s *store.Stores) bool { return isEmpty(s) == nil }

// isImport reports whether the state of a snapshot is exactly the one that was imported.
func isImport(s *store.Stores, of *store.Snapshot) (bool, error) {
	imported, err := s.Number(store.ImportIndex)
	return err == nil && imported != 0 && of.Index == imported, err
}

// SameHistory is an error if two states cannot be of one ensemble, or cluster: an update has one
// time, so nodes that were created or set with the same zxid have the same time. Below /zookeeper a
// cluster of lockkeeper writes itself, also after an import.
func SameHistory(a, b *znode.Store) error {
	type update struct {
		path string
		ms   int64
	}
	updates := map[wire.Zxid]update{}
	for n := range a.AllNodes() {
		updates[n.Czxid], updates[n.Mzxid] = update{n.Path, n.CtimeMs}, update{n.Path, n.MtimeMs}
	}
	for n := range b.AllNodes() {
		if strings.HasPrefix(n.Path, "/zookeeper/") {
			continue
		}
		for zxid, ms := range map[wire.Zxid]int64{n.Czxid: n.CtimeMs, n.Mzxid: n.MtimeMs} {
			if u, ok := updates[zxid]; ok && zxid != 0 && u.ms != ms && !strings.HasPrefix(u.path, "/zookeeper/") {
				return fmt.Errorf("the update with zxid %v made %s at %s, and %s at %s", zxid, u.path, utc(u.ms),
					n.Path, utc(ms))
			}
		}
	}
	return nil
}

func utc(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano) }

// Survivor is the part of a cluster that is on the disk of a member that does not run, or in a
// snapshot: a snapshot has State, LastTerm and LastIndex only.
type Survivor struct {
	Member  MemberID
	Disk    peer.DiskID
	Cluster peer.ClusterID
	// Term is the newest term that the member has taken part in.
	Term uint64
	// LastTerm and LastIndex are the last entry's. Of several disks the one with the greater
	// (LastTerm, LastIndex) has all that the other one has, and that was ever answered.
	LastTerm, LastIndex uint64
	// CommitIndex is an index up to which entries are known to be committed.
	CommitIndex uint64
	// Voters are the numbers of those in the newest configuration in the log.
	Voters []MemberID
	// Servers are the servers of that configuration.
	Servers []raft.Server
	State   *znode.Store
}

// Survey reads the disk of a member that does not run. Entries at the end of the log may not be
// committed: a survey takes them for true, because they may have been answered.
func Survey(s store.Stores) (*Survivor, error) {
	v := &Survivor{Member: NoMember}
	identity, err := s.Identity()
	if err != nil {
		return nil, err
	}
	if v.Disk = peer.DiskID(identity.Disk); v.Disk != 0 {
		v.Member = MemberID(identity.Owner)
	}
	cluster, err := s.Number(store.Cluster)
	if err != nil {
		return nil, err
	}
	v.Cluster = peer.ClusterID(cluster)
	if v.Term, err = s.Number(store.Term); err != nil {
		return nil, err
	}
	if v.State, v.LastTerm, err = LastState(s); err != nil {
		return nil, err
	}
	newest, err := s.Newest()
	if err != nil {
		return nil, err
	}
	var servers []raft.Server
	if newest != nil {
		v.LastIndex, v.CommitIndex, servers = newest.Index, newest.Index, newest.Configuration.Servers
	}
	err = eachLog(&s, v.LastIndex+1, func(l *raft.Log) error {
		if v.LastIndex = l.Index; l.Type == raft.LogConfiguration {
			servers = raft.DecodeConfiguration(l.Data).Servers
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	v.CommitIndex, v.Servers = max(v.CommitIndex, s.Log.CommitIndex()), servers
	for _, srv := range servers {
		if srv.Suffrage == raft.Voter {
			v.Voters = append(v.Voters, raftnet.IDOf(srv.ID))
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

// termsUnseen is the number of terms that the old cluster may have continued without the surviving
// disk. The zxids of the new cluster begin behind all of these terms, so no fencing token is given
// twice.
const termsUnseen = 1 << 16

// Recover turns empty stores into the stores of the only voter of a new cluster that begins with
// the state of a survivor. The ID, Members and Stores of cfg are those that Open will get; its
// members count, not the old cluster's, and the others are taken in when they come with empty
// disks. It returns the id of the new cluster. Like an import it can be repeated if it does not
// come to its end. Errors: ErrNotEmpty, the stores'.
func Recover(cfg Config, from *Survivor) (peer.ClusterID, error) {
	s := &cfg.Stores
	if err := isEmpty(s); err != nil {
		return 0, err
	}
	disk, err := claim(s, cfg.ID)
	if err != nil {
		return 0, err
	}
	self := raftnet.ServerID(cfg.ID, disk)
	servers := raft.Configuration{Servers: []raft.Server{{Suffrage: raft.Voter, ID: self,
		Address: raft.ServerAddress(self)}}}
	if cfg.alone() {
		servers = aloneConfiguration(self)
	}
	cluster := raftnet.BirthOf(servers.Servers)
	from.State.RenameCluster(cluster)
	snap := from.State.Snapshot()
	defer snap.Release()
	term, index := max(from.Term, from.LastTerm)+termsUnseen, max(from.LastIndex, 1)
	return cluster, inSteps("recover",
		func() error { return s.SetNumber(store.Import, importBegun) },
		func() error { return s.WriteSnapshot(servers, index, max(from.LastTerm, 1), snap) },
		func() error { return s.SetNumber(store.Term, term) },
		func() error { return s.SetNumber(store.Cluster, uint64(cluster)) },
		func() error { return s.SetNumber(store.Import, importComplete) },
	)
}

// SurviveSnapshot is the Survivor of a state that was saved with 'lockkeeper snapshot save'.
func SurviveSnapshot(saved *znode.Store) (*Survivor, error) {
	zxid := uint64(saved.Zxid())
	if zxid == 0 {
		return nil, errors.New("quorum: recover: the snapshot has no update")
	}
	return &Survivor{Member: NoMember, Cluster: saved.Cluster(), LastTerm: max(1, zxid>>32),
		LastIndex: max(1, zxid&0xffffffff), State: saved}, nil
}

// renumber turns the stores of a member that stood alone into member id's: a member alone needs no
// number. The log names its only voter by number and disk, so a configuration with the new name is
// added; it is committed, as the disk is the only one that counts. It changes no other stores.
func renumber(s *store.Stores, id MemberID) error {
	identity, err := s.Identity()
	if err != nil || identity.Disk == 0 || identity.Owner == uint64(id) {
		return nil // claim names the fault, if there is one
	}
	v, err := Survey(*s)
	if err != nil || len(v.Servers) != 1 || v.Servers[0].Address != raftnet.AloneAddr {
		return err
	}
	servers := aloneConfiguration(raftnet.ServerID(id, v.Disk))
	entry := &raft.Log{Index: v.LastIndex + 1, Term: v.LastTerm, Type: raft.LogConfiguration,
		Data: raft.EncodeConfiguration(servers)}
	if err := s.Log.StoreLog(entry); err != nil {
		return fmt.Errorf("quorum: write log: %w", err)
	}
	return s.SetIdentity(store.Identity{Owner: uint64(id), Disk: identity.Disk})
}
