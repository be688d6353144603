package fence

import (
	"os"
	"syscall"
)

// The commands of fcntl(2) for locks of an open file description. Package syscall has no names for
// them. Such a lock excludes other descriptions of this process and, unlike flock(2), the locks of
// Java's FileChannel.
const (
	setLock     = 37 // F_OFD_SETLK
	setLockWait = 38 // F_OFD_SETLKW
)

// lockFile locks a file that is open for writing. Without wait it fails at once if another open
// file has the lock.
func lockFile(f *os.File, wait bool) error {
	if wait {
		return changeLock(f, setLockWait, syscall.F_WRLCK)
	}
	return changeLock(f, setLock, syscall.F_WRLCK)
}

// unlockFile ends the lock. So does the end of the process.
func unlockFile(f *os.File) { _ = changeLock(f, setLock, syscall.F_UNLCK) }

func changeLock(f *os.File, command int, kind int16) error {
	for {
		err := syscall.FcntlFlock(f.Fd(), command, &syscall.Flock_t{Type: kind}) // all of the file
		if err != syscall.EINTR {
			return err
		}
	}
}
