package wal

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// preallocate makes a new file so long, of zeros, and reserves their space.
func preallocate(f *os.File, sizeBytes int64) error {
	err := retryInterrupted(f, "fallocate", func(fd int) error { return unix.Fallocate(fd, 0, 0, sizeBytes) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return writeZeros(f, sizeBytes)
	}
	return err
}

// syncData makes the content of a file durable.
func syncData(f *os.File) error { return retryInterrupted(f, "fdatasync", unix.Fdatasync) }

// dropCache makes later reads of a file come from the disk: after a failed fsync Linux keeps the
// unwritten pages in the page cache, and takes them for written. A program that starts again must
// not read bytes that a power cut takes away.
func dropCache(f *os.File) error {
	if err := f.Sync(); err != nil {
		return err
	}
	// Where the file system has nothing to drop, in memory for example, nothing can be stale
	// either.
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	return nil
}

// retryInterrupted makes a system call until no signal interrupts it. Errors name the call and the
// file.
func retryInterrupted(f *os.File, name string, call func(fd int) error) error {
	for {
		err := call(int(f.Fd()))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return &fs.PathError{Op: name, Path: f.Name(), Err: err}
		}
		return nil
	}
}
