package quorum

import (
	"math"
	"math/rand/v2"
)

// compaction decides when the next snapshot is taken, and which entries stay in the log behind it
// (the trailing entries).
//
// A snapshot is due when the log has grown by more than a half of Config's limit since the newest
// one, and by all of it at most; the limit is drawn anew each time (docs/protocol/admin.md:
// snapCount/2 + random(snapCount/2)). All members apply the same entries: with a fixed limit they
// would write their snapshots at the same moment, and clients would find no member as fast as
// usual.
//
// If Config has no number of commands, the log also grows to at least a half, or with the same
// factor a quarter, of the size of the state: a snapshot of a million nodes costs a member more
// than 100 000 commands do, and a start applies these sooner than it reads the nodes.
type compaction struct {
	// The applied commands and bytes since the newest snapshot, and the limits: the commands count
	// when there are minBytes of them.
	commands           int
	bytes              int64
	dueCommands        int
	minBytes, dueBytes int64

	maxCommands int
	maxBytes    int64
	byState     bool       // Config has no number of commands
	rng         *rand.Rand // seeded with the member's number: members differ

	trailing []int64 // sizes of the newest entries, a ring
	next     int     // where in the ring the next entry belongs
	known    int     // sizes in it
}

// newCompaction makes one that is to be restarted before it is used.
func newCompaction(cfg *Config) compaction {
	c := compaction{
		maxCommands: cfg.SnapshotCommands,
		maxBytes:    cfg.SnapshotLogBytes,
		byState:     cfg.SnapshotCommands == 0,
		rng:         rand.New(rand.NewPCG(uint64(cfg.ID), 1)),
		trailing:    make([]int64, cfg.TrailingEntries),
	}
	if c.byState {
		c.maxCommands = defaultSnapshotCommands
	}
	return c
}

// restart counts from a snapshot with stateBytes of paths and data.
func (c *compaction) restart(stateBytes int64) {
	part := 1 - c.rng.Float64()/2
	c.commands, c.bytes, c.minBytes = 0, 0, 0
	c.dueCommands = int(math.Ceil(part * float64(c.maxCommands)))
	c.dueBytes = int64(part * float64(c.maxBytes))
	if c.byState {
		c.minBytes = int64(part * float64(stateBytes) / 2)
	}
}

// add counts an entry.
func (c *compaction) add(commands, bytes int) {
	c.commands += commands
	c.bytes += int64(bytes)
	if n := len(c.trailing); n > 0 {
		c.trailing[c.next] = int64(bytes)
		c.next = (c.next + 1) % n
		c.known = min(c.known+1, n)
	}
}

// due reports whether a snapshot is to be taken.
func (c *compaction) due() bool {
	return c.commands >= c.dueCommands && c.bytes >= c.minBytes || c.bytes >= c.dueBytes
}

// retry makes a snapshot due again, after one that failed.
func (c *compaction) retry() { c.bytes = max(c.bytes, c.dueBytes) }

// minTrailing entries stay in any case: with fewer, the uncommitted entries of a deposed leader
// could reach further back than the log of its successor.
const minTrailing = 16

// keep is the number of the newest entries that have together at most maxBytes, and at least
// minTrailing. It assumes that older entries of unknown size fit: they were kept by the same rule.
func (c *compaction) keep(maxBytes int64) uint64 {
	n := len(c.trailing)
	sum := int64(0)
	for i := range c.known {
		sum += c.trailing[(c.next-1-i+2*n)%n]
		if sum > maxBytes {
			return uint64(max(i, min(minTrailing, n)))
		}
	}
	return uint64(n)
}
