package quorum

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"lockkeeper/quorum/store"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// A member begins with what was imported, once; one that is not complete is refused, and can be
// done again.
func TestImport(t *testing.T) {
	dir := t.TempDir()
	stores, err := store.Open(dir, dir, "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stores.Close() }()
	cfg := Config{ID: 1, Members: []Member{{ID: 1}}, Stores: stores, Listener: newRecorder(), Logger: testLogger()}
	from := Origin{Term: 7, StateTerm: 5, Index: 5<<32 + 9}
	if err := stores.SetNumber(store.Import, importBegun); err != nil { // one was killed
		t.Fatal(err)
	}
	if _, err := Open(cfg); err == nil || !strings.Contains(err.Error(), "run it again") {
		t.Errorf("a start after half an import: %v", err)
	}
	for range 2 { // the second time as after a kill before the last write
		if err := Import(cfg, from, znode.New()); err != nil {
			t.Fatal(err)
		}
		if err := stores.SetNumber(store.Import, importBegun); err != nil {
			t.Fatal(err)
		}
	}
	if err := Import(cfg, from, znode.New()); err != nil {
		t.Fatal(err)
	}
	if err := Import(cfg, from, znode.New()); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("a second import: %v", err)
	}
	rec := newRecorder()
	cfg.Listener = rec
	r, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Propose(t.Context(), createSession(7)); err != nil {
		t.Fatal(err)
	}
	rec.result(t, createSession(7).Key())
	if s := r.Status(); s.Term <= from.Term || s.AppliedIndex <= from.Index {
		t.Errorf("%+v is not after the import", s)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// ensembleState is a state of an ensemble that has made a node every 100 ms from a time on.
func ensembleState(t *testing.T, startMs int64, nodes int) (Origin, *znode.Store) {
	t.Helper()
	content := znode.Content{Zxid: wire.Zxid(1<<32 + nodes), Sessions: func(func(znode.Session) bool) {}, Nodes: func(yield func(znode.Node) bool) {
		for i := 1; i <= nodes; i++ {
			zxid, ms := wire.Zxid(1<<32+i), startMs+int64(i)*100
			if !yield(znode.Node{Path: fmt.Sprintf("/n%d", i), ACL: wire.OpenACL, Czxid: zxid, Mzxid: zxid, Pzxid: zxid, CtimeMs: ms, MtimeMs: ms}) {
				return
			}
		}
	}}
	store, err := znode.FromContent(content)
	if err != nil {
		t.Fatal(err)
	}
	return Origin{Term: 1, StateTerm: 1, Index: uint64(content.Zxid)}, store
}

// One member has imported a state, and the others are blank: they get it, whichever starts first.
func TestImportOfOneMember(t *testing.T) {
	for _, late := range []bool{false, true} {
		imported := false
		inCluster(t, 3, func(cfg *Config) {
			if cfg.ID == 2 && !imported {
				imported = true
				from, store := ensembleState(t, 1000, 20)
				if err := Import(*cfg, from, store); err != nil {
					t.Fatal(err)
				}
			}
		}, func(t *testing.T, c *cluster) {
			if late {
				for i := range c.reps {
					c.wipe(i)
				}
				imported = false
				c.start(0)
				c.start(2)
				time.Sleep(10 * time.Second) // virtual
				c.start(1)
			}
			c.recs[0].result(t, c.propose(c.leader(), createSession(9)))
			c.agree()
			c.reps[0].View(func(s *znode.Store) {
				if _, _, code := s.Get("/n20", []znode.Identity{{Scheme: "super"}}); code != wire.CodeOK {
					t.Errorf("what was imported is not in the cluster: %v", code)
				}
			})
		})
	}
}

// All members have imported the same state. A leader that did not found the cluster has an imported
// snapshot without a configuration, and yet sends a replaced disk the state.
//
// Defends: C1.
func TestImportReachesAReplacedDisk(t *testing.T) {
	imported := map[MemberID]bool{}
	inCluster(t, 3, func(cfg *Config) {
		if !imported[cfg.ID] {
			imported[cfg.ID] = true
			from, store := ensembleState(t, 1000, 20)
			if err := Import(*cfg, from, store); err != nil {
				t.Fatal(err)
			}
		}
	}, func(t *testing.T, c *cluster) {
		c.recs[0].result(t, c.propose(c.leader(), createSession(9)))
		c.wipe(0) // the founder
		c.recs[1].result(t, c.propose(c.leader(), sequential(9, 1, "/n-")))
		c.start(0)
		c.takenIn(0)
		c.agree()
	})
}

// A member that comes late with imported data finds a cluster at work. Its files are outdated: it
// does not start again with them.
func TestImportBesideACluster(t *testing.T) {
	stopped := make(chan error, 1)
	word, imports := []MemberID{3}, false
	inCluster(t, 3, func(cfg *Config) {
		if cfg.ID != 3 {
			cfg.Without = word
			return
		}
		cfg.Listener.(*recorder).failed = func(err error) { stopped <- err }
		if imports {
			from, store := ensembleState(t, 1000, 20)
			if err := Import(*cfg, from, store); err != nil {
				t.Fatal(err)
			}
		}
	}, func(t *testing.T, c *cluster) {
		stopped = make(chan error, 1) // of the bubble
		for i := range c.reps {
			c.wipe(i)
		}
		c.start(0)
		c.start(1)
		c.recs[0].result(t, c.propose(c.leader(), createSession(9)))
		imports = true
		c.start(2)
		if err := <-stopped; !errors.Is(err, store.ErrOutdated) || !strings.Contains(err.Error(), c.reps[0].Cluster().String()) {
			t.Errorf("the third member stops with %v", err)
		}
		c.stop(2)
		again := Config{ID: 3, Members: c.members, Stores: simStores(t, c.disks[2]), Listener: newRecorder(), Logger: testLogger()}
		if _, err := Open(again); !errors.Is(err, store.ErrOutdated) {
			t.Errorf("it starts again: %v", err)
		}
		c.wipe(2)
		imports = false
		c.start(2)
		c.takenIn(2)
		c.agree()
	})
}

// A member that has imported an older state takes the leader's, if it is of the same ensemble. One
// of another ensemble stops, and does not start again.
//
// Defends: C1.
func TestImportOfAnotherEnsemble(t *testing.T) {
	for name, theirStart := range map[string]int64{"same": 1000, "other": 2000} {
		t.Run(name, func(t *testing.T) {
			var third Config
			var stopped chan error // of the bubble
			imported := map[MemberID]bool{}
			inCluster(t, 3, func(cfg *Config) {
				start, nodes := int64(1000), 20
				if cfg.ID == 3 {
					start, nodes = theirStart, 10
					stopped = make(chan error, 1)
					cfg.Listener.(*recorder).failed = func(err error) { stopped <- err }
					third = *cfg
				}
				if imported[cfg.ID] {
					return
				}
				imported[cfg.ID] = true
				from, store := ensembleState(t, start, nodes)
				if err := Import(*cfg, from, store); err != nil {
					t.Fatal(err)
				}
			}, func(t *testing.T, c *cluster) {
				if name == "same" {
					c.leader()
					c.agree()
					if c.recs[2].restored == 0 {
						t.Error("the third member was sent no snapshot")
					}
					return
				}
				if err := <-stopped; !errors.Is(err, errForeign) || !strings.Contains(err.Error(), "0x100000001") {
					t.Errorf("the third member stops with %v", err)
				}
				c.stop(2)
				third.Stores = simStores(t, c.disks[2])
				if _, err := Open(third); !errors.Is(err, errForeign) {
					t.Errorf("it starts again: %v", err)
				}
				l := c.leader()
				c.recs[l].result(t, c.propose(l, createSession(9)))
			})
		})
	}
}
