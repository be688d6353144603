package store

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/rafttest"
)

// heldLog is a log whose writes wait for the test, and that remembers what it was to write.
type heldLog struct {
	*raft.InmemStore
	proceed chan error // one for each write: nil, or how it fails

	mu   sync.Mutex
	done []string
}

func (h *heldLog) wrote(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.done = append(h.done, fmt.Sprintf(format, args...))
}

func (h *heldLog) StoreLogs(logs []*raft.Log) error {
	if err := <-h.proceed; err != nil {
		return err
	}
	h.wrote("+%d-%d", logs[0].Index, logs[len(logs)-1].Index)
	return h.InmemStore.StoreLogs(logs)
}

func (h *heldLog) DeleteRange(lo, hi uint64) error {
	if err := <-h.proceed; err != nil {
		return err
	}
	h.wrote("-%d-%d", lo, hi)
	return h.InmemStore.DeleteRange(lo, hi)
}

// fakeOwner is an Owner that remembers what it is told.
type fakeOwner struct {
	waits         bool // raft waits for each write
	writeFailed   []error
	readFailed    error
	flushesFailed int
}

func (o *fakeOwner) MayFlushLater([]*raft.Log) bool       { return !o.waits }
func (o *fakeOwner) Written([]*raft.Log, time.Time, bool) {}
func (o *fakeOwner) FlushFailed()                         { o.flushesFailed++ }
func (o *fakeOwner) WriteFailed(err error)                { o.writeFailed = append(o.writeFailed, err) }
func (o *fakeOwner) ReadFailed(err error)                 { o.readFailed = err }
func (o *fakeOwner) Yield()                               {}

// backlogTest is a backlog with a log that waits for the test, in a bubble.
type backlogTest struct {
	*backlog
	t     *testing.T
	log   *heldLog
	owner *fakeOwner
}

func inBacklog(t *testing.T, f func(b *backlogTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &backlogTest{t: t, log: &heldLog{InmemStore: raft.NewInmemStore(), proceed: make(chan error)}, owner: &fakeOwner{}}
		b.backlog = newBacklog(newGuard(b.log, nil, b.owner), nil, b.owner)
		f(b)
	})
}

func (b *backlogTest) expect(what string, op func() (error, bool), want bool) {
	b.t.Helper()
	if err, returned := op(); returned != want || err != nil {
		b.t.Errorf("%s: returned %v (%v), want %v", what, returned, err, want)
	}
}

func (b *backlogTest) wrote(want ...string) {
	b.t.Helper()
	b.log.mu.Lock()
	defer b.log.mu.Unlock()
	if !slices.Equal(b.log.done, want) {
		b.t.Errorf("written: %v, want %v", b.log.done, want)
	}
}

// A leader's entries are there at once, for the goroutines that replicate them, and are durable
// when the disk says so; what is pending by then is written with one append.
func TestLeaderDoesNotWaitForItsDisk(t *testing.T) {
	inBacklog(t, func(b *backlogTest) {
		b.log.InmemStore.StoreLogs(rafttest.Entries(1, 2))
		for i := uint64(3); i <= 6; i++ {
			if err := b.StoreLogs(rafttest.Entries(i, i)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // the first is being written
		}
		first, _ := b.FirstIndex()
		last, _ := b.LastIndex()
		if first != 1 || last != 6 {
			t.Errorf("entries %d to %d, want 1 to 6", first, last)
		}
		for i := uint64(1); i <= 6; i++ {
			var l raft.Log
			if err := b.GetLog(i, &l); err != nil || l.Index != i {
				t.Errorf("entry %d: %+v, %v", i, l, err)
			}
			if b.lacks(i) != (i > 2) {
				t.Errorf("entry %d is durable: %v", i, !b.lacks(i))
			}
		}
		if err := b.GetLog(7, new(raft.Log)); !errors.Is(err, raft.ErrLogNotFound) {
			t.Errorf("entry 7: %v", err)
		}
		b.expect("what was there before", rafttest.Begin(func() error { return b.await(2, nil) }), true)
		three := rafttest.Begin(func() error { return b.await(3, nil) })
		four := rafttest.Begin(func() error { return b.await(4, nil) })
		b.expect("before the first write", three, false)
		b.log.proceed <- nil
		b.expect("after the first write", three, true)
		b.expect("the next while it is under way", four, false)
		b.log.proceed <- nil
		b.expect("after the second write", four, true)
		b.wrote("+3-3", "+4-6")
		if b.lacks(6) {
			t.Error("entry 6 is on the disk")
		}
		b.close()
	})
}

// Raft waits for a write that the owner does not let it precede, and for all before it.
func TestOwnerDecidesWhetherRaftWaits(t *testing.T) {
	inBacklog(t, func(b *backlogTest) {
		b.StoreLogs(rafttest.Entries(1, 3))
		b.owner.waits = true
		op := rafttest.Begin(func() error { return b.StoreLogs(rafttest.Entries(4, 4)) })
		b.log.proceed <- nil
		b.expect("when those before it are durable", op, false)
		b.log.proceed <- nil
		b.expect("when all are", op, true)
		b.wrote("+1-3", "+4-4")
		b.close()
	})
}

// A leader is deposed while its disk writes. What its successor has it do comes behind that.
func TestDeposedLeaderKeepsTheOrder(t *testing.T) {
	inBacklog(t, func(b *backlogTest) {
		b.StoreLogs(rafttest.Entries(1, 3))
		synctest.Wait()
		b.StoreLogs(rafttest.Entries(4, 4))
		b.owner.waits = true
		op := rafttest.Begin(func() error {
			return errors.Join(b.DeleteRange(3, 4), b.StoreLogs(rafttest.Entries(3, 3)), b.StoreLogs(rafttest.Entries(9, 9)))
		})
		compact := rafttest.Begin(func() error { return b.DeleteRange(0, 0) })
		b.expect("taking off the beginning", compact, false)
		b.log.proceed <- nil // for what was first in line
		// Compaction need not wait for all that the end of the log waits for.
		b.log.proceed <- nil
		b.expect("taking off the beginning", compact, true)
		for range 4 {
			b.expect("before the last write", op, false)
			b.log.proceed <- nil
		}
		b.expect("the rest", op, true)
		b.log.mu.Lock()
		order := slices.DeleteFunc(slices.Clone(b.log.done), func(s string) bool { return s == "-0-0" })
		b.log.mu.Unlock()
		if want := []string{"+1-3", "+4-4", "-3-4", "+3-3", "+9-9"}; !slices.Equal(order, want) {
			t.Errorf("written: %v, want %v", order, want)
		}
		b.close()
	})
}

// Of a disk that is slow for long no more waits than there is room for.
func TestBacklogIsBounded(t *testing.T) {
	inBacklog(t, func(b *backlogTest) {
		if err := b.StoreLogs(rafttest.Entries(1, backlogMax)); err != nil {
			t.Fatal(err)
		}
		op := rafttest.Begin(func() error { return b.StoreLogs(rafttest.Entries(backlogMax+1, backlogMax+1)) })
		b.expect("one more", op, false)
		b.log.proceed <- nil
		b.log.proceed <- nil
		b.expect("one more", op, true)
		b.close()
	})
}

// A write that fails in the background ends the member as any other: with the reason, once. Nothing
// that was held back ends with an error, and nothing is written behind what is missing.
func TestFailedBacklogLetsNothingGo(t *testing.T) {
	inBacklog(t, func(b *backlogTest) {
		b.log.InmemStore.StoreLogs(rafttest.Entries(1, 2))
		b.StoreLogs(rafttest.Entries(3, 3))
		held := rafttest.Begin(func() error { return b.await(3, nil) })
		b.expect("before the disk is full", held, false)
		b.log.proceed <- &fs.PathError{Op: "write", Path: "raft.db", Err: syscall.ENOSPC}
		err, returned := held()
		if !returned || !errors.Is(err, ErrDiskFull) || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("what was held back: %v, %v", returned, err)
		}
		if f := b.owner.writeFailed; len(f) != 1 || !errors.Is(f[0], ErrDiskFull) || b.owner.flushesFailed != 1 {
			t.Errorf("the member ends because of %v, raft is told %d times", f, b.owner.flushesFailed)
		}
		for what, op := range map[string]func() error{
			"store": func() error { return b.StoreLogs(rafttest.Entries(4, 4)) },
			"take":  func() error { return b.DeleteRange(3, 3) },
			"await": func() error { return b.await(4, nil) },
		} {
			if err, returned := rafttest.Begin(op)(); !returned || !errors.Is(err, ErrDiskFull) {
				t.Errorf("%s behind it: %v, %v", what, returned, err)
			}
		}
		b.expect("what was there before", rafttest.Begin(func() error { return b.await(2, nil) }), true)
		if !b.lacks(3) {
			t.Error("entry 3 is not on the disk")
		}
		b.wrote()
		b.close()
	})
}

// Closing ends all waiting, and writes what has been taken.
func TestBacklogCloses(t *testing.T) {
	inBacklog(t, func(b *backlogTest) {
		b.StoreLogs(rafttest.Entries(1, 1))
		synctest.Wait()
		b.StoreLogs(rafttest.Entries(2, 2))
		stop := make(chan struct{})
		one := rafttest.Begin(func() error { return b.await(1, stop) })
		two := rafttest.Begin(func() error { return b.await(1, nil) })
		close(stop)
		if err, returned := one(); !returned || !errors.Is(err, errStopped) {
			t.Errorf("stopped: %v, %v", returned, err)
		}
		b.expect("not stopped", two, false)
		b.release()
		if err, returned := two(); !returned || !errors.Is(err, errStopped) {
			t.Errorf("released: %v, %v", returned, err)
		}
		closed := rafttest.Begin(func() error { b.close(); return nil })
		b.log.proceed <- nil
		b.expect("while it writes", closed, false)
		b.log.proceed <- nil
		b.expect("when it has written", closed, true)
		b.wrote("+1-1", "+2-2")
	})
}
