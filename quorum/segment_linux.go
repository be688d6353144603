package quorum

import (
	"errors"
	"io/fs"
	"os"

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
