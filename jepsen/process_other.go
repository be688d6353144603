//go:build unix && !linux

package jepsen

import (
	"errors"
	"syscall"
)

// procAttr leaves a child in its starter's process group: there is no way here to have the kernel
// end it with its starter, but a Ctrl-C at the terminal reaches both.
func procAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// yield cannot be done here.
func yield(int) error { return errors.ErrUnsupported }
