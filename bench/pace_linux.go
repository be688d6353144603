package bench

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// preciseSleep returns a function for the calling goroutine that sleeps about as long as it is
// told, or less. Timers of Go's runtime fire up to a millisecond late in an idle program, because
// it sleeps in epoll_wait; so the goroutine gets a thread of its own, without timer slack, which
// ends with it. Where it may, the thread takes priority over the servers on this machine: they
// would delay their own load.
func preciseSleep() func(time.Duration) {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // ns; without it a sleep is 50 us longer
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -10)
	return func(d time.Duration) {
		t := unix.NsecToTimespec(int64(d))
		_ = unix.Nanosleep(&t, nil)
	}
}
