package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"lockkeeper/cmd/lockkeeper/internal/timerslack"
)

// slacksOf are the timer slacks of all threads of a process, in ns, each once.
func slacksOf(t *testing.T, pid int) map[string]bool {
	t.Helper()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, thread := range threads {
		b, err := os.ReadFile("/proc/" + thread.Name() + "/timerslack_ns")
		if errors.Is(err, fs.ErrPermission) && os.Getenv("CI") == "" {
			t.Skip("only root (CAP_SYS_NICE) reads the timer slack of another process")
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a thread may have ended
			t.Fatal(err)
		}
		seen[strings.TrimSpace(string(b))] = true
	}
	delete(seen, "")
	return seen
}

// TestTimerSlack: every thread of a member has a slack of a millisecond, in the process that was
// started, unless the environment says otherwise.
func TestTimerSlack(t *testing.T) {
	t.Parallel()
	for variable, want := range map[string]string{"": "1000000", "default": "50000"} {
		u := user{t: t, variables: map[string]string{timerslack.Variable: variable}}
		p := u.start("", "serve", "-client-address", "127.0.0.1:0", "-data-dir", t.TempDir(), "-log-level", "debug")
		p.line() // it serves
		if got := slacksOf(t, p.Process.Pid); len(got) != 1 || !got[want] {
			t.Errorf("%s=%q: the slacks of the threads are %v ns, want %s", timerslack.Variable, variable, got, want)
		}
		if text := p.stderr.String(); strings.Contains(text, "slack=1ms") != (variable == "") {
			t.Errorf("%s=%q: the log says: %s", timerslack.Variable, variable, text)
		}
	}
}
