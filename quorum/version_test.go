package quorum

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/store"
	"lockkeeper/znode"
)

// withVersions gives each member its newest version.
func withVersions(newest ...uint8) func(*Config) {
	return func(cfg *Config) {
		cfg.Peers.Version = newest[cfg.ID-1]
	}
}

// TestVersionsThatWorkTogether: members of a version and of the one before are a cluster,
// whichever of them leads, and the leader knows what all speak.
func TestVersionsThatWorkTogether(t *testing.T) {
	for name, newest := range map[string][]uint8{
		"one of this version":        {1, 2, 1},
		"one of the version before":  {2, 1, 2},
		"all of this version":        {2, 2, 2},
		"one of the version to come": {2, 3, 2},
		"one of this version left":   {3, 3, 2},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 3, withVersions(newest...), func(t *testing.T, c *cluster) {
				first := c.leader()
				c.recs[first].result(t, c.propose(first, createSession(9)))
				seq := uint64(0)
				for k := range 3 {
					l := (first + k) % 3
					if k > 0 {
						if err := c.reps[first].TransferLeadership(c.t.Context(), MemberID(l+1), nil); err != nil {
							t.Fatal(err)
						}
						if got := c.leader(); got != l {
							t.Fatalf("member %d leads", got+1)
						}
					}
					for i := range c.reps {
						seq++
						c.recs[i].result(t, c.propose(i, sequential(9, seq, "/n-")))
						if _, _, err := c.reps[i].Touch(t.Context(), nil); err != nil {
							t.Errorf("member %d reports to member %d: %v", i+1, l+1, err)
						}
						want := uint8(0)
						if i == l {
							want = min(newest[0], newest[1], newest[2])
						}
						if got := c.reps[i].CommonVersion(); got != want {
							t.Errorf("member %d finds that all speak version %d, want %d; member %d leads", i+1, got, want, l+1)
						}
					}
				}
				c.agree()
				for i, r := range c.reps {
					if s := r.PeerStats(); s.VersionsRefused != 0 || s.Version != newest[i] {
						t.Errorf("member %d: %+v", i+1, s)
					}
				}
			})
		})
	}
}

// TestVersionsApart: a member that has no version in common with the others says so, and they go
// on.
func TestVersionsApart(t *testing.T) {
	out := &logged{}
	versions := withVersions(1, 1, 1)
	change := func(cfg *Config) {
		versions(cfg)
		if cfg.ID == 3 {
			cfg.Logger = slog.New(slog.NewTextHandler(out, nil))
		}
	}
	inCluster(t, 3, change, func(t *testing.T, c *cluster) {
		c.recs[2].result(t, c.propose(c.leader(), createSession(9)))
		versions = withVersions(1, 1, 3)
		c.stop(2)
		c.start(2)
		c.cut[2] = true // it follows nobody
		l := c.leader()
		term := c.reps[l].raft.CurrentTerm()
		time.Sleep(time.Minute) // virtual
		c.recs[l].result(t, c.propose(l, sequential(9, 1, "/n-")))
		if c.leader() != l || c.reps[l].raft.CurrentTerm() != term {
			t.Error("another leader has been elected")
		}
		if got := c.reps[2].Status().Role; got != "looking" {
			t.Errorf("the member of version 3 is %s", got)
		}
		for _, i := range []int{l, 2} {
			if c.reps[i].PeerStats().VersionsRefused == 0 {
				t.Errorf("member %d has refused no version", i+1)
			}
		}
		const want = "member 1 speaks version 1, and this member versions 2 and 3: upgrade, or go back, one version after the other"
		if n := out.lines(want); n == 0 || out.lines("level=ERROR") == 0 {
			t.Errorf("the log does not say it:\n%s", out.b.String())
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		reports := c.reps[l].Reports(ctx, []MemberID{MemberID(2 - l), 3})
		if r := reports[3]; r.Role != RoleApart || r.Protocol != 3 {
			t.Errorf("member %d reports of member 3: %+v", l+1, r)
		}
		if r := reports[MemberID(2-l)]; r.Role != "follower" || r.Protocol != 1 {
			t.Errorf("member %d reports of the other member: %+v", l+1, r)
		}
		if got := c.reps[l].CommonVersion(); got != 0 {
			t.Errorf("all members speak version %d", got)
		}
	})
}

// newerFormats are directories as a later version leaves them, and what a refusal names.
var newerFormats = map[string]struct {
	change func(t *testing.T, dir string)
	names  []string
}{
	"an entry of a later format": {func(t *testing.T, dir string) {
		b := znode.AppendEntry(nil, znode.Stamp{TimeMs: 1}, nil)
		b[0]++
		appendEntry(t, dir, b)
	}, []string{"raft.wal", "format 2", "reads 1"}},
	"an entry with an unknown flag": {func(t *testing.T, dir string) {
		appendEntry(t, dir, znode.AppendEntry(nil, znode.Stamp{TimeMs: 1, Flags: 1 << 31}, nil))
	}, []string{"raft.wal", "flags 0x80000000"}},
	"a command of an unknown kind": {func(t *testing.T, dir string) {
		b := (&znode.Command{Body: &znode.Expire{}}).Append(nil)
		b[0] = 200
		appendEntry(t, dir, znode.AppendEntry(nil, znode.Stamp{TimeMs: 1}, [][]byte{b}))
	}, []string{"raft.wal", "kind 200"}},
	"a snapshot": {func(t *testing.T, dir string) {
		stores, err := store.Open(dir, dir, "")
		if err != nil {
			t.Fatal(err)
		}
		defer stores.Close()
		if err := stores.WriteSnapshot(raft.Configuration{}, 99, 99, strings.NewReader("lkznode\n\x00\x00\x00\x02")); err != nil {
			t.Fatal(err)
		}
	}, []string{"snapshots/99-99-", "format 2", "reads 1"}},
}

// appendEntry has a leader append an entry to the log.
func appendEntry(t *testing.T, dir string, data []byte) {
	t.Helper()
	stores, err := store.Open(dir, dir, "")
	if err != nil {
		t.Fatal(err)
	}
	last, err := stores.Log.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	if err := stores.Log.StoreLogs([]*raft.Log{{Index: last + 1, Term: 99, Type: raft.LogCommand, Data: data}}); err != nil {
		t.Fatal(err)
	}
	if err := stores.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestNewerFormatsAreRefused: what a later version has written is refused at the start. The message
// names the file, the format in it and the formats that are read.
func TestNewerFormatsAreRefused(t *testing.T) {
	for name, tc := range newerFormats {
		t.Run(name, func(t *testing.T) {
			dir := grown(t)
			tc.change(t, dir)
			stores, err := store.Open(dir, dir, "")
			if err == nil {
				defer stores.Close()
				var r *Replica
				if r, err = Open(Config{ID: 1, Members: []Member{{ID: 1}}, Stores: stores, Listener: newRecorder(), Logger: testLogger()}); err == nil {
					t.Fatal(errors.Join(errors.New("it starts"), r.Close()))
				}
			}
			if !errors.Is(err, store.ErrFormat) {
				t.Fatalf("%v, want ErrFormat", err)
			}
			for _, want := range append(tc.names, dir) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

// grown returns a data directory with a log and a snapshot in it.
func grown(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	stores, err := store.Open(dir, dir, "")
	if err != nil {
		t.Fatal(err)
	}
	rec := newRecorder()
	r, err := Open(Config{ID: 1, Members: []Member{{ID: 1}}, Stores: stores, Listener: rec, Logger: testLogger()})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Propose(t.Context(), createSession(7)); err != nil {
		t.Fatal(err)
	}
	rec.result(t, createSession(7).Key())
	if err := errors.Join(r.raft.Snapshot().Error(), r.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}
