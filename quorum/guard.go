package quorum

import (
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

// guardedStore stops the member at the first write that fails. What a failed write left behind is
// unknown to raft, so this replica must not acknowledge anything that relies on it.
type guardedStore struct {
	raft.LogStore
	raft.StableStore
	fatal func(error)
	// wrote is called with entries that are durable, and when their write began; nil: it is not.
	wrote func(entries []*raft.Log, start time.Time)
	once  sync.Once
	// broken says that a write has failed.
	broken atomic.Bool
	// released is closed when the member has been cut off from its peers for good.
	released chan struct{}
}

func (g *guardedStore) check(what string, err error) error {
	if err == nil {
		return nil
	}
	if isFull(err) {
		err = fmt.Errorf("%w: %w", ErrDiskFull, err)
	}
	err = fmt.Errorf("quorum: %s: %w", what, err)
	g.broken.Store(true)
	g.once.Do(func() { g.fatal(err) })
	return err
}

func (g *guardedStore) StoreLog(l *raft.Log) error {
	return g.StoreLogs([]*raft.Log{l})
}

func (g *guardedStore) StoreLogs(ls []*raft.Log) error {
	start := time.Now()
	err := g.LogStore.StoreLogs(ls)
	if err == nil && g.wrote != nil && len(ls) > 0 {
		g.wrote(ls, start)
	}
	return g.check("write log", err)
}

func (g *guardedStore) DeleteRange(lo, hi uint64) error {
	return g.check("truncate log", g.LogStore.DeleteRange(lo, hi))
}

func (g *guardedStore) Set(key, val []byte) error {
	if mutant.On(mutant.VoteNotPersisted) {
		return nil
	}
	return g.check("write vote", g.StableStore.Set(key, val))
}

func (g *guardedStore) SetUint64(key []byte, val uint64) error {
	if g.check("write term", g.StableStore.SetUint64(key, val)) != nil {
		// The library panics when it cannot save its term (UPSTREAM.md, 6). The member is being
		// stopped; nothing that raft does after this can reach anybody.
		<-g.released
	}
	return nil
}
