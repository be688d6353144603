package sessionfile

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// bootIDFile has a number that each boot of a kernel draws anew.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// lockFile takes the lock of an open file: ErrInUse if another process has it. The lock belongs to
// the open file, and so ends with unlockFile, or with the last process that has inherited it.
func lockFile(f *os.File) error {
	err := flock(f, syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return ErrInUse
	case err != nil:
		return fmt.Errorf("lock it: %w", err)
	}
	return nil
}

// unlockFile ends the lock of an open file for all processes that have inherited it.
func unlockFile(f *os.File) error { return flock(f, syscall.LOCK_UN) }

func flock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// place names the boot of the machine and the lock file. Where it is the same, and the lock is
// free, the process that had the lock has ended.
func place(lock *os.File) (string, error) {
	boot, err := os.ReadFile(bootIDFile)
	if err != nil {
		return "", err
	}
	info, err := lock.Stat()
	if err != nil {
		return "", err
	}
	stat := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%s/%d/%d", strings.TrimSpace(string(boot)), stat.Dev, stat.Ino), nil
}

// private returns nil if the file is a regular file of this user that nobody else may open.
func private(f *os.File) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return errors.New("it is not a regular file")
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%w: its mode is %04o, not 0600", ErrExposed, info.Mode().Perm())
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() {
		return fmt.Errorf("%w: it belongs to user %d, and this process is of user %d", ErrExposed, owner, os.Geteuid())
	}
	return nil
}
