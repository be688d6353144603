package attack

import (
	"runtime"
	"syscall"
)

// lowerPriority gives the calling goroutine a thread of its own, of the lowest priority: an
// attacker has a machine of its own, and on this one gets the processor time that the members and
// the lock users leave. The thread ends with the goroutine, because it stays locked.
func lowerPriority() {
	runtime.LockOSThread()
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, syscall.Gettid(), 19)
}
