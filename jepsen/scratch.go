package jepsen

import (
	"errors"
	"fmt"
	"os"
)

// A Scratch is a directory that goes with the process that made it, however
// that ends.
type Scratch struct {
	// Dir is the directory.
	Dir     string
	janitor *janitor
}

// sweep removes a directory. The processes that are dying with the owner may
// still write for a moment.
const sweep = `for i in 1 2 3 4 5 6 7 8 9; do rm -rf "$1" 2>/dev/null && exit; sleep 1; done; exit 1`

// NewScratch makes an empty directory.
func NewScratch() (*Scratch, error) {
	dir, err := tempDir("jepsen")
	if err != nil {
		return nil, err
	}
	j, err := startJanitor(sweep, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &Scratch{Dir: dir, janitor: j}, nil
}

// ForTemporaryFiles has this process, and those that it starts, put their temporary files there, so that they go with it.
func (s *Scratch) ForTemporaryFiles() error {
	if err := os.Setenv("TMPDIR", s.Dir); err != nil {
		return fmt.Errorf("jepsen: TMPDIR: %w", err)
	}
	return nil
}

// Close removes the directory.
func (s *Scratch) Close() error { return s.janitor.clean() }
