package main

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockkeeper/server"
)

// A signal ends a start that waits for the data directory at once, and the command says so.
func TestSignalEndsAStartThatWaits(t *testing.T) {
	cfg := server.Config{ClientAddr: "127.0.0.1:0", DataDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}
	holder, err := server.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	var stdout bytes.Buffer
	log, stderr := io.Pipe()
	signals := make(chan os.Signal, 1)
	status := make(chan int, 1)
	go func() {
		status <- run([]string{"serve", "-client-address", "127.0.0.1:0", "-data-dir", cfg.DataDir}, env{&stdout, stderr, signals})
		stderr.Close()
	}()
	var text strings.Builder
	var signalled time.Time
	for buf := make([]byte, 4096); ; {
		n, err := log.Read(buf)
		if text.Write(buf[:n]); signalled.IsZero() && strings.Contains(text.String(), "waiting for it to end") {
			signalled = time.Now()
			signals <- syscall.SIGTERM
		}
		if err != nil {
			break
		}
	}
	if got := <-status; got != exitOK {
		t.Errorf("status %d", got)
	}
	if took := time.Since(signalled); took > time.Second {
		t.Errorf("it took %v to end", took)
	}
	want := "lockkeeper: not started: stopped by a signal (terminated) before clients could connect\n"
	if !strings.HasSuffix(text.String(), want) || stdout.Len() > 0 {
		t.Errorf("stdout %q, stderr %q", stdout.String(), text.String())
	}
}
