//go:build !linux

package quorum

import "os"

func preallocate(f *os.File, size int64) error { return writeZeros(f, size) }

func syncData(f *os.File) error { return f.Sync() }
