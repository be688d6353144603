package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockkeeper/server"
	"lockkeeper/server/zoocfg"
	"lockkeeper/wire"
	"lockkeeper/zkdata"
)

// recordedData is a directory that a real ZooKeeper has written; its last transaction is 0x72.
const recordedData = "../../zkdata/testdata/zookeeper-3.8.0"

func copyRecorded(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(dir, os.DirFS(recordedData)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// says runs a command and checks its status and parts of its output.
func says(t *testing.T, status int, parts []string, args ...string) string {
	t.Helper()
	got, stdout, stderr := invoke(args...)
	if got != status {
		t.Errorf("%v: status %d, want %d\n%s%s", args, got, status, stdout, stderr)
	}
	for _, part := range parts {
		if !strings.Contains(stdout+stderr, part) {
			t.Errorf("%v: %q is not in\n%s%s", args, part, stdout, stderr)
		}
	}
	return stdout
}

// A directory of ZooKeeper is looked at, imported, looked at again, exported, and is the same then.
func TestImportCommand(t *testing.T) {
	t.Parallel()
	dir := copyRecorded(t)
	before := says(t, exitOK, []string{"data of ZooKeeper, whole, up to zxid 0x72", "an import would take: all of it"}, "inspect", dir)
	says(t, exitOK, []string{"data of ZooKeeper imported", "zxid=0x72", "sessions=5"}, "import", dir)
	after := says(t, exitOK, []string{"data of lockkeeper", "up to zxid 0x72"}, "inspect", dir)
	_, before, _ = strings.Cut(before, "nodes: ")
	_, after, _ = strings.Cut(after, "nodes: ")
	if before, _, _ = strings.Cut(before, "an import"); !strings.HasPrefix(after, before) {
		t.Errorf("before the import\n%s\nand behind it\n%s", before, after)
	}
	says(t, exitFailed, []string{dir, "already"}, "import", dir)

	back := filepath.Join(t.TempDir(), "back")
	says(t, exitOK, []string{back + " has what ZooKeeper starts with: zxid 0x72", "5 sessions"}, "export", dir, back)
	for _, flag := range []string{"-tree", "-sessions"} {
		was := says(t, exitOK, nil, "inspect", "-json", flag, recordedData)
		if is := says(t, exitOK, nil, "inspect", "-json", flag, back); withoutConfig(is) != withoutConfig(was) || len(was) < 100 {
			t.Errorf("%s: was\n%s\nand is\n%s", flag, was, is)
		}
	}
	says(t, exitFailed, []string{back, "not empty"}, "export", dir, back)
	s, err := server.Start(server.Config{
		Data:   zoocfg.Data{Dir: dir},
		Client: zoocfg.Client{Addr: "127.0.0.1:0"},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the member to serve", s.Serving)
	if _, err := newTestClient(t, s).Create("/later", []byte("data"), 0, worldACL); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	says(t, exitOK, []string{"of Raft itself", "commands=1", "create bytes=", `"/later" mode=0`, "createSession"}, "inspect", "-log", dir)
}

// withoutConfig leaves out the node with the members.
func withoutConfig(tree string) string {
	var b strings.Builder
	for line := range strings.Lines(tree) {
		if !strings.Contains(line, `"/zookeeper/config"`) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// Of several directories the most recent one is taken, whichever comes first; one of another
// ensemble is refused, and so is data that cannot be imported without a zoo.cfg.
func TestImportOfSeveral(t *testing.T) {
	zxid := func(dir string) string {
		var in struct{ Zxid string }
		if err := json.Unmarshal([]byte(says(t, exitOK, nil, "inspect", "-json", dir)), &in); err != nil {
			t.Fatal(err)
		}
		return in.Zxid
	}
	for _, olderFirst := range []bool{true, false} {
		older, newer := copyRecorded(t), copyRecorded(t)
		for _, name := range []string{"snapshot.6a.gz", "log.6c"} {
			if err := os.Remove(filepath.Join(older, "version-2", name)); err != nil {
				t.Fatal(err)
			}
		}
		if got := zxid(older); got != "0x6b" {
			t.Fatalf("the older one ends with %s", got)
		}
		member, other := newer, older
		if olderFirst {
			member, other = older, newer
		}
		says(t, exitOK, []string{"dir=" + newer, "zxid=0x72"}, "import", member, other)
		if got := zxid(member); got != "0x72" {
			t.Errorf("older first: %v: it has %s", olderFirst, got)
		}
	}

	dir := copyRecorded(t)
	says(t, exitFailed, []string{"not of one ensemble", "0x"}, "import", dir, otherEnsemble(t))
	if _, err := os.Stat(filepath.Join(dir, "raft.db")); err == nil {
		t.Error("a refused import leaves raft.db")
	}
	says(t, exitFailed, []string{"no data of ZooKeeper"}, "import", t.TempDir())
	if err := os.WriteFile(filepath.Join(dir, "myid"), []byte("2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	says(t, exitFailed, []string{dir, "name its zoo.cfg"}, "import", dir)
	says(t, exitUsage, []string{"zoo.cfg"}, "import")
	says(t, exitUsage, []string{"new directory"}, "export", dir)
}

// Who exports the data of several members is told in which order to start ZooKeeper on them.
func TestExportOfAMember(t *testing.T) {
	t.Parallel()
	dir := copyRecorded(t)
	file := filepath.Join(t.TempDir(), "zoo.cfg")
	text := "dataDir=" + dir + "\nclientPort=1\nserver.1=127.0.0.1:2:3\nserver.2=127.0.0.1:4:5\nserver.3=127.0.0.1:6:7\n"
	if err := errors.Join(os.WriteFile(file, []byte(text), 0o600),
		os.WriteFile(filepath.Join(dir, "myid"), []byte("2\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	says(t, exitOK, []string{"zxid=0x72"}, "import", file)
	back := filepath.Join(t.TempDir(), "back")
	says(t, exitOK, []string{"zxid 0x72, epoch 1,", "greatest epoch", "greatest zxid"}, "export", file, back)
	if id, err := os.ReadFile(filepath.Join(back, "myid")); err != nil || string(id) != "2\n" {
		t.Errorf("myid is %q (%v)", id, err)
	}
}

// otherEnsemble is a directory of an ensemble that had another history.
func otherEnsemble(t *testing.T) string {
	t.Helper()
	state := zkdata.NewState()
	state.Apply(&zkdata.Txn{Zxid: 0xf, TimeMs: 5, Op: wire.OpCreate,
		Body: &zkdata.Create{Path: "/a", ACL: wire.OpenACL, Op: wire.OpCreate, ParentCreates: -1}})
	var b bytes.Buffer
	if err := state.WriteSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "version-2"), 0o755),
		os.WriteFile(filepath.Join(dir, "version-2", "snapshot.f"), b.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	return dir
}
