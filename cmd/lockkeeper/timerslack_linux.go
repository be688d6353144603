package main

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// timerSlackNs is by how much Linux may be late when it wakes a thread of a member. The runtime's own wait for timers
	// and connections is in whole milliseconds, too.
	timerSlackNs = 1_000_000
	// timerSlackDefaultNs is what Linux gives a process that nobody has said anything about.
	timerSlackDefaultNs = 50_000
	// timerSlackEnv, if it is set to anything, leaves the slack as it is.
	timerSlackEnv = "LOCKKEEPER_TIMER_SLACK"
)

// coarseTimers lets the threads of this process be woken a millisecond late, by starting its program anew. It returns if
// nothing is to be done, or can be; then all is as it was.
//
// Go's runtime has a thread that watches the others (sysmon). When it has been woken it sleeps for 20 us, wakes, and finds nothing
// to do. How long it sleeps is not to be set, but Linux adds the slack. While each system call on a socket woke it, a millisecond saved a fifth to
// a third of the CPU for a write; since they do not (internal/rawsock) what is left are timers, and three members on two cores take 3 to 10 % less.
//
// Only a thread itself can set its slack, threads inherit it when they are made, and sysmon is made before main; but it outlasts execve.
// Whoever has set it (systemd's TimerSlackNSec, for instance) wants that.
func coarseTimers() {
	if os.Getenv(timerSlackEnv) != "" {
		return
	}
	runtime.LockOSThread() // it is the one that becomes the new program
	defer runtime.UnlockOSThread()
	if now, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil || now != timerSlackDefaultNs {
		return
	}
	program, err := os.Executable()
	if err != nil || unix.Prctl(unix.PR_SET_TIMERSLACK, timerSlackNs, 0, 0, 0) != nil {
		return
	}
	_ = syscall.Exec(program, os.Args, append(os.Environ(), timerSlackEnv+"=0"))
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, timerSlackDefaultNs, 0, 0, 0)
}
