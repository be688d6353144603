package jepsen

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
)

// A janitor is a small shell that cleans up when this process has ended, also
// when it is killed with -9: it waits for the end of a pipe that only this
// process holds.
type janitor struct {
	shell *exec.Cmd
	alive io.Closer
}

// startJanitor starts one that will run a script with those arguments.
func startJanitor(script string, args ...string) (*janitor, error) {
	shell := exec.Command("sh", append([]string{"-c", "trap '' INT TERM HUP; cat >/dev/null; " + script, "janitor"}, args...)...)
	shell.SysProcAttr = ownGroup()
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
