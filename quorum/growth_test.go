package quorum

import "testing"

func TestSnapshotsAreDueAtMostAtTheirCount(t *testing.T) {
	for _, max := range []int{1, 2, 3, 1000} {
		cfg := Config{ID: 1, SnapshotCommands: max, SnapshotLogBytes: int64(max) << 10}
		seen := make(map[int]bool)
		g := newGrowth(&cfg)
		for range 100 {
			g.restart(1 << 40) // whatever the state, for the number is said
			n := 0
			for !g.due() {
				g.add(1, 1)
				n++
			}
			if n < max-max/2 || n > max {
				t.Fatalf("due after %d of %d commands", n, max)
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
		if max == 1000 && len(seen) < 50 {
			t.Errorf("%d different counts in 100 snapshots", len(seen))
		}
	}
}

// Where nobody says after how many commands, a snapshot is not written much more often than it is worth.
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
		g := newGrowth(&cfg)
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
			if g.overdue(); !g.due() {
				t.Error("overdue, and not due")
			}
		}
	}
}

// All members apply the same entries, but do not write their snapshots at the same moment.
func TestMembersTakeTheirSnapshotsApart(t *testing.T) {
	const every, rounds = 100, 20
	inCluster(t, 3, func(cfg *Config) { cfg.SnapshotCommands = every }, func(t *testing.T, c *cluster) {
		f := (c.leader() + 1) % 3
		c.propose(f, createSession(9))
		taken := make([]map[uint64]bool, len(c.disks)) // the entries behind which each member took one
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
