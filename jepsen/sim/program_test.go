package sim

import (
	"errors"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestHangIsCPUTime: a program that computes without end is ended, one that only has to wait longer
// than that is not.
func TestHangIsCPUTime(t *testing.T) {
	t.Parallel()
	const limit = 100 * time.Millisecond
	if out, err := output(exec.Command("sh", "-c", "echo begun; sleep 0.5; echo ended"), limit); err != nil || string(out) != "begun\nended\n" {
		t.Errorf("a program that waits: %q, %v", out, err)
	}
	if runtime.GOOS != "linux" {
		t.Skip("no /proc to read the CPU time of a process from")
	}
	out, err := output(exec.Command("sh", "-c", "echo begun; while :; do :; done"), limit)
	if !errors.Is(err, errHangs) || string(out) != "begun\n" {
		t.Errorf("a program that computes: %q, %v", out, err)
	}
	if text := reason(out, err); !strings.Contains(text, "CPU time") {
		t.Errorf("the reason is %q", text)
	}
	if _, err := output(exec.Command("sh", "-c", "exit 3"), limit); err == nil || errors.Is(err, errHangs) {
		t.Errorf("a program that fails: %v", err)
	}
}
