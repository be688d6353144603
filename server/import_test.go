package server

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockkeeper/quorum/store"
	"lockkeeper/server/datadir"
	"lockkeeper/server/offline"
	"lockkeeper/server/zoocfg"
	"lockkeeper/wire"
	"lockkeeper/zkdata"
)

// zooKeeperData is a data directory as ZooKeeper leaves it, with the node /a.
func zooKeeperData(t *testing.T, more ...*zkdata.Txn) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, datadir.ZooKeeperDir), 0o755); err != nil {
		t.Fatal(err)
	}
	state := zkdata.NewState()
	state.Apply(&zkdata.Txn{Zxid: 5, Session: 1, Op: wire.OpCreate, Body: &zkdata.Create{Path: "/a", Data: []byte("data"), ACL: wire.OpenACL, Op: wire.OpCreate, ParentCreates: -1}})
	for _, txn := range more {
		state.Apply(txn)
	}
	f, err := os.Create(filepath.Join(dir, datadir.ZooKeeperDir, "snapshot.5"))
	if err == nil {
		err = errors.Join(state.WriteSnapshot(f), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func importConfig(dir string) Config {
	return Config{
		Data:     zoocfg.Data{Dir: dir, Import: true},
		Client:   zoocfg.Client{Addr: "127.0.0.1:0"},
		Sessions: zoocfg.Sessions{TickTime: time.Second},
		Logger:   testLogger(),
	}
}

// A member that starts with an import has the nodes; the next start imports nothing.
func TestImportAtStart(t *testing.T) {
	dir := zooKeeperData(t)
	for range 2 {
		s, err := Start(importConfig(dir))
		if err != nil {
			t.Fatal(err)
		}
		await(t, "a leader", s.Serving)
		nc, err := net.Dial("tcp", s.ClientAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		c := &rawClient{Conn: nc, t: t}
		c.connect(patience)
		c.call(wire.OpGetData, &wire.PathWatchRequest{Path: "/a"})
		_ = nc.Close()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := offline.Import(t.Context(), importConfig(dir), offline.ImportOptions{}); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a second import: %v", err)
	}
}

// A refused import names the remedy, and leaves nothing behind.
func TestImportRefusals(t *testing.T) {
	running, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	for name, test := range map[string]struct {
		change func(dir string, cfg *Config)
		want   string
	}{
		"nothing there": {func(dir string, _ *Config) { _ = os.RemoveAll(filepath.Join(dir, datadir.ZooKeeperDir)) }, "Start this member without an import"},
		"still running": {func(_ string, cfg *Config) { cfg.Client.Addr = running.Addr().String() }, "stop ZooKeeper on all hosts"},
		"damaged": {func(dir string, _ *Config) {
			name := filepath.Join(dir, datadir.ZooKeeperDir, "snapshot.5")
			if err := os.Truncate(name, 100); err != nil {
				t.Error(err)
			}
			f, err := os.Create(filepath.Join(dir, datadir.ZooKeeperDir, "log.1"))
			if err != nil {
				t.Error(err)
			}
			_ = f.Close()
		}, "snapshot"},
		"too large":           {func(_ string, cfg *Config) { cfg.Limits.Nodes = 1 }, "beyond maxNodes"},
		"without being asked": {func(_ string, cfg *Config) { cfg.Data.Import = false }, "serve -import"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := zooKeeperData(t)
			cfg := importConfig(dir)
			test.change(dir, &cfg)
			s, err := Start(cfg)
			if err == nil {
				_ = s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
			if _, err := os.Stat(filepath.Join(dir, datadir.LogFile)); err == nil && name != "without being asked" {
				t.Errorf("%s was made", datadir.LogFile)
			}
		})
	}
}

// Nodes with the mark of a TTL node are neither dropped nor taken before the configuration says
// whether ZooKeeper ran with extendedTypesEnabled, which may have been a system property.
func TestImportOfTTLNodes(t *testing.T) {
	ttl := &zkdata.Txn{Zxid: 5, Session: 1, Op: wire.OpCreateTTL,
		Body: &zkdata.Create{Path: "/ttl", ACL: wire.OpenACL, Op: wire.OpCreateTTL, ParentCreates: -1, TTLMs: 1e9}}
	for key, want := range map[string]string{"": `"/ttl"`, "extendedTypesEnabled=true\n": "/a /ttl", "extendedTypesEnabled=false\n": "/a"} {
		dir := zooKeeperData(t, ttl)
		in, err := offline.Inspect(t.Context(), dir, "", 0, nil)
		if err != nil || !strings.Contains(in.Import, "for the 1 TTL nodes zoo.cfg needs extendedTypesEnabled=true") {
			t.Fatal(in, err)
		}
		cfg := mustLoad(t, filepath.Join(t.TempDir(), "zoo.cfg"), "dataDir=%s\nclientPort=%d\n%s", dir, freePort(t), key)
		_, checked := offline.CheckData(cfg)
		err = offline.Import(t.Context(), cfg, offline.ImportOptions{})
		if key == "" {
			for _, err := range []error{err, checked} {
				if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "extendedTypesEnabled: is not set") {
					t.Errorf("without the key: %v", err)
				}
			}
			continue
		}
		if err != nil || checked != nil {
			t.Fatal(err, checked)
		}
		if in, err = offline.Inspect(t.Context(), dir, "", 0, nil); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, path := range in.Paths() {
			if path != "/" && !strings.HasPrefix(path, "/zookeeper") {
				got = append(got, path)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("with %s there are %v, want %s", key, got, want)
		}
	}
}

// An import that was killed when it had made its files and written nothing is done again; a start
// that was not asked for one does not begin with an empty state.
func TestImportKilledEarly(t *testing.T) {
	cfg := importConfig(zooKeeperData(t)).WithDefaults()
	stores, err := store.Open(cfg.Data.Dir, cfg.Data.LogDir, cfg.Data.LogStore)
	if err == nil {
		err = stores.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg.Data.Import = false
	if s, err := Start(cfg); err == nil || !strings.Contains(err.Error(), "serve -import") {
		t.Errorf("a start without an import: %v", errors.Join(err, s.Close()))
	}
	if err := offline.Import(t.Context(), cfg, offline.ImportOptions{}); err != nil {
		t.Error(err)
	}
}

// An export has the imported data and the later updates; it overwrites nothing.
func TestExport(t *testing.T) {
	dir := zooKeeperData(t)
	cfg := importConfig(dir)
	s, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "a leader", s.Serving)
	nc, err := net.Dial("tcp", s.ClientAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := &rawClient{Conn: nc, t: t}
	c.connect(patience)
	c.call(wire.OpCreate, create("/b", []byte("more"), wire.ModePersistent))
	c.call(wire.OpCreate, create("/e", nil, wire.ModeEphemeral))
	if err := errors.Join(s.Close(), nc.Close()); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "new", "dir")
	done, err := offline.Export(t.Context(), cfg, "", out)
	if err != nil || done.Left != 1 || done.Sessions != 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	files, err := zkdata.List(out, "")
	if err != nil || files.CurrentEpoch != 2 || files.AcceptedEpoch != 2 {
		t.Fatalf("%+v, %v", files, err)
	}
	state, _, err := zkdata.Load(files, zkdata.Options{})
	if err != nil || state.Zxid != done.Zxid {
		t.Fatal(state, err)
	}
	for path, there := range map[string]bool{"/a": true, "/b": true, "/e": false} {
		if (state.Node(path) != nil) != there {
			t.Errorf("%s is there: %v, want %v", path, !there, there)
		}
	}
	if _, err := offline.Export(t.Context(), cfg, "", out); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a second export: %v", err)
	}
	if _, err := offline.Export(t.Context(), importConfig(t.TempDir()), "", filepath.Join(t.TempDir(), "x")); err == nil ||
		!strings.Contains(err.Error(), "no data of lockkeeper") {
		t.Errorf("an export of nothing: %v", err)
	}
	blank := Config{
		Data:   zoocfg.Data{Dir: t.TempDir()},
		Client: zoocfg.Client{Addr: "127.0.0.1:0"},
		Logger: testLogger(),
	}
	if s, err = Start(blank); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := offline.Export(t.Context(), blank, "", filepath.Join(t.TempDir(), "x")); err == nil ||
		!strings.Contains(err.Error(), "has never applied an update") {
		t.Errorf("an export of a member without data: %v", err)
	}
}
