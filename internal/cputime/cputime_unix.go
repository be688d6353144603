//go:build unix

package cputime

import (
	"syscall"
	"time"
)

// Process is the CPU time that this process has used so far, in user and system mode, by all its
// threads.
func Process() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
