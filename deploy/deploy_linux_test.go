package deploy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockkeeper/internal/freeport"
)

// buildStatic builds the binary as the Dockerfile does, into dir.
func buildStatic(t *testing.T, dir string) {
	t.Helper()
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w",
		"-o", filepath.Join(dir, "lockkeeper"), "lockkeeper/cmd/lockkeeper")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// get asks the HTTP port until it answers.
func get(t *testing.T, url string, want int) string {
	t.Helper()
	var last string
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		r, err := http.Get(url)
		if err != nil {
			last = err.Error()
			continue
		}
		b, err := io.ReadAll(r.Body)
		r.Body.Close()
		if last = fmt.Sprintf("%d %s %v", r.StatusCode, b, err); r.StatusCode == want {
			return strings.TrimSpace(string(b))
		}
	}
	t.Fatalf("%s: %s", url, last)
	return ""
}

// The binary needs nothing but itself, its configuration and its data directory: no root, no
// capability, no library and no other file. The probes of the StatefulSet are answered.
func TestUnprivileged(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a binary; not with -short")
	}
	if os.Geteuid() != 0 {
		t.Skip("changes the root directory and the user: needs root")
	}
	const uid = 65532
	root := t.TempDir()
	buildStatic(t, root)
	if out, err := exec.Command(filepath.Join(root, "lockkeeper"), "version", "-static").CombinedOutput(); err != nil {
		t.Errorf("it does not call itself static: %v: %s", err, out)
	}
	ports, err := freeport.Take(2)
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("dataDir=/data\nclientPort=%d\nclientPortAddress=127.0.0.1\nadmin.serverPort=%d\nadmin.serverAddress=127.0.0.1\n",
		ports[0], ports[1])
	data := filepath.Join(root, "data")
	for _, err := range []error{
		os.WriteFile(filepath.Join(root, "zoo.cfg"), []byte(config), 0o644),
		os.Mkdir(data, 0o700), os.Chown(data, uid, uid), os.Chmod(root, 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var log strings.Builder
	cmd := exec.Command("/lockkeeper", "serve", "/zoo.cfg")
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", []string{}, &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("%v: %s", err, log.String())
		}
	}()
	url := fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	if got := get(t, url+"/ready", http.StatusOK); got != `{"ready":true}` {
		t.Errorf("ready: %s", got)
	}
	if got := get(t, url+"/live", http.StatusOK); got != `{"live":true}` {
		t.Errorf("live: %s", got)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", fmt.Sprintf("Uid:\t%d", uid)} {
		if !strings.Contains(string(status), want) {
			t.Errorf("no %q in\n%s", want, status)
		}
	}
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "srvr"); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(c); !strings.Contains(string(text), "Mode: standalone") {
		t.Errorf("srvr: %s %v", text, err)
	}
}

// The unit is as hard as docs/deploy.md says.
func TestUnit(t *testing.T) {
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("needs systemd-analyze (apt-get install systemd)")
	}
	out, err := exec.Command(tool, "security", "--offline=true", "--threshold=15", "lockkeeper.service").CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if strings.Contains(string(out), "Unknown key") {
		t.Errorf("%s", out)
	}
}

// systemd takes the unit, with the program where it names it.
func TestUnitVerified(t *testing.T) {
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("needs systemd-analyze (apt-get install systemd)")
	}
	text, err := os.ReadFile("lockkeeper.service")
	if err != nil {
		t.Fatal(err)
	}
	unit := string(text)
	program := filepath.Join(t.TempDir(), "lockkeeper")
	file := filepath.Join(t.TempDir(), "lockkeeper.service")
	if err := errors.Join(os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755),
		os.WriteFile(file, []byte(strings.ReplaceAll(unit, "/usr/local/bin/lockkeeper", program)), 0o644)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(tool, "verify", "--man=no", file).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
}
