package server

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/quorum/store"
	"lockkeeper/server/datadir"
	"lockkeeper/server/zoocfg"
)

// Each directory that is created is made durable in its parent, the uppermost first.
func TestNewDirectoriesAreDurable(t *testing.T) {
	root := t.TempDir()
	var synced []string
	sync := func(dir string) error {
		synced = append(synced, dir)
		return store.SyncDir(dir)
	}
	path := filepath.Join(root, "a", "b", "c")
	want := []string{root, filepath.Join(root, "a"), filepath.Join(root, "a", "b")}
	if err := datadir.MakeAll(path, sync); err != nil || !slices.Equal(synced, want) {
		t.Errorf("synced %q, want %q: %v", synced, want, err)
	}
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		t.Errorf("%s is no directory: %v", path, err)
	}
	synced = nil
	if err := datadir.MakeAll(path, sync); err != nil || synced != nil {
		t.Errorf("what existed was synced: %q, %v", synced, err)
	}
	broken := errors.New("broken")
	for range 2 { // the second start does not take the directory of the first for durable
		if err := datadir.MakeAll(filepath.Join(root, "d"), func(string) error { return broken }); !errors.Is(err, broken) {
			t.Errorf("a failed sync: %v", err)
		}
	}
}

// A start that waits for its data directory ends with its context, and at once.
func TestStartThatWaitsCanBeEnded(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, err := datadir.Open(t.Context(), &Config{Data: zoocfg.Data{Dir: dir, LogDir: dir}, Logger: testLogger()})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		_, err = StartContext(ctx, Config{Data: zoocfg.Data{Dir: dir}, Logger: testLogger()})
		if waited := time.Since(began); !errors.Is(err, context.Canceled) || waited != time.Second {
			t.Errorf("ended after %v: %v", waited, err)
		}
	})
}

// TestMyIDIsWritten: a start with a number from the command line writes dataDir/myid.
func TestMyIDIsWritten(t *testing.T) {
	cfg := Config{Data: zoocfg.Data{Dir: filepath.Join(t.TempDir(), "data")}}.WithDefaults()
	cfg.Cluster.ID, cfg.Cluster.WriteMyID = 7, true
	d, err := datadir.Open(t.Context(), &cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if text, err := os.ReadFile(filepath.Join(cfg.Data.Dir, "myid")); string(text) != "7\n" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}
