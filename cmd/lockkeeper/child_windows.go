package main

import (
	"os"
	"os/exec"
)

// Windows has no signals but the end of a process.
var (
	forwarded    = []os.Signal{os.Interrupt}
	fromTerminal = []os.Signal{os.Interrupt}
	endsAll      = []os.Signal{}
	askToEnd     = []os.Signal{os.Kill}
)

// guardCommand is what no program is called: there is no guard.
const guardCommand = "\x00"

func runGuard() int { return exitUsage }

// family is the command. What that starts is not known.
type family struct{ cmd *exec.Cmd }

func (c *child) start(args, environment []string, _ bool) error {
	c.cmd = exec.Command(args[0], args[1:]...)
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.cmd.Env = environment
	if err := c.cmd.Start(); err != nil {
		return err
	}
	go func() {
		_ = c.cmd.Wait() // ProcessState has the outcome
		c.status = c.cmd.ProcessState.ExitCode()
		close(c.ended)
		close(c.done)
	}()
	return nil
}

func (c *child) signal(s os.Signal)    { _ = c.cmd.Process.Signal(s) } // it may just have ended
func (c *child) signalAll(s os.Signal) { c.signal(s) }
func (c *child) leave()                {}
func (c *child) names() []string       { return nil }

func interrupts(os.Signal) (status int, ok bool) { return exitTrouble, true }
