package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
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

// child is the command that is run while a lock is held, with all processes that it starts.
type child struct {
	family                     // how the platform runs them
	group        bool          // the command leads a process group of its own
	ended        chan struct{} // closed when the command has ended
	done         chan struct{} // closed when none of its processes is left, too
	status       int           // of the command, as shells have it; once ended is closed
	askedToEnd   bool          // a signal was forwarded that ends all
	askedByCtrlC bool          // SIGINT was forwarded
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
// started, too. On a terminal it stays in ours, where Ctrl-C and Ctrl-Z find it. If dieWithUs, it
// and all that it has started are killed when this process is killed: otherwise they would go on
// without the lock.
func startChild(args, environment []string, dieWithUs bool) (*child, error) {
	c := &child{ended: make(chan struct{}), done: make(chan struct{}),
		group: !term.IsTerminal(int(os.Stdin.Fd()))}
	return c, c.start(args, append(os.Environ(), environment...), dieWithUs)
}

// cannotStart is the exit status for a command that does not start.
func cannotStart(err error) exitStatus {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return exitNotFound
	}
	return exitCannot
}

// forward sends a signal that this process got to the command, unless that has ended. The terminal
// sends its signals to the command itself.
func (c *child) forward(s os.Signal) {
	if _, ok := interrupts(s); ok {
		c.askedByCtrlC = c.askedByCtrlC || s == os.Interrupt
		c.askedToEnd = c.askedToEnd || slices.Contains(endsAll, s)
	}
	if c.group || !slices.Contains(fromTerminal, s) {
		c.signal(s)
	}
}

// wasAskedToEnd says whether the command has ended because somebody wanted all of it to end. A
// program may catch SIGINT and go on.
func (c *child) wasAskedToEnd() bool {
	return c.askedToEnd || c.askedByCtrlC && c.status > exitSignal
}

// killPause is the time between two looks for processes that are to be killed: those that run
// start others meanwhile.
const killPause = 10 * time.Millisecond

// stubborn is after how long without an effect of SIGKILL there is a message.
const stubborn = 3 * time.Second

// kill ends the command and all that it has started: they may do so themselves for the time of
// grace. signals are forwarded meanwhile. It returns when none is left; tell is called once if that
// takes long.
func (c *child) kill(grace time.Duration, signals <-chan os.Signal, tell func()) {
	for _, s := range askToEnd {
		c.signalAll(s)
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for over := false; !over; {
		select {
		case <-c.done:
			return
		case s := <-signals:
			c.forward(s)
		case <-timer.C:
			over = true
		}
	}
	late := time.After(stubborn)
	for {
		c.signalAll(os.Kill)
		select {
		case <-c.done:
			return
		case <-late:
			tell()
		case <-time.After(killPause):
		}
	}
}
