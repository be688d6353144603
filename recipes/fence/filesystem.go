package fence

import (
	"errors"
	"io"
	"os"
	"runtime"
)

// fileSystem is the part of a file system that File needs. Content is durable after Sync, and a
// name after SyncDir. After either has failed nothing is known: the written bytes may be readable
// and not durable, also when a later call succeeds.
type fileSystem interface {
	ReadFile(path string) ([]byte, error)
	// Create makes a file that does not exist.
	Create(path string) (syncedFile, error)
	Remove(path string) error
	Rename(from, to string) error
	SyncDir(dir string) error
}

// syncedFile is a file that is being written.
type syncedFile interface {
	io.WriteCloser
	Sync() error
}

// osFiles is the file system of the operating system.
type osFiles struct{}

func (osFiles) ReadFile(path string) ([]byte, error) { return os.ReadFile(path) }
func (osFiles) Remove(path string) error             { return os.Remove(path) }
func (osFiles) Rename(from, to string) error         { return os.Rename(from, to) }

func (osFiles) Create(path string) (syncedFile, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
}

func (osFiles) SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // it has no fsync of a directory: NTFS has its names in a journal
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
