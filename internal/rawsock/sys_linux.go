package rawsock

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

// order is what the race detector is told by: what was done before bytes were written was done before they are read.
var order atomic.Uint32

func sysRead(fd uintptr, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if raceDetector {
		order.Load()
	}
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func sysWrite(fd uintptr, b []byte) (int, error) {
	if raceDetector {
		order.Add(1)
	}
	n, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
