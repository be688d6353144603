//go:build unix && (!linux || 386)

package rawsock

import "syscall"

// Package syscall does not know the numbers of these calls on 386, where they are parts of another, and on some systems a number is nothing to go by.

func sysRead(fd uintptr, b []byte) (int, error)  { return syscall.Read(int(fd), b) }
func sysWrite(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }
