//go:build !linux

package quorum

import "os"

func preallocate(f *os.File, size int64) error { return writeZeros(f, size) }

func syncData(f *os.File) error { return f.Sync() }

func alignedBytes(n int) []byte { return make([]byte, n) }

// openDirect returns nil: writing past the page cache is for Linux.
func openDirect(string) (*os.File, error) { return nil, nil }
