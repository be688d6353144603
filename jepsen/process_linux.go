package jepsen

import "syscall"

// procAttr puts a child into a process group of its own, so that a Ctrl-C at the terminal reaches
// only its starter, and has the kernel kill it when the starter dies.
func procAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// yield gives all threads of a process that procAttr has put into a group of its own the lowest
// priority.
func yield(pid int) error { return syscall.Setpriority(syscall.PRIO_PGRP, pid, 19) }
