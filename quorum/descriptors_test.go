//go:build unix

package quorum

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// starve takes all file descriptors of this process, and returns what gives them back.
func starve(t *testing.T) (release func()) {
	t.Helper()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	low := before
	low.Cur = 256
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	var taken []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			if !IsStarved(err) {
				t.Fatal(err)
			}
			break
		}
		taken = append(taken, f)
	}
	over := false
	release = func() {
		if over {
			return
		}
		over = true
		for _, f := range taken {
			f.Close()
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(release)
	return release
}

// A log that needs a new segment while the process has no file descriptor waits for one, tells so, and goes on.
func TestLogWaitsForDescriptors(t *testing.T) {
	dir := t.TempDir()
	stores, err := OpenStores(dir, dir, LogWAL)
	if err != nil {
		t.Fatal(err)
	}
	wal := stores.Log.(*segmentLog)
	release := starve(t)
	starved := make(chan error, 10)
	wal.NotifyStarved(func(err error) { starved <- err })
	data := bytes.Repeat([]byte("x"), segmentBytes/2)
	stored := make(chan error, 1)
	go func() {
		var err error
		for i := uint64(1); i <= 4 && err == nil; i++ {
			err = stores.Log.StoreLog(&raft.Log{Index: i, Term: 1, Data: data})
		}
		stored <- err
	}()
	select {
	case err := <-starved:
		if !IsStarved(err) {
			t.Errorf("it waits because of %v", err)
		}
	case err := <-stored:
		t.Fatalf("stored with %v, without a descriptor", err)
	case <-time.After(descriptorWait / 2):
		t.Fatal("it does not say that it waits")
	}
	release()
	if err := <-stored; err != nil || wal.DescriptorWaits() == 0 {
		t.Errorf("%v, after %d waits", err, wal.DescriptorWaits())
	}
	if err := stores.Close(); err != nil {
		t.Fatal(err)
	}
	if stores, err = OpenStores(dir, dir, LogWAL); err != nil {
		t.Fatal(err)
	}
	if last, _ := stores.Log.LastIndex(); last != 4 {
		t.Errorf("the last entry is %d", last)
	}
	stores.Close()
}

// If there is none for too long, that is as a full disk: the member goes on when it can.
func TestWantOfDescriptorsIsLikeAFullDisk(t *testing.T) {
	open := &fs.PathError{Op: "open", Path: "x", Err: syscall.EMFILE}
	if !isFull(&fs.PathError{Op: opPreallocate, Path: "x", Err: open}) {
		t.Error("a segment that cannot be begun ends the member")
	}
	if isFull(&fs.PathError{Op: "sync", Path: "x", Err: syscall.EMFILE}) {
		t.Error("a sync that fails does not end the member")
	}
	var fatal error
	g := &guardedStore{LogStore: failingLog{&fs.PathError{Op: opPreallocate, Path: "x", Err: open}}, fatal: func(err error) { fatal = err }}
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
