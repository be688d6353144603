package jepsen

import (
	"fmt"
	"syscall"
	"time"
	"unsafe"
)

// Monotonic is the machine's monotonic clock (CLOCK_MONOTONIC), which all its processes share and
// nobody sets. Differences mean something, nothing else.
func Monotonic() time.Duration {
	const clockMonotonic = 1
	var ts syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 { // there is no Linux without this clock
		panic(fmt.Sprintf("jepsen: the monotonic clock: %v", errno))
	}
	return time.Duration(ts.Nano())
}
