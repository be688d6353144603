package quorum

import "math/rand/v2"

// growth is by how much the log has grown since the newest snapshot was taken, and when the next one is due: behind more than a
// half, and at most all, of what Config says, drawn anew for each (spec/admin.md: snapCount/2 + random(snapCount/2)). All members
// apply the same entries, so without that all of them would write their snapshots at the same moment, and nobody would answer clients
// as fast as ever.
type growth struct {
	commands, maxCommands int
	bytes, maxBytes       int64

	dueCommands int
	dueBytes    int64
	rng         *rand.Rand // from the member's number, so that members differ, and a simulation repeats itself
}

func newGrowth(cfg *Config) growth {
	g := growth{maxCommands: cfg.SnapshotCommands, maxBytes: cfg.SnapshotLogBytes, rng: rand.New(rand.NewPCG(0, uint64(cfg.ID)))}
	g.restart()
	return g
}

// restart counts from a snapshot that was taken just now.
func (g *growth) restart() {
	part := g.rng.Float64()
	g.commands, g.bytes = 0, 0
	g.dueCommands = g.maxCommands - int(part*float64(g.maxCommands/2))
	g.dueBytes = g.maxBytes - int64(part*float64(g.maxBytes/2))
}

// add counts an entry of so many commands and bytes.
func (g *growth) add(commands, bytes int) {
	g.commands += commands
	g.bytes += int64(bytes)
}

func (g *growth) due() bool { return g.commands >= g.dueCommands || g.bytes >= g.dueBytes }

// overdue makes a snapshot due, for one could not be taken.
func (g *growth) overdue() { g.commands = max(g.commands, g.dueCommands) }
