package guard

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

// Exit statuses, those of shells.
const (
	ExitCannot   = 126 // the command cannot be run
	ExitNotFound = 127 // the command was not found
	ExitSignal   = 128 // plus the number of the signal that ended the command
)

// exitTrouble is the status of a guard that has no order.
const exitTrouble = 125

// Child is the command that is run while a lock is held, with all processes that it starts.
type Child struct {
	family                     // how the platform runs them
	group        bool          // the command leads a process group of its own
	Ended        chan struct{} // closed when the command has ended
	Done         chan struct{} // closed when none of its processes is left, too
	Status       int           // of the command, as shells have it; once Ended is closed
	askedToEnd   bool          // a signal was forwarded that ends all
	askedByCtrlC bool          // SIGINT was forwarded
}

// Catch sends the signals that this process gets to a channel, until the end of the process. Those
// that it was started to ignore, as with nohup, stay ignored, for the command too.
func Catch() <-chan os.Signal {
	ch := make(chan os.Signal, 16)
	for _, s := range Forwarded {
		if !signal.Ignored(s) {
			signal.Notify(ch, s)
		}
	}
	return ch
}

// Options are the settings of a command.
type Options struct {
	// Die: the command and all that it has started are killed when this process is killed:
	// otherwise they would go on without the lock.
	Die bool
	// Kept, if it is not nil, is a file that stays open until the guard has ended, and with it all
	// that the command has started. With a lock on the file, no process that comes after this one
	// takes its place before. On Windows it does not.
	Kept *os.File
	// Inherit: the command has the file open, too, in case that the guard is killed.
	Inherit bool
}

// Start starts a command. Its input and outputs are ours.
//
// Without a terminal it leads a process group of its own, so that a signal reaches what it has
// started, too. On a terminal it stays in ours, where Ctrl-C and Ctrl-Z find it.
func Start(args, environment []string, o Options) (*Child, error) {
	c := &Child{Ended: make(chan struct{}), Done: make(chan struct{}),
		group: !term.IsTerminal(int(os.Stdin.Fd()))}
	return c, c.start(args, append(os.Environ(), environment...), o)
}

// CannotStart is the exit status for a command that does not start.
func CannotStart(err error) int {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return ExitNotFound
	}
	return ExitCannot
}

// Forward sends a signal that this process got to the command, unless that has ended. The terminal
// sends its signals to the command itself.
func (c *Child) Forward(s os.Signal) {
	if _, ok := Interrupts(s); ok {
		c.askedByCtrlC = c.askedByCtrlC || s == os.Interrupt
		c.askedToEnd = c.askedToEnd || slices.Contains(endsAll, s)
	}
	if c.group || !slices.Contains(fromTerminal, s) {
		c.signal(s)
	}
}

// WasAskedToEnd says whether the command has ended because somebody wanted all of it to end. A
// program may catch SIGINT and go on.
func (c *Child) WasAskedToEnd() bool {
	return c.askedToEnd || c.askedByCtrlC && c.Status > ExitSignal
}

// killPause is the time between two looks for processes that are to be killed: those that run
// start others meanwhile.
const killPause = 10 * time.Millisecond

// stubborn is after how long without an effect of SIGKILL there is a message.
const stubborn = 3 * time.Second

// Kill ends the command and all that it has started: they may do so themselves for the time of
// grace. signals are forwarded meanwhile. It returns when none is left; tell is called once if that
// takes long.
func (c *Child) Kill(grace time.Duration, signals <-chan os.Signal, tell func()) {
	for _, s := range askToEnd {
		c.signalAll(s)
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for over := false; !over; {
		select {
		case <-c.Done:
			return
		case s := <-signals:
			c.Forward(s)
		case <-timer.C:
			over = true
		}
	}
	late := time.After(stubborn)
	for {
		c.signalAll(os.Kill)
		select {
		case <-c.Done:
			return
		case <-late:
			tell()
		case <-time.After(killPause):
		}
	}
}
