package simdisk

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"

	"lockkeeper/quorum/wal"
)

// sectorBytes is the unit that the disk writes wholly or not at all.
const sectorBytes = 512

// directory is the files of a disk by path.
type directory map[string]*inode

// inode is a file, whatever its name.
type inode struct {
	content []byte // the file, as readers see it
	// unsynced are the changes to content that are not durable, in order.
	unsynced []change
	// sized says that the length of the file is durable.
	sized bool
}

// change is a write that is not durable yet, as the bytes that it has replaced: so a write costs
// the copy of its own bytes, and the file is copied only when the power fails.
type change struct {
	number uint64
	at     int64
	old    []byte
	failed bool // a sync has failed: no later one makes it durable
}

func (d directory) clone() directory { return maps.Clone(d) }

// copyDirectories copies the files of two directories, which have most of them in common.
func copyDirectories(a, b directory) (directory, directory) {
	copies := make(map[*inode]*inode)
	copyOf := func(d directory) directory {
		c := make(directory, len(d))
		for path, n := range d {
			if copies[n] == nil {
				copies[n] = &inode{content: bytes.Clone(n.content), unsynced: slices.Clone(n.unsynced), sized: n.sized}
			}
			c[path] = copies[n]
		}
		return c
	}
	return copyOf(a), copyOf(b)
}

// survivorsLocked returns the files that a power cut leaves.
func (d *Disk) survivorsLocked(torn *rand.Rand) directory {
	left := make(directory)
	all := d.durable.clone()
	maps.Copy(all, d.names)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		n := d.durable[path]
		if seen := d.names[path]; seen != n && torn != nil && torn.IntN(2) == 0 {
			n = seen
		}
		if n != nil {
			left[path] = n.survivor(torn)
		}
	}
	return left
}

// survivor is the file after a power cut: of each sector that was changed since the last sync one
// of the versions that it has had since, and with torn nil the oldest.
func (n *inode) survivor(torn *rand.Rand) *inode {
	odds := 0 // of 3, that a version is on the disk
	if torn != nil {
		odds = torn.IntN(4)
	}
	if !n.sized && odds == 0 {
		return &inode{sized: true}
	}
	left := &inode{content: bytes.Clone(n.content), sized: true}
	kept := make(map[int64]bool)
	for _, c := range slices.Backward(n.unsynced) {
		c.sectors(func(lo, hi int64) {
			switch sector := lo / sectorBytes; {
			case kept[sector]:
			case odds > 0 && torn.IntN(3) < odds:
				kept[sector] = true
			default:
				copy(left.content[lo:hi], c.old[lo-c.at:])
			}
		})
	}
	return left
}

// sectors calls f with the part of each sector that the change is in.
func (c *change) sectors(f func(lo, hi int64)) {
	for lo, end := c.at, c.at+int64(len(c.old)); lo < end; {
		hi := min(end, (lo/sectorBytes+1)*sectorBytes)
		f(lo, hi)
		lo = hi
	}
}

// interrupt takes back the end of the newest change of each file that has one that is not durable,
// as when the process that writes it is killed.
func (d directory) interrupt(torn *rand.Rand) {
	for _, path := range slices.Sorted(maps.Keys(d)) {
		n := d[path]
		if len(n.unsynced) == 0 || torn.IntN(2) == 0 {
			continue
		}
		c := n.unsynced[len(n.unsynced)-1]
		written := torn.Int64N(int64(len(c.old))/sectorBytes + 2) // sectors
		c.sectors(func(lo, hi int64) {
			if written--; written < 0 {
				copy(n.content[lo:hi], c.old[lo-c.at:])
			}
		})
	}
}

// Files is the disk as a file system, for the log. It promises to a program the things that
// [wal.FS] and [wal.File] say, and no more.
func (d *Disk) Files() wal.FS { return files{d} }

// Unsynced reports whether something was written to a file that is not durable yet.
func (d *Disk) Unsynced() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range d.names {
		if len(n.unsynced) > 0 {
			return true
		}
	}
	return false
}

// Damage changes some of the written bytes of a file that no program has open, and says where: one
// bit; or in up to four sectors a row all bits, or all bytes to 0.
func (d *Disk) Damage(rng *rand.Rand) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	paths := slices.Sorted(maps.Keys(d.names))
	if len(paths) == 0 {
		return "there is no file"
	}
	path := paths[rng.IntN(len(paths))]
	n := d.names[path]
	used := len(bytes.TrimRight(n.content, "\x00"))
	if used == 0 {
		return path + " has only zeros"
	}
	at := rng.IntN(used)
	end := at + 1
	kind := rng.IntN(3)
	if kind > 0 {
		at = at / sectorBytes * sectorBytes
		end = min(len(n.content), at+sectorBytes*(1+rng.IntN(4)))
	}
	for i := at; i < end; i++ {
		switch kind {
		case 0:
			n.content[i] ^= 1 << rng.IntN(8)
		case 1:
			n.content[i] ^= 0xff
		case 2:
			n.content[i] = 0
		}
	}
	return fmt.Sprintf("bytes %d to %d of %s, kind %d", at, end, path, kind)
}

type files struct{ disk *Disk }

// change makes a change to the names of the files.
func (f files) change(do func(directory) error) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.disk.fault != nil {
		return f.disk.fault
	}
	return do(f.disk.names)
}

// MkdirAll implements wal.FS. Every directory exists.
func (f files) MkdirAll(string) error { return nil }

// ReadDir implements wal.FS.
func (f files) ReadDir(dir string) (names []string, err error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	for _, path := range slices.Sorted(maps.Keys(f.disk.names)) {
		if name, in := strings.CutPrefix(path, dir+string(filepath.Separator)); in {
			names = append(names, name)
		}
	}
	return names, nil
}

// Create implements wal.FS.
func (f files) Create(path string, size int64) (wal.File, error) {
	n := &inode{content: make([]byte, size)}
	err := f.change(func(names directory) error {
		names[path] = n
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &file{f.disk, n}, nil
}

// Open implements wal.FS.
func (f files) Open(path string) (wal.File, error) {
	f.disk.mu.Lock()
	n := f.disk.names[path]
	if n != nil {
		for _, c := range slices.Backward(n.unsynced) {
			if c.failed {
				copy(n.content[c.at:], c.old)
			}
		}
		n.unsynced = slices.DeleteFunc(n.unsynced, func(c change) bool { return c.failed })
	}
	f.disk.mu.Unlock()
	if n == nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	opened := &file{f.disk, n}
	return opened, opened.Sync()
}

// Rename implements wal.FS.
func (f files) Rename(from, to string) error {
	return f.change(func(names directory) error {
		n := names[from]
		if n == nil {
			return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
		}
		delete(names, from)
		names[to] = n
		return nil
	})
}

// Remove implements wal.FS.
func (f files) Remove(path string) error {
	return f.change(func(names directory) error {
		if names[path] == nil {
			return &fs.PathError{Op: "remove", Path: path, Err: fs.ErrNotExist}
		}
		delete(names, path)
		return nil
	})
}

// SyncDir implements wal.FS.
func (f files) SyncDir(dir string) error {
	f.disk.mu.Lock()
	synced := f.disk.names.clone()
	f.disk.mu.Unlock()
	return f.disk.sync(func(err error) {
		if err == nil {
			f.disk.durable = synced
		}
	})
}

// sync lets the time of a sync pass, and calls done with its result, under d.mu.
func (d *Disk) sync(done func(error)) error {
	d.mu.Lock()
	wait := d.syncTime
	d.mu.Unlock()
	d.pass(wait)
	d.mu.Lock()
	defer d.mu.Unlock()
	done(d.fault)
	if d.fault == nil {
		d.writes++
	}
	return d.fault
}

// file is an open file.
type file struct {
	disk *Disk
	*inode
}

// ReadAt implements wal.File.
func (f *file) ReadAt(b []byte, at int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.disk.readFault != nil {
		return 0, f.disk.readFault
	}
	if n := copy(b, f.content[min(at, int64(len(f.content))):]); n < len(b) {
		return n, io.EOF
	}
	return len(b), nil
}

// WriteAt implements wal.File. It takes no time, and makes no file longer.
func (f *file) WriteAt(b []byte, at int64) (int, error) {
	d := f.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fault != nil {
		return 0, d.fault
	}
	if at+int64(len(b)) > int64(len(f.content)) {
		return 0, io.ErrShortWrite
	}
	d.changes++
	f.unsynced = append(f.unsynced, change{number: d.changes, at: at, old: bytes.Clone(f.content[at:][:len(b)])})
	copy(f.content[at:], b)
	return len(b), nil
}

// Sync implements wal.File. It does not make bytes durable that are written meanwhile.
func (f *file) Sync() error {
	d := f.disk
	d.mu.Lock()
	newest := d.changes
	d.mu.Unlock()
	return d.sync(func(err error) {
		if err == nil {
			f.sized = true
			f.unsynced = slices.DeleteFunc(f.unsynced, func(c change) bool { return c.number <= newest && !c.failed })
			return
		}
		for i := range f.unsynced {
			f.unsynced[i].failed = f.unsynced[i].failed || f.unsynced[i].number <= newest
		}
	})
}

// Size implements wal.File.
func (f *file) Size() (int64, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	return int64(len(f.content)), nil
}

// Close implements wal.File.
func (f *file) Close() error { return nil }
