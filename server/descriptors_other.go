//go:build !unix

package server

// fileDescriptors returns -1: this system does not report them.
func fileDescriptors() (open, limit int64) { return -1, -1 }
