package quorum

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// testAsyncWriter makes a file with that content, to be written to past the page cache, and a writer for it.
func testAsyncWriter(t *testing.T, content []byte) (*asyncWriter, *os.File) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := openDirect(path)
	if err != nil {
		t.Fatal(err)
	}
	if f == nil {
		t.Skipf("%s is on a file system that cannot be written to past the page cache", path)
	}
	t.Cleanup(func() { _ = f.Close() })
	w := newAsyncWriter(filepath.Dir(path))
	if w == nil {
		t.Skipf("%s is on another file system than ext4 and XFS, or this system does not let a process have asynchronous writes (io_setup)", path)
	}
	t.Cleanup(w.close)
	return w, f
}

// The stores say whether the log is written asynchronously, when they are made as when they are opened again.
func TestStoresSayHowTheLogIsWritten(t *testing.T) {
	dir := t.TempDir()
	w := newAsyncWriter(dir)
	can := w != nil
	w.close()
	for _, tt := range []struct {
		kind LogKind
		want bool
	}{{LogWAL, can}, {LogWAL, can}, {LogBolt, false}, {LogBolt, false}, {LogWAL, can}} {
		s, err := OpenStores(dir, dir, tt.kind)
		if err != nil {
			t.Fatal(err)
		}
		if s.Async != tt.want {
			t.Errorf("a log of kind %s is written asynchronously: %v", tt.kind, s.Async)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// What is written asynchronously, and what is written in the ordinary way, is in the file.
func TestAsyncWrites(t *testing.T) {
	const blocks = 64
	want := alignedBytes(blocks * blockBytes)
	async, f := testAsyncWriter(t, want)
	rng := rand.New(rand.NewPCG(1, 2))
	writers := []*asyncWriter{async, nil}
	for n := range 200 {
		from := rng.IntN(blocks)
		to := from + 1 + rng.IntN(blocks-from)
		part := want[from*blockBytes : to*blockBytes]
		for i := range part {
			part[i] = byte(n + i)
		}
		if err := writers[n%len(writers)].writeAt(f, part, int64(from*blockBytes)); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(f.Name()); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file is not what was written, %v", err)
	}
}

// A write that cannot be done without waiting, for there is no room for it in the file yet, is done all the same.
func TestAsyncWriteThatHasToWait(t *testing.T) {
	block := alignedBytes(blockBytes)
	w, f := testAsyncWriter(t, block)
	for i := range block {
		block[i] = byte(i)
	}
	const at = 8 * blockBytes
	if _, err := w.submit(f, block, at, unix.RWF_NOWAIT); err == nil {
		t.Log("this file system need not wait for room")
	} else if !errors.Is(err, unix.EAGAIN) {
		t.Errorf("without waiting: %v", err)
	}
	if err := w.writeAt(f, block, at); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(f.Name()); err != nil || len(got) != at+blockBytes || !bytes.Equal(got[at:], block) {
		t.Errorf("%d bytes are in the file, or they are not what was written, %v", len(got), err)
	}
}

// A write is on the disk when it is through: since the one before it, the disk has been told to empty its cache.
func TestAsyncWritesAreFlushed(t *testing.T) {
	const writes = 50
	block := alignedBytes(blockBytes)
	async, f := testAsyncWriter(t, block)
	flushed := func(write func() error) int {
		before := flushes(t, f)
		for range writes {
			if err := write(); err != nil {
				t.Fatal(err)
			}
		}
		return flushes(t, f) - before
	}
	if n := flushed(func() error { return errors.Join(async.writeAt(f, block, 0), syncData(f)) }); n < writes {
		t.Skipf("%d writes and syncs, and %d flushes: the disk has no cache, or its flushes are not counted", writes, n)
	}
	waiting := func() error { // as what may not be begun without waiting is
		_, err := async.submit(f, block, 0, 0)
		return err
	}
	for name, write := range map[string]func() error{
		"asynchronous":                       func() error { return async.writeAt(f, block, 0) },
		"asynchronous, begun with patience,": waiting,
		"ordinary":                           func() error { return (*asyncWriter)(nil).writeAt(f, block, 0) },
	} {
		if n := flushed(write); n < writes {
			t.Errorf("%d %s writes, and %d flushes", writes, name, n)
		}
	}
}

// flushes is how often the disk that a file is on has been told to empty its cache (Linux's Documentation/admin-guide/iostats.rst, field 16).
func flushes(t *testing.T, f *os.File) int {
	t.Helper()
	var on unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &on); err != nil {
		t.Fatal(err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(on.Dev), unix.Minor(on.Dev)))
	fields := strings.Fields(string(stat))
	if err != nil || len(fields) < 16 {
		t.Skipf("the system does not count the flushes of this disk: %q, %v", stat, err)
	}
	n, err := strconv.Atoi(fields[15])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// An error names the file, whether the write could not be begun or has failed.
func TestAsyncWriteFails(t *testing.T) {
	block := alignedBytes(2 * blockBytes)
	w, direct := testAsyncWriter(t, block)
	path := direct.Name()
	readOnly, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	notAligned := block[1 : 1+blockBytes]
	_, refused := direct.WriteAt(notAligned, 0) // not by every file system
	for range 2 {
		expectWriteError(t, path, unix.EBADF, w.writeAt(readOnly, block, 0))
		if err := w.writeAt(direct, notAligned, 0); refused != nil {
			expectWriteError(t, path, unix.EINVAL, err)
		} else if err != nil {
			t.Error(err)
		}
		if err := w.writeAt(direct, block, 0); err != nil {
			t.Errorf("after an error: %v", err)
		}
	}
}

func expectWriteError(t *testing.T, path string, want, err error) {
	t.Helper()
	if named := (*fs.PathError)(nil); !errors.Is(err, want) || !errors.As(err, &named) || named.Path != path {
		t.Errorf("%v, expected %v and the file's name", err, want)
	}
}
