//go:build !linux && !darwin && !freebsd

package datadir

// FreeBytes is not known here.
func FreeBytes(string) (int64, bool) { return 0, false }
