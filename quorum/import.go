package quorum

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
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

// importKey is where the stable store keeps that an import has begun and is not complete.
var importKey = []byte("lockkeeper/import")

// currentTermKey is where raft keeps its term.
var currentTermKey = []byte("CurrentTerm")

// Import writes a state as the snapshot with which a member starts, instead of an empty one. Every
// member may bring one. Raft elects a member with the greatest Origin of a majority, and the others
// get the state from it. The ID, Members and Stores of cfg are those that Open will get. An import
// that does not come to an end can be repeated; Open refuses to start before.
func Import(cfg Config, from Origin, store *znode.Store) error {
	s := &cfg.Stores
	if err := s.isEmpty(); err != nil {
		return err
	}
	if err := s.claim(cfg.ID); err != nil {
		return err
	}
	if err := s.Stable.SetUint64(importKey, 1); err != nil {
		return fmt.Errorf("quorum: import: %w", err)
	}
	if err := s.writeImport(cfg.initialConfiguration(), from, store); err != nil {
		return fmt.Errorf("quorum: import: %w", err)
	}
	if !cfg.alone() {
		if err := s.setCluster(peer.Sum(cfg.Members)); err != nil {
			return err
		}
	}
	for _, v := range []struct {
		key   []byte
		value uint64
	}{{currentTermKey, max(from.Term, from.StateTerm)}, {notVotingKey, 0}, {importKey, 0}} {
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
	if importing != 0 {
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

// writeImport writes the snapshot.
func (s *Stores) writeImport(members raft.Configuration, from Origin, store *znode.Store) error {
	// The library also writes the members in an old format, which asks the transport for names.
	_, transport := raft.NewInmemTransport(peer.AloneAddr)
	sink, err := s.Snapshots.Create(raft.SnapshotVersionMax, from.Index, from.StateTerm, members, 1, transport)
	if err != nil {
		return err
	}
	snap := store.Snapshot()
	defer snap.Release()
	if _, err := snap.WriteTo(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// importComplete is an error if an import has begun and not come to its end.
func (s *Stores) importComplete() error {
	importing, err := storedNumber(s.Stable, importKey)
	if err == nil && importing != 0 {
		err = errors.New("an import has not been completed: run it again")
	}
	if err != nil {
		return fmt.Errorf("quorum: %s: %w", s.stableName(), err)
	}
	return nil
}

// Importable says that the stores hold nothing, or an import that was not completed.
func (s *Stores) Importable() bool { return s.isEmpty() == nil }
