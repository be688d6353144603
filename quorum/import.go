package quorum

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/raft"

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

// importedSnapshot is the newest snapshot if the state that the member starts with is just what was
// imported; nil if not.
func importedSnapshot(s *store.Stores) (*store.Snapshot, error) {
	imported, err := s.Number(store.ImportIndex)
	if err != nil || imported == 0 {
		return nil, err
	}
	newest, err := s.Newest()
	if err != nil || newest == nil || newest.Index != imported {
		return nil, err
	}
	return newest, nil
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
				return fmt.Errorf("the update with zxid %v made %s at %s, and %s at %s", zxid, u.path, utc(u.ms), n.Path, utc(ms))
			}
		}
	}
	return nil
}

func utc(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano) }
