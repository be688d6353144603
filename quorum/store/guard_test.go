package store

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
	owner := &fakeOwner{}
	g := newGuard(failingLog{fmt.Errorf("%w: %w", wal.ErrNoSegment, open)}, nil, owner)
	if g.StoreLogs(nil) == nil || len(owner.writeFailed) != 1 || !errors.Is(owner.writeFailed[0], ErrDiskFull) || !IsStarved(owner.writeFailed[0]) {
		t.Errorf("it ends with %v", owner.writeFailed)
	}
}

// After a read that failed raft is given a made-up entry. Nothing that it concludes from that may
// be written: neither entries, nor a truncation of the log, nor a vote or a term.
//
// Defends: C1.
func TestNothingIsWrittenAfterAFailedRead(t *testing.T) {
	store, disk := raft.NewInmemStore(), simdisk.New()
	owner := &fakeOwner{}
	g := newGuard(store, disk, owner)
	if err := errors.Join(g.StoreLog(&raft.Log{Index: 1, Term: 1}), g.SetUint64([]byte("term"), 1)); err != nil {
		t.Fatal(err)
	}
	reads := &reads{LogStore: failingLog{syscall.EIO}, guard: g}
	var entry raft.Log
	if err := reads.GetLog(1, &entry); !errors.Is(err, syscall.EIO) || owner.readFailed != nil {
		t.Fatalf("before raft runs: %v, the owner is told %v", err, owner.readFailed)
	}
	g.started.Store(true)
	close(g.released)
	if err := reads.GetLog(1, &entry); err != nil || entry.Type != raft.LogNoop || !errors.Is(owner.readFailed, syscall.EIO) {
		t.Fatalf("read: %v, %+v; the owner is told %v", err, entry, owner.readFailed)
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
	if len(owner.writeFailed) > 0 {
		t.Errorf("a failed write is reported: %v", owner.writeFailed)
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
		guard := newGuard(log, stable, &fakeOwner{})
		rs := &RaftStore{stores: &Stores{Snapshots: raft.NewInmemSnapshotStore()}, guard: guard, reads: &reads{LogStore: log, guard: guard}}
		lib, err := rs.NewRaft(rc, struct{ raft.FSM }{}, transport)
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
