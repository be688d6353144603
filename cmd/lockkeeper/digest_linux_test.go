package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is a pseudo terminal: the person's screen and keyboard on one end, the command's on the
// other.
func terminal(t *testing.T) (person, command *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no pseudo terminals here: %v", err)
	}
	t.Cleanup(func() { _ = person.Close() })
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	command, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Close() })
	return person, command
}

// readUntil reads the output of the terminal until it ends in that text.
func readUntil(t *testing.T, person *os.File, end string) (shown string) {
	t.Helper()
	found := make(chan struct{})
	go func() {
		defer close(found)
		b := make([]byte, 1)
		for !strings.HasSuffix(shown, end) {
			if n, err := person.Read(b); err != nil || n == 0 {
				return
			}
			shown += string(b)
		}
	}()
	select {
	case <-found:
		return shown
	case <-time.After(time.Minute):
		t.Fatalf("the terminal never shows %q", end)
		return ""
	}
}

// TestDigestOnATerminal: it asks twice, does not echo the password, and leaves the terminal as it
// was, also when it is interrupted.
func TestDigestOnATerminal(t *testing.T) {
	for name, c := range map[string]struct {
		again  string // "" = a signal instead
		stdout string
		status int
	}{
		"same":        {"test", "super:D/InIHSb7yEEbrWz8b9l71RjZJU=\n", exitOK},
		"differs":     {"tset", "", exitFailed},
		"interrupted": {"", "", exitSignal + int(syscall.SIGINT)},
	} {
		t.Run(name, func(t *testing.T) {
			person, tty := terminal(t)
			before, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(os.Args[0], "digest", "super")
			cmd.Env = new(user).environ()
			var out strings.Builder
			cmd.Stdin, cmd.Stderr, cmd.Stdout = tty, tty, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			shown := readUntil(t, person, "Password for super: ")
			awaitSilence(t, tty)
			fmt.Fprint(person, "test\n")
			shown += readUntil(t, person, "The same again: ")
			awaitSilence(t, tty)
			if c.again == "" {
				_ = cmd.Process.Signal(syscall.SIGINT)
			} else {
				fmt.Fprint(person, c.again+"\n")
			}
			_ = cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != c.status || out.String() != c.stdout {
				t.Errorf("status %d, standard output %q; want %d, %q", got, out.String(), c.status, c.stdout)
			}
			if strings.Contains(shown, "test") {
				t.Errorf("the terminal shows the password: %q", shown)
			}
			if after, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS); err != nil || *after != *before {
				t.Errorf("the terminal is left in another state: %+v, %v; was %+v", after, err, before)
			}
		})
	}
}

// awaitSilence waits until the terminal has no echo.
func awaitSilence(t *testing.T, tty *os.File) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if s, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS); err == nil && s.Lflag&unix.ECHO == 0 {
			return
		}
	}
	t.Fatal("the terminal goes on showing what is typed")
}
