//go:build !linux

package quorum

import "os"

// dropCache does nothing: there is no portable way to have a file read from the disk.
func dropCache(*os.File) error { return nil }
