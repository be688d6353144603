package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A member says when clients can connect, and when it begins to stop.
func TestServiceManagerIsTold(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "lk") // a short path: a socket's has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	variables := map[string]string{"NOTIFY_SOCKET": manager.LocalAddr().String()}
	told := func() string {
		t.Helper()
		if err := manager.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 1024)
		n, err := manager.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	var stdout, stderr bytes.Buffer
	signals := make(chan os.Signal, 1)
	status := make(chan int, 1)
	go func() {
		status <- run([]string{"serve", "-client-address", "127.0.0.1:0", "-data-dir", t.TempDir()},
			env{&stdout, &stderr, signals, variables, ""})
	}()
	got := told()
	for strings.HasPrefix(got, "STATUS=not ready: ") {
		got = told()
	}
	if !strings.HasPrefix(got, "READY=1\nSTATUS=serves clients on 127.0.0.1:") {
		t.Errorf("the manager was told %q", got)
	}
	signals <- syscall.SIGTERM
	if got := told(); got != "STOPPING=1" {
		t.Errorf("the manager was told %q", got)
	}
	if got := <-status; got != exitOK {
		t.Errorf("status %d: %s", got, stderr.String())
	}
}

// A socket that is not there keeps nobody from serving.
func TestServiceManagerIsGone(t *testing.T) {
	if err := notify(filepath.Join(t.TempDir(), "none"), "READY=1"); err == nil {
		t.Error("somebody was told")
	}
	if err := notify("", "READY=1"); err != nil {
		t.Error(err)
	}
}
