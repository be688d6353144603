package jepsen

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// A Scratch is a directory that goes with the process that made it, however that ends.
type Scratch struct {
	// Dir is the directory.
	Dir     string
	before  string // TMPDIR before; empty: it was not set
	janitor *janitor
}

// sweep removes a directory. The processes that are dying with the owner may still write for a
// moment.
const sweep = `for i in 1 2 3 4 5 6 7 8 9; do rm -rf "$1" 2>/dev/null && exit; sleep 1; done; exit 1`

// NewScratch makes an empty directory. Temporary files that this process, and those that it starts,
// make until Close are in it too.
func NewScratch() (*Scratch, error) {
	dir, err := tempDir("jepsen")
	if err != nil {
		return nil, err
	}
	j, err := startJanitor(sweep, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s := &Scratch{Dir: dir, before: os.Getenv("TMPDIR"), janitor: j}
	if err := os.Setenv("TMPDIR", dir); err != nil {
		return nil, errors.Join(fmt.Errorf("jepsen: TMPDIR: %w", err), s.Close())
	}
	return s, nil
}

// Close removes the directory.
func (s *Scratch) Close() error {
	return errors.Join(os.Setenv("TMPDIR", s.before), s.janitor.clean())
}

// A janitor is a small shell that cleans up when this process has ended, also when it is killed
// with -9: it waits for the end of a pipe that only this process holds.
type janitor struct {
	shell *exec.Cmd
	alive io.Closer
}

// startJanitor starts one that will run a script with those arguments.
func startJanitor(script string, args ...string) (*janitor, error) {
	shell := exec.Command("sh", append([]string{"-c", "trap '' INT TERM HUP; cat >/dev/null; " + script, "janitor"},
		args...)...)
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it outlives this process
	alive, err := shell.StdinPipe()
	if err == nil {
		err = shell.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("jepsen: janitor: %w", err)
	}
	return &janitor{shell: shell, alive: alive}, nil
}

// clean has the janitor run its script now, and waits for it.
func (j *janitor) clean() error {
	if err := errors.Join(j.alive.Close(), j.shell.Wait()); err != nil {
		return fmt.Errorf("jepsen: janitor: %w", err)
	}
	return nil
}
