package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// slacks are the timer slacks of all threads of a process, each once.
func slacks(t *testing.T, pid int) string {
	t.Helper()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	var all []string
	for _, thread := range threads {
		b, err := os.ReadFile(filepath.Join("/proc", thread.Name(), "timerslack_ns"))
		if errors.Is(err, fs.ErrPermission) && os.Getenv("CI") == "" {
			t.Skip("only root (CAP_SYS_NICE) can look at the timer slack of another process")
		}
		if err != nil {
			t.Fatal(err)
		}
		if s := strings.TrimSpace(string(b)); !seen[s] {
			seen[s] = true
			all = append(all, s)
		}
	}
	return strings.Join(all, " ")
}

// A member has coarse timers in all its threads, also those that the runtime made before main, and the process that was started
// is the member. It leaves them alone when it is told to.
func TestMemberHasCoarseTimers(t *testing.T) {
	for _, c := range []struct {
		set  string
		want string
	}{
		{"", "1000000"},
		{"0", "50000"},
	} {
		t.Setenv(timerSlackEnv, c.set)
		p := start(t, t.TempDir(), "serve", "-client-address", "127.0.0.1:0")
		p.line() // it serves
		if got := slacks(t, p.Process.Pid); got != c.want {
			t.Errorf("with %s=%q the timer slack of its threads is %s ns, want %s", timerSlackEnv, c.set, got, c.want)
		}
	}
}
