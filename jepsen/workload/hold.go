package workload

import (
	"context"
	"fmt"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/recipes"
	"lockkeeper/recipes/fence"
)

// Hold is the name of a workload that New knows beside Names: its clients hold locks for long, as
// services do that lead, and write nothing to the cluster meanwhile. It is for nemeses that leave a
// server alone with a holder.
const Hold = holdName

const (
	holdName = "hold"
	holdRoot = "/hold"
	// holdClients is the number of clients that share a lock, holdTimeouts for how long one holds
	// it at most, in session timeouts.
	holdClients  = 3
	holdTimeouts = 10
)

// newHold is the part of promise C6 that the lock of one holder is about, which keeps it.
func newHold() Workload {
	var gate fence.Gate // where Env has no Fence
	return Workload{name: holdName, check: checkHold, run: func(ctx context.Context, env *Env, n int) error {
		return runLocks(env, holdName, n, &gate, func(c *lockClient, s *recipes.Session) {
			path := fmt.Sprintf("%s/mutex-%d", holdRoot, n/holdClients)
			m := recipes.NewMutex(s, path, recipes.MutexOptions{})
			r := recipe{locks: []string{path}, mode: jepsen.Exclusive,
				take: func(ctx context.Context) (grant, error) { return m.Lock(ctx) }}
			for c.think(ctx) {
				c.count++
				h := &lockHold{lockClient: c, recipe: r, contender: fmt.Sprintf("%s/%d", c.name, c.count)}
				if h.acquire(ctx) {
					h.keep(ctx, time.Duration(c.rng.Int64N(holdTimeouts*int64(env.SessionTimeout))))
					h.release()
				}
			}
		})
	}}
}

// checkHold judges the workload hold as checkLock does its own.
func checkHold(ops []jepsen.Op) Verdict {
	c := newLockJudge(holdName)
	c.collect(ops)
	c.judgeAll(ops)
	for _, name := range sortedKeys(c.writes) {
		c.resource(c.writes[name])
	}
	c.v.Text = c.grants()
	if c.acquired == 0 {
		c.v.doubt(tooLittle)
	}
	return c.v.concluded()
}
