//go:build unix

package datadir

import (
	"errors"
	"os"
	"syscall"

	"lockkeeper/quorum/store"
)

// lock takes f's lock for as long as f is open, or for as long as this process lives. It returns
// store.ErrInUse when another one has it.
func lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return store.ErrInUse
	}
	return err
}
