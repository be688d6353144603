package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"time"

	"lockkeeper/recipes"
)

const lockUsage = `Usage: lockkeeper lock [flags] PATH [--] CMD [ARG...]

Runs CMD while it holds the lock PATH, and gives the lock back when CMD ends. CMD finds in
its environment

	LOCKKEEPER_LOCK    the path
	LOCKKEEPER_TOKEN   the fencing token, a number that is larger than that of every earlier
	                   holder; send it along with what you write, and have the resource refuse
	                   smaller ones (see GET /fence of the server)
	LOCKKEEPER_WITHIN  the sessions that hold this lock and those around it, so that
	                   'lockkeeper locks' sees a deadlock of commands in commands

It waits for everybody who has the path before it, whatever library has locked it: Curator's
mutex, read-write lock and semaphore, those of kazoo, go-zookeeper's lock, ZooKeeper's own
recipes. Curator's InterProcessMutex and go-zookeeper's Lock wait for it in turn. kazoo's Lock
does not unless its program is written for that; then this command warns. The page
docs/guarantees.md has the table of who excludes whom.

If the cluster cannot confirm the session for two thirds of its timeout, the lock is lost,
before anybody else can have it; then CMD gets SIGTERM, and SIGKILL after a while. If this
command is killed itself, the kernel kills CMD (on Linux). Signals are forwarded to CMD.
Nobody ends CMD while this command is stopped, or the machine asleep: that is what the token
is for. CMD inherits the environment, LOCKKEEPER_AUTH included.

Flags:
	-timeout d               give up if the lock is not acquired in time; 0: do not wait
	                         for others, nor for a cluster that nobody listens for
	                         (default: wait for ever, and say so if there is no cluster)
	-shared                  hold the lock together with others that are -shared
	-n leases                up to so many may hold it at a time; all have to say the same
	-on-lost what            when the lock is lost: kill CMD, warn, or continue in silence
	                         (default kill)
	-kill-after d            how long CMD may take after SIGTERM (default: a quarter of the
	                         session timeout that the servers granted; nobody else has the
	                         lock within a third of it)
	-delay d                 if this holder vanishes without giving the lock back, the next
	                         one that has a -delay waits for so long, at most 1m
	-note text               why; others see it with 'lockkeeper locks'
	-v                       say when the lock is acquired and given back
` + clientFlagsUsage + `
Exit status: that of CMD, or 128 + n if signal n ended it; 123 the lock was lost; 124 it was
not acquired in time; 125 the cluster cannot be reached, or the command line is wrong;
126 CMD cannot be run; 127 there is no CMD.
`

// holdFlags are the flags of lock and elect: of holding something while a command runs.
type holdFlags struct {
	*clientFlags
	command   string // lock or elect
	path      string
	args      []string
	onLost    string
	killAfter time.Duration
	note      string
}

const (
	onLostKill     = "kill"
	onLostWarn     = "warn"
	onLostContinue = "continue"
)

func addHoldFlags(fs *flag.FlagSet) *holdFlags {
	f := &holdFlags{clientFlags: addClientFlags(fs), command: fs.Name()}
	fs.StringVar(&f.onLost, "on-lost", onLostKill, "")
	fs.DurationVar(&f.killAfter, "kill-after", -1, "")
	fs.StringVar(&f.note, "note", "", "")
	fs.BoolVar(&f.verbose, "v", false, "")
	return f
}

// finish takes PATH and CMD from what the flags have left over.
func (f *holdFlags) finish(fs *flag.FlagSet) error {
	if err := f.clientFlags.check(); err != nil {
		return err
	}
	if f.onLost != onLostKill && f.onLost != onLostWarn && f.onLost != onLostContinue {
		return fmt.Errorf("-on-lost must be kill, warn or continue, not %q", f.onLost)
	}
	rest := fs.Args()
	if len(rest) > 1 && rest[1] == "--" {
		rest = append(rest[:1:1], rest[2:]...)
	}
	if len(rest) < 2 {
		return errors.New("a path and a command are needed")
	}
	f.path, f.args = rest[0], rest[1:]
	return checkPath(f.path)
}

// findCommand looks for the command before anything is locked; 0 if it is there.
func (f *holdFlags) findCommand(e env) int {
	if _, err := exec.LookPath(f.args[0]); err != nil {
		f.say(e, f.command, err.Error(), map[string]any{"event": "failed", "lock": f.path})
		return cannotStart(err)
	}
	return 0
}

func checkPath(path string) error {
	if len(path) < 2 || path[0] != '/' || path[len(path)-1] == '/' {
		return fmt.Errorf("the path of a lock begins with / and has a name behind it, unlike %q", path)
	}
	return nil
}

func lock(args []string, e env) int {
	fs := flag.NewFlagSet("lock", flag.ContinueOnError)
	f := addHoldFlags(fs)
	timeout := fs.Duration("timeout", -1, "")
	shared := fs.Bool("shared", false, "")
	leases := fs.Int("n", 0, "")
	delay := fs.Duration("delay", 0, "")
	if status, done := parseFlags(fs, lockUsage, args, e); done {
		return troubleIfUsage(status)
	}
	err := f.finish(fs)
	switch {
	case err != nil:
	case *shared && *leases != 0:
		err = errors.New("-shared and -n are different locks")
	case *leases < 0:
		err = fmt.Errorf("-n: there must be at least one lease, not %d", *leases)
	case *delay < 0 || *delay > recipes.MaxLockDelay:
		err = fmt.Errorf("-delay: must be between 0 and %v, not %v", recipes.MaxLockDelay, *delay)
	}
	if err != nil {
		return troubleIfUsage(usageError("lock", e, "%v", err))
	}
	if status := f.findCommand(e); status != 0 {
		return status
	}
	signals := catch()
	f.logger = slog.New(&clientLog{f: f.clientFlags, e: e, command: "lock"})
	c, err := f.connect()
	if err != nil {
		f.say(e, "lock", err.Error(), map[string]any{"event": "failed"})
		return exitTrouble
	}
	defer c.Close()
	opts := recipes.MutexOptions{Note: f.note, LockDelay: *delay}
	var l recipes.Locker
	switch {
	case *shared:
		l = recipes.NewRWMutex(c.Session, f.path, opts).RLocker()
	case *leases > 0:
		l = recipes.NewSemaphore(c.Session, f.path, recipes.SemaphoreOptions{MutexOptions: opts, Leases: *leases})
	default:
		l = recipes.NewMutex(c.Session, f.path, opts)
	}
	g, status := f.acquire(e, c, signals, *timeout, func(ctx context.Context) (*recipes.Grant, error) {
		if *timeout == 0 {
			return l.TryLock(ctx)
		}
		return l.Lock(ctx)
	})
	if g == nil {
		return status
	}
	status, _ = f.run(e, c, g, signals)
	return status
}

// troubleIfUsage keeps 2, which a CMD may well end with, for CMD.
func troubleIfUsage(status int) int {
	if status == exitUsage {
		return exitTrouble
	}
	return status
}

const (
	// reachPatience is after how long without a connection we say so.
	reachPatience = 3 * time.Second
	// tryPatience is how long one attempt that does not wait for other contenders may wait for the
	// cluster.
	tryPatience = 10 * time.Second
)

// acquire gets the lock, up to timeout (for ever if it is negative; one attempt if it is 0), or
// until a signal comes. Without a grant it returns the exit status.
func (f *holdFlags) acquire(e env, c *client, signals <-chan os.Signal, timeout time.Duration,
	lock func(context.Context) (*recipes.Grant, error)) (*recipes.Grant, int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	switch {
	case timeout > 0:
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	case timeout == 0:
		ctx, cancel = context.WithTimeout(ctx, tryPatience)
		defer cancel()
	}
	type outcome struct {
		g   *recipes.Grant
		err error
	}
	got := make(chan outcome, 1)
	go func() {
		for {
			g, err := lock(ctx)
			if errors.Is(err, recipes.ErrExpired) && ctx.Err() == nil {
				// the place in the queue is lost; nothing has been run yet, so queue up again
				continue
			}
			got <- outcome{g, err}
			return
		}
	}()
	reached := make(chan error, 1)
	go func() { reached <- c.Reach(ctx) }()
	unreached := time.NewTimer(reachPatience)
	defer unreached.Stop()
	for {
		select {
		case o := <-got:
			if o.err != nil {
				return nil, f.notAcquired(e, c, o.err)
			}
			f.tell(e, f.command, fmt.Sprintf("holds %s, token %d", f.path, o.g.Token()),
				map[string]any{"event": "acquired", "lock": f.path, "token": o.g.Token(), "node": o.g.Node()})
			return o.g, 0
		case s := <-signals:
			if s, ok := interrupts(s); ok {
				cancel()
				if o := <-got; o.g != nil {
					_ = o.g.Unlock(context.Background())
				}
				return nil, s
			}
		case err := <-reached:
			if !errors.Is(err, recipes.ErrUnreachable) {
				continue // the outcome says more
			}
			unreached.Stop()
			if timeout == 0 { // one attempt, and it has failed
				cancel()
				<-got
				f.say(e, f.command, c.unreachable(), map[string]any{"event": "unreachable", "lock": f.path})
				return nil, exitTrouble
			}
			f.say(e, f.command, c.unreachable()+"; still trying", map[string]any{"event": "unreachable", "lock": f.path})
		case <-unreached.C:
			if !c.connected() {
				f.say(e, f.command, c.unreachable()+"; still trying", map[string]any{"event": "unreachable", "lock": f.path})
			}
		}
	}
}

// notAcquired says why there is no grant.
func (f *holdFlags) notAcquired(e env, c *client, err error) int {
	switch {
	case errors.Is(err, recipes.ErrLocked):
		f.say(e, f.command, "another holds "+f.path, map[string]any{"event": "locked", "lock": f.path})
		return exitTimedOut
	case errors.Is(err, context.DeadlineExceeded) && !c.connected():
		f.say(e, f.command, c.unreachable(), map[string]any{"event": "unreachable", "lock": f.path})
		return exitTrouble
	case errors.Is(err, context.DeadlineExceeded):
		f.say(e, f.command, "not acquired in time: "+f.path, map[string]any{"event": "timeout", "lock": f.path})
		return exitTimedOut
	}
	f.say(e, f.command, err.Error(), map[string]any{"event": "failed", "lock": f.path})
	return exitTrouble
}

// grace returns how long the command may take to end when the lock is lost. A grant is lost after
// two thirds of the session timeout that the servers granted, which may be shorter than the one
// that was asked for; nobody else gets the lock before the last third is over.
func (f *holdFlags) grace(granted time.Duration) time.Duration {
	if f.killAfter >= 0 {
		return f.killAfter
	}
	return granted / 4
}

// run runs the command while the grant stands, and then releases it. lost says that the command
// was ended because the grant was lost.
func (f *holdFlags) run(e env, conn *client, g *recipes.Grant, signals <-chan os.Signal) (status int, lost bool) {
	defer f.release(e, g)
	if third := conn.Timeout() / 3; f.grace(conn.Timeout()) > third && f.onLost == onLostKill {
		f.say(e, f.command, fmt.Sprintf("-kill-after %v is more than %v, a third of the session timeout: %s may still run when somebody else has the lock",
			f.killAfter, third.Round(time.Millisecond), f.args[0]), map[string]any{"event": "kill-after is long", "lock": f.path})
	}
	c, err := startChild(f.args, []string{
		"LOCKKEEPER_LOCK=" + f.path, "LOCKKEEPER_TOKEN=" + strconv.FormatInt(g.Token(), 10), withinVariable(g),
	}, f.onLost == onLostKill)
	if err != nil {
		f.say(e, f.command, err.Error(), map[string]any{"event": "failed", "lock": f.path})
		return cannotStart(err), false
	}
	gone := g.Lost()
	for {
		select {
		case <-c.done:
			return c.status(), false
		case s := <-signals:
			c.forward(s)
		case <-gone:
			gone = nil
			if f.onLost == onLostContinue {
				continue
			}
			f.say(e, f.command, fmt.Sprintf("lost %s: %v", f.path, g.Err()),
				map[string]any{"event": "lost", "lock": f.path, "token": g.Token()})
			if f.onLost == onLostKill {
				c.kill(f.grace(conn.Timeout()), signals)
				return exitLost, true
			}
		}
	}
}

// withinVariable returns the environment entry that lists the locks around a command: g, and those
// around this process.
func withinVariable(g *recipes.Grant) string {
	sessions := sessionText(g.Session())
	if outer := os.Getenv(recipes.WithinVariable); outer != "" {
		sessions = outer + "," + sessions
	}
	return recipes.WithinVariable + "=" + sessions
}

// releaseTimeout bounds the release of the lock; after it, the cluster releases it with the
// session. lostTimeout is how long it may take when the lock has been lost; it goes on in the
// background.
const (
	releaseTimeout = 5 * time.Second
	lostTimeout    = 100 * time.Millisecond
)

func (f *holdFlags) release(e env, g *recipes.Grant) {
	stood, timeout := g.Held(), min(releaseTimeout, f.session)
	if !stood {
		timeout = lostTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := g.Unlock(ctx); err != nil && stood {
		f.say(e, f.command, err.Error(), map[string]any{"event": "unlock failed", "lock": f.path})
		return
	}
	if stood {
		f.tell(e, f.command, "gave back "+f.path, map[string]any{"event": "released", "lock": f.path, "token": g.Token()})
	}
}
