//go:build !linux

package jepsen

import "os"

// Only Linux has Disks; FindDisks says so before anybody gets here.
func allocateAll(*os.File, int64) error { return ErrMissing }
func shutDown(*os.File) error           { return ErrMissing }
