package quorum

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"lockkeeper/internal/simdisk"
	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/store"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Two of three disks are lost. The member with the third says so, and begins a new cluster with
// what it has, which takes in the others; a member with a disk of the old cluster is refused.
//
// Defends: C1.
func TestRecover(t *testing.T) {
	out := &logged{}
	inCluster(t, 3, func(cfg *Config) { cfg.Logger = slog.New(slog.NewTextHandler(out, nil)) }, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.recs[l].result(t, c.propose(l, createSession(9)))
		for i := range c.reps {
			c.recs[i].result(t, c.propose(l, sequential(9, uint64(i+1), "/n-")))
		}
		old, zxid := c.reps[l].Cluster(), wire.Zxid(0)
		c.reps[l].View(func(s *znode.Store) { zxid = s.Zxid() })
		one, two, three := l, (l+1)%3, (l+2)%3
		c.stop(three)
		kept := c.disks[three]
		c.wipe(two)
		c.disks[three] = simdisk.New()
		c.start(two)
		c.start(three)
		time.Sleep(time.Minute) // virtual
		if s := c.reps[one].Status(); s.Leader != NoMember {
			t.Fatalf("%+v", s)
		}
		if out.lines("no majority") == 0 || out.lines("help recover") == 0 {
			t.Errorf("the log does not say it:\n%s", out.b.String())
		}

		c.stop(one)
		stores := simStores(t, c.disks[one])
		from, err := Survey(stores)
		if err != nil {
			t.Fatal(err)
		}
		if err := stores.Close(); err != nil {
			t.Fatal(err)
		}
		if from.Cluster != old || from.Member != MemberID(one+1) || len(from.Voters) != 3 || from.State.Zxid() < zxid {
			t.Errorf("the disk has %+v", from)
		}
		used := Config{ID: MemberID(one + 1), Members: c.members, Stores: simStores(t, c.disks[one])}
		if _, err := Recover(used, from); !errors.Is(err, ErrNotEmpty) {
			t.Errorf("recovered over what is there: %v", err)
		}
		if err := used.Stores.Close(); err != nil {
			t.Fatal(err)
		}
		c.wipe(one)
		stores = simStores(t, c.disks[one])
		c.giveIdentity(one, &stores)
		cluster, err := Recover(Config{ID: MemberID(one + 1), Members: c.members, Stores: stores}, from)
		if err != nil || cluster == old {
			t.Fatal(cluster, err)
		}
		if err := stores.Close(); err != nil {
			t.Fatal(err)
		}
		c.start(one)
		c.takenIn(two)
		c.takenIn(three)
		if r := c.recs[two].result(t, c.propose(two, sequential(9, 4, "/n-"))); r.Path != "/n-0000000003" {
			t.Errorf("%+v", r)
		}
		c.agree()
		c.reps[two].View(func(s *znode.Store) {
			if s.Cluster() != cluster || s.Zxid() <= zxid+1<<32 {
				t.Errorf("the state is of cluster %v, at %v", s.Cluster(), s.Zxid())
			}
		})

		// A disk of the old cluster.
		c.stop(three)
		c.disks[three] = kept
		c.start(three)
		time.Sleep(time.Minute) // virtual
		if s := c.reps[three].Status(); s.Leader != NoMember || c.reps[three].Cluster() != old {
			t.Errorf("a disk of the old cluster takes part: %+v", s)
		}
		if out.lines("belongs to cluster "+old.String()) == 0 {
			t.Errorf("the log does not say it:\n%s", out.b.String())
		}
	})
}

// The members of the configuration count in the new cluster, not those of the old one.
func TestRecoverWithOtherMembers(t *testing.T) {
	var from *Survivor
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		c.recs[0].result(t, c.propose(c.leader(), createSession(9)))
		time.Sleep(time.Second) // virtual; by now the members are in the state
		c.recs[0].result(t, c.propose(c.leader(), sequential(9, 1, "/n-")))
		c.stop(0)
		stores := simStores(t, c.disks[0])
		var err error
		if from, err = Survey(stores); err != nil {
			t.Fatal(err)
		}
		if err := stores.Close(); err != nil {
			t.Fatal(err)
		}
	})
	recovered := false
	inCluster(t, 2, func(cfg *Config) {
		if cfg.ID != 1 || recovered {
			return
		}
		recovered = true
		if _, err := Recover(*cfg, from); err != nil {
			t.Fatal(err)
		}
	}, func(t *testing.T, c *cluster) {
		c.takenIn(1)
		if got := c.settle(); got != "1 2" {
			t.Errorf("the members are %s", got)
		}
		c.recs[1].result(t, c.propose(1, sequential(9, 2, "/n-")))
		c.agree()
	})
}

// What a snapshot says of itself is enough to begin with.
func TestRecoverFromASnapshot(t *testing.T) {
	_, state := ensembleState(t, 1000, 20)
	from, err := SurviveSnapshot(state)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	stores, err := store.Open(dir, dir, "")
	if err != nil {
		t.Fatal(err)
	}
	rec := newRecorder()
	cfg := Config{ID: 1, Members: []Member{{ID: 1}}, Stores: stores, Listener: rec, Logger: testLogger()}
	for range 2 { // the second time as after a kill before the last write
		if _, err := Recover(cfg, from); err != nil {
			t.Fatal(err)
		}
		if err := stores.SetNumber(store.Import, importBegun); err != nil {
			t.Fatal(err)
		}
	}
	cluster, err := Recover(cfg, from)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Propose(t.Context(), createSession(7)); err != nil {
		t.Fatal(err)
	}
	rec.result(t, createSession(7).Key())
	if s := r.Status(); r.Cluster() != cluster || s.Role != "standalone" || peer.ClusterID(cluster) == 0 {
		t.Errorf("cluster %v, want %v; %+v", r.Cluster(), cluster, s)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := SurviveSnapshot(znode.New()); err == nil {
		t.Error("an empty snapshot is taken")
	}
}
