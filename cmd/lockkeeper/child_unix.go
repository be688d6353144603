//go:build unix

package main

import (
	"os"
	"syscall"
)

var (
	// forwarded are the signals that are sent on to the command.
	forwarded = []os.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGWINCH, syscall.SIGALRM, syscall.SIGCONT,
	}
	// fromTerminal are those that a terminal sends to all that run on it.
	fromTerminal = []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGWINCH, syscall.SIGCONT}
	// askToEnd are sent to end a command. SIGCONT is among them so that a stopped command runs
	// its handler.
	askToEnd = []os.Signal{syscall.SIGTERM, syscall.SIGCONT}
)

func signalGroup(p *os.Process, s os.Signal) error { return syscall.Kill(-p.Pid, s.(syscall.Signal)) }

func endedBySignal(st *os.ProcessState) (number int, ok bool) {
	ws, ok := st.Sys().(syscall.WaitStatus)
	if !ok || !ws.Signaled() {
		return 0, false
	}
	return int(ws.Signal()), true
}

// interrupts reports whether a signal ends a command that waits, and with which exit status.
func interrupts(s os.Signal) (status int, ok bool) {
	switch s {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGALRM:
		return exitSignal + int(s.(syscall.Signal)), true
	}
	return 0, false
}
