package quorum

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/simdisk"
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

// After a read that failed raft is given a made-up entry. Nothing that it concludes from that may
// be written: neither entries, nor a truncation of the log, nor a vote or a term.
func TestNothingIsWrittenAfterAFailedRead(t *testing.T) {
	store, disk := raft.NewInmemStore(), simdisk.New()
	g := &guardedStore{LogStore: store, Stable: disk, fatal: func(err error) { t.Error(err) },
		released: make(chan struct{})}
	if err := errors.Join(g.StoreLog(&raft.Log{Index: 1, Term: 1}), g.SetUint64([]byte("term"), 1)); err != nil {
		t.Fatal(err)
	}
	var poisoned error
	reads := &guardedReads{LogStore: failingLog{syscall.EIO}, guard: g, poison: func(err error) { poisoned = err }}
	var entry raft.Log
	if err := reads.GetLog(1, &entry); !errors.Is(err, syscall.EIO) || poisoned != nil {
		t.Fatalf("before raft runs: %v, poisoned: %v", err, poisoned)
	}
	g.started.Store(true)
	close(g.released)
	if err := reads.GetLog(1, &entry); err != nil || entry.Type != raft.LogNoop || !errors.Is(poisoned, syscall.EIO) {
		t.Fatalf("read: %v, %+v; poisoned: %v", err, entry, poisoned)
	}
	for what, err := range map[string]error{
		"entry":      g.StoreLog(&raft.Log{Index: 2, Term: 1}),
		"truncation": g.DeleteRange(1, 1),
		"vote":       g.Set([]byte("vote"), []byte("1")),
	} {
		if !errors.Is(err, errBroken) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_ = g.SetUint64([]byte("term"), 2)
	last, _ := store.LastIndex()
	term, _ := disk.GetUint64([]byte("term"))
	if vote, _ := disk.Get([]byte("vote")); last != 1 || term != 1 || vote != nil {
		t.Errorf("last entry %d, term %d, vote %q", last, term, vote)
	}
}

// unreadableLog is a log whose first entry cannot be read.
type unreadableLog struct{ raft.LogStore }

func (u unreadableLog) GetLog(index uint64, l *raft.Log) error {
	if index == 1 {
		return fmt.Errorf("wal: read entry 1: %w", syscall.EIO)
	}
	return u.LogStore.GetLog(index, l)
}

// unwritableTerm is a stable store that cannot save the term.
type unwritableTerm struct{ Stable }

func (unwritableTerm) SetUint64([]byte, uint64) error { return syscall.EIO }

// The library panics; a member that starts says in one line what it cannot read or write.
func TestFailingDiskFailsTheStart(t *testing.T) {
	store := raft.NewInmemStore()
	if err := store.StoreLogs([]*raft.Log{{Index: 1, Term: 1}, {Index: 2, Term: 1}}); err != nil {
		t.Fatal(err)
	}
	rc := raft.DefaultConfig()
	rc.LocalID, rc.LogLevel = "1", "off"
	_, transport := raft.NewInmemTransport("1")
	start := func(log raft.LogStore, stable Stable) error {
		guard := &guardedStore{LogStore: log, Stable: stable, fatal: func(error) {}, released: make(chan struct{})}
		lib, err := newRaft(rc, fsm{}, &guardedReads{LogStore: log, guard: guard}, raft.NewInmemSnapshotStore(), transport)
		if lib != nil {
			t.Error("raft runs")
		}
		return err
	}
	if err := start(unreadableLog{store}, simdisk.New()); !errors.Is(err, syscall.EIO) {
		t.Errorf("a start with a log that cannot be read: %v", err)
	}
	if err := start(store, unwritableTerm{simdisk.New()}); !errors.Is(err, syscall.EIO) {
		t.Errorf("a start with a term that cannot be saved: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a panic that is not of the disk is hidden")
		}
	}()
	_ = start(nil, simdisk.New())
}

// failingLog stores nothing.
type failingLog struct{ err error }

func (f failingLog) FirstIndex() (uint64, error)      { return 0, f.err }
func (f failingLog) LastIndex() (uint64, error)       { return 0, f.err }
func (f failingLog) GetLog(uint64, *raft.Log) error   { return f.err }
func (f failingLog) StoreLog(*raft.Log) error         { return f.err }
func (f failingLog) StoreLogs([]*raft.Log) error      { return f.err }
func (f failingLog) DeleteRange(uint64, uint64) error { return f.err }
