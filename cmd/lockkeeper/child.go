package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"time"

	"golang.org/x/term"
)

// Exit statuses of the commands that run another one, where it has none of its own; those of
// timeout(1) and of shells.
const (
	exitLost     = 123 // the lock was lost, and with it the command
	exitTimedOut = 124 // not acquired in time
	exitTrouble  = 125 // this command failed: usage, cluster out of reach
	exitCannot   = 126 // the command cannot be run
	exitNotFound = 127 // the command was not found
)

// child is the command that is run while a lock is held.
type child struct {
	cmd   *exec.Cmd
	group bool          // it leads a process group of its own
	done  chan struct{} // closed when it has ended
}

// catch sends the signals that this process gets to a channel, until the end of the process. Those
// that it was started to ignore, as with nohup, stay ignored, for the command too.
func catch() <-chan os.Signal {
	ch := make(chan os.Signal, 16)
	for _, s := range forwarded {
		if !signal.Ignored(s) {
			signal.Notify(ch, s)
		}
	}
	return ch
}

// startChild starts a command. Its input and outputs are ours.
//
// Without a terminal it leads a process group of its own, so that a signal reaches what it has
// started, too. On a terminal it stays in ours, where Ctrl-C and Ctrl-Z find it. If dieWithUs, the
// kernel kills it when this process is killed: otherwise it would go on without the lock.
func startChild(args, environment []string, dieWithUs bool) (*child, error) {
	c := &child{cmd: exec.Command(args[0], args[1:]...), done: make(chan struct{}),
		group: !term.IsTerminal(int(os.Stdin.Fd()))}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.cmd.Env = append(os.Environ(), environment...)
	c.cmd.SysProcAttr = childAttributes(c.group, dieWithUs)
	started := make(chan error)
	go func() {
		// The kernel takes the end of the thread that started it for our end.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := c.cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		_ = c.cmd.Wait() // ProcessState has the outcome
		close(c.done)
	}()
	return c, <-started
}

// cannotStart is the exit status for a command that does not start.
func cannotStart(err error) exitStatus {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return exitNotFound
	}
	return exitCannot
}

func (c *child) signal(s os.Signal) {
	// It may just have ended.
	if c.group {
		_ = signalGroup(c.cmd.Process, s)
	} else {
		_ = c.cmd.Process.Signal(s)
	}
}

// forward sends a signal that this process got to the command. The terminal sends its signals to
// the command itself.
func (c *child) forward(s os.Signal) {
	if c.group || !slices.Contains(fromTerminal, s) {
		c.signal(s)
	}
}

// kill ends the command: it may do so itself for the time of grace. signals are forwarded
// meanwhile.
func (c *child) kill(grace time.Duration, signals <-chan os.Signal) {
	for _, s := range askToEnd {
		c.signal(s)
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for {
		select {
		case <-c.done:
			c.signal(os.Kill) // what is left of its group
			return
		case s := <-signals:
			c.forward(s)
		case <-timer.C:
			c.signal(os.Kill)
			<-c.done
			return
		}
	}
}

// status is the exit status of a command that has ended, as shells have it.
func (c *child) status() int {
	if n, ok := endedBySignal(c.cmd.ProcessState); ok {
		return exitSignal + n
	}
	return c.cmd.ProcessState.ExitCode()
}
