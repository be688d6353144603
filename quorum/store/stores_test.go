package store

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/rafttest"
)

// grown returns a data directory with a log and a snapshot in it.
func grown(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	stores, err := Open(dir, dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(stores.SetIdentity(Identity{Owner: 1, Disk: 1}), stores.Stable.SetVote(1, []byte("1")),
		stores.Log.StoreLogs(rafttest.Entries(1, 5)),
		stores.WriteSnapshot(raft.Configuration{Servers: rafttest.Servers("1")}, 5, 1, strings.NewReader(strings.Repeat("state", 50))),
		stores.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func reopen(dir string) error {
	stores, err := Open(dir, dir, "")
	if err != nil {
		return err
	}
	defer stores.Close()
	newest, err := stores.Newest()
	if err != nil {
		return err
	}
	r, err := newest.Open()
	if err != nil {
		return err
	}
	return r.Close()
}

func TestDamagedFilesAreRefusedByName(t *testing.T) {
	one := func(t *testing.T, dir, pattern string) string {
		t.Helper()
		m, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(m) != 1 {
			t.Fatalf("%s: %v, %v", pattern, m, err)
		}
		return m[0]
	}
	flip := func(t *testing.T, path string) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 0x40
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		damage func(t *testing.T, dir string)
		names  string
	}{
		"snapshot state flipped": {func(t *testing.T, dir string) { flip(t, one(t, dir, "snapshots/*/state.bin")) }, "snapshots/"},
		"snapshot state gone": {func(t *testing.T, dir string) {
			if err := os.Remove(one(t, dir, "snapshots/*/state.bin")); err != nil {
				t.Fatal(err)
			}
		}, "snapshots/"},
		"snapshot description gone": {func(t *testing.T, dir string) {
			if err := os.Remove(one(t, dir, "snapshots/*/meta.json")); err != nil {
				t.Fatal(err)
			}
		}, "snapshots/"},
		"log empty": {func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, logFileName), 0); err != nil {
				t.Fatal(err)
			}
		}, logFileName},
		"log cut in half": {func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, logFileName), 16<<10); err != nil {
				t.Fatal(err)
			}
		}, logFileName},
		"log overwritten": {func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, logFileName), []byte(strings.Repeat("not a database ", 10_000)), 0o600); err != nil {
				t.Fatal(err)
			}
		}, logFileName},
		"segment flipped": {func(t *testing.T, dir string) {
			path := one(t, dir, segmentLogDir+"/*.log")
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			b[4096+100] ^= 0x40 // in the first batch
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}, segmentLogDir + "/0000000000000001.log"},
		"segment gone": {func(t *testing.T, dir string) {
			if err := os.Remove(one(t, dir, segmentLogDir+"/*.log")); err != nil {
				t.Fatal(err)
			}
		}, segmentLogDir + "/0000000000000001.log"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := grown(t)
			if err := reopen(dir); err != nil {
				t.Fatalf("undamaged: %v", err)
			}
			tc.damage(t, dir)
			err := reopen(dir)
			if err == nil || !strings.Contains(err.Error(), tc.names) {
				t.Fatalf("error %v does not name %s", err, tc.names)
			}
		})
	}
}

func TestDataDirectoryInUse(t *testing.T) {
	dir := t.TempDir()
	stores, err := Open(dir, dir, "")
	if err != nil {
		t.Fatal(err)
	}
	defer stores.Close()
	if _, err := Open(dir, dir, ""); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), logFileName) {
		t.Fatalf("second open: %v", err)
	}
}

func TestUnfinishedSnapshotsAreRemoved(t *testing.T) {
	dir := grown(t)
	left := filepath.Join(dir, snapshotsDir, "1-2-3"+unfinishedSuffix)
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := reopen(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("still there: %v", err)
	}
}

// A snapshot is written to the disk as it grows, and what cannot be written ends it then.
func TestSnapshotsAreWrittenBackAsTheyGrow(t *testing.T) {
	snaps, _, err := openSnapshotFiles(t.TempDir(), SyncDir)
	if err != nil {
		t.Fatal(err)
	}
	_, peers := raft.NewInmemTransport("1") // which is asked how to write addresses
	members := raft.Configuration{Servers: []raft.Server{{ID: "1", Address: "1"}}}
	create := func(index uint64) *snapshotFile {
		t.Helper()
		sink, err := snaps.Create(raft.SnapshotVersionMax, index, 1, members, 1, peers)
		if err != nil {
			t.Fatal(err)
		}
		return sink.(*snapshotFile)
	}
	part := bytes.Repeat([]byte("snapshot"), 25_000) // 200 kB
	whole := create(1)
	for range 20 {
		if _, err := whole.Write(part); err != nil {
			t.Fatal(err)
		}
		if whole.waiting >= writeBackBytes {
			t.Fatalf("%d bytes wait to be written", whole.waiting)
		}
	}
	if err := whole.Close(); err != nil {
		t.Fatal(err)
	}
	_, r, err := snaps.Open(whole.ID())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, bytes.Repeat(part, 20)) {
		t.Errorf("read %d bytes of %d, %v", len(got), 20*len(part), err)
	}

	if runtime.GOOS != "linux" {
		return // nothing is written back
	}
	failing := create(2)
	if err := failing.state.Close(); err != nil {
		t.Fatal(err)
	}
	err = nil
	for range 20 {
		if _, err = failing.Write(part); err != nil {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "state.bin") {
		t.Errorf("written all the same: %v", err)
	}
	if err := failing.Cancel(); err != nil {
		t.Error(err)
	}
	if list, err := snaps.List(); err != nil || len(list) != 1 || list[0].ID != whole.ID() {
		t.Errorf("snapshots %v, %v", list, err)
	}
}

// What stands there already is not written again, and anything else is.
func TestSetWritesWhatIsNew(t *testing.T) {
	path := filepath.Join(t.TempDir(), logFileName)
	f, err := openBoltFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content := func() []byte {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	key := []byte("term")
	for i, tt := range []struct {
		value  uint64
		writes bool
	}{{7, true}, {7, false}, {8, true}, {7, true}} {
		before := content()
		if err := f.SetUint64(key, tt.value); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(before, content()) != tt.writes {
			t.Errorf("value %d, %d: written, %v", i, tt.value, !tt.writes)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if f, err = openBoltFile(path); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if v, err := f.GetUint64(key); v != 7 || err != nil {
		t.Errorf("read again: %d, %v", v, err)
	}
}

// What a snapshot is made of has durable names before the snapshot has its own, and before older
// ones are removed. One that could not be made durable is not there. When snapshots are opened all
// names are synced: whoever wrote them may have failed to.
func TestSnapshotNamesAreDurable(t *testing.T) {
	dir := t.TempDir()
	broken := errors.New("input/output error")
	var synced []string
	fail := ""
	syncDir := func(path string) error {
		synced = append(synced, strings.TrimPrefix(path, dir))
		if fail != "" && strings.HasSuffix(path, fail) {
			return broken
		}
		return nil
	}
	open := func() (*snapshotFiles, error) {
		synced = nil
		snaps, _, err := openSnapshotFiles(dir, syncDir)
		return snaps, err
	}
	snaps, err := open()
	if err != nil {
		t.Fatal(err)
	}
	_, peers := raft.NewInmemTransport("1")
	members := raft.Configuration{Servers: []raft.Server{{ID: "1", Address: "1"}}}
	write := func(index uint64) (id string, err error) {
		t.Helper()
		sink, err := snaps.Create(raft.SnapshotVersionMax, index, 1, members, 1, peers)
		if err != nil {
			t.Fatal(err)
		}
		synced = nil
		err = sink.Close()
		if again := sink.Close(); !errors.Is(again, err) {
			t.Errorf("closed again: %v, want %v", again, err)
		}
		return sink.ID(), err
	}
	var want []string
	for index := range uint64(5) {
		fail = ""
		if index >= 3 {
			fail = unfinishedSuffix
		}
		id, err := write(index + 1)
		if err == nil {
			want = append([]string{id}, want...)[:min(len(want)+1, snapshotsKept)]
		}
		if !errors.Is(err, broken) && fail != "" || err != nil && fail == "" {
			t.Errorf("snapshot %d: %v", index+1, err)
		}
		if names := "/" + snapshotsDir + "/" + id + unfinishedSuffix; !slices.Equal(synced, []string{names}) {
			t.Errorf("snapshot %d: synced %q, want %q", index+1, synced, names)
		}
		entries, err := os.ReadDir(snaps.dir)
		if err != nil || len(entries) != len(want) {
			t.Errorf("snapshot %d: %v, %v", index+1, entries, err)
		}
		listed, err := snaps.List()
		if err != nil || len(listed) != len(want) {
			t.Fatalf("snapshot %d: %d are listed, %v", index+1, len(listed), err)
		}
		for i, meta := range listed {
			if meta.ID != want[i] {
				t.Errorf("snapshot %d: %s is listed, want %s", index+1, meta.ID, want[i])
			}
		}
	}
	fail = ""
	if _, err := open(); err != nil {
		t.Fatal(err)
	}
	in := "/" + snapshotsDir
	if names := []string{in + "/" + want[1], in + "/" + want[0], in, ""}; !slices.Equal(synced, names) {
		t.Errorf("opened: synced %q, want %q", synced, names)
	}
	for _, fail = range []string{want[0], in} {
		if _, err := open(); !errors.Is(err, broken) {
			t.Errorf("opened, though %s cannot be synced: %v", fail, err)
		}
	}
}
