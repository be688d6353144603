package audit

import (
	"bytes"
	"fmt"
	"os"
)

// file is the current file of the log, and its predecessors: file.1 is the newest of these. Its
// methods are for one goroutine.
type file struct {
	path     string
	maxBytes int64
	keep     int // predecessors

	f    *os.File // nil after an error: to be opened again
	size int64
}

// mode is the mode of the files: paths, names of users and addresses are not for everybody. A file
// that exists keeps its mode, so an operator may let a group read it.
const mode = 0o600

func openFile(path string, maxBytes int64, keep int) (*file, error) {
	f := &file{path: path, maxBytes: maxBytes, keep: keep}
	return f, f.open()
}

// open opens the file for appending. It ends a last line that a crash has torn.
func (f *file) open() error {
	h, err := os.OpenFile(f.path, os.O_CREATE|os.O_RDWR|os.O_APPEND, mode)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	info, err := h.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", f.path)
	}
	if err == nil && info.Size() > 0 {
		err = endLine(h, info.Size())
	}
	if err == nil {
		info, err = h.Stat()
	}
	if err != nil {
		_ = h.Close()
		return fmt.Errorf("audit: %w", err)
	}
	f.f, f.size = h, info.Size()
	return nil
}

func endLine(h *os.File, size int64) error {
	var last [1]byte
	if _, err := h.ReadAt(last[:], size-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err := h.Write([]byte{'\n'})
	return err
}

// write appends whole lines, and begins a new file whenever the next line does not fit. After an
// error the file ends with the last whole line that was written.
func (f *file) write(lines []byte) (written int, err error) {
	for len(lines) > 0 {
		if f.f == nil {
			if err := f.open(); err != nil {
				return written, err
			}
		}
		n := f.fits(lines)
		if n == 0 {
			if err := f.rotate(); err != nil {
				return written, err
			}
			continue
		}
		if _, err := f.f.Write(lines[:n]); err != nil {
			_ = f.f.Truncate(f.size)
			_ = f.close()
			return written, fmt.Errorf("audit: %w", err)
		}
		f.size += int64(n)
		written += n
		lines = lines[n:]
	}
	return written, nil
}

// fits returns the number of bytes, in whole lines, that the file has room for. An empty file has
// room for one line of any length.
func (f *file) fits(lines []byte) int {
	room := f.maxBytes - f.size
	if int64(len(lines)) <= room {
		return len(lines)
	}
	if n := bytes.LastIndexByte(lines[:max(room, 0)], '\n') + 1; n > 0 || f.size > 0 {
		return n
	}
	return bytes.IndexByte(lines, '\n') + 1
}

// rotate renames the file and its predecessors, the oldest of which goes.
func (f *file) rotate() error {
	if err := f.close(); err != nil {
		return err
	}
	// A rotation that failed has left a gap, which the next one fills: nothing behind it is moved.
	last := 1
	for last < f.keep && exists(f.older(last)) {
		last++
	}
	for i := last; i > 0; i-- {
		if err := os.Rename(f.older(i-1), f.older(i)); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
	}
	return f.open()
}

// older is the name of the predecessor number i; 0 is the file itself.
func (f *file) older(i int) string {
	if i == 0 {
		return f.path
	}
	return fmt.Sprintf("%s.%d", f.path, i)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func (f *file) close() error {
	if f.f == nil {
		return nil
	}
	h := f.f
	f.f = nil
	if err := h.Close(); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}
