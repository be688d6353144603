package jepsen

import "syscall"

// procAttr puts a child into a process group of its own, so that a Ctrl-C at the terminal reaches
// only its starter, and has the kernel kill it when the starter dies.
func procAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
