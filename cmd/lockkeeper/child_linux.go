package main

import "syscall"

func childAttributes(group, dieWithUs bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: group}
	if dieWithUs {
		a.Pdeathsig = syscall.SIGKILL
	}
	return a
}
