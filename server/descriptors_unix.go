//go:build unix

package server

import (
	"os"
	"syscall"
)

// fileDescriptors returns the number of this process's open files, and its limit; -1 where the
// system does not report them.
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
