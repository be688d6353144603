package main

import (
	"os"
	"syscall"
)

// Windows has no signals but the end of a process.
var (
	forwarded    = []os.Signal{os.Interrupt}
	fromTerminal = []os.Signal{os.Interrupt}
	askToEnd     = []os.Signal{os.Kill}
)

func childAttributes(bool, bool) *syscall.SysProcAttr { return nil }

func signalGroup(p *os.Process, s os.Signal) error { return p.Signal(s) }

func endedBySignal(*os.ProcessState) (number int, ok bool) { return 0, false }

func interrupts(os.Signal) (status int, ok bool) { return exitTrouble, true }
