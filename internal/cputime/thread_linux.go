package cputime

import (
	"time"

	"golang.org/x/sys/unix"
)

// Thread is the CPU time that the calling thread has used so far. The caller has locked its
// goroutine to the thread.
func Thread() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
