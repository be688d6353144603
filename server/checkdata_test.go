package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockkeeper/server/datadir"
	"lockkeeper/server/offline"
)

// A check of the configuration reports the faults of the data directory as a start would, and
// changes nothing there.
func TestCheckData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, file := filepath.Join(dir, "data"), filepath.Join(dir, "zoo.cfg")
	alone := func(more string) Config {
		return mustLoad(t, file, "dataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\n%s", data, freePort(t), more)
	}
	cluster := func(id int, more string) Config {
		writeFile(t, filepath.Join(data, "myid"), fmt.Sprintln(id))
		return alone(fmt.Sprintf("standaloneEnabled=false\nserver.1=127.0.0.1:%d:1\n%s", freePort(t), more))
	}
	check := func(cfg Config) string {
		t.Helper()
		before := filesBelow(t, dir)
		notices, err := offline.CheckData(cfg)
		text := fmt.Sprint(err)
		for _, n := range notices {
			text += "\n" + n.String()
		}
		if after := filesBelow(t, dir); after != before {
			t.Errorf("the check changes files:\n%s\n%s", before, after)
		}
		return text
	}
	expect := func(what, got, want string) {
		t.Helper()
		if !strings.Contains(got, want) || want == "" && got != "<nil>" {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	run := func(cfg Config) {
		t.Helper()
		s, err := Start(cfg)
		if err != nil {
			t.Fatal(err)
		}
		await(t, "a leader", s.Serving)
		notices, err := offline.CheckData(cfg)
		expect("while it runs", fmt.Sprint(notices, err), "is in use by a process")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	expect("nothing there", check(alone("")), "")
	expect("no data", check(alone("db.autocreate=false\n")), "there are no data")
	cfg := alone("")
	run(cfg)
	expect("alone again", check(cfg), "")
	expect("the other kind of log", check(alone("logStore=bolt\n")), "set logStore=wal")
	expect("alone, with server lines", check(cluster(1, "server.2=127.0.0.1:3:4\n")), "it begins a cluster with them")
	cfg = cluster(1, "")
	run(cfg)
	expect("a cluster", check(cfg), "")
	expect("a cluster, alone", check(alone("")), "its server lines are missing")
	expect("another number", check(cluster(2, "server.2=127.0.0.1:3:4\n")), "the votes of member 1, and this is member 2")
	if err := os.MkdirAll(filepath.Join(data, datadir.ZooKeeperDir), 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(data, datadir.ZooKeeperDir, "log.1"), "")
	expect("ZooKeeper's files beside", check(cluster(1, "")), "which are not read")
	raftDB := filepath.Join(data, datadir.LogFile)
	b, err := os.ReadFile(raftDB)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		b[i] ^= 0xff
	}
	if err := os.WriteFile(raftDB, b, 0o600); err != nil {
		t.Fatal(err)
	}
	expect("damage", check(alone("")), "damaged")
	expect("damage in a cluster", check(cluster(1, "")), "gets the data from the other members")
}

// filesBelow has the names, sizes and times of the files below dir, zoo.cfg and myid excepted.
func filesBelow(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if name := filepath.Base(path); err != nil || info.IsDir() || name == "zoo.cfg" || name == "myid" {
			return err
		}
		_, err = fmt.Fprintln(&b, path, info.Size(), info.ModTime().Format(time.RFC3339Nano))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
