package quorum

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"lockkeeper/internal/simdisk"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

var replacements = flag.Int("disks", 60, "how many disks are replaced, one after the other")

// Disks of all members are lost, in turn and at random, at an orderly end or with the power, or
// come back after another one has replaced them. Nobody helps, nothing that was answered is lost,
// and no command takes effect twice.
func TestRandomDisksAreReplaced(t *testing.T) {
	const each = 200 // all nodes stay, so a cluster is not used for ever
	for left, round := few(*replacements), uint64(1); left > 0; left, round = left-each, round+1 {
		replaceDisks(t, 3+int(round%3), min(left, each), rand.New(rand.NewPCG(1, round)))
	}
}

func replaceDisks(t *testing.T, members, disks int, rng *rand.Rand) {
	set := map[MemberID]bool{} // aside: the new disk replaces one whose files are still there
	inCluster(t, members, func(cfg *Config) { cfg.Lost = set[cfg.ID] }, func(t *testing.T, c *cluster) {
		c.recs[0].result(t, c.propose(c.leader(), createSession(9)))
		var seq uint64
		write := func(at int, wait bool) {
			for range 1 + rng.IntN(4) {
				seq++
				c.propose(at, sequential(9, seq, "/n-"))
			}
			if wait {
				c.recs[at].result(t, sequential(9, seq, "").Key())
			}
		}
		const builtIns = 1 // /zookeeper
		replaced := make([]*simdisk.Disk, members)
		for range disks {
			i := rng.IntN(members)
			at := (i + 1 + rng.IntN(members-1)) % members
			write(at, rng.IntN(2) == 0)
			time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond) // virtual
			if rng.IntN(2) == 0 {
				c.stop(i)
			} else {
				c.crash(i)
			}
			before := replaced[i]
			replaced[i] = c.disks[i].Crash()
			if before != nil && rng.IntN(4) == 0 {
				c.disks[i] = before
			} else {
				set[MemberID(i+1)] = rng.IntN(2) == 0
				c.disks[i] = simdisk.New()
				c.disks[i].SetSyncTime(time.Millisecond)
			}
			c.start(i)
			write(at, true)
			c.takenIn(i)
		}
		c.agree()
		for i := range members {
			c.reps[i].View(func(s *znode.Store) {
				names, _, code := s.Children("/", []znode.Identity{{Scheme: "super"}})
				if want := int(seq) + builtIns; code != wire.CodeOK || len(names) != want {
					t.Errorf("member %d has %d nodes, want %d: %v", i+1, len(names), want, code)
				}
			})
		}
		if r := c.recs[0].result(t, c.propose(0, sequential(9, seq+1, "/n-"))); r.Path != fmt.Sprintf("/n-%010d", seq) {
			t.Errorf("%+v", r)
		}
	})
}
