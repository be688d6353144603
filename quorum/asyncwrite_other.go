//go:build !linux

package quorum

import "os"

// asyncWriter writes in the ordinary way: the other one is for Linux.
type asyncWriter struct{}

func newAsyncWriter(string) *asyncWriter { return nil }

func (*asyncWriter) writeAt(f *os.File, b []byte, at int64) error {
	_, err := f.WriteAt(b, at)
	return err
}

func (*asyncWriter) close() {}
