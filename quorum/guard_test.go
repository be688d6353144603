package quorum

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/wal"
)

// A log that has no file descriptor for a new segment for too long is treated like one on a full
// disk: the member continues when it can.
func TestWantOfDescriptorsIsLikeAFullDisk(t *testing.T) {
	open := &fs.PathError{Op: "open", Path: "x", Err: syscall.EMFILE}
	if !isFull(fmt.Errorf("%w: %w", wal.ErrNoSegment, open)) {
		t.Error("a segment that cannot be begun ends the member")
	}
	if isFull(&fs.PathError{Op: "sync", Path: "x", Err: syscall.EMFILE}) {
		t.Error("a sync that fails does not end the member")
	}
	var fatal error
	g := &guardedStore{LogStore: failingLog{fmt.Errorf("%w: %w", wal.ErrNoSegment, open)}, fatal: func(err error) { fatal = err }}
	if g.StoreLogs(nil) == nil || !errors.Is(fatal, ErrDiskFull) || !IsStarved(fatal) {
		t.Errorf("it ends with %v", fatal)
	}
}

// failingLog stores nothing.
type failingLog struct{ err error }

func (f failingLog) FirstIndex() (uint64, error)      { return 0, f.err }
func (f failingLog) LastIndex() (uint64, error)       { return 0, f.err }
func (f failingLog) GetLog(uint64, *raft.Log) error   { return f.err }
func (f failingLog) StoreLog(*raft.Log) error         { return f.err }
func (f failingLog) StoreLogs([]*raft.Log) error      { return f.err }
func (f failingLog) DeleteRange(uint64, uint64) error { return f.err }
