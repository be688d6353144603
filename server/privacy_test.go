//go:build unix

package server

import (
	"bytes"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockkeeper/quorum/store"
	"lockkeeper/server/datadir"
	"lockkeeper/server/offline"
	"lockkeeper/server/zoocfg"
	"lockkeeper/wire"
)

// withUmask sets the umask of this process for a test. Umask 0 corrects no mode that a program
// forgets.
func withUmask(t *testing.T, mask int) {
	before := syscall.Umask(mask)
	t.Cleanup(func() { syscall.Umask(before) })
}

// wantPrivate checks that nobody but the owner has any right on the files below dir.
func wantPrivate(t *testing.T, dir string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		files++
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	})
	if err != nil || files < 3 {
		t.Errorf("%d files below %s: %v", files, dir, err)
	}
}

// A member's files, and an export, are for their owner alone: logs of both kinds, snapshots, the
// audit log, files that are set aside.
func TestFilesArePrivate(t *testing.T) {
	withUmask(t, 0)
	for _, kind := range []store.LogKind{store.LogWAL, store.LogBolt} {
		dir := t.TempDir()
		cfg := Config{
			Client: zoocfg.Client{Addr: "127.0.0.1:0"},
			Data:   zoocfg.Data{Dir: filepath.Join(dir, "data"), LogDir: filepath.Join(dir, "log"), LogStore: kind},
			Audit:  zoocfg.Audit{On: true, File: filepath.Join(dir, "data", "audit.log")},
			Logger: testLogger(),
		}
		s, err := Start(cfg)
		if err != nil {
			t.Fatal(err)
		}
		awaitServing(t, s)
		c := dialReal(t, s)
		c.connect(10 * time.Second)
		c.call(wire.OpCreate, create("/a", nil, wire.ModePersistent))
		if _, err := s.replica.TakeSnapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		wantPrivate(t, cfg.Data.Dir)
		wantPrivate(t, cfg.Data.LogDir)
		if _, err := offline.Export(t.Context(), cfg, "", filepath.Join(dir, "export")); err != nil {
			t.Fatal(err)
		}
		wantPrivate(t, filepath.Join(dir, "export"))
	}
}

// A member warns at its start of files that others can read, and lets nobody into the directory of
// its snapshots, whatever made it.
func TestWarnsOfOpenFiles(t *testing.T) {
	withUmask(t, 0o022)
	dir := t.TempDir()
	start := func() string {
		var out bytes.Buffer
		s, err := Start(Config{
			Client: zoocfg.Client{Addr: "127.0.0.1:0"},
			Data:   zoocfg.Data{Dir: dir},
			Logger: slog.New(slog.NewTextHandler(&out, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		awaitServing(t, s)
		if _, err := s.replica.TakeSnapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	const warning = "everybody on this machine"
	snapshots, log := filepath.Join(dir, datadir.SnapshotsDir), filepath.Join(dir, datadir.LogFile)
	for _, tt := range []struct {
		about string
		loose func() error
		warns bool
	}{
		{"a new directory", func() error { return nil }, false},
		{"its name can be seen", func() error { return os.Chmod(dir, 0o755) }, false},
		{"its log can be read", func() error { return os.Chmod(log, 0o644) }, true},
		{"nobody gets there", func() error { return os.Chmod(dir, 0o700) }, false},
		{"it can be written", func() error { return os.Chmod(dir, 0o777) }, true},
		{"repaired", func() error { return os.Chmod(dir, 0o755) }, true},
		{"repaired, all of it", func() error { return os.Chmod(log, 0o600) }, false},
		{"the library's own mode", func() error { return os.Chmod(snapshots, 0o755) }, false},
		{"data of ZooKeeper", func() error {
			at := filepath.Join(dir, datadir.ZooKeeperDir)
			if err := os.Mkdir(at, 0o755); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(at, "snapshot.0"), []byte("x"), 0o644)
		}, true},
	} {
		if err := tt.loose(); err != nil {
			t.Fatal(err)
		}
		if out := start(); strings.Contains(out, warning) != tt.warns {
			t.Errorf("%s: warns %v, want %v:\n%s", tt.about, !tt.warns, tt.warns, out)
		}
		if info, err := os.Stat(snapshots); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v %v", tt.about, info.Mode(), err)
		}
	}
}
