package system

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// clockSource is the library that shows a program another wall clock.
//
//go:embed preload/clock.c
var clockSource []byte

// A Clock is the wall clock of a program in C or Java, and of its child processes. Without a C
// compiler there is none (nil), and the program has the machine's.
type Clock struct {
	library, file string
}

// NewClock makes a clock in a directory, or nil.
func NewClock(dir, name string) *Clock {
	c := &Clock{library: filepath.Join(dir, "clock.so"), file: filepath.Join(dir, name+".clock")}
	if _, err := os.Stat(c.library); err != nil {
		source := filepath.Join(dir, "clock.c")
		if os.WriteFile(source, clockSource, 0o644) != nil ||
			exec.Command("cc", "-O2", "-shared", "-fPIC", "-o", c.library, source).Run() != nil {
			return nil
		}
	}
	if c.Set(0) != nil {
		return nil
	}
	return c
}

// Env has the variables for a program's environment.
func (c *Clock) Env() []string {
	if c == nil {
		return nil
	}
	return []string{"LD_PRELOAD=" + c.library, "LOCKLAB_CLOCK=" + c.file}
}

// Set makes the clock differ from the machine's by so much; ErrClock if there is none.
func (c *Clock) Set(ahead time.Duration) error {
	if c == nil {
		return ErrClock
	}
	// The file is the one that the program has mapped: it is written over, not replaced.
	f, err := os.OpenFile(c.file, os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(ahead)), 0)
		if e := f.Close(); err == nil {
			err = e
		}
	}
	if err != nil {
		return fmt.Errorf("system: set clock: %w", err)
	}
	return nil
}
