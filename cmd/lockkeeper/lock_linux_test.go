package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lockkeeper/cmd/lockkeeper/internal/guard"
)

// workers are commands that start a worker, print its process, and go on. The workers outlive what
// ends the command. deaf are the signals that the command itself ignores. The last two exec: a
// shell loses a SIGINT that comes between its fork of a foreground process and the exec in it.
var workers = []struct {
	name, script string
	deaf         []syscall.Signal
}{
	{"background", `sleep 1000 & echo $!; wait`, nil}, // the worker is deaf to INT and QUIT
	{"deaf", `trap '' TERM HUP; sleep 1000 & echo $!; wait`, []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP}},
	{"setsid", `setsid sleep 1000 & echo $!; wait`, nil},
	{"double-fork", `(sleep 1000 & echo $!); exec sleep 1000`, nil},
	{"daemon", `(setsid sh -c 'sleep 1000 & echo $!; wait' &); exec sleep 1000`, nil},
}

// runsYet says whether a process runs; a zombie does not.
func runsYet(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	state := stat[bytes.LastIndexByte(stat, ')')+1:]
	return err == nil && len(state) > 1 && state[1] != 'Z' && state[1] != 'X'
}

// working is a command that holds the lock on a path, and its worker.
func (u *user) working(script string, args ...string) (p *process, worker int) {
	t := u.t
	t.Helper()
	args = append(append([]string{"lock", "-kill-after", "50ms"}, args...), "--", "sh", "-c", script)
	p = u.start("", args...)
	worker, err := strconv.Atoi(p.line())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(worker, syscall.SIGKILL) }) // it has ended if all went well
	return p, worker
}

// TestWorkersEndWithTheLock: whatever ends lockkeeper, its command or the lock, no process that the
// command has started runs when lockkeeper has ended, and so none when the lock is another's.
func TestWorkersEndWithTheLock(t *testing.T) {
	t.Parallel()
	m := cluster(t, nil)
	for _, w := range workers {
		for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP} {
			if slices.Contains(w.deaf, s) {
				continue
			}
			t.Run(fmt.Sprint(w.name, "/", s), func(t *testing.T) {
				t.Parallel()
				p, worker := m.as(t).working(w.script, "/"+w.name+strconv.Itoa(int(s)))
				if status := p.signal(s); status != exitSignal+int(s) || runsYet(worker) {
					t.Errorf("status %d, the worker runs: %v", status, runsYet(worker))
				}
			})
		}
		t.Run(w.name+"/killed", func(t *testing.T) {
			t.Parallel()
			p, worker := m.as(t).working(w.script, "/killed-"+w.name)
			_ = p.Process.Kill()
			await(t, "the end of the worker", func() bool { return !runsYet(worker) })
		})
		t.Run(w.name+"/guard killed", func(t *testing.T) {
			t.Parallel()
			p, worker := m.as(t).working(w.script, "/guard-"+w.name)
			if err := syscall.Kill(guardOf(t, p), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if status, _ := p.wait(); status != exitSignal+int(syscall.SIGKILL) || runsYet(worker) {
				t.Errorf("status %d, the worker runs: %v", status, runsYet(worker))
			}
		})
	}
}

// guardOf is the guard of a command that lockkeeper runs.
func guardOf(t *testing.T, p *process) int {
	t.Helper()
	for _, c := range guard.Descendants(p.Process.Pid) {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", c.PID))
		if c.Name == guard.Name && strings.HasPrefix(string(line), guard.Name+"\x00") {
			return c.PID
		}
	}
	t.Fatal("there is no guard")
	return 0
}

// TestWorkersEndWhenTheLockIsLost: with -on-lost kill; with warn they go on, also without
// lockkeeper.
func TestWorkersEndWhenTheLockIsLost(t *testing.T) {
	t.Parallel()
	s := cluster(t, nil)
	var all []*process
	var pids []int
	for _, w := range workers {
		p, worker := s.working(w.script, "-session", "1s", "/"+w.name)
		all, pids = append(all, p), append(pids, worker)
	}
	warned, free := s.working(workers[0].script, "-on-lost", "warn", "-session", "1s", "/warned")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for i, p := range all {
		if status, _ := p.wait(); status != exitLost || runsYet(pids[i]) {
			t.Errorf("%s: status %d, the worker runs: %v", workers[i].name, status, runsYet(pids[i]))
		}
	}
	pid := guardOf(t, warned)
	_ = warned.Process.Kill()
	await(t, "the end of the guard", func() bool { return !runsYet(pid) })
	if !runsYet(free) {
		t.Error("-on-lost warn: the worker was killed")
	}
}

// TestBackground: what the command leaves behind holds the lock, is killed, or goes on without it.
func TestBackground(t *testing.T) {
	t.Parallel()
	s := cluster(t, nil)
	const script = `sleep 1000 >/dev/null 2>&1 & echo $!; exit 7`
	held := func() bool { return len(s.contenders("/l")) == 1 }
	waits, worker := s.working(script, "/l")
	await(t, "a message", func() bool { return waits.stderr.Len() > 0 })
	if text := waits.stderr.String(); !strings.Contains(text, fmt.Sprintf("sleep (%d)", worker)) || !held() {
		t.Errorf("held: %v, it says: %s", held(), text)
	}
	_ = syscall.Kill(worker, syscall.SIGTERM)
	if status, _ := waits.wait(); status != 7 || held() {
		t.Errorf("status %d, held: %v", status, held())
	}
	waits, worker = s.working(script, "/l")
	await(t, "a message", func() bool { return waits.stderr.Len() > 0 })
	if status := waits.signal(syscall.SIGINT); status != 7 || runsYet(worker) {
		t.Errorf("status %d, the worker runs: %v", status, runsYet(worker))
	}
	killed, worker := s.working(script, "-background", "kill", "/l")
	if status, _ := killed.wait(); status != 7 || runsYet(worker) {
		t.Errorf("kill: status %d, the worker runs: %v", status, runsYet(worker))
	}
	left, worker := s.working(script, "-background", "leave", "/l")
	if status, _ := left.wait(); status != 7 || !runsYet(worker) || held() {
		t.Errorf("leave: status %d, the worker runs: %v, held: %v", status, runsYet(worker), held())
	}
}

// TestCtrlC: a terminal sends SIGINT to the command itself, of which the background is deaf.
func TestCtrlC(t *testing.T) {
	t.Parallel()
	s := cluster(t, nil)
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "lock", "-kill-after", "50ms", "/l", "sh", "-c", workers[0].script)
	cmd.Env = s.environ()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = cmd.Start()
	terminal.Close()
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(master).ReadString('\n')
	worker, aerr := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || aerr != nil {
		t.Fatal(line, err, aerr)
	}
	if _, err := io.WriteString(master, "\x03"); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	_ = cmd.Wait() // the status says more
	if status := cmd.ProcessState.ExitCode(); status != exitSignal+int(syscall.SIGINT) || runsYet(worker) {
		t.Errorf("status %d, the worker runs: %v", status, runsYet(worker))
	}
}
