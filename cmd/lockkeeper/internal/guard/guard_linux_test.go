package guard

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestAlive: where there is no reaper, a pipe tells when the last process has ended, one that has
// called setsid, too.
func TestAlive(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	o := order{Args: []string{"sh", "-c", `setsid sleep 1000 & echo $! > ` + file}}
	cmd, alive, err := o.run(false)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	worker, aerr := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || aerr != nil {
		t.Fatal(err, aerr)
	}
	b := make([]byte, 1)
	_ = alive.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := alive.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("while it runs: %v", err)
	}
	_ = alive.SetReadDeadline(time.Now().Add(20 * time.Second))
	_ = syscall.Kill(worker, syscall.SIGKILL)
	if _, err := alive.Read(b); !errors.Is(err, io.EOF) {
		t.Errorf("when it has ended: %v", err)
	}
}

// killedEarly makes the guard of TestGuardKilledBeforeItsReport kill itself.
const killedEarly = "LOCKKEEPER_TEST_GUARD_KILLED_EARLY"

func TestMain(m *testing.M) {
	if os.Getenv(killedEarly) == "" || len(os.Args) != 2 || os.Args[1] != Command {
		os.Exit(m.Run())
	}
	syscall.CloseOnExec(controlFD)
	syscall.CloseOnExec(reportFD)
	becomeReaper()
	var o order
	if err := json.NewDecoder(os.NewFile(controlFD, "control")).Decode(&o); err != nil {
		panic(err)
	}
	cmd, _, err := o.run(true)
	if err != nil {
		panic(err)
	}
	if err := cmd.Wait(); err != nil {
		panic(err)
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

// TestGuardKilledBeforeItsReport: the guard has started the command, and is killed before it tells
// so. The command counts as killed when none of its processes is left.
func TestGuardKilledBeforeItsReport(t *testing.T) {
	t.Setenv(killedEarly, "1")
	file := filepath.Join(t.TempDir(), "pid")
	c, err := Start([]string{"sh", "-c", `setsid sleep 1000 & echo $! > ` + file}, nil, Options{Die: true})
	if err != nil {
		t.Fatal(err)
	}
	c.Forward(syscall.SIGUSR1) // to nobody: the number of the command is not known
	<-c.Done
	if want := ExitSignal + int(syscall.SIGKILL); c.Status != want {
		t.Errorf("status %d, want %d", c.Status, want)
	}
	text, err := os.ReadFile(file)
	worker, aerr := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || aerr != nil {
		t.Fatal(err, aerr)
	}
	if err := syscall.Kill(worker, 0); !errors.Is(err, syscall.ESRCH) {
		_ = syscall.Kill(worker, syscall.SIGKILL)
		t.Errorf("the worker runs: %v", err)
	}
}

// TestParseStat: names of processes have what they like in them.
func TestParseStat(t *testing.T) {
	for _, tt := range []struct {
		stat   string
		want   Process
		parent int
		ok     bool
	}{
		{"5 (sh) S 3 4 4 0", Process{5, 4, "sh"}, 3, true},
		{"5 (a) b (c) R 3 4 4 0", Process{5, 4, "a) b (c"}, 3, true},
		{"5 (sh) Z 3 4 4 0", Process{5, 4, ""}, 3, true},
		{"5 (sh) S 3", Process{}, 0, false},
		{"", Process{}, 0, false},
	} {
		if p, parent, ok := parseStat(5, []byte(tt.stat)); ok != tt.ok || ok && (p != tt.want || parent != tt.parent) {
			t.Errorf("%q: %+v %d %v", tt.stat, p, parent, ok)
		}
	}
	if d := Descendants(os.Getppid()); !slices.ContainsFunc(d, func(p Process) bool { return p.PID == os.Getpid() }) {
		t.Error("this process is no descendant of its parent")
	}
}
