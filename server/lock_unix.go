//go:build unix

package server

import (
	"errors"
	"os"
	"syscall"

	"lockkeeper/quorum"
)

// lock takes f's lock for as long as f is open, or for as long as this process lives. It returns
// quorum.ErrInUse when another one has it.
func lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return quorum.ErrInUse
	}
	return err
}

// fileDescriptors returns how many files this process has open and how many it may have; -1 where
// the system does not report it.
func fileDescriptors() (open, limit int64) {
	open, limit = -1, -1
	if entries, err := os.ReadDir("/proc/self/fd"); err == nil {
		open = int64(len(entries)) - 1 // ReadDir's own
	}
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) == nil {
		limit = int64(r.Cur)
	}
	return open, limit
}
