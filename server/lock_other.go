//go:build !unix

package server

import "os"

// lock does nothing: the log's own lock (bbolt's) keeps a second process out.
func lock(*os.File) error { return nil }

// fileDescriptors knows nothing on this system.
func fileDescriptors() (open, limit int64) { return -1, -1 }
