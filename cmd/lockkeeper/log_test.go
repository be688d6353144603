package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"lockkeeper/internal/freeport"
	"lockkeeper/server"
)

// A member with a log of another kind than its configuration says does not start, names the command
// that moves the log, and starts after that.
func TestLogConvert(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "zoo.cfg")
	ports, err := freeport.Take(1)
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(ports[0])
	configure := func(kind string) {
		t.Helper()
		text := "tickTime=2000\nclientPort=" + port + "\nclientPortAddress=127.0.0.1\ndataDir=" + filepath.Join(dir, "data") + "\nlogStore=" + kind + "\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	start := func() error {
		t.Helper()
		cfg, err := server.LoadConfig(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := server.Start(cfg)
		if err != nil {
			return err
		}
		return s.Close()
	}
	configure("wal")
	if err := start(); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"bolt", "wal"} {
		configure(kind)
		if err := start(); err == nil || !strings.Contains(err.Error(), "lockkeeper log convert") {
			t.Fatalf("logStore=%s: %v", kind, err)
		}
		var out, errs bytes.Buffer
		if status := run([]string{"log", "convert", file}, env{stdout: &out, stderr: &errs}); status != exitOK ||
			!strings.Contains(out.String(), "the log was moved from") || errs.Len() > 0 {
			t.Fatalf("logStore=%s: status %d, %s%s", kind, status, out.String(), errs.String())
		}
		if err := start(); err != nil {
			t.Errorf("logStore=%s, converted: %v", kind, err)
		}
	}
	for _, args := range [][]string{{"log"}, {"log", "convert", file, file}, {"log", "convert", "-to", "wal", file}} {
		var errs bytes.Buffer
		if status := run(args, env{stdout: &errs, stderr: &errs}); status != exitUsage {
			t.Errorf("%q: status %d", args, status)
		}
	}
}
