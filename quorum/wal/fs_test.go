//go:build unix

package wal_test

import (
	"bytes"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/wal"
)

// A segment for which there is no space leaves no file.
func TestFileWithoutSpace(t *testing.T) {
	dir := t.TempDir()
	if f, err := new(wal.OS).Create(dir+"/file", 1<<60); err == nil {
		f.Close()
		t.Fatal("a file of 2^60 bytes was created")
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

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
			if !wal.IsStarved(err) {
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

// A log that needs a new segment while the process has no file descriptor waits for one, says so,
// and goes on.
//
// Defends: C9.
func TestLogWaitsForDescriptors(t *testing.T) {
	files := new(wal.OS)
	var manifest wal.Manifest
	o := wal.Options{Dir: t.TempDir() + "/log", FS: files, SegmentBytes: 1 << 20, Save: func(m wal.Manifest) error {
		manifest = m
		return nil
	}}
	l, err := wal.Create(o, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	release := starve(t)
	starved := make(chan error, 10)
	files.NotifyStarved(func(err error, _ time.Duration) { starved <- err })
	data := bytes.Repeat([]byte("x"), 1<<19)
	stored := make(chan error, 1)
	go func() {
		var err error
		for i := uint64(1); i <= 4 && err == nil; i++ {
			err = l.StoreLog(&raft.Log{Index: i, Term: 1, Data: data})
		}
		stored <- err
	}()
	select {
	case err := <-starved:
		if !wal.IsStarved(err) {
			t.Errorf("it waits because of %v", err)
		}
	case err := <-stored:
		t.Fatalf("stored with %v, without a descriptor", err)
	case <-time.After(wal.DescriptorWait / 2):
		t.Fatal("it does not say that it waits")
	}
	release()
	if err := <-stored; err != nil || files.DescriptorWaits() == 0 {
		t.Errorf("%v, after %d waits", err, files.DescriptorWaits())
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, _, err = wal.Open(o, manifest)
	if err != nil {
		t.Fatal(err)
	}
	if _, last := bounds(l); last != 4 {
		t.Errorf("the last entry is %d", last)
	}
	l.Close()
}
