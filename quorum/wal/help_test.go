package wal_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/rafttest"
	"lockkeeper/quorum/wal"
)

// smallSegment is a length of segments that a few entries fill.
const smallSegment = 20 << 10

// image is the content of a directory, by path, and the manifest of the log in it. As a wal.FS it
// has no faults and no crashes.
type image struct {
	files    map[string][]byte
	manifest wal.Manifest
	// failWrites is the error of every write from now on; failCreate that of Create.
	failWrites, failCreate error
	// onRemove is called before each Remove; nil: nothing is.
	onRemove func()
}

func newImage() *image { return &image{files: map[string][]byte{}} }

// clone is what is in the directory now, as after a crash of a process that has synced everything.
func (m *image) clone() *image {
	c := &image{files: maps.Clone(m.files), manifest: m.manifest}
	for path, content := range c.files {
		c.files[path] = bytes.Clone(content)
	}
	return c
}

// with is the image with other content in one file, which it shares otherwise. It is to be opened
// once.
func (m *image) with(path string, content []byte) *image {
	c := &image{files: maps.Clone(m.files), manifest: m.manifest}
	c.files[path] = content
	return c
}

// paths are the paths of the files, in order.
func (m *image) paths() []string { return slices.Sorted(maps.Keys(m.files)) }

func (m *image) lastPath() string { return m.paths()[len(m.files)-1] }

func (m *image) options(segmentBytes int64) wal.Options {
	return wal.Options{Dir: "wal", FS: m, SegmentBytes: segmentBytes, Save: func(n wal.Manifest) error {
		m.manifest = n
		return nil
	}}
}

func (m *image) create(t *testing.T, segmentBytes int64) *wal.Log {
	t.Helper()
	l, err := wal.Create(m.options(segmentBytes), 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (m *image) open() (*wal.Log, []string, error) {
	return wal.Open(m.options(smallSegment), m.manifest)
}

// opens opens the log, which must not need a repair.
func (m *image) opens(t *testing.T) *wal.Log {
	t.Helper()
	l, repaired, err := m.open()
	if err != nil || len(repaired) > 0 {
		t.Fatalf("%v, repaired %q", err, repaired)
	}
	return l
}

func (m *image) MkdirAll(string) error { return nil }

func (m *image) ReadDir(dir string) (names []string, err error) {
	for _, path := range m.paths() {
		names = append(names, filepath.Base(path))
	}
	return names, nil
}

func (m *image) Create(path string, size int64) (wal.File, error) {
	if m.failCreate != nil {
		return nil, m.failCreate
	}
	m.files[path] = make([]byte, size)
	return m.Open(path)
}

func (m *image) Open(path string) (wal.File, error) {
	content, ok := m.files[path]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return &imageFile{image: m, content: content}, nil
}

func (m *image) Rename(from, to string) error {
	m.files[to] = m.files[from]
	delete(m.files, from)
	return nil
}

func (m *image) Remove(path string) error {
	if m.onRemove != nil {
		m.onRemove()
	}
	delete(m.files, path)
	return nil
}

func (m *image) SyncDir(string) error { return nil }

type imageFile struct {
	image   *image
	content []byte
}

func (f *imageFile) ReadAt(b []byte, off int64) (int, error) {
	if n := copy(b, f.content[off:]); n < len(b) {
		return n, io.EOF
	}
	return len(b), nil
}

func (f *imageFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.image.failWrites; err != nil {
		return 0, err
	}
	return copy(f.content[off:], b), nil
}

func (f *imageFile) Size() (int64, error) { return int64(len(f.content)), nil }
func (f *imageFile) Sync() error          { return nil }
func (f *imageFile) Close() error         { return nil }

// stored is what a log must hold, because its writes have been acknowledged.
type stored struct {
	first, last uint64
	entries     map[uint64][]byte
}

func newStored() *stored { return &stored{first: 1, entries: map[uint64][]byte{}} }

// store stores entries of these sizes with one write.
func (p *stored) store(t *testing.T, l *wal.Log, sizes ...int) {
	t.Helper()
	var logs []*raft.Log
	for _, size := range sizes {
		p.last++
		data := bytes.Repeat([]byte{byte(p.last), byte(p.last >> 8), 7}, size/3+1)[:size]
		p.entries[p.last] = data
		logs = append(logs, &raft.Log{Index: p.last, Term: 5, Type: raft.LogCommand, Data: data, Extensions: []byte("ext"), AppendedAt: time.Unix(1, 2)})
	}
	if err := l.StoreLogs(logs); err != nil {
		t.Fatal(err)
	}
}

// cut removes entries from one end.
func (p *stored) cut(t *testing.T, l *wal.Log, lo, hi uint64) {
	t.Helper()
	if err := l.DeleteRange(lo, hi); err != nil {
		t.Fatal(err)
	}
	if lo == p.first {
		p.first = hi + 1
	} else {
		p.last = lo - 1
	}
}

// bounds are the first entry and the last; 0 without entries.
func bounds(l *wal.Log) (first, last uint64) {
	first, _ = l.FirstIndex()
	last, _ = l.LastIndex()
	return first, last
}

// prefix reports an error unless the log holds what was stored, up to some entry.
func (p *stored) prefix(l *wal.Log) error {
	first, last := bounds(l)
	if first != p.first || last > p.last {
		return fmt.Errorf("entries %d to %d, stored were %d to %d", first, last, p.first, p.last)
	}
	for i := first; i <= last; i++ {
		var e raft.Log
		err := l.GetLog(i, &e)
		if err != nil || e.Index != i || e.Term != 5 || !bytes.Equal(e.Data, p.entries[i]) || string(e.Extensions) != "ext" || !e.AppendedAt.Equal(time.Unix(1, 2)) {
			return fmt.Errorf("entry %d has changed: %w", i, err)
		}
	}
	return nil
}

// kept reports an error unless the log holds all that was stored.
func (p *stored) kept(l *wal.Log) error {
	if _, last := bounds(l); last != p.last {
		return fmt.Errorf("the last entry is %d, stored were those up to %d", last, p.last)
	}
	return p.prefix(l)
}

// refused opens a log that must hold all that was stored, or be refused as damaged.
func (p *stored) refused(t *testing.T, what string, m *image) bool {
	t.Helper()
	l, _, err := m.open()
	switch {
	case errors.Is(err, wal.ErrDamaged), errors.Is(err, wal.ErrFormat):
		return true
	case err != nil:
		t.Errorf("%s: refused, but not as damaged: %v", what, err)
		return true
	}
	if err := errors.Join(p.kept(l), l.Close()); err != nil {
		t.Errorf("%s: opened, but %v", what, err)
	}
	return false
}

// busy is a log as it is after some work.
func busy(t *testing.T) (*image, *stored) {
	t.Helper()
	m, p := newImage(), newStored()
	l := m.create(t, smallSegment)
	rafttest.Work(func(sizes ...int) { p.store(t, l, sizes...) }, func(first, last uint64) { p.cut(t, l, first, last) })
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return m, p
}

// crashed is a log whose process ended between two writes of entries of these sizes: it was not
// closed, and has a watermark behind the first marked writes only. ends are where each write ended
// in the file.
func crashed(t *testing.T, marked int, sizes ...[]int) (m *image, p *stored, ends []int64) {
	t.Helper()
	m, p = newImage(), newStored()
	l := m.create(t, 64<<10)
	for i, size := range sizes {
		p.store(t, l, size...)
		end, _ := l.End()
		ends = append(ends, end)
		if i+1 == marked {
			if err := l.WriteWatermark(); err != nil {
				t.Fatal(err)
			}
		}
	}
	m = m.clone()
	return m, p, ends
}
