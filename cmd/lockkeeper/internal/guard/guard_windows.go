package guard

import (
	"os"
	"os/exec"
)

// Windows has no signals but the end of a process.
var (
	Forwarded    = []os.Signal{os.Interrupt}
	fromTerminal = []os.Signal{os.Interrupt}
	endsAll      = []os.Signal{}
	askToEnd     = []os.Signal{os.Kill}
)

// Command is what no program is called: there is no guard.
const Command = "\x00"

func Run() int { return exitTrouble }

// family is the command. What that starts is not known.
type family struct{ cmd *exec.Cmd }

func (c *Child) start(args, environment []string, _ Options) error {
	c.cmd = exec.Command(args[0], args[1:]...)
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.cmd.Env = environment
	if err := c.cmd.Start(); err != nil {
		return err
	}
	go func() {
		_ = c.cmd.Wait() // ProcessState has the outcome
		c.Status = c.cmd.ProcessState.ExitCode()
		close(c.Ended)
		close(c.Done)
	}()
	return nil
}

func (c *Child) signal(s os.Signal)    { _ = c.cmd.Process.Signal(s) } // it may just have ended
func (c *Child) signalAll(s os.Signal) { c.signal(s) }
func (c *Child) Leave()                {}
func (c *Child) Names() []string       { return nil }

func Interrupts(os.Signal) (status int, ok bool) { return exitTrouble, true }
