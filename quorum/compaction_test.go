package quorum

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestSnapshotsAreDueAtMostAtTheirCount(t *testing.T) {
	for _, most := range []int{1, 2, 3, 1000} {
		cfg := Config{ID: 1, SnapshotConfig: SnapshotConfig{SnapshotCommands: most, SnapshotLogBytes: int64(most) << 10}}
		seen := make(map[int]bool)
		g := newCompaction(&cfg)
		for range 100 {
			g.restart(1 << 40) // whatever the state, for the number is said
			n := 0
			for !g.due() {
				g.add(1, 1)
				n++
			}
			if n < most-most/2 || n > most {
				t.Fatalf("due after %d of %d commands", n, most)
			}
			seen[n] = true
			g.restart(1 << 40)
			var bytes int64
			for !g.due() {
				g.add(0, 1<<10)
				bytes += 1 << 10
			}
			if bytes < cfg.SnapshotLogBytes/2 || bytes > cfg.SnapshotLogBytes {
				t.Fatalf("due after %d of %d bytes", bytes, cfg.SnapshotLogBytes)
			}
		}
		if most == 1000 && len(seen) < 50 {
			t.Errorf("%d different counts in 100 snapshots", len(seen))
		}
	}
}

// Where nobody says after how many commands, a snapshot is not written much more often than it is
// worth.
func TestSnapshotsOfLargeStatesAreSpared(t *testing.T) {
	const command = 150 // bytes
	for _, tc := range []struct {
		state       int64
		least, most int // commands
	}{
		{0, 50_000, 100_000},
		{10 << 20, 50_000, 100_000},
		{120 << 20, 60 << 20 / 2 / command, 60<<20/command + 1},
		{10 << 30, 256 << 20 / 2 / command, 256<<20/command + 1},
	} {
		cfg := Config{ID: 2}
		cfg.setDefaults()
		g := newCompaction(&cfg)
		for range 20 {
			g.restart(tc.state)
			n := 0
			for !g.due() {
				g.add(1, command)
				n++
			}
			if n < tc.least || n > tc.most {
				t.Errorf("a state of %d bytes: due after %d commands, and not %d to %d", tc.state, n, tc.least, tc.most)
			}
			g.restart(tc.state)
			if g.retry(); !g.due() {
				t.Error("to be tried again, and not due")
			}
		}
	}
}

// How large the state is that the log is held against is known when a snapshot has been taken, has
// come from the leader, or has been read at the start.
func TestSnapshotsAreDueByTheSizeOfTheState(t *testing.T) {
	inCluster(t, 3, func(cfg *Config) { cfg.TrailingEntries = 1 }, func(t *testing.T, c *cluster) {
		testLaggingFollowerGetsASnapshot(t, c)
		look := func(when string) {
			t.Helper()
			for i, r := range c.reps {
				r.state.mu.RLock()
				least, state := r.state.compaction.minBytes, r.state.store.Counts().DataSizeBytes
				r.state.mu.RUnlock()
				if least < state/4 || least > state/2 {
					t.Errorf("%s: member %d with %d bytes has a snapshot due from %d bytes of log on", when, i+1, state, least)
				}
			}
		}
		look("taken, and from the leader")
		for i := range c.reps {
			c.crash(i)
			c.start(i)
		}
		look("read at the start")
	})
}

// All members apply the same entries, but do not write their snapshots at the same moment.
func TestMembersTakeTheirSnapshotsApart(t *testing.T) {
	const every, rounds = 100, 20
	inCluster(t, 3, func(cfg *Config) { cfg.SnapshotCommands = every }, func(t *testing.T, c *cluster) {
		f := (c.leader() + 1) % 3
		c.propose(f, createSession(9))
		// The entries behind which each member took one.
		taken := make([]map[uint64]bool, len(c.disks))
		for i := range taken {
			taken[i] = make(map[uint64]bool)
		}
		for n := range uint64(rounds * every) {
			c.recs[f].result(t, c.propose(f, sequential(9, n+1, "/n-")))
			for i, d := range c.disks {
				list, err := d.List()
				if err != nil {
					t.Fatal(err)
				}
				if len(list) > 0 {
					taken[i][list[0].Index] = true
				}
			}
		}
		together := 0
		for index := range taken[0] {
			if taken[1][index] && taken[2][index] {
				together++
			}
		}
		for i := range taken {
			if n := len(taken[i]); n < rounds-1 || n > 2*rounds {
				t.Errorf("member %d took %d snapshots of %d commands", i+1, n, rounds*every)
			}
		}
		if together > 2 {
			t.Errorf("%d of %d snapshots were taken by all members at the same entry", together, len(taken[0]))
		}
	})
}

// The entries that stay behind a snapshot are bounded in bytes, too.
func TestTrailingEntriesFitByBytes(t *testing.T) {
	c := newCompaction(&Config{SnapshotConfig: SnapshotConfig{TrailingEntries: 100}})
	if n := c.keep(1000); n != 100 {
		t.Errorf("of nothing: %d", n)
	}
	for range 150 {
		c.add(1, 10)
	}
	if n := c.keep(1000); n != 100 {
		t.Errorf("small entries: %d", n)
	}
	if n := c.keep(505); n != 50 {
		t.Errorf("50 fit: %d", n)
	}
	for range 20 {
		c.add(1, 1<<20)
	}
	if n := c.keep(5 << 20); n != minTrailing {
		t.Errorf("large entries: %d", n)
	}
}

// slowWriter takes a time for each write.
type slowWriter struct{ each time.Duration }

func (w slowWriter) Write(b []byte) (int, error) {
	time.Sleep(w.each)
	return len(b), nil
}

// The writer of a snapshot rests for half of the time, in short pieces.
func TestSnapshotIsWrittenWithRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const block, each, pieces = 64 << 10, time.Millisecond, 10
		start := time.Now()
		w := &pacedWriter{w: slowWriter{each}, since: start}
		for range pieces * pacedBytes / block {
			before := time.Now()
			if n, err := w.Write(make([]byte, block)); n != block || err != nil {
				t.Fatal(n, err)
			}
			if took := time.Since(before); took != each && took != each+each*pacedBytes/block {
				t.Errorf("a write took %v", took)
			}
		}
		if took, want := time.Since(start), 2*each*pieces*pacedBytes/block; took != want {
			t.Errorf("it took %v, want %v", took, want)
		}
	})
}
