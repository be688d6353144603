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

// NewScratch makes an empty directory. Temporary files that this process, and those that it starts,
// make from now on are in it too.
func NewScratch() (*Scratch, error) {
	dir, err := tempDir("jepsen")
	if err != nil {
		return nil, err
	}
	j, err := startJanitor(sweep, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s := &Scratch{Dir: dir, janitor: j}
	if err := os.Setenv("TMPDIR", dir); err != nil {
		return nil, errors.Join(fmt.Errorf("jepsen: TMPDIR: %w", err), s.Close())
	}
	return s, nil
}

// Close removes the directory.
func (s *Scratch) Close() error { return s.janitor.clean() }
