package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/recipes"
	"lockkeeper/recipes/fence"
)

const (
	lockName = "lock"
	lockRoot = "/lock"
	// lockLeases is the number of the semaphore's leases.
	lockLeases = 2
	// simpleLock is the name of the lock that a SimpleMutex takes.
	simpleLock = "simple"
)

// The operations of the lock workload, beside jepsen.FAcquire and its like. Every
// time that a lock is wanted is a Contender of its own.
const (
	fHeld = "held" // the holder asks its grant whether it still stands; OK if so
	// FUse is the holder's write, with its Token, to the resource that its lock protects. OK is
	// entered while the resource is closed to everybody else; Fail means that it has refused the
	// token.
	FUse = "use"
)

// newLock is the part of promise C6 that locks are about: every recipe that works on one cluster,
// and a resource that checks tokens. MajorityMutex is not among them: it is for several clusters.
func newLock() Workload {
	var gate fence.Gate // where Env has no Fence
	return Workload{name: lockName, check: checkLock, run: func(ctx context.Context, env *Env, n int) error {
		return runLocks(env, lockName, n, &gate, func(c *lockClient, s *recipes.Session) {
			c.recipes = lockRecipes(s)
			for c.think(ctx) {
				c.contend(ctx)
			}
		})
	}}
}

// runLocks is client n of a workload that takes locks. gate is the resource where env has none.
func runLocks(env *Env, name string, n int, gate Fence, work func(c *lockClient, s *recipes.Session)) error {
	w := newWorker(env, name, n)
	l, events, err := w.attach(nil)
	if err != nil {
		return err
	}
	defer l.close()
	s := recipes.NewSession(l.Conn, events, env.SessionTimeout)
	defer s.Close()
	c := &lockClient{worker: w, l: l, fence: env.Fence}
	if c.fence == nil {
		c.fence = gate
	}
	work(c, s)
	return nil
}

// grant is the common part of all recipes' grants.
type grant interface {
	Err() error
	Unlock(context.Context) error
}

// recipe is one way to take one lock, or several.
type recipe struct {
	locks  []string
	mode   jepsen.Mode
	leases int
	take   func(context.Context) (grant, error)
}

// tokensOf are the tokens of a grant, one for each lock of its recipe.
func tokensOf(g grant) []int64 {
	if multi, ok := g.(interface{ Tokens() []int64 }); ok {
		return multi.Tokens()
	}
	return []int64{g.(*recipes.Grant).Token()}
}

// lockRecipes are all of them, in groups that exclude each other.
func lockRecipes(s *recipes.Session) [][]recipe {
	path := func(name string) string { return lockRoot + "/" + name }
	one := func(name string, mode jepsen.Mode, take func(context.Context) (*recipes.Grant, error)) recipe {
		return recipe{locks: []string{path(name)}, mode: mode,
			take: func(ctx context.Context) (grant, error) { return take(ctx) }}
	}
	none := recipes.MutexOptions{}
	rw := recipes.NewRWMutex(s, path("rw"), none)
	semaphore := one("semaphore", jepsen.Lease, recipes.NewSemaphore(s, path("semaphore"),
		recipes.SemaphoreOptions{Leases: lockLeases}).Lock)
	semaphore.leases = lockLeases
	election := recipes.NewElection(s, path("election"), recipes.ElectionOptions{})
	a, b := recipes.NewMutex(s, path("multi-a"), none), recipes.NewMutex(s, path("multi-b"), none)
	multi := recipes.NewMultiMutex(a, b)
	reader := one("rw", jepsen.Shared, rw.RLock)
	return [][]recipe{
		{one("mutex", jepsen.Exclusive, recipes.NewMutex(s, path("mutex"), none).Lock)},
		{one("rw", jepsen.Exclusive, rw.Lock), reader, reader},
		{semaphore},
		{one("election", jepsen.Exclusive, func(ctx context.Context) (*recipes.Grant, error) {
			led, err := election.Campaign(ctx, nil)
			if err != nil {
				return nil, err
			}
			return led.Grant, nil
		})},
		{one(simpleLock, jepsen.Exclusive, recipes.NewSimpleMutex(s, path(simpleLock), none).Lock)},
		{
			{locks: []string{path("multi-a"), path("multi-b")}, mode: jepsen.Exclusive,
				take: func(ctx context.Context) (grant, error) { return multi.Lock(ctx) }},
			one("multi-a", jepsen.Exclusive, a.Lock),
			one("multi-b", jepsen.Exclusive, b.Lock),
		},
	}
}

type lockClient struct {
	*worker
	l       *library
	recipes [][]recipe
	fence   Fence
	count   int
}

// contend takes a lock once, holds it for a while and gives it back. Most clients
// want the same at the same time.
func (c *lockClient) contend(ctx context.Context) {
	timeout := c.env.SessionTimeout
	group := int(c.env.History.Now()/(timeout/2)) % len(c.recipes)
	if c.rng.IntN(4) == 0 {
		group = c.rng.IntN(len(c.recipes))
	}
	r := c.recipes[group][c.rng.IntN(len(c.recipes[group]))]
	c.count++
	h := &lockHold{lockClient: c, recipe: r, contender: fmt.Sprintf("%s/%d", c.name, c.count)}
	patience, cancel := context.WithTimeout(ctx, timeout/4+time.Duration(c.rng.Int64N(int64(timeout))))
	defer cancel()
	if h.acquire(patience) {
		h.hold(ctx)
		h.release()
	}
}

// lockHold is one time that a lock is wanted.
type lockHold struct {
	*lockClient
	recipe    recipe
	contender string
	grant     grant
	tokens    []int64
}

// each begins an operation on all locks of the recipe.
func (h *lockHold) each(f string) []jepsen.Op {
	var ops []jepsen.Op
	for i, path := range h.recipe.locks {
		op := jepsen.Op{F: f, Contender: h.contender, Lock: path, Mode: h.recipe.mode, Leases: h.recipe.leases}
		if h.tokens != nil {
			op.Token = h.tokens[i]
		}
		ops = append(ops, h.invoke(op))
	}
	return ops
}

// all ends the begun operation of each.
func (h *lockHold) all(ops []jepsen.Op, kind jepsen.Kind, note string) {
	for _, op := range ops {
		h.end(op, kind, note)
	}
}

func (h *lockHold) acquire(ctx context.Context) bool {
	ops := h.each(jepsen.FAcquire)
	session := h.l.SessionID()
	g, err := h.recipe.take(ctx)
	if err != nil {
		h.all(ops, jepsen.Fail, err.Error())
		return false
	}
	h.grant, h.tokens = g, tokensOf(g)
	for i := range ops {
		ops[i].Token = h.tokens[i]
		if h.l.SessionID() == session {
			ops[i].Session = sessionText(session)
		}
	}
	h.all(ops, jepsen.OK, "")
	return true
}

// hold uses the lock for a while: mostly a moment, sometimes long enough for the
// session to expire meanwhile.
func (h *lockHold) hold(ctx context.Context) {
	d := 6 * h.thinking()
	if h.rng.IntN(8) == 0 {
		d = time.Duration(h.rng.Int64N(int64(h.env.SessionTimeout) * 3 / 2))
		if h.rng.IntN(2) == 0 {
			h.darken(h.l) // and no byte comes or goes
			defer h.lighten(h.l)
		}
	}
	h.keep(ctx, d)
}

// keep uses the lock for a time, or until it is lost. A holder that finds its grant lost tries to
// use it all the same, as one does that was asleep between looking and writing.
func (h *lockHold) keep(ctx context.Context, d time.Duration) {
	for until := h.env.History.Now() + d; ; {
		ops := h.each(fHeld)
		if err := h.grant.Err(); err != nil {
			h.all(ops, jepsen.Fail, err.Error())
			h.lost(err)
			jepsen.Sleep(ctx, time.Duration(h.rng.Int64N(int64(h.env.SessionTimeout))))
			h.use()
			return
		}
		h.all(ops, jepsen.OK, "")
		h.use()
		if h.env.History.Now() >= until || !h.think(ctx) {
			return
		}
	}
}

// NoteDeleted is the note of a loss when another client has deleted the lock's node.
const NoteDeleted = "deleted"

// lost enters the loss, with the time since the client received its last byte, in ms, as Value.
func (h *lockHold) lost(err error) {
	note := err.Error()
	if errors.Is(err, recipes.ErrDeleted) {
		note = NoteDeleted
	}
	silent := fmt.Sprint(h.l.silent().Milliseconds())
	for i, path := range h.recipe.locks {
		h.add(jepsen.Op{Kind: jepsen.Info, F: jepsen.FLost, Contender: h.contender, Lock: path, Token: h.tokens[i],
			Value: silent, Note: note})
	}
}

// use writes to the protected resource. Only those who have it alone do.
func (h *lockHold) use() {
	if h.recipe.mode != jepsen.Exclusive {
		return
	}
	for _, op := range h.each(FUse) {
		err := h.fence.Do(op.Lock, op.Token, func() error {
			h.end(op, jepsen.OK, "")
			return nil
		})
		switch {
		case errors.Is(err, fence.ErrStale):
			h.end(op, jepsen.Fail, err.Error())
		case err != nil:
			h.end(op, jepsen.Info, err.Error())
		}
	}
}

// release gives the lock back, also when the client is about to end.
func (h *lockHold) release() {
	ops := h.each(jepsen.FRelease)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := h.grant.Unlock(ctx); err != nil {
		h.all(ops, jepsen.Info, err.Error())
		return
	}
	h.all(ops, jepsen.OK, "")
}
