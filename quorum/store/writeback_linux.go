package store

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// writeBack makes the system write n bytes of a file to the disk, and waits for it. It is no sync.
func writeBack(f *os.File, off, n int64) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("write back %s: %w", f.Name(), err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		const all = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
		failed = unix.SyncFileRange(int(fd), off, n, all)
	})
	if errors.Is(failed, unix.ENOSYS) || errors.Is(failed, unix.ESPIPE) {
		failed = nil // not on this kernel, or not on this file system
	}
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("write back %s: %w", f.Name(), err)
	}
	return nil
}
