package jepsen

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A disk loses unsynced bytes, and only these, when its power is cut; it fails until it is renewed;
// and it can be full.
func TestDisks(t *testing.T) {
	if err := FindDisks(); err != nil {
		t.Skip(err) // a machine need not have loop devices, and they cannot be installed
	}
	ctx := testTimeout(t, time.Minute)
	dir := t.TempDir()
	d, err := NewDisks(ctx, 2, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, d)
	point := filepath.Join(dir, "data")
	if err := os.Mkdir(point, 0o755); err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(d.mount(1, point))
	name := func(file string) string { return filepath.Join(d.Path(1, point), file) }
	must(writeSynced(name("synced"), "text"))
	must(os.WriteFile(name("unsynced"), []byte("text"), 0o600))
	must(d.Fail(1))
	if err := writeSynced(name("late"), "text"); !errors.Is(err, syscall.EIO) {
		t.Errorf("a write after the power was cut: %v", err)
	}
	must(d.Renew(1))
	if text, err := os.ReadFile(name("synced")); err != nil || string(text) != "text" {
		t.Errorf("what was synced: %q, %v", text, err)
	}
	if text, err := os.ReadFile(name("unsynced")); err == nil && len(text) > 0 {
		t.Errorf("what was not synced is there: %q", text)
	}

	must(d.Fill(1))
	if err := writeSynced(name("more"), string(make([]byte, 8<<10))); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a write to a full disk: %v", err)
	}
	must(d.Empty(1))
	must(d.Fail(1))
	must(d.Renew(1))
	must(writeSynced(name("more"), string(make([]byte, 1<<20))))
	if entries, err := os.ReadDir(point); err != nil || len(entries) > 0 {
		t.Errorf("the disk can be seen from outside: %v, %v", entries, err)
	}
}
