package quorum

import (
	"errors"
	"io/fs"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// preallocate makes the file so long, reads as zeros, and has its room on the disk.
func preallocate(f *os.File, size int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, size)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			return writeZeros(f, size)
		case err != nil:
			return &fs.PathError{Op: opPreallocate, Path: f.Name(), Err: err}
		}
		return nil
	}
}

// syncData has what was written to the file on the disk. The file's times may be lost; its length has not changed.
func syncData(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
		}
		return nil
	}
}

// alignedBytes makes a slice of zeros from and to which a file can be read and written past the page cache.
func alignedBytes(n int) []byte {
	b := make([]byte, n+blockBytes-1)
	from := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (blockBytes - 1))
	return b[from : from+n : from+n]
}

// openDirect opens a file past the page cache, whose writes are on the disk when they return. It returns nil where the file system
// cannot do that, or not in blocks.
func openDirect(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT|unix.O_DSYNC, 0)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if _, err = f.ReadAt(alignedBytes(blockBytes), 0); err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, unix.EINVAL) {
		return nil, nil
	}
	return nil, err
}
