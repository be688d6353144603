package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockkeeper/jepsen"
)

// A run that ends early, in whatever way, leaves nothing: no process, no network, no file.
func TestNothingIsLeft(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux's kernel ends processes with their starter")
	}
	t.Parallel()
	binary := lockkeeper(t)
	for _, test := range []struct {
		name   string
		signal syscall.Signal
		polite bool // the program ends by itself, with exitUsage
	}{
		{"Ctrl-C", syscall.SIGINT, true},
		{"SIGTERM", syscall.SIGTERM, true},
		// The Go runtime prints all goroutines and exits.
		{"as a panic does", syscall.SIGQUIT, false},
		{"kill -9", syscall.SIGKILL, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			nemeses := "pause,pause-client,partition"
			if jepsen.FindDisks() == nil {
				nemeses += ",power" // for disks to be there
			}
			cmd, mark := program(t, "run", "-binary", binary, "-members", "3", "-workload", "register",
				"-nemesis", nemeses, "-time", "10m", "-seed", "1", "-report", filepath.Join(t.TempDir(), "report"))
			errs := interrupt(t, cmd, test.signal, func(line string) bool {
				if !strings.Contains(line, " pause ") {
					return false
				}
				if len(withMark(t, mark)) < 1+3+5 { // itself, members, clients
					t.Errorf("only these run: %q", withMark(t, mark))
				}
				return true
			})
			if code := cmd.ProcessState.ExitCode(); test.polite &&
				(code != exitUsage || !strings.Contains(errs, "called off")) {
				t.Errorf("exit status %d, %s", code, errs)
			}
			awaitNothing(t, cmd, mark)
		})
	}
}

// Ctrl-C while the lab plays its second case: the report has the first one, and nothing else is
// left.
func TestNothingIsLeftOfSplitBrain(t *testing.T) {
	jepsen.Need(t, jepsen.FindNetwork())
	dir := filepath.Join(t.TempDir(), "report")
	cmd, mark := program(t, "split-brain", "-binary", lockkeeper(t), "-members", "2-3", "-report", dir)
	errs := interrupt(t, cmd, syscall.SIGINT, func(line string) bool {
		return strings.HasSuffix(line, ": as predicted")
	})
	if code := cmd.ProcessState.ExitCode(); code != exitUsage || !strings.Contains(errs, "called off") {
		t.Errorf("exit status %d, %s", code, errs)
	}
	awaitNothing(t, cmd, mark)
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil || bytes.Count(page, []byte(`<section class="card`)) != 1 {
		t.Errorf("the page has not one case: %v", err)
	}
}

// TestPictureIsDrawn has the command draw the picture of the README, with a short session.
func TestPictureIsDrawn(t *testing.T) {
	jepsen.Need(t, jepsen.FindNetwork())
	_, err := jepsen.ZooKeeper()
	jepsen.Need(t, err)
	picture := filepath.Join(t.TempDir(), "c6", "picture.svg")
	cmd, _ := program(t, "split-brain", "-binary", lockkeeper(t), "-target", "lockkeeper,zookeeper",
		"-picture", picture)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	svg, err := os.ReadFile(picture)
	if err != nil || !bytes.Contains(svg, []byte("with lockkeeper A is told after")) ||
		!bytes.Contains(svg, []byte(">ZooKeeper<")) {
		t.Errorf("the picture: %v, %s", err, svg)
	}
}

// interrupt runs a program, sends it a signal when it has printed a line for which when returns
// true, and waits for its end. It returns the program's stderr.
func interrupt(t *testing.T, cmd *exec.Cmd, signal syscall.Signal, when func(line string) bool) (stderr string) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	seen := lines(bufio.NewScanner(out))
	for line := range seen {
		if when(line) {
			break
		}
	}
	if err := cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	for range seen {
	}
	_ = cmd.Wait()
	return errs.String()
}

// awaitNothing waits until nothing is left of a program that has ended.
func awaitNothing(t *testing.T, cmd *exec.Cmd, mark string) {
	t.Helper()
	awaitGone(t, "processes", func() []string { return withMark(t, mark) })
	awaitGone(t, "files", func() []string {
		entries, err := filepath.Glob(filepath.Join(envOf(cmd, "TMPDIR"), "*"))
		if err != nil {
			t.Fatal(err)
		}
		return entries
	})
	awaitGone(t, "loop devices", func() []string { return loopsBelow(t, envOf(cmd, "TMPDIR")) })
	awaitGone(t, "links", func() []string { return linksOf(t, cmd.Process.Pid) })
}

// lockkeeper is a server to run.
func lockkeeper(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts real processes; not with -short")
	}
	target, err := tools.Lockkeeper()
	if err != nil {
		t.Fatal(err)
	}
	return target.Command("zoo.cfg").Path
}

// envOf is a variable of a command's environment; the last one counts.
func envOf(cmd *exec.Cmd, name string) (value string) {
	for _, v := range cmd.Env {
		if rest, ok := strings.CutPrefix(v, name+"="); ok {
			value = rest
		}
	}
	return value
}

// withMark lists the processes that have mark in their environment.
func withMark(t *testing.T, mark string) []string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, name := range all {
		environ, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(environ, []byte(mark)) {
			continue // it has ended, or is another's
		}
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
		found = append(found, fmt.Sprintf("%s %s", filepath.Base(filepath.Dir(name)),
			bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
	}
	return found
}

// loopsBelow lists the loop devices with files in a directory.
func loopsBelow(t *testing.T, dir string) []string {
	t.Helper()
	all, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, name := range all {
		if file, err := os.ReadFile(name); err == nil && bytes.HasPrefix(file, []byte(dir)) {
			found = append(found, string(bytes.TrimSpace(file)))
		}
	}
	return found
}

// linksOf are the network links that a jepsen has made on this machine.
func linksOf(t *testing.T, pid int) []string {
	t.Helper()
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, l := range links {
		if strings.HasPrefix(l.Name, fmt.Sprintf("lk%d-", pid)) {
			found = append(found, l.Name)
		}
	}
	return found
}

// awaitGone waits until there is nothing left.
func awaitGone(t *testing.T, what string, left func() []string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for len(left()) > 0 {
		if time.Now().After(deadline) {
			t.Errorf("%s are left: %q", what, left())
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
