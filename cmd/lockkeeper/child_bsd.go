//go:build unix && !linux

package main

import "syscall"

// becomeReaper reports that nobody can inherit others' children: only Linux can.
func becomeReaper() bool { return false }

// dieWithParent does nothing: only Linux can.
func dieWithParent(*syscall.SysProcAttr) {}

// descendants are not known.
func descendants(int) []familyProcess { return nil }
