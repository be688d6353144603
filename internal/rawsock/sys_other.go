//go:build unix && !linux

package rawsock

import "syscall"

func sysRead(fd uintptr, b []byte) (int, error)  { return syscall.Read(int(fd), b) }
func sysWrite(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }
