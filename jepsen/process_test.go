package jepsen

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// orphanDir makes a copy of the test binary a starter of processes, which the test then kills.
const orphanDir = "LOCKKEEPER_TEST_ORPHAN_DIR"

// TestMain calls it in the copy. It starts a process and waits to be killed.
func startOrphan(dir string) {
	p, err := StartProcess("orphan", exec.Command("sleep", "1000"), filepath.Join(dir, "orphan.log"))
	if err == nil {
		err = p.Pause(context.Background())
	}
	fmt.Println(p.pid, err)
	select {}
}

// A process ends with its starter, even if the starter is killed with -9 and the process is stopped
// at that time.
func TestProcessEndsWithItsStarter(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux's kernel can do this")
	}
	ctx := testTimeout(t, time.Minute)
	starter := exec.CommandContext(ctx, os.Args[0])
	starter.Env = append(os.Environ(), orphanDir+"="+t.TempDir())
	out, err := starter.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := starter.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pidText, problem, _ := strings.Cut(strings.TrimSpace(line), " ")
	pid, err := strconv.Atoi(pidText)
	if err != nil || problem != "<nil>" {
		t.Fatalf("the starter said %q", line)
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("the process does not run: %v", err)
	}
	if err := starter.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = starter.Wait() // it was killed
	err = Poll(ctx, 5*time.Millisecond, func() error {
		// Killed and not yet reaped by init is dead enough.
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err == nil && !strings.Contains(string(stat), ") Z ") {
			return fmt.Errorf("process %d still runs: %s", pid, stat)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A cluster that does not start says why, with the member's output, and leaves nothing running.
func TestClusterDoesNotStart(t *testing.T) {
	for _, test := range []struct{ name, script, want string }{
		{"exits", "echo the reason >&2; exit 3", "the reason"},
		{"does not serve", "echo the reason >&2; exec sleep 1000", "the reason"},
	} {
		t.Run(test.name, func(t *testing.T) {
			patience := 30 * time.Second
			if test.name == "does not serve" {
				patience = 200 * time.Millisecond // all of it is used up
			}
			dir := t.TempDir()
			pids := filepath.Join(dir, "pids")
			broken := Target{Name: "broken", command: func(string) *exec.Cmd {
				return exec.Command("sh", "-c", "echo $$ >>"+pids+"; "+test.script)
			}}
			_, err := StartCluster(testTimeout(t, patience), ClusterConfig{Target: broken, Members: 3, Dir: dir})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("err = %v, want one with %q", err, test.want)
			}
			text, err := os.ReadFile(pids)
			if err != nil {
				t.Fatal(err)
			}
			for _, word := range strings.Fields(string(text)) {
				pid, err := strconv.Atoi(word)
				if err != nil {
					t.Fatal(err)
				}
				if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
					t.Errorf("process %d still runs (%v)", pid, err)
				}
			}
		})
	}
}

// The complaints include a process's own report of a crash, and a member that ended without being
// told to.
func TestComplaints(t *testing.T) {
	ctx := testTimeout(t, time.Minute)
	const script = `echo fine; echo "panic: the reason"; echo "goroutine 1"
		echo "panic: is no start of a line: panic: "`
	dir := t.TempDir()
	printing := Target{command: func(string) *exec.Cmd { return exec.Command("sh", "-c", script) }}
	m := &Member{ID: 1, dir: dir, target: printing}
	c := &Cluster{members: []*Member{m}}
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	p, _ := m.current()
	select {
	case <-p.Done():
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	}
	complaints, err := c.Complaints()
	if err != nil {
		t.Fatal(err)
	}
	if len(complaints) != 2 || !strings.HasPrefix(complaints[0], "m1: panic: the reason\ngoroutine 1\n") ||
		!strings.Contains(complaints[1], "m1 ended (exit status 0)") {
		t.Errorf("complaints = %q", complaints)
	}

	m.target = Target{command: func(string) *exec.Cmd { return exec.Command("sleep", "1000") }}
	m.dir = t.TempDir()
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	if complaints, err := c.Complaints(); err != nil || len(complaints) != 0 {
		t.Errorf("killed: complaints = %q, %v", complaints, err)
	}
}
