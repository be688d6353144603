package quorum

import (
	"math"
	"math/rand/v2"
)

// growth is by how much the log has grown since the newest snapshot was taken, and when the next one is due: behind more than a
// half, and at most all, of what Config says, drawn anew for each (docs/protocol/admin.md: snapCount/2 + random(snapCount/2)). All members
// apply the same entries, so without that all of them would write their snapshots at the same moment, and nobody would answer
// clients as fast as ever.
//
// Unless Config says after how many commands, the log also grows to a half of the state at least, or to a quarter, by the same lot:
// a snapshot of a million nodes costs a member more than 100 000 commands do, and at a start these are applied sooner than the
// nodes are read.
type growth struct {
	commands int
	bytes    int64

	// The limits of this time: the commands count when there are minBytes of them.
	dueCommands        int
	minBytes, dueBytes int64

	maxCommands int
	maxBytes    int64
	sparing     bool       // Config does not say after how many commands
	rng         *rand.Rand // from the number of the member: members differ, and a simulation repeats itself
}

// newGrowth makes one that is to be restarted before it is used.
func newGrowth(cfg *Config) growth {
	g := growth{
		maxCommands: cfg.SnapshotCommands,
		maxBytes:    cfg.SnapshotLogBytes,
		sparing:     cfg.SnapshotCommands == 0,
		rng:         rand.New(rand.NewPCG(uint64(cfg.ID), 1)),
	}
	if g.sparing {
		g.maxCommands = defaultSnapshotCommands
	}
	return g
}

// restart counts from a snapshot of so many bytes of paths and data.
func (g *growth) restart(state int64) {
	part := 1 - g.rng.Float64()/2
	g.commands, g.bytes, g.minBytes = 0, 0, 0
	g.dueCommands = int(math.Ceil(part * float64(g.maxCommands)))
	g.dueBytes = int64(part * float64(g.maxBytes))
	if g.sparing {
		g.minBytes = int64(part * float64(state) / 2)
	}
}

// add counts an entry of so many commands and bytes.
func (g *growth) add(commands, bytes int) {
	g.commands += commands
	g.bytes += int64(bytes)
}

func (g *growth) due() bool {
	return g.commands >= g.dueCommands && g.bytes >= g.minBytes || g.bytes >= g.dueBytes
}

// overdue makes a snapshot due, for one could not be taken.
func (g *growth) overdue() { g.bytes = max(g.bytes, g.dueBytes) }
