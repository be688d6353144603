package store

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// A snapshot from the leader may end in the middle of entries that this member has and the leader
// has not: they were never committed. By raft's rule the log is discarded then, up to the end of
// the snapshot at least. The library keeps it, and refuses the leader's entries from then on
// (UPSTREAM.md, 17). Here those entries are removed when the snapshot is installed, or at the next
// start, and reads answers the library's questions about the last entry from the snapshot.

// snapshotEnd is the last entry of a snapshot, or one before it behind which the log begins.
type snapshotEnd struct {
	index, term uint64
	// had is the term of the entry that the log had in its place, and that the library may
	// still take for its last one.
	had uint64
}

// Conflict is the part of a log that a snapshot contradicts, and that has been removed.
type Conflict struct {
	First, Last uint64 // the removed entries
	Snapshot    uint64 // the last entry of the snapshot
	Term        uint64 // of the entry that was in its place
}

// setEnd has the log know the last entry of the newest snapshot.
func (s *RaftStore) setEnd() error {
	end, err := s.stores.newestEnd()
	s.reads.end.Store(end)
	return err
}

// newestEnd is the last entry of the newest snapshot; nil if there is none.
func (s *Stores) newestEnd() (*snapshotEnd, error) {
	newest, err := s.Newest()
	if err != nil || newest == nil {
		return nil, err
	}
	return &snapshotEnd{newest.Index, newest.Term, newest.Term}, nil
}

// RemoveConflict removes the entries that the newest snapshot contradicts while it is being
// installed; nil if there are none. The log knows the end of the snapshot from then on. The
// library's main loop waits meanwhile, so nothing else changes the log.
func (s *RaftStore) RemoveConflict() (*Conflict, error) {
	end, err := s.stores.findConflict(s.reads)
	if err != nil {
		return nil, err
	}
	if end == nil {
		return nil, s.setEnd()
	}
	first, err := s.reads.FirstIndex()
	if err == nil {
		err = s.reads.LogStore.DeleteRange(first, end.index)
	}
	if err != nil {
		return nil, fmt.Errorf("quorum: remove the entries that a snapshot contradicts: %w", err)
	}
	s.reads.end.Store(end)
	return &Conflict{First: first, Last: end.index, Snapshot: end.index, Term: end.had}, nil
}

// findConflict compares the newest snapshot with the log; nil if they agree.
func (s *Stores) findConflict(log raft.LogStore) (*snapshotEnd, error) {
	end, err := s.newestEnd()
	if err != nil || end == nil {
		return nil, err
	}
	var l raft.Log
	switch err := log.GetLog(end.index, &l); {
	case errors.Is(err, raft.ErrLogNotFound) || err == nil && l.Term == end.term:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("quorum: read log: %w", err)
	}
	end.had = l.Term
	return end, nil
}

// DiscardConflict is RemoveConflict for a member that starts: the power may have failed between the
// installation of a snapshot and the removal. It discards the whole log.
func (s *Stores) DiscardConflict() (*Conflict, error) {
	end, err := s.findConflict(s.Log)
	if err != nil || end == nil {
		return nil, err
	}
	first, last, err := Bounds(s.Log)
	if err == nil && last > end.index {
		err = s.Log.DeleteRange(end.index+1, last)
	}
	if err == nil {
		err = s.Log.DeleteRange(first, end.index)
	}
	if err != nil {
		return nil, fmt.Errorf("quorum: discard a log that a snapshot contradicts: %w", err)
	}
	return &Conflict{First: first, Last: last, Snapshot: end.index, Term: end.had}, nil
}

// ReplacedTerm returns the term of the entry that the log had in the place of the last entry of the
// newest snapshot, which (index, term) names; term itself in any other case.
func (s *RaftStore) ReplacedTerm(index, term uint64) uint64 {
	if end := s.reads.end.Load(); end != nil && end.index == index && end.term == term {
		return end.had
	}
	return term
}

// LastIncluded returns the last entry of a snapshot, without which the log may begin; index 0:
// there is none.
func (s *RaftStore) LastIncluded() (index, term uint64) {
	if end := s.reads.end.Load(); end != nil {
		return end.index, end.term
	}
	return 0, 0
}
