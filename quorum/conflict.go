package quorum

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// A snapshot from the leader may end in the middle of entries that this member has and the leader
// has not: they were never committed. By raft's rule the log is discarded then, up to the end of
// the snapshot at least. The library keeps it, and refuses the leader's entries from then on
// (UPSTREAM.md, 17). Here those entries are removed when the snapshot is installed, or at the next
// start, and what the library asks about the last entry of the snapshot gets the snapshot's answer.

// snapshotEnd is the last entry of a snapshot.
type snapshotEnd struct {
	index, term uint64
	// had is the term of the entry that the log had in its place, and that the library may still
	// take for its last one.
	had uint64
}

// setEnd has the log say what the newest snapshot knows of its last entry.
func (g *guardedReads) setEnd(s Stores) error {
	end, err := newestEnd(s)
	g.end.Store(end)
	return err
}

// newestEnd is the last entry of the newest snapshot; nil if there is none.
func newestEnd(s Stores) (*snapshotEnd, error) {
	list, err := s.Snapshots.List()
	if err != nil {
		return nil, fmt.Errorf("quorum: list snapshots: %w", err)
	}
	if len(list) == 0 {
		return nil, nil
	}
	return &snapshotEnd{list[0].Index, list[0].Term, list[0].Term}, nil
}

// removeConflict removes what a snapshot that is being installed contradicts, and has the log know
// the end of the snapshot. The library's main loop waits meanwhile, so nothing else changes the
// log.
func (r *Replica) removeConflict() error {
	c, err := findConflict(r.cfg.Stores, r.reads)
	if err == nil && c == nil {
		return r.reads.setEnd(r.cfg.Stores)
	}
	if err != nil {
		return err
	}
	first, err := r.reads.FirstIndex()
	if err == nil {
		err = r.reads.DeleteRange(first, c.index)
	}
	if err != nil {
		return fmt.Errorf("quorum: remove the entries that a snapshot contradicts: %w", err)
	}
	r.reads.end.Store(c)
	r.log.Warn("entries that were never committed are removed: the leader's snapshot contradicts them",
		"first", first, "last", c.index, "term", c.had)
	return nil
}

// findConflict compares the newest snapshot with the log; nil if they agree.
func findConflict(s Stores, log raft.LogStore) (*snapshotEnd, error) {
	end, err := newestEnd(s)
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

// discardConflict is removeConflict for a member that starts: the power may have failed between the
// two. It discards the whole log.
func (r *Replica) discardConflict() error {
	log := r.cfg.Stores.Log
	c, err := findConflict(r.cfg.Stores, log)
	if err != nil || c == nil {
		return err
	}
	first, last, err := logBounds(log)
	if err == nil && last > c.index {
		err = log.DeleteRange(c.index+1, last)
	}
	if err == nil {
		err = log.DeleteRange(first, c.index)
	}
	if err != nil {
		return fmt.Errorf("quorum: discard a log that a snapshot contradicts: %w", err)
	}
	r.log.Warn("the log is discarded: a snapshot from a leader contradicts it, so its end was never committed",
		"first", first, "last", last, "snapshot", c.index)
	return nil
}

// PrevTerm implements peer.Local. While the library takes the entry that was removed for its last
// one, it compares with that.
func (l local) PrevTerm(index, term uint64) uint64 {
	if c := l.reads.end.Load(); c != nil && c.index == index && c.term == term && l.raft.LastIndex() == index {
		return c.had
	}
	return term
}
