package quorum

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

	"lockkeeper/internal/mutant"
	"lockkeeper/quorum/wal"
)

// ErrDiskFull says that a write to the log or of the vote failed because the disk is full, and left
// the file as it was. The member stops; opened again when there is space, it goes on.
var ErrDiskFull = errors.New("disk full")

// isFull reports whether err is of a write that found no space, or no file descriptor for a new
// segment, and has changed nothing that was durable: bbolt has not begun to make the transaction
// valid, the log has no new segment, or its last one has the beginning of a batch that was never
// synced, as after a crash. After an fsync that has failed, for whatever reason, what is on the
// disk is unknown.
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

// guardedStore stops the member at the first write that fails, and writes nothing more then. What a
// failed write left behind is unknown to raft, so this replica must not acknowledge anything that
// relies on it.
//
// It refuses, in the same way, a term that falls and a vote that contradicts the saved one. It
// holds back the first half of a vote until the second comes (UPSTREAM.md, 16).
type guardedStore struct {
	raft.LogStore
	Stable
	fatal func(error)
	yield func() // Config.Yield; nil: it is not called
	// wrote is called with entries that are durable, and when their write began; nil: it is not.
	wrote func(entries []*raft.Log, start time.Time)
	// writing is the write to the log that is under way; nil while there is none.
	writing atomic.Pointer[logWrite]
	once    sync.Once
	// broken says that a write has failed, or a read of raft's.
	broken atomic.Bool
	// released is closed when the member has been cut off from its peers for good.
	released chan struct{}
	// started says that raft runs. Before, newRaft returns startErr: what the library, which panics
	// with it, could not read or write.
	started  atomic.Bool
	startErr error

	// Lock: termMu is held while a term or a vote is compared with the saved one and written.
	termMu   sync.Mutex
	voteTerm uint64 // the half of a vote that is not saved yet; 0: there is none
}

// chooseNext lets a simulation choose the goroutine that goes on.
func (g *guardedStore) chooseNext() {
	if g.yield != nil {
		g.yield()
	}
}

// logWrite is a write to the log.
type logWrite struct {
	since time.Time
	last  uint64 // the newest entry in it
}

// write does a write, if none has failed so far.
func (g *guardedStore) write(what string, do func() error) error {
	if g.broken.Load() {
		return fmt.Errorf("quorum: %s: %w", what, errBroken)
	}
	return g.check(what, do())
}

// check stops the member if err is that of a write.
func (g *guardedStore) check(what string, err error) error {
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
func (g *guardedStore) stop(err error) {
	g.broken.Store(true)
	g.once.Do(func() { g.fatal(err) })
}

func (g *guardedStore) StoreLog(l *raft.Log) error {
	return g.StoreLogs([]*raft.Log{l})
}

func (g *guardedStore) StoreLogs(ls []*raft.Log) error {
	start := time.Now()
	if len(ls) > 0 {
		g.writing.Store(&logWrite{since: start, last: ls[len(ls)-1].Index})
	}
	err := g.write("write log", func() error { return g.LogStore.StoreLogs(ls) })
	g.writing.Store(nil)
	if err == nil && g.wrote != nil && len(ls) > 0 {
		g.wrote(ls, start)
	}
	return err
}

func (g *guardedStore) DeleteRange(lo, hi uint64) error {
	return g.write("truncate log", func() error { return g.LogStore.DeleteRange(lo, hi) })
}

// Set implements raft.StableStore.
func (g *guardedStore) Set(key, val []byte) error {
	if !bytes.Equal(key, keyVoteCandidate) {
		return g.write("write value", func() error { return g.Stable.Set(key, val) })
	}
	g.chooseNext()
	g.termMu.Lock()
	defer g.termMu.Unlock()
	term := g.voteTerm
	g.voteTerm = 0
	if mutant.On(mutant.VoteNotPersisted) {
		return nil
	}
	return g.write("write vote", func() error { return g.setVote(term, val) })
}

// SetUint64 implements raft.StableStore.
func (g *guardedStore) SetUint64(key []byte, val uint64) error {
	if bytes.Equal(key, keyVoteTerm) {
		g.termMu.Lock()
		defer g.termMu.Unlock()
		g.voteTerm = val
		return nil
	}
	err := g.write("write term", func() error {
		if !bytes.Equal(key, keyTerm) || mutant.On(mutant.HeartbeatPath) {
			return g.Stable.SetUint64(key, val)
		}
		g.chooseNext()
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

// guardedReads is the log as raft reads it. An entry that cannot be read stops the member like one
// that cannot be written: the disk is failing, or the file is damaged.
type guardedReads struct {
	raft.LogStore
	guard *guardedStore
	// poison has nothing applied any more and stops the member.
	poison func(error)
	// end is the last entry of a snapshot that the log may lack; nil if there is none.
	end atomic.Pointer[snapshotEnd]
}

// GetLog implements raft.LogStore.
func (g *guardedReads) GetLog(index uint64, l *raft.Log) error {
	err := g.LogStore.GetLog(index, l)
	if e := g.end.Load(); e != nil && e.index == index && index > 1 && errors.Is(err, raft.ErrLogNotFound) {
		// It is compared, and never sent: of entries after the first, the one before is read too.
		*l = raft.Log{Index: index, Term: e.term, Type: raft.LogNoop}
		return nil
	}
	if err == nil || errors.Is(err, raft.ErrLogNotFound) {
		return err
	}
	if !g.guard.started.Load() {
		g.guard.startErr = err
		return err
	}
	g.guard.broken.Store(true)
	g.poison(fmt.Errorf("quorum: read log: %w", err))
	// The library panics when it cannot read a committed entry (UPSTREAM.md, 6), so it is given
	// another one, when that can no longer be sent, written or applied.
	<-g.guard.released
	*l = raft.Log{Index: index, Type: raft.LogNoop}
	return nil
}

// newRaft is raft.NewRaft with an error where the library panics because it cannot read its log or
// save its term (UPSTREAM.md, 6). It has started no goroutine by then.
func newRaft(rc *raft.Config, fsm raft.FSM, reads *guardedReads, snapshots raft.SnapshotStore, transport raft.Transport,
) (lib *raft.Raft, err error) {
	defer func() {
		if p := recover(); p != nil {
			if err = reads.guard.startErr; err == nil {
				panic(p)
			}
		}
	}()
	return raft.NewRaft(rc, fsm, reads, reads.guard, snapshots, transport)
}
