package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/server"
)

// TestSnapshotCommand saves the state of a member and restores it: later updates are gone. Damaged
// files, and identities that are not super, are refused with the name of the file, and leave no
// file behind.
func TestSnapshotCommand(t *testing.T) {
	t.Parallel()
	s := cluster(t, func(c *server.Config) {
		c.HTTP.Addr, c.HTTP.SnapshotInterval = "127.0.0.1:0", time.Millisecond
		c.Auth.SuperDigest = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="
	})
	await(t, "the member to serve", s.Serving)
	client := newTestClient(t, s.Server)
	for i := range 50 {
		if _, err := client.Create(fmt.Sprintf("/n%d", i), []byte("data"), 0, worldACL); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	file, secret := filepath.Join(dir, "backup.snap"), filepath.Join(dir, "auth")
	if err := os.WriteFile(secret, []byte("super:test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	snapshot := func(want int, wantText string, args ...string) {
		t.Helper()
		time.Sleep(2 * time.Millisecond) // admin.rateLimiterIntervalInMS
		status, _, stderr := s.invoke(append([]string{"snapshot", args[0], "-http", s.HTTPAddr().String(), "-auth-file", secret}, args[1:]...)...)
		if status != want || !strings.Contains(stderr, wantText) {
			t.Errorf("%v: status %d, %s", args, status, stderr)
		}
	}
	snapshot(exitOK, "nodes", "save", file)
	if _, err := client.Create("/later", nil, 0, worldACL); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"cut": whole[:len(whole)-20], "other": []byte("no snapshot at all, but long enough"),
		"changed": append(append(append([]byte(nil), whole[:40]...), whole[40]^1), whole[41:]...)} {
		bad := filepath.Join(dir, name)
		if err := os.WriteFile(bad, data, 0o600); err != nil {
			t.Fatal(err)
		}
		snapshot(exitFailed, bad, "restore", "-yes", bad)
	}
	snapshot(exitUsage, "-yes", "restore", file) // no terminal
	snapshot(exitFailed, "no such file", "restore", "-yes", file+".missing")
	if ok, _, err := client.Exists("/later"); err != nil || !ok {
		t.Errorf("something has changed: %v, %v", ok, err)
	}
	snapshot(exitOK, "all sessions have ended", "restore", "-yes", file)
	after := newTestClient(t, s.Server)
	if ok, _, err := after.Exists("/later"); err != nil || ok {
		t.Errorf("/later is there: %v, %v", ok, err)
	}
	if data, _, err := after.Get("/n49"); err != nil || string(data) != "data" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := client.Create("/x", nil, zk.FlagEphemeral, worldACL); err == nil {
		if st, _, _ := client.Exists("/n0"); !st {
			t.Error("the first client does not see the state")
		}
	}
	if err := os.WriteFile(secret, []byte("someone:else\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	snapshot(exitFailed, "Not authorized", "save", file+"2")
	snapshot(exitFailed, "Not authorized", "restore", "-yes", file)
	for _, args := range [][]string{{"save"}, {"copy", file}, {"save", file, file}} {
		snapshot(exitUsage, "", args...)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// failingFile is a file that fails in a call.
type failingFile struct {
	*os.File
	sync, close error
}

func (f *failingFile) Sync() error  { return f.sync }
func (f *failingFile) Close() error { return f.close }

// TestReplaceFile: a snapshot that is not durable does not take the place of an earlier one.
func TestReplaceFile(t *testing.T) {
	broken := errors.New("input/output error")
	for _, c := range []struct {
		sync, close error
		want        string
	}{
		{broken, nil, "old"}, {nil, broken, "old"}, {nil, nil, "new"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "backup.snap")
		f, err := os.Create(path + ".tmp")
		if err == nil {
			_, err = f.WriteString("new")
		}
		if err := errors.Join(err, os.WriteFile(path, []byte("old"), 0o600)); err != nil {
			t.Fatal(err)
		}
		err = replaceFile(&failingFile{f, c.sync, c.close}, path)
		if got, rerr := os.ReadFile(path); rerr != nil || string(got) != c.want || (err == nil) != (c.want == "new") {
			t.Errorf("sync %v, close %v: %v, the file has %q, %v", c.sync, c.close, err, got, rerr)
		}
		f.Close()
	}
}
