//go:build unix && !linux

package guard

import "syscall"

// becomeReaper reports that nobody can inherit others' children: only Linux can.
func becomeReaper() bool { return false }

// nameProcess does nothing: the name is that of the file.
func nameProcess(string) {}

// dieWithParent does nothing: only Linux can.
func dieWithParent(*syscall.SysProcAttr) {}

// Descendants are not known.
func Descendants(int) []Process { return nil }
