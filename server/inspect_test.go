package server

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"lockkeeper/server/datadir"
	"lockkeeper/server/offline"
)

const recordedData = "../zkdata/testdata/zookeeper-3.8.0" // of a real server

// After an import lockkeeper's files have the same contents as ZooKeeper's.
func TestInspect(t *testing.T) {
	theirs, err := offline.Inspect(t.Context(), recordedData, "", 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if theirs.Of != "ZooKeeper" || theirs.Nodes < 10 || theirs.Sessions == 0 || !strings.Contains(theirs.Import, "all of it") {
		t.Errorf("%+v", theirs)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(recordedData)); err != nil {
		t.Fatal(err)
	}
	cfg := importConfig(dir)
	cfg.Reap.ExtendedTypes = true
	if err := offline.Import(t.Context(), cfg, offline.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	ours, err := offline.Inspect(t.Context(), dir, "", 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if ours.Of != "lockkeeper" || ours.Zxid != theirs.Zxid || ours.Nodes != theirs.Nodes || ours.Bytes != theirs.Bytes ||
		ours.Ephemerals != theirs.Ephemerals || ours.Sessions != theirs.Sessions || ours.Locks != theirs.Locks {
		t.Errorf("ours:\n%+v\ntheirs:\n%+v", ours, theirs)
	}
	if again, err := offline.Inspect(t.Context(), filepath.Join(dir, datadir.ZooKeeperDir), "", 0, nil); err != nil || again.Of != "ZooKeeper" {
		t.Errorf("version-2 beside ours: %+v, %v", again, err)
	}
	for _, path := range theirs.Paths() {
		want, ok := theirs.Node(path)
		got, gotOK := ours.Node(path)
		if !ok || !gotOK || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// Where the logs have a directory of their own, they count; without them that is said.
func TestInspectLogDir(t *testing.T) {
	all, err := offline.Inspect(t.Context(), recordedData, "", 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	data, logs := t.TempDir(), t.TempDir()
	if err := os.CopyFS(data, os.DirFS(recordedData)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(logs, datadir.ZooKeeperDir), 0o755); err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(data, datadir.ZooKeeperDir, "log.*"))
	if err != nil || len(found) == 0 {
		t.Fatal(found, err)
	}
	for _, name := range found {
		if err := os.Rename(name, filepath.Join(logs, datadir.ZooKeeperDir, filepath.Base(name))); err != nil {
			t.Fatal(err)
		}
	}
	both, err := offline.Inspect(t.Context(), data, logs, 0, nil)
	if err != nil || both.Zxid != all.Zxid || both.Nodes != all.Nodes {
		t.Errorf("%+v, %v, want %+v", both, err, all)
	}
	alone, err := offline.Inspect(t.Context(), data, "", 0, nil)
	if err != nil || len(alone.Notices) == 0 || !strings.Contains(alone.Notices[len(alone.Notices)-1], "no transaction log") {
		t.Errorf("without the logs: %+v, %v", alone, err)
	}
}

// A snapshot alone, a log's transactions, and damaged files.
func TestInspectFiles(t *testing.T) {
	in, err := offline.Inspect(t.Context(), filepath.Join(recordedData, datadir.ZooKeeperDir, "snapshot.6a.gz"), "", 0, nil)
	if err != nil || in.Of != "ZooKeeper" || in.Zxid != "0x6a" || in.Nodes == 0 {
		t.Errorf("%+v, %v", in, err)
	}
	log := filepath.Join(recordedData, datadir.ZooKeeperDir, "log.1")
	var lines []string
	if err := offline.InspectLog(t.Context(), log, func(line string) error { lines = append(lines, line); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(lines) < 10 || !strings.HasPrefix(lines[0], "16 0x1 ") || !strings.Contains(lines[0], "createSession") {
		t.Errorf("%d lines, the first is %q", len(lines), lines)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	text[100] ^= 1
	damaged := filepath.Join(t.TempDir(), "log.1")
	writeFile(t, damaged, string(text))
	if err := offline.InspectLog(t.Context(), damaged, func(string) error { return nil }); err == nil || !strings.Contains(err.Error(), damaged+": damaged at byte") {
		t.Errorf("a damaged log: %v", err)
	}
	if _, err := offline.Inspect(t.Context(), t.TempDir(), "", 0, nil); err == nil || !strings.Contains(err.Error(), "has no data") {
		t.Errorf("an empty directory: %v", err)
	}
}
