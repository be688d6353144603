package timerslack

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Set lets Linux fire the timers of this process up to a millisecond late, by prctl(2)
// and an exec of this program. It returns if the slack is not Linux's default, if the environment
// has Variable, or if the kernel refuses.
//
// Sysmon, a thread of Go's runtime, sleeps for 20 us at a time while the program works. Only a
// thread can set its own slack, and sysmon starts before main; but the slack outlasts an exec, and
// new threads inherit it.
func Set() {
	const slack, byDefault = time.Millisecond, 50 * time.Microsecond
	if os.Getenv(Variable) != "" || Current() != byDefault {
		return
	}
	runtime.LockOSThread() // this thread becomes the first of the new program
	defer runtime.UnlockOSThread()
	program, err := os.Executable()
	if err != nil || unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0) != nil {
		return
	}
	_ = syscall.Exec(program, os.Args, append(os.Environ(), Variable+"="+slack.String()))
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(byDefault), 0, 0, 0) // there is no such file now
}

// Current is the slack of the calling thread; 0 if the kernel does not tell.
func Current() time.Duration {
	ns, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return 0
	}
	return time.Duration(ns)
}
