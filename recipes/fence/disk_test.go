package fence

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"

	"lockkeeper/internal/durable"
)

// testDisk is a disk in memory that can fail and lose its power at any call. Content that is not
// durable may survive a power cut, and may not.
type testDisk struct {
	calls int
	// before is called with the number and the name of each call. Its error becomes the call's.
	before func(call int, name string) error
	// failsLate makes a call that fails have its effect; otherwise it has none.
	failsLate bool

	names  map[string]*testInode
	synced map[string]*testInode
	// changed are the versions of a name since synced has it, the oldest first; nil: removed.
	changed map[string][]*testInode
	// lost are the names whose last change was followed by a failed SyncDir. Another SyncDir does
	// not make them durable.
	lost map[string]bool
}

// testInode is a file, whatever its name.
type testInode struct {
	content []byte
	synced  int  // bytes of content that are durable
	lost    bool // a Sync has failed; another one makes nothing durable
}

func newTestDisk() *testDisk {
	return &testDisk{names: make(map[string]*testInode), synced: make(map[string]*testInode),
		changed: make(map[string][]*testInode), lost: make(map[string]bool)}
}

// call counts a call, and does it unless it fails.
func (d *testDisk) call(name string, do func() error) error {
	d.calls++
	var err error
	if d.before != nil {
		err = d.before(d.calls, name)
	}
	if err != nil && !d.failsLate {
		return err
	}
	return errors.Join(err, do())
}

// set gives a name another inode, or removes it with nil.
func (d *testDisk) set(path string, n *testInode) {
	if n == nil {
		delete(d.names, path)
	} else {
		d.names[path] = n
	}
	d.changed[path] = append(d.changed[path], n)
	d.lost[path] = false
}

func (d *testDisk) ReadFile(path string) (data []byte, err error) {
	err = d.call("read", func() error {
		if d.names[path] == nil {
			return fs.ErrNotExist
		}
		data = bytes.Clone(d.names[path].content)
		return nil
	})
	return data, err
}

func (d *testDisk) Create(path string) (durable.File, error) {
	n := new(testInode)
	err := d.call("create", func() error {
		if d.names[path] != nil {
			return fs.ErrExist
		}
		d.set(path, n)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &testFile{d, n}, nil
}

func (d *testDisk) Remove(path string) error {
	return d.call("remove", func() error {
		if d.names[path] == nil {
			return fs.ErrNotExist
		}
		d.set(path, nil)
		return nil
	})
}

func (d *testDisk) Rename(from, to string) error {
	return d.call("rename", func() error {
		if d.names[from] == nil {
			return fs.ErrNotExist
		}
		d.set(to, d.names[from])
		d.set(from, nil)
		return nil
	})
}

func (d *testDisk) SyncDir(string) error {
	err := d.call("syncdir", func() error { return nil })
	for path := range d.changed {
		switch {
		case err != nil:
			d.lost[path] = true
		case !d.lost[path]:
			d.synced[path] = d.names[path]
			delete(d.changed, path)
		}
	}
	return err
}

type testFile struct {
	disk *testDisk
	*testInode
}

func (f *testFile) Write(b []byte) (n int, err error) {
	err = f.disk.call("write", func() error {
		f.content = append(f.content, b...)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return len(b), nil
}

func (f *testFile) Sync() error {
	err := f.disk.call("sync", func() error { return nil })
	if err != nil {
		f.lost = true
	} else if !f.lost {
		f.synced = len(f.content)
	}
	return err
}

func (f *testFile) Close() error { return f.disk.call("close", func() error { return nil }) }

// survivors are the ways in which a power cut leaves content that is not durable.
const survivors = 4

// crash returns the disk after a power cut: nothing that is not durable survives (way 0), all of it
// (1), or chance decides.
func (d *testDisk) crash(way int) *testDisk {
	rng := rand.New(rand.NewPCG(uint64(way), uint64(d.calls)))
	choose := func(n int) int { // of n, the last of which is the newest
		switch way {
		case 0:
			return 0
		case 1:
			return n - 1
		}
		return rng.IntN(n)
	}
	left := newTestDisk()
	all := maps.Clone(d.synced)
	maps.Copy(all, d.names)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		versions := append([]*testInode{d.synced[path]}, d.changed[path]...)
		n := versions[choose(len(versions))]
		if n == nil {
			continue
		}
		size := n.synced + choose(len(n.content)-n.synced+1)
		content := bytes.Clone(n.content[:size])
		left.names[filepath.Clean(path)] = &testInode{content: content, synced: size}
	}
	left.synced = maps.Clone(left.names)
	return left
}
