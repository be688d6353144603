package znode

// clock is the cluster's clock: how much time has passed while the cluster had a leader, in
// milliseconds. Containers and TTL nodes count by it, and nobody sets it. A leader adds the time
// that passes by its own monotonic clock to the state's clock, and stamps entries with the sum
// (Stamp.ClockMs). Wall clocks, right or wrong, have no part in it.
//
// Invariant: it never runs backwards.
type clock struct {
	stampMs int64 // the largest stamp so far
	// shiftMs is added to stamps. A restore replaces a state by one of another time: the nodes of
	// that one keep their ages.
	shiftMs int64
}

func (c *clock) advance(stampMs int64) { c.stampMs = max(c.stampMs, stampMs) }

// nowMs is the time by which nodes count.
func (c *clock) nowMs() int64 { return c.stampMs + c.shiftMs }

// replaced is the clock of a state that has been replaced by one with the clock n: stamps go on
// from c, and ages count by n.
func (c *clock) replaced(n *clock) clock { return clock{c.stampMs, n.nowMs() - c.stampMs} }
