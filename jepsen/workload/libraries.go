package workload

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"lockkeeper/jepsen"
)

const (
	librariesName = "libraries"
	librariesRoot = "/libraries"
	// longLock is the name of the lock that is sometimes held for longer than a session lasts.
	longLock = "long"
	// shortHold is how long every other lock is held.
	shortHold = 50 * time.Millisecond
	// afterRun is how long a client may take, after the end of the run, until it has its lock once
	// more and has released it.
	afterRun = 20 * time.Second
)

// newLibraries is the part of promise C6 that unmodified client libraries rely on: each client is a
// process of another library (Env.Libraries, in turn) that takes a lock by each of its recipes, and
// locks that libraries share.
func newLibraries() Workload { return librariesThatTake(takings) }

// librariesThatTake has the nth client of a library take the locks of list, all at the same time.
func librariesThatTake(list func(library string, nth int) []taking) Workload {
	return Workload{name: librariesName, check: checkLibraries, final: tells(librariesName, librariesRoot),
		run: func(ctx context.Context, env *Env, n int) error {
			if len(env.Libraries) == 0 {
				return errors.New("workload: libraries: none is given")
			}
			library := env.Libraries[n%len(env.Libraries)]
			return runLibrary(ctx, newWorker(env, librariesName, n), library, list(library.Name, n/len(env.Libraries)))
		}}
}

// A taking is one recipe of a library on one lock.
type taking struct {
	recipe  string
	lock    string // below librariesRoot
	mode    jepsen.Mode
	leases  int
	options []string
	timeout time.Duration // of one attempt; 0 is none
}

// readTimeout makes a reader of kazoo try again. ReadLock of kazoo 2.8 cannot find its own place in
// the queue (its own nodes are not among those it looks for), so it waits for every writer, also
// for those behind it, which wait for it: a deadlock, also with ZooKeeper, which the library got
// rid of in 2.9. The timeout ends it.
const readTimeout = 500 * time.Millisecond

// takings are the operations of the nth client of a library, all at the same time.
func takings(library string, nth int) []taking {
	readWrite := func(timeout time.Duration) taking {
		if nth%3 == 1 {
			return taking{recipe: "write", lock: library + "/read-write", mode: jepsen.Exclusive}
		}
		return taking{recipe: "read", lock: library + "/read-write", mode: jepsen.Shared, timeout: timeout}
	}
	own := func(recipe string) taking {
		return taking{recipe: recipe, lock: library + "/" + recipe, mode: jepsen.Exclusive}
	}
	shared := func(recipe, lock string, options ...string) taking {
		return taking{recipe: recipe, lock: lock, mode: jepsen.Exclusive, options: options}
	}
	semaphore := own("semaphore")
	semaphore.mode, semaphore.leases = jepsen.Lease, 2
	switch library {
	case "kazoo":
		// kazoo takes only nodes that are called __lock__ for contenders, unless it is told.
		also := "also=-lock-"
		return []taking{own("lock"), readWrite(readTimeout), semaphore, own("election"),
			shared("lock", "kazoo-gozk", also), shared("lock", library+"/"+longLock)}
	case "curator":
		return []taking{own("mutex"), readWrite(0), semaphore, own("latch"),
			shared("mutex", "curator-gozk"), shared("mutex", library+"/"+longLock)}
	}
	turn := [2]string{"zklock", "mutex"}
	return []taking{own("zklock"), own("mutex"), shared(turn[nth%2], "curator-gozk"),
		shared(turn[nth%2], "kazoo-gozk"), shared("zklock", library+"/"+longLock)}
}

// runLibrary runs a process of a library, and has it take all these locks.
func runLibrary(ctx context.Context, w *worker, library jepsen.Client, all []taking) (err error) {
	env := w.env
	process, err := jepsen.StartWorker(ctx, jepsen.WorkerConfig{
		Name: w.name, Client: library, Servers: strings.Join(env.Servers, ","),
		SessionTimeout: env.SessionTimeout, Dir: env.Dir, History: env.History,
	})
	if err != nil && ctx.Err() != nil {
		return nil // the run ended before there was anybody to connect to
	}
	if err != nil {
		return err
	}
	defer func() {
		complaints, wrong := process.Complaints()
		for _, c := range complaints {
			wrong = errors.Join(wrong, errors.New(c))
		}
		err = errors.Join(err, process.Kill(), wrong)
	}()
	// A contender that waits when the run ends acquires its lock once more.
	ending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(afterRun, cancel) })()
	errs := make([]error, len(all))
	var contenders sync.WaitGroup
	for i, t := range all {
		c := &contender{worker: w.twin(), process: process, taking: t, handle: fmt.Sprintf("c%d", i)}
		contenders.Go(func() { errs[i] = c.contend(ctx, ending) })
	}
	contenders.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	closing := w.invoke(jepsen.Op{F: fClosed, Session: process.Session()})
	if err := process.Close(ending); err != nil {
		return err
	}
	w.end(closing, jepsen.OK, "")
	return nil
}

// contender takes one lock again and again, on a thread of its own of the library's process.
type contender struct {
	*worker
	process *jepsen.Worker
	taking
	handle string
}

// op is an entry of the history about the contender.
func (c *contender) op(kind jepsen.Kind, f, note string) jepsen.Op {
	return jepsen.Op{Kind: kind, F: f, Contender: c.name + "/" + c.handle, Lock: path.Join(librariesRoot, c.lock),
		Mode: c.mode, Leases: c.leases, Note: note}
}

// contend is the contender's life: until the run ends, it acquires, holds and releases.
func (c *contender) contend(ctx, ending context.Context) error {
	words := append([]string{"open", c.handle, c.recipe, path.Join(librariesRoot, c.lock)}, c.options...)
	if c.leases > 0 {
		words = append(words, fmt.Sprintf("leases=%d", c.leases))
	}
	reply, err := c.process.Do(ending, c.handle, words...)
	if err == nil && reply.Kind != jepsen.OK {
		err = fmt.Errorf("workload: %s: open %s: %s", c.name, c.recipe, reply)
	}
	for err == nil && ctx.Err() == nil {
		var acquired bool
		acquired, err = c.acquire(ending)
		switch {
		case err != nil:
		case !acquired: // a refusal that comes at once must not become a storm of attempts
			jepsen.Sleep(ctx, 10*time.Millisecond)
		default:
			jepsen.Sleep(ctx, c.hold())
			err = c.release(ending)
		}
	}
	if ending.Err() != nil {
		return nil // it waits for a holder that has lost the cluster, and ends with its process
	}
	return err
}

// hold is for how long to hold the lock.
func (c *contender) hold() time.Duration {
	if path.Base(c.lock) == longLock && c.rng.IntN(4) == 0 {
		return time.Duration(c.rng.Int64N(int64(c.env.SessionTimeout) * 3 / 2))
	}
	return shortHold
}

// acquire makes one attempt, and says whether it succeeded.
func (c *contender) acquire(ctx context.Context) (acquired bool, err error) {
	timeout := "-1"
	if c.timeout > 0 {
		timeout = strconv.FormatInt(c.timeout.Milliseconds(), 10)
	}
	begun := c.invoke(c.op("", jepsen.FAcquire, ""))
	_, err = c.process.DoSeen(ctx, func(r jepsen.Reply) {
		op := begun
		if acquired = r.Kind == jepsen.OK; !acquired {
			c.end(op, r.Kind, r.Text)
			return
		}
		// A recipe without tokens answers nothing or 0.
		op.Token, _ = strconv.ParseInt(r.Text, 10, 64)
		op.Session = c.process.Session()
		c.end(op, r.Kind, "")
	}, c.handle, "acquire", c.handle, timeout)
	if err != nil {
		c.end(begun, jepsen.Info, err.Error())
	}
	return acquired, err
}

// release releases the lock.
func (c *contender) release(ctx context.Context) error {
	// Recorded before the library gets the request: see jepsen.History.
	begun := c.invoke(c.op("", jepsen.FRelease, ""))
	reply, err := c.process.Do(ctx, c.handle, "release", c.handle)
	if err != nil {
		reply = jepsen.Reply{Kind: jepsen.Info, Text: err.Error()}
	}
	c.end(begun, reply.Kind, reply.Text)
	return err
}

// checkLibraries judges the workload libraries.
//
// A library's user follows the library: it holds its lock from the reply to acquire until it is
// about to release it, as long as the library takes itself for connected with the session of the
// lock and has not said that the lock is lost. Nobody whom the lock excludes may acquire it at that
// time, unless the process did not run. Fencing tokens grow in the order of holding. And no
// ephemeral node of a session that was closed is left.
func checkLibraries(ops []jepsen.Op) Verdict {
	c := newLockJudge(librariesName)
	c.acquiredIsHeld = true
	c.collect(ops)
	c.judgeAll(ops)
	c.v.Text = c.grants()
	c.v.Figures = make(map[string]float64)
	for lock, n := range c.crowds {
		c.v.Figures["most holders of "+strings.TrimPrefix(lock, librariesRoot+"/")] = float64(n)
	}
	closed := make(map[string]jepsen.Op)
	for _, op := range ops {
		if op.F == fClosed && op.Kind == jepsen.OK && belongs(op, librariesName) {
			closed[op.Session] = op
		}
	}
	for _, op := range ops {
		if end, is := closed[op.Session]; is && op.F == fFound && belongs(op, librariesName) {
			c.v.violate([]jepsen.Op{end, op}, "%s is left of session %s, which was closed", op.Path, op.Session)
		}
	}
	if c.acquired == 0 {
		c.v.doubt(tooLittle)
	}
	return c.v.concluded()
}
