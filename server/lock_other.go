//go:build !unix

package server

import "os"

// lock does nothing: the log's own lock (bbolt's) keeps a second process out.
func lock(*os.File) error { return nil }

// fileDescriptors returns -1: this system does not report them.
func fileDescriptors() (open, limit int64) { return -1, -1 }
