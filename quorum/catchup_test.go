package quorum

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// A member that comes back counts when it has applied what was committed while it was away, whether
// it gets that as entries or as a snapshot, and not when it has learned who leads. It does not
// serve clients before.
func TestMemberIsReadyWhenItHasCaughtUp(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"entries":  nil,
		"snapshot": func(cfg *Config) { cfg.SnapshotCommands, cfg.TrailingEntries = 100, 5 },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 3, change, func(t *testing.T, c *cluster) {
				l := c.leader()
				f := (l + 1) % 3
				c.awaitReady(0, 1, 2)
				c.propose(l, createSession(9))
				c.stop(f)
				for i := range uint64(500) {
					c.recs[l].result(t, c.propose(l, sequential(9, i+1, "/n-")))
				}
				want := c.zxid(l)
				c.start(f)
				early := 0
				for ready := false; !ready; time.Sleep(100 * time.Microsecond) { // virtual
					_, known := c.reps[f].LeaderKnown()
					if ready, _ = c.reps[f].Ready(); !ready && known {
						early++
					}
					if got := c.zxid(f); (ready || c.reps[f].Joined()) && got < want {
						t.Fatalf("ready at %v, the leader was at %v when it started", got, want)
					}
				}
				if early == 0 {
					t.Error("the leader was never known before")
				}
			})
		})
	}
}

// A cluster whose members all start again is ready without an update, and a member that is cut off
// is not.
func TestReadyWithoutUpdates(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		c.leader()
		c.awaitReady(0, 1, 2)
		for i := range c.reps {
			c.crash(i)
		}
		for i := range c.reps {
			c.start(i)
		}
		f := (c.leader() + 1) % 3
		c.awaitReady(0, 1, 2)
		c.isolate(f)
		time.Sleep(10 * time.Second)
		if ok, why := c.reps[f].Ready(); ok || why != "it knows no leader" {
			t.Errorf("a member that is cut off is ready: %v, %q", ok, why)
		}
		c.heal()
		c.awaitReady(f)
	})
}

// fullSnapshots has no room for a snapshot.
type fullSnapshots struct{ raft.SnapshotStore }

var errFull = errors.New("no space left on device")

func (fullSnapshots) Create(raft.SnapshotVersion, uint64, uint64, raft.Configuration, uint64, raft.Transport) (raft.SnapshotSink, error) {
	return nil, errFull
}

// A member that cannot take the snapshot of which it has need says so, and so does the leader: now
// and then, not with each try.
func TestSnapshotThatCannotBeTaken(t *testing.T) {
	out := &logged{}
	full := MemberID(0)
	change := func(cfg *Config) {
		cfg.SnapshotCommands, cfg.TrailingEntries = 100, 5
		cfg.Logger = slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelInfo}))
		if cfg.ID == full {
			cfg.Stores.Snapshots = fullSnapshots{cfg.Stores.Snapshots}
		}
	}
	inCluster(t, 3, change, func(t *testing.T, c *cluster) {
		l := c.leader()
		f := (l + 1) % 3
		full = MemberID(f + 1)
		c.stop(f)
		c.propose(l, createSession(9))
		for i := range uint64(500) {
			c.recs[l].result(t, c.propose(l, sequential(9, i+1, "/n-")))
		}
		c.start(f)
		time.Sleep(90 * time.Second)
		ok, why := c.reps[f].Ready()
		if ok || !strings.Contains(why, "cannot take the leader's snapshot") || !strings.Contains(why, errFull.Error()) {
			t.Errorf("ready: %v, %q", ok, why)
		}
		for _, line := range []string{"this member is behind and cannot take the snapshot", "a member that is behind does not take the snapshot"} {
			if n := out.lines(line); n < 1 || n > 3 {
				t.Errorf("%d lines %q in 90 s, want 1 to 3", n, line)
			}
		}
		c.stop(f)
		full = NoMember
		c.start(f)
		c.awaitReady(f)
	})
}

// awaitReady waits until members are ready.
func (c *cluster) awaitReady(members ...int) {
	c.t.Helper()
	for _, i := range members {
		for deadline := time.Now().Add(time.Minute); ; {
			ok, why := c.reps[i].Ready()
			if ok {
				break
			}
			if time.Now().After(deadline) {
				c.t.Fatalf("member %d is not ready after a minute: %s", i+1, why)
			}
			time.Sleep(time.Millisecond) // virtual
		}
	}
}

func (c *cluster) zxid(i int) (z wire.Zxid) {
	c.reps[i].View(func(s *znode.Store) { z = s.Zxid() })
	return z
}

// A member that was away for long is sent what it lacks as soon as it answers, not when the library
// tries again after a pause that grows to ten seconds (UPSTREAM.md, 18).
func TestMemberIsServedWhenItIsBack(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		f := (c.leader() + 1) % 3
		c.awaitReady(0, 1, 2)
		for away := 10 * time.Second; away < 2*time.Minute; away += 13 * time.Second {
			c.stop(f)
			time.Sleep(away)
			began := time.Now()
			c.start(f)
			c.awaitReady(f)
			if took := time.Since(began); took > 1500*time.Millisecond {
				t.Errorf("after %v it was ready after %v", away, took)
			}
		}
	})
}
