package durable

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// FS is the part of a file system that Replace needs. Content is durable after Sync, and a name
// after SyncDir. After either has failed nothing is known: the written bytes may be readable and
// not durable, also when a later call succeeds.
type FS interface {
	ReadFile(path string) ([]byte, error)
	// Create makes a file that does not exist.
	Create(path string) (File, error)
	Remove(path string) error
	Rename(from, to string) error
	SyncDir(dir string) error
}

// File is a file that is being written.
type File interface {
	io.WriteCloser
	Sync() error
}

// Replace gives the file at path new content, whether there is one or not, and returns nil when the
// content and the name are durable. With an error the file has the old content or the new one.
// Nobody else may replace the file at the same time: the new content is written beside it, to the
// name with ".new" added.
//
// After a failed sync the page cache may have bytes that the disk lacks, and a second sync would
// succeed. So each call begins with a new file and ends with a new name, whatever is left of the
// call before.
func Replace(files FS, path string, data []byte) error {
	temp := path + ".new"
	if err := files.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := writeSynced(files, temp, data); err != nil {
		return err
	}
	if err := files.Rename(temp, path); err != nil {
		return err
	}
	return files.SyncDir(filepath.Dir(path))
}

func writeSynced(files FS, path string, data []byte) error {
	file, err := files.Create(path)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// OS is the file system of the operating system.
type OS struct {
	// Mode has the permissions of the files that Create makes, before umask.
	Mode fs.FileMode
}

// ReadFile implements FS.
func (OS) ReadFile(path string) ([]byte, error) { return os.ReadFile(path) }

// Remove implements FS.
func (OS) Remove(path string) error { return os.Remove(path) }

// Rename implements FS.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Create implements FS.
func (o OS) Create(path string) (File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, o.Mode)
}

// SyncDir implements FS.
func (OS) SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // it has no fsync of a directory: NTFS has its names in a journal
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
