//go:build !unix

package datadir

import "os"

// lock does nothing: the log's own lock (bbolt's) keeps a second process out.
func lock(*os.File) error { return nil }
