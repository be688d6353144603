//go:build !linux && !windows

package fence

import (
	"os"
	"syscall"
)

// lockFile locks a file that is open for writing. Without wait it fails at once if another open
// file has the lock. In BSD and macOS flock(2) excludes the locks of fcntl(2), which Java takes.
func lockFile(f *os.File, wait bool) error {
	how := syscall.LOCK_EX
	if !wait {
		how |= syscall.LOCK_NB
	}
	for {
		if err := syscall.Flock(int(f.Fd()), how); err != syscall.EINTR {
			return err
		}
	}
}

// unlockFile ends the lock. So does the end of the process.
func unlockFile(f *os.File) { _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }
