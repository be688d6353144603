package quorum

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// dropCache has the file read from the disk: when a sync fails, Linux keeps what it could not write, and takes it for
// written. A program that starts again must not find there what a power cut takes away.
func dropCache(f *os.File) error {
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	// Where the file system has nothing to drop, in memory for example, nothing can be stale either.
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	return nil
}
