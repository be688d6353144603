//go:build unix && !linux

package main

import "syscall"

// childAttributes cannot tie a command to our life: only Linux can.
func childAttributes(group, _ bool) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: group} }
