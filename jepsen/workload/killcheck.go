package workload

import (
	"fmt"
	"path"
	"time"

	"lockkeeper/jepsen"
)

// Kills checks the time after the kill of a leader, without other faults: the clients of the
// workload libraries that are connected to other members keep their connections (C5), no session of
// a living client expires, and each client that waits for a lock gets it within Bound.
type Kills struct {
	// Bound is how long after a kill a waiting client may have to wait for its lock.
	Bound time.Duration
}

// Check judges a history.
func (k Kills) Check(ops []jepsen.Op) Verdict {
	c := &killJudge{
		v:         Verdict{Checker: "kills", Promise: "C5", Valid: Yes, Figures: make(map[string]float64)},
		connected: make(map[string]jepsen.Op),
		killed:    make(map[string]jepsen.Op),
		waiting:   make(map[string]jepsen.Op),
		closed:    make(map[string]bool),
	}
	for i, op := range ops {
		if op.F == jepsen.FKill && op.Worker == "" {
			c.kill(op, ops[i+1:], k.Bound)
		} else if belongs(op, librariesName) && !c.closed[op.Worker] {
			c.see(op)
		}
	}
	c.v.Figures["longest wait ms"] = float64(c.longest.Milliseconds())
	c.v.judged(c.bystanders+c.waits, "clients at a kill")
	c.v.Text = fmt.Sprintf("%d kills; %d times a client was connected to another member; "+
		"%d clients waited for a lock, for at most %.1f s", c.kills, c.bystanders, c.waits, c.longest.Seconds())
	if c.bystanders == 0 || c.waits == 0 {
		c.v.doubt(tooLittle)
	}
	return c.v.concluded()
}

type killJudge struct {
	v         Verdict
	connected map[string]jepsen.Op // by worker
	killed    map[string]jepsen.Op // by member: its last kill
	waiting   map[string]jepsen.Op // by contender: its acquire
	closed    map[string]bool      // by worker: it ends its session itself

	kills, bystanders, waits int
	longest                  time.Duration
}

// see takes in an entry of a client.
func (c *killJudge) see(op jepsen.Op) {
	switch op.F {
	case jepsen.FAcquire:
		if op.Kind == jepsen.Invoke {
			c.waiting[op.Contender] = op
		} else {
			delete(c.waiting, op.Contender)
		}
	case fClosed:
		c.closed[op.Worker] = true
	case jepsen.FConnected:
		c.connected[op.Worker] = op
	case jepsen.FSuspended:
		at, ok := c.connected[op.Worker]
		// A kill before the client connected does not count: the member had been started again.
		if kill, was := c.killed[at.Member]; ok && (!was || kill.Time < at.Time) {
			c.v.violate([]jepsen.Op{at, op}, "%s lost its connection to %s, which was not killed", op.Worker, at.Member)
		}
		delete(c.connected, op.Worker)
	case jepsen.FExpired:
		c.v.violate([]jepsen.Op{op}, "the session of %s expired, and the client lived", op.Worker)
	}
}

// kill takes in a kill, and looks for the next locks of those who wait.
func (c *killJudge) kill(kill jepsen.Op, later []jepsen.Op, bound time.Duration) {
	c.kills++
	for _, at := range c.connected {
		if at.Member != kill.Member {
			c.bystanders++
		}
	}
	c.killed[kill.Member] = kill
	waiting := make(map[string]jepsen.Op)
	for who, op := range c.waiting {
		if path.Base(op.Lock) != longLock {
			waiting[who] = op
		}
	}
	c.waits += len(waiting)
	for _, op := range later {
		if _, waits := waiting[op.Contender]; !waits || op.F != jepsen.FAcquire || op.Kind != jepsen.OK {
			continue
		}
		took := op.Time - kill.Time
		if c.longest = max(c.longest, took); took > bound {
			c.v.violate([]jepsen.Op{waiting[op.Contender], kill, op},
				"%s had to wait for %s for %.1f s after a kill; the bound is %v",
				op.Contender, op.Lock, took.Seconds(), bound)
		}
		delete(waiting, op.Contender)
	}
	for _, who := range sortedKeys(waiting) {
		c.v.violate([]jepsen.Op{waiting[who], kill}, "%s waited for %s at a kill and never got it", who,
			waiting[who].Lock)
	}
}
