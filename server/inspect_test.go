package server

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const recordedData = "../zkdata/testdata/zookeeper-3.8.0" // of a real server

// What is found in ZooKeeper's files is found again in those of lockkeeper after an import.
func TestInspect(t *testing.T) {
	theirs, err := Inspect(t.Context(), recordedData, "", 0, nil)
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
	cfg.ExtendedTypes = true
	if err := Import(t.Context(), cfg, ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	ours, err := Inspect(t.Context(), dir, "", 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if ours.Of != "lockkeeper" || ours.Zxid != theirs.Zxid || ours.Nodes != theirs.Nodes || ours.Bytes != theirs.Bytes ||
		ours.Ephemerals != theirs.Ephemerals || ours.Sessions != theirs.Sessions || ours.Locks != theirs.Locks {
		t.Errorf("ours:\n%+v\ntheirs:\n%+v", ours, theirs)
	}
	if again, err := Inspect(t.Context(), filepath.Join(dir, zooKeeperDir), "", 0, nil); err != nil || again.Of != "ZooKeeper" {
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
	all, err := Inspect(t.Context(), recordedData, "", 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	data, logs := t.TempDir(), t.TempDir()
	if err := os.CopyFS(data, os.DirFS(recordedData)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(logs, zooKeeperDir), 0o755); err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(data, zooKeeperDir, "log.*"))
	if err != nil || len(found) == 0 {
		t.Fatal(found, err)
	}
	for _, name := range found {
		if err := os.Rename(name, filepath.Join(logs, zooKeeperDir, filepath.Base(name))); err != nil {
			t.Fatal(err)
		}
	}
	both, err := Inspect(t.Context(), data, logs, 0, nil)
	if err != nil || both.Zxid != all.Zxid || both.Nodes != all.Nodes {
		t.Errorf("%+v, %v, want %+v", both, err, all)
	}
	alone, err := Inspect(t.Context(), data, "", 0, nil)
	if err != nil || len(alone.Notices) == 0 || !strings.Contains(alone.Notices[len(alone.Notices)-1], "no transaction log") {
		t.Errorf("without the logs: %+v, %v", alone, err)
	}
}

// A snapshot alone, a log's transactions, and what is damaged.
func TestInspectFiles(t *testing.T) {
	in, err := Inspect(t.Context(), filepath.Join(recordedData, zooKeeperDir, "snapshot.6a.gz"), "", 0, nil)
	if err != nil || in.Of != "ZooKeeper" || in.Zxid != "0x6a" || in.Nodes == 0 {
		t.Errorf("%+v, %v", in, err)
	}
	log := filepath.Join(recordedData, zooKeeperDir, "log.1")
	var lines []string
	if err := InspectLog(t.Context(), log, func(line string) error { lines = append(lines, line); return nil }); err != nil {
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
	if err := InspectLog(t.Context(), damaged, func(string) error { return nil }); err == nil || !strings.Contains(err.Error(), damaged+": damaged at byte") {
		t.Errorf("a damaged log: %v", err)
	}
	if _, err := Inspect(t.Context(), t.TempDir(), "", 0, nil); err == nil || !strings.Contains(err.Error(), "has no data") {
		t.Errorf("an empty directory: %v", err)
	}
}
