package jepsen

import (
	"encoding/binary"
	"errors"
	"os"
	"syscall"
	"unsafe"
)

// allocateAll has the file take all free space, of at most that number of bytes.
func allocateAll(file *os.File, atMost int64) error {
	var size int64
	for step := atMost; step >= 512; {
		err := syscall.Fallocate(int(file.Fd()), 0, size, step)
		switch {
		case err == nil:
			size += step
		case errors.Is(err, syscall.ENOSPC):
			step /= 2
		case !errors.Is(err, syscall.EINTR):
			return err
		}
	}
	return nil
}

const (
	shutdownRequest = 0x8004587d // FS_IOC_SHUTDOWN, _IOR('X', 125, __u32)
	shutdownNoFlush = 2          // the journal stays as it is on the disk
)

// shutDown cuts the power of the file system that holds dir.
func shutDown(dir *os.File) error {
	var flag [4]byte
	binary.NativeEndian.PutUint32(flag[:], shutdownNoFlush)
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, dir.Fd(), shutdownRequest, uintptr(unsafe.Pointer(&flag)))
	if errno != 0 {
		return errno
	}
	return nil
}
