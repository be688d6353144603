package wal_test

import (
	"errors"
	"io/fs"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/wal"
)

// A watermark is written with the writes that follow, and a while after the last one.
func TestWatermarksFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, p := newImage(), newStored()
		l := m.create(t, 64<<10)
		defer l.Close()
		var ends []int64 // one each 400 ms
		for range 10 {
			p.store(t, l, 50)
			end, durable := l.End()
			if n := len(ends); n >= 3 && durable < ends[n-3] {
				t.Errorf("the watermark is at %d; up to %d it was written 1.2 s ago", durable, ends[n-3])
			}
			ends = append(ends, end)
			time.Sleep(400 * time.Millisecond)
		}
		time.Sleep(2 * wal.WatermarkAfter)
		if end, durable := l.End(); durable != end {
			t.Errorf("the watermark is at %d, the end at %d", durable, end)
		}
	})
}

// A watermark that cannot be written is reported at once, though nobody writes.
func TestFailedWatermarkIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, p := newImage(), newStored()
		l := m.create(t, 64<<10)
		defer l.Close()
		p.store(t, l, 50)
		m.failWrites = syscall.EIO
		l.End() // it takes the log's lock, so that the log's own goroutine sees the error
		time.Sleep(10 * wal.WatermarkAfter)
		select {
		case err := <-l.Failed():
			if err != syscall.EIO {
				t.Errorf("reported: %v", err)
			}
		default:
			t.Error("not reported")
		}
	})
}

// What a failed write has left is unknown: nothing is written after it, and what was written before
// is there.
func TestNothingIsWrittenAfterAFailedWrite(t *testing.T) {
	m, p := newImage(), newStored()
	l := m.create(t, smallSegment)
	p.store(t, l, 10, 20)
	entry := &raft.Log{Index: 3, Term: 1, Data: []byte("x")}
	m.failWrites = syscall.EIO
	if err := l.StoreLog(entry); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	m.failWrites = nil
	for range 2 {
		if err := l.StoreLog(entry); err == nil {
			t.Error("written after a failed write")
		}
	}
	if err := l.DeleteRange(1, 1); err == nil {
		t.Error("deleted after a failed write")
	}
	if err := p.kept(l); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if p.refused(t, "after a failed write", m) {
		t.Error("refused")
	}
}

// Without space for the next segment the log is as it was, and the error says so.
func TestNoSpaceForTheNextSegment(t *testing.T) {
	m, p := newImage(), newStored()
	l := m.create(t, smallSegment)
	p.store(t, l, 10_000)
	m.failCreate = &fs.PathError{Op: "fallocate", Err: syscall.ENOSPC}
	err := l.StoreLog(&raft.Log{Index: 2, Data: make([]byte, 15_000)})
	if !errors.Is(err, wal.ErrNoSegment) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("stored: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if p.refused(t, "without space", m) {
		t.Error("refused")
	}
}

// Entries are written while segments are removed, which takes a disk long. A removal that kept
// writes waiting would never end here, which the bubble reports.
func TestWritesPassTheRemovalOfSegments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, p := newImage(), newStored()
		l := m.create(t, smallSegment)
		for range 30 {
			p.store(t, l, 5000)
		}
		removed := 0
		m.onRemove = func() {
			removed++
			p.store(t, l, 10)
		}
		p.cut(t, l, 1, 29)
		if removed < 5 || p.last != uint64(30+removed) {
			t.Errorf("%d segments removed, %d entries", removed, p.last)
		}
		m.onRemove = nil
		if err := errors.Join(p.kept(l), l.Close()); err != nil {
			t.Error(err)
		}
		l = m.opens(t)
		if err := errors.Join(p.kept(l), l.Close()); err != nil {
			t.Error(err)
		}
	})
}

// An entry that is larger than a segment gets one of its own size; a gap in the log, which a
// snapshot fills, is kept; and segments that hold nothing any more are removed.
func TestSegmentsComeAndGo(t *testing.T) {
	m, p := newImage(), newStored()
	l := m.create(t, smallSegment)
	for range 30 {
		p.store(t, l, 5000)
	}
	p.store(t, l, 3*smallSegment, 10)
	if n := len(m.files); n < 10 {
		t.Errorf("%d files", n)
	}
	p.cut(t, l, 1, 31)
	if n := len(m.files); n > 2 { // the large one, and perhaps one for the next entries
		t.Errorf("%d files for one entry", n)
	}
	p.cut(t, l, 32, 32)
	p.last = 99
	p.first = 100
	p.store(t, l, 50)
	if err := l.StoreLog(&raft.Log{Index: 100}); err == nil {
		t.Error("an entry was written a second time")
	}
	p.store(t, l, 60, 70)
	if err := l.DeleteRange(101, 101); err == nil {
		t.Error("an entry was removed from the middle")
	}
	l.SetCommitIndex(101)
	if err := l.DeleteRange(101, 102); err == nil {
		t.Error("a committed entry was removed")
	}
	for range 2 {
		if err := errors.Join(p.kept(l), l.Close()); err != nil {
			t.Error(err)
		}
		if l = m.opens(t); l.CommitIndex() != 101 {
			t.Errorf("committed %d", l.CommitIndex())
		}
	}
	p.cut(t, l, 100, 102)
	if first, _ := bounds(l); first != 0 || len(m.files) != 1 {
		t.Errorf("empty: first entry %d, %d files", first, len(m.files))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.StoreLog(&raft.Log{Index: 103}); !errors.Is(err, wal.ErrClosed) {
		t.Errorf("written to a closed log: %v", err)
	}
	l = m.opens(t)
	if first, last := bounds(l); first != 0 || last != 0 || l.HighestIndex() != 102 {
		t.Errorf("empty, opened again: %d, %d", first, last)
	}
}
