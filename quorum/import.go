package quorum

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
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

// What the stable store keeps of an import: how far it has come, and the index that it began with.
var (
	importKey      = []byte("lockkeeper/import")
	importIndexKey = []byte("lockkeeper/importIndex")
)

// The values of importKey.
const (
	importComplete = iota // or there was none
	importBegun
	importForeign // the leader has the data of another ensemble
)

// Import writes a state as the snapshot with which a member starts, instead of an empty one. Every
// voter may bring one. The founder of the cluster is a voter with the greatest Origin (judgeBirth),
// and the others get the state from it. The ID, Members and Stores of cfg are those that Open will
// get. An import that does not come to an end can be repeated; Open refuses to start before.
func Import(cfg Config, from Origin, store *znode.Store) error {
	s := &cfg.Stores
	if err := s.isEmpty(); err != nil {
		return err
	}
	disk, err := s.claim(cfg.ID)
	if err != nil {
		return err
	}
	// A member of a cluster gets the first configuration when the cluster begins.
	var members raft.Configuration
	if cfg.alone() {
		members = aloneConfiguration(peer.ServerID(cfg.ID, disk))
	}
	if err := s.Stable.SetUint64(importKey, importBegun); err != nil {
		return fmt.Errorf("quorum: import: %w", err)
	}
	snap := store.Snapshot()
	defer snap.Release()
	if err := s.writeSnapshot(members, from.Index, from.StateTerm, snap); err != nil {
		return fmt.Errorf("quorum: import: %w", err)
	}
	for _, v := range []struct {
		key   []byte
		value uint64
	}{{keyTerm, max(from.Term, from.StateTerm)}, {importIndexKey, max(from.Index, 1)}, {importKey, importComplete}} {
		if err := s.Stable.SetUint64(v.key, v.value); err != nil {
			return fmt.Errorf("quorum: import: %w", err)
		}
	}
	return nil
}

// isEmpty is ErrNotEmpty if the stores hold anything but an import that was not completed.
func (s *Stores) isEmpty() error {
	importing, err := storedNumber(s.Stable, importKey)
	if err != nil {
		return fmt.Errorf("quorum: %s: %w", s.stableName(), err)
	}
	if importing == importBegun {
		return nil
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

// writeSnapshot writes a state as the snapshot of that index and term.
func (s *Stores) writeSnapshot(members raft.Configuration, index, term uint64, state io.WriterTo) error {
	// The library also writes the members in an old format, which asks the transport for names.
	_, transport := raft.NewInmemTransport(peer.AloneAddr)
	sink, err := s.Snapshots.Create(raft.SnapshotVersionMax, index, term, members, 1, transport)
	if err != nil {
		return err
	}
	if _, err := state.WriteTo(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// checkImport is an error if an import has begun and not come to its end, or the cluster has the
// data of another ensemble.
func (s *Stores) checkImport() error {
	state, err := storedNumber(s.Stable, importKey)
	switch {
	case err != nil:
	case state == importBegun:
		err = errors.New("an import has not been completed: run it again")
	case state == importForeign:
		err = errForeign
	}
	if err != nil {
		return fmt.Errorf("quorum: %s: %w", s.stableName(), err)
	}
	return nil
}

var errForeign = errors.New("the data that were imported here are not of the ensemble whose data the leader has: nothing was " +
	"changed in ZooKeeper's files. Look at the addresses in the configuration files; if this member belongs to that cluster, remove " +
	"its raft.db, raft.wal and snapshots, and start it without an import")

// importedSnapshot is the newest snapshot if the state that the member starts with is just what was
// imported; nil if not.
func (s *Stores) importedSnapshot() (*raft.SnapshotMeta, error) {
	imported, err := storedNumber(s.Stable, importIndexKey)
	if err != nil || imported == 0 {
		return nil, err
	}
	list, err := s.Snapshots.List()
	if len(list) == 0 || list[0].Index != imported {
		return nil, err
	}
	return list[0], nil
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

// Importable says that the stores hold nothing, or an import that was not completed.
func (s *Stores) Importable() bool { return s.isEmpty() == nil }
