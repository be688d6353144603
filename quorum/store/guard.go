package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/wal"
)

// ErrDiskFull says that a write to the log or of the vote failed because the disk is full, and left
// the file as it was. The member stops; opened again when there is space, it goes on.
var ErrDiskFull = errors.New("disk full")

// isFull reports whether a write failed for want of space, or of a file descriptor for a new
// segment, and left all durable bytes as they were: bbolt has not begun to make the transaction
// valid, the log has no new segment, or its last segment ends with the unsynced beginning of a
// batch, as after a crash. After a failed fsync, for any reason, the content of the disk is
// unknown.
func isFull(err error) bool {
	if errors.Is(err, wal.ErrNoSegment) {
		return isOutOfSpace(err) || IsStarved(err)
	}
	var at *fs.PathError
	return errors.As(err, &at) && at.Op == "write" && isOutOfSpace(err)
}

func isOutOfSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// IsStarved reports whether err says that the process or the system has no file descriptor left.
func IsStarved(err error) bool { return wal.IsStarved(err) }

// errBroken is why nothing is written any more.
var errBroken = errors.New("a write or a read has failed before")

// guard stops the member at the first write that fails, and writes nothing more then. What a failed
// write left behind is unknown to raft, so this replica must not acknowledge anything that relies
// on it.
//
// It refuses, in the same way, a term that falls and a vote that contradicts the saved one. It
// holds back the first half of a vote until the second comes (UPSTREAM.md, 16).
type guard struct {
	raft.LogStore
	Stable
	owner Owner
	// writing is the write to the log that is under way; nil while there is none.
	writing atomic.Pointer[Write]
	once    sync.Once
	// broken says that a write has failed, or a read of raft's.
	broken atomic.Bool
	// released is closed when the member has been cut off from its peers for good.
	released chan struct{}
	// started says that raft runs. Before, a read or a write that raft needs and that fails
	// sets startErr; the library panics then.
	started  atomic.Bool
	startErr error

	// Lock: termMu is held while a term or a vote is compared with the saved one and written.
	termMu   sync.Mutex
	voteTerm uint64 // the half of a vote that is not saved yet; 0: there is none
}

func newGuard(log raft.LogStore, stable Stable, owner Owner) *guard {
	return &guard{LogStore: log, Stable: stable, owner: owner, released: make(chan struct{})}
}

// Write is a write to the log that is under way.
type Write struct {
	Since time.Time
	Last  uint64 // the index of its last entry
}

// write does a write, if none has failed so far.
func (g *guard) write(what string, do func() error) error {
	if g.broken.Load() {
		return fmt.Errorf("quorum: %s: %w", what, errBroken)
	}
	return g.check(what, do())
}

// check stops the member if a write has failed with err.
func (g *guard) check(what string, err error) error {
	if err == nil {
		return nil
	}
	if isFull(err) {
		err = fmt.Errorf("%w: %w", ErrDiskFull, err)
	}
	err = fmt.Errorf("quorum: %s: %w", what, err)
	g.stop(err)
	return err
}

// stop has nothing written any more, and so nothing acknowledged, and stops the member.
func (g *guard) stop(err error) {
	g.broken.Store(true)
	g.once.Do(func() { g.owner.WriteFailed(err) })
}

func (g *guard) StoreLog(l *raft.Log) error {
	return g.StoreLogs([]*raft.Log{l})
}

func (g *guard) StoreLogs(ls []*raft.Log) error {
	if len(ls) > 0 {
		g.writing.Store(&Write{Since: time.Now(), Last: ls[len(ls)-1].Index})
	}
	err := g.write("write log", func() error { return g.LogStore.StoreLogs(ls) })
	g.writing.Store(nil)
	return err
}

func (g *guard) DeleteRange(lo, hi uint64) error {
	return g.write("truncate log", func() error { return g.LogStore.DeleteRange(lo, hi) })
}

// Set implements raft.StableStore.
func (g *guard) Set(key, val []byte) error {
	if !bytes.Equal(key, keyVoteCandidate) {
		return g.write("write value", func() error { return g.Stable.Set(key, val) })
	}
	g.owner.Yield()
	g.termMu.Lock()
	defer g.termMu.Unlock()
	term := g.voteTerm
	g.voteTerm = 0
	return g.write("write vote", func() error { return g.setVote(term, val) })
}

// SetUint64 implements raft.StableStore.
func (g *guard) SetUint64(key []byte, val uint64) error {
	if bytes.Equal(key, keyVoteTerm) {
		g.termMu.Lock()
		defer g.termMu.Unlock()
		g.voteTerm = val
		return nil
	}
	err := g.write("write term", func() error {
		if !bytes.Equal(key, keyTerm) {
			return g.Stable.SetUint64(key, val)
		}
		g.owner.Yield()
		g.termMu.Lock()
		defer g.termMu.Unlock()
		return g.setTerm(val)
	})
	if err == nil {
		return nil
	}
	if !g.started.Load() {
		g.startErr = err
		return err
	}
	// The library panics when it cannot save its term (UPSTREAM.md, 6). The member is being
	// stopped; nothing that raft does after this can reach anybody.
	<-g.released
	return nil
}

// reads is the log as raft reads it. An entry that cannot be read stops the member like one that
// cannot be written: the disk is failing, or the file is damaged.
type reads struct {
	raft.LogStore
	guard *guard
	// end is the last entry that the log may lack, because a snapshot has it; nil: there is none.
	end atomic.Pointer[snapshotEnd]
}

// DeleteRange implements raft.LogStore. Entries at the beginning of the log, and not at its end,
// are removed because a snapshot has them.
func (r *reads) DeleteRange(lo, hi uint64) error {
	var entry raft.Log
	first, last, err := Bounds(r.LogStore)
	if err == nil && lo <= first && hi < last && r.LogStore.GetLog(hi, &entry) == nil {
		r.end.Store(&snapshotEnd{hi, entry.Term, entry.Term})
	}
	return r.LogStore.DeleteRange(lo, hi)
}

// GetLog implements raft.LogStore.
func (r *reads) GetLog(index uint64, l *raft.Log) error {
	err := r.LogStore.GetLog(index, l)
	if e := r.end.Load(); e != nil && e.index == index && index > 1 && errors.Is(err, raft.ErrLogNotFound) {
		// It is compared, and never sent: of entries after the first, the one before is
		// read too.
		*l = raft.Log{Index: index, Term: e.term, Type: raft.LogNoop}
		return nil
	}
	if err == nil || errors.Is(err, raft.ErrLogNotFound) {
		return err
	}
	g := r.guard
	if !g.started.Load() {
		g.startErr = err
		return err
	}
	g.broken.Store(true)
	g.owner.ReadFailed(fmt.Errorf("quorum: read log: %w", err))
	// The library panics when it cannot read a committed entry (UPSTREAM.md, 6), so it is given
	// another one, when that can no longer be sent, written or applied.
	<-g.released
	*l = raft.Log{Index: index, Type: raft.LogNoop}
	return nil
}
