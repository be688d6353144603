package wal

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// FS is the file system that holds a log; [OS] is the real one. Its methods may be called from any
// goroutine. Which names a directory has is durable with SyncDir only.
type FS interface {
	// MkdirAll creates a directory that does not exist yet, and makes its name durable.
	MkdirAll(dir string) error
	// ReadDir returns the names of the files in a directory, none if it does not exist.
	ReadDir(dir string) ([]string, error)
	// Create creates a file of size bytes, all zeros, and reserves their space; a file with
	// this name is replaced. An error leaves no file.
	Create(path string, size int64) (File, error)
	// Open opens a file to be read and written. Reads come from the disk: after a failed
	// fsync the page cache has bytes that the disk has not.
	Open(path string) (File, error)
	// Rename gives a file a new name; a file that has it is removed.
	Rename(from, to string) error
	// Remove removes a file.
	Remove(path string) error
	// SyncDir makes the names of the files in a directory durable.
	SyncDir(dir string) error
}

// File is a file of an FS. A crash leaves, of each sector that was written since the last Sync, the
// old or the new bytes.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Size is the length of the file in bytes.
	Size() (int64, error)
	// Sync makes all writes durable. After an error it is unknown which of them are.
	Sync() error
}

const (
	// descriptorWait is how long the creation of a file waits for a file descriptor.
	descriptorWait  = 2 * time.Second
	descriptorPause = 20 * time.Millisecond

	fileMode = 0o600
	dirMode  = 0o700
)

// OS is the file system of the operating system. When the process or the system has no file
// descriptor left, Create and SyncDir wait for one, 2 s at most. The zero value is ready for use.
type OS struct {
	waits atomic.Int64

	mu     sync.Mutex
	notify func(error, time.Duration)
}

// IsStarved reports whether err says that the process or the system has no file descriptor left.
func IsStarved(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// NotifyStarved has f called whenever a wait for a file descriptor begins, by the goroutine that
// waits, with the error and the longest time that it will wait.
func (o *OS) NotifyStarved(f func(error, time.Duration)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.notify = f
}

// DescriptorWaits is how often something had to wait for a file descriptor.
func (o *OS) DescriptorWaits() int64 { return o.waits.Load() }

// retry calls open until it does not fail for want of a file descriptor, for descriptorWait at
// most.
func (o *OS) retry(open func() error) error {
	err := open()
	if !IsStarved(err) {
		return err
	}
	o.waits.Add(1)
	o.mu.Lock()
	notify := o.notify
	o.mu.Unlock()
	if notify != nil {
		notify(err, descriptorWait)
	}
	for start := time.Now(); IsStarved(err) && time.Since(start) < descriptorWait; err = open() {
		time.Sleep(descriptorPause)
	}
	return err
}

// MkdirAll implements FS.
func (o *OS) MkdirAll(dir string) error {
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return err
	}
	return o.SyncDir(filepath.Dir(dir))
}

// ReadDir implements FS.
func (o *OS) ReadDir(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// Create implements FS.
func (o *OS) Create(path string, size int64) (_ File, err error) {
	var f *os.File
	err = o.retry(func() (err error) {
		f, err = os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, fileMode)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := preallocate(f, size); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return osFile{f}, nil
}

// Open implements FS.
func (o *OS) Open(path string) (File, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	if err := dropCache(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return osFile{f}, nil
}

// Rename implements FS.
func (o *OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements FS.
func (o *OS) Remove(path string) error { return os.Remove(path) }

// SyncDir implements FS.
func (o *OS) SyncDir(dir string) error {
	return o.retry(func() error {
		d, err := os.Open(dir)
		if err != nil {
			return err
		}
		defer d.Close()
		return d.Sync()
	})
}

// osFile is a File of OS.
type osFile struct{ *os.File }

// Size implements File.
func (f osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// Sync implements File. The file's times may be lost.
func (f osFile) Sync() error { return syncData(f.File) }

// writeZeros makes a file so long by writing zeros to it.
func writeZeros(f *os.File, sizeBytes int64) error {
	b := make([]byte, 1<<20)
	for at := int64(0); at < sizeBytes; at += int64(len(b)) {
		if _, err := f.WriteAt(b[:min(int64(len(b)), sizeBytes-at)], at); err != nil {
			return err
		}
	}
	return nil
}
