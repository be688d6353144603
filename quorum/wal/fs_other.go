//go:build !linux

package wal

import "os"

func preallocate(f *os.File, sizeBytes int64) error { return writeZeros(f, sizeBytes) }

func syncData(f *os.File) error { return f.Sync() }

// dropCache does nothing: there is no portable way to have a file read from the disk.
func dropCache(*os.File) error { return nil }
