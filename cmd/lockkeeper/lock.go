package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/cmd/lockkeeper/internal/guard"
	"lockkeeper/recipes"
)

// holdFlags are the flags of lock and elect: of holding something while a command runs.
type holdFlags struct {
	clientFlags
	args        []string // CMD
	onLost      string
	rest        string
	killAfter   time.Duration
	note        string
	sessionFile string
	waits       chan recipes.Wait // what the recipe says while it waits; nil without -v
}

const (
	onLostKill     = "kill"
	onLostWarn     = "warn"
	onLostContinue = "continue"
)

// Values of -background, for processes that CMD has started and that outlive it.
const (
	restWait  = "wait"
	restKill  = "kill"
	restLeave = "leave"
)

func (f *holdFlags) flags(fs *flag.FlagSet, e env) {
	f.clientFlags.flags(fs, e)
	durationVar(fs, &f.killAfter, "kill-after", -1,
		"`d` how long CMD may take after SIGTERM (default: a quarter of the session "+
			"timeout that the servers granted; nobody else has the lock, or leads, within a third of it)")
	fs.StringVar(&f.rest, "background", restWait,
		"`action` when CMD has ended and processes that it has started have not: wait for them, kill them, or "+
			"leave them and give the path back (default wait)")
	f.aclFlag(fs)
	fs.StringVar(&f.sessionFile, "session-file", "", "`file` keeps the session, for this command to take up when it "+
		"is killed and started again: it still holds PATH then, with the same token (only on Linux)")
	fs.StringVar(&f.note, "note", "", "`text` why; others see it with 'lockkeeper locks'")
}

// lostFlag declares -on-lost; held is "lock" or "leadership".
func (f *holdFlags) lostFlag(fs *flag.FlagSet, held string) {
	fs.StringVar(&f.onLost, "on-lost", onLostKill,
		"`action` when the "+held+" is lost: kill CMD, warn, or continue in silence (default kill)")
}

// finish checks the flags, and takes PATH and CMD from the arguments.
func (f *holdFlags) finish(args []string) error {
	if err := f.check(); err != nil {
		return usageError{err}
	}
	if f.onLost != onLostKill && f.onLost != onLostWarn && f.onLost != onLostContinue {
		return wrongUsage("-on-lost must be kill, warn or continue, not %q", f.onLost)
	}
	if f.rest != restWait && f.rest != restKill && f.rest != restLeave {
		return wrongUsage("-background must be wait, kill or leave, not %q", f.rest)
	}
	if len(args) > 1 && args[1] == "--" {
		args = slices.Delete(args, 1, 2)
	}
	if len(args) < 2 {
		return wrongUsage("a path and a command are needed")
	}
	f.path, f.args = args[0], args[1:]
	return checkPath(f.path)
}

// open connects, if there is a CMD, and returns the signals for it, too.
func (f *holdFlags) open() (*client, <-chan os.Signal, error) {
	if _, err := exec.LookPath(f.args[0]); err != nil {
		return nil, nil, f.fail(exitStatus(guard.CannotStart(err)), err)
	}
	signals := guard.Catch()
	c, err := f.connectAfter(signals)
	if err != nil {
		return nil, nil, err
	}
	return c, signals, nil
}

// connectAfter connects when the previous process, and the CMD that it has run, have ended: they
// have the session file until then. After a session timeout there is nothing to wait for. The error
// is an exitStatus.
func (f *holdFlags) connectAfter(signals <-chan os.Signal) (*client, error) {
	const pause = 20 * time.Millisecond
	config := recipes.Config{
		Logger: slog.New(&clientLog{clientFlags: &f.clientFlags}), SessionFile: f.sessionFile,
	}
	told := time.After(reachPatience)
	for began := time.Now(); ; {
		c, err := f.connect(config)
		switch {
		case err == nil:
			return c, nil
		case !errors.Is(err, recipes.ErrInUse) || time.Since(began) > f.session:
			return nil, f.fail(exitTrouble, err)
		}
		select {
		case <-time.After(pause):
		case <-told:
			f.say("in use", err.Error()+"; waiting for its end")
		case s := <-signals:
			if s, ok := guard.Interrupts(s); ok {
				return nil, exitStatus(s)
			}
		}
	}
}

func checkPath(path string) error {
	if len(path) < 2 || path[0] != '/' || path[len(path)-1] == '/' {
		return wrongUsage("the path of a lock begins with / and has a name behind it, unlike %q", path)
	}
	return nil
}

// Exit statuses of lock and elect where the command that they run has none of its own, as in
// timeout(1) and in shells.
const (
	exitLost     = 123 // the lock was lost, and with it the command
	exitTimedOut = 124 // not acquired in time
	exitTrouble  = 125 // this command failed: usage, cluster out of reach
	exitCannot   = guard.ExitCannot
	exitNotFound = guard.ExitNotFound
)

type lockCommand struct {
	holdFlags
	timeout, delay time.Duration
	shared         bool
	leases         int
	priority       int
	yields         int
}

func (f *lockCommand) flags(fs *flag.FlagSet, e env) {
	f.holdFlags.flags(fs, e)
	f.lostFlag(fs, "lock")
	durationVar(fs, &f.timeout, "timeout", -1,
		"`d` give up if the lock is not acquired in time; 0: do not wait for others, and fail at once if "+
			"no member accepts connections (default: wait for ever, with a message if there is no cluster)")
	fs.BoolVar(&f.shared, "shared", false, "hold the lock together with others that are -shared")
	fs.IntVar(&f.leases, "n", 0, "`leases` up to this number may hold it at a time; all have to give the same")
	durationVar(fs, &f.delay, "delay", 0,
		"`d` if this holder vanishes without giving the lock back, the next one that has a "+
			"-delay waits for so long, at most 1m")
	fs.IntVar(&f.priority, "priority", 0, "`n` how urgent it is, from -99 to 99: of those that wait a larger one goes "+
		"first; ones without a priority, and of other libraries, have 0")
	fs.IntVar(&f.yields, "yields", recipes.DefaultYields,
		"`n` how often it lets more urgent ones go first, at most; then it keeps its place (default 10)")
	fs.BoolVar(&f.verbose, "v", false, "say whom it waits for, and when the lock is acquired and given back")
}

func (f *lockCommand) run(_ env, args []string) error {
	err := f.finish(args)
	switch {
	case err != nil:
		return err
	case f.shared && f.leases != 0:
		return wrongUsage("-shared and -n are different locks")
	case f.leases < 0:
		return wrongUsage("-n: there must be at least one lease, not %d", f.leases)
	case f.delay < 0 || f.delay > recipes.MaxLockDelay:
		return wrongUsage("-delay: must be between 0 and %v, not %v", recipes.MaxLockDelay, f.delay)
	case f.priority < -recipes.MaxLockPriority || f.priority > recipes.MaxLockPriority:
		return wrongUsage("-priority: must be between %d and %d, not %d", -recipes.MaxLockPriority,
			recipes.MaxLockPriority, f.priority)
	case f.yields < 0:
		return wrongUsage("-yields: must not be below 0, as %d is", f.yields)
	}
	c, signals, err := f.open()
	if err != nil {
		return err
	}
	defer c.Close()
	opts := recipes.MutexOptions{Note: f.note, LockDelay: f.delay, Priority: f.priority, OnWait: f.onWait(),
		Yields: cmp.Or(f.yields, -1)}
	var l recipes.Locker
	switch {
	case f.shared:
		l = recipes.NewRWMutex(c.Session, f.path, opts).RLocker()
	case f.leases > 0:
		l = recipes.NewSemaphore(c.Session, f.path, recipes.SemaphoreOptions{MutexOptions: opts, Leases: f.leases})
	default:
		l = recipes.NewMutex(c.Session, f.path, opts)
	}
	acquire := l.Lock
	if f.timeout == 0 {
		acquire = l.TryLock
	}
	g, err := f.acquire(c, signals, f.timeout, acquire)
	if err != nil {
		return err
	}
	_, err = f.hold(c, g, signals)
	return err
}

const (
	// warnPatience is how long a look at the ACL of the path may take.
	warnPatience = time.Second
	// reachPatience is after how long without a connection there is a message.
	reachPatience = 3 * time.Second
	// tryPatience is how long one attempt that does not wait for other contenders may wait for the
	// cluster.
	tryPatience = 10 * time.Second
)

// acquire gets the lock, up to timeout (for ever if it is negative; one attempt if it is 0), or
// until a signal comes. The error is an exitStatus.
func (f *holdFlags) acquire(c *client, signals <-chan os.Signal, timeout time.Duration,
	lock func(context.Context) (*recipes.Grant, error)) (*recipes.Grant, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	began, waited := time.Now(), false
	if timeout >= 0 {
		ctx, cancel = context.WithTimeout(ctx, cmp.Or(timeout, tryPatience))
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
	go func() {
		soon, cancel := context.WithTimeout(ctx, reachPatience)
		defer cancel()
		reached <- c.Reach(soon)
	}()
	for {
		select {
		case o := <-got:
			if o.err != nil {
				return nil, f.notAcquired(c, o.err)
			}
			f.warnOfOpenPath(c)
			f.tellAcquired(c, o.g, time.Since(began), waited || len(f.waits) > 0)
			return o.g, nil
		case w := <-f.waits:
			waited = true
			f.explain(w)
		case s := <-signals:
			if s, ok := guard.Interrupts(s); ok {
				cancel()
				if o := <-got; o.g != nil { // it was acquired in the same moment
					f.release(o.g, signals)
				}
				return nil, exitStatus(s)
			}
		case err := <-reached:
			unreachable := errors.Is(err, recipes.ErrUnreachable)
			switch {
			case ctx.Err() != nil || !unreachable && !errors.Is(err, context.DeadlineExceeded):
				// It is connected, or the outcome has the reason.
			case timeout == 0 && unreachable: // one attempt, and it has failed
				cancel()
				<-got
				f.say("unreachable", c.unreachable())
				return nil, exitStatus(exitTrouble)
			default:
				f.say("unreachable", c.unreachable()+"; still trying")
			}
		}
	}
}

// tellAcquired writes that the path is held, after waiting for others or not, and has the nodes of
// the previous process deleted that were for something else: for another path, or another kind of
// lock.
func (f *holdFlags) tellAcquired(c *client, g *recipes.Grant, took time.Duration, waited bool) {
	text := fmt.Sprintf("holds %s, token %d", f.path, g.Token())
	if g.Resumed() {
		text += ", as before the restart"
	}
	if waited {
		text += ", after " + age(took)
	}
	f.tell("acquired", text, "token", g.Token(), "node", g.Node(), "resumed", g.Resumed(), "waitedMs",
		took.Milliseconds())
	if f.sessionFile != "" {
		go func() { _ = c.GiveBack(context.Background()) }() // the session's end does the rest
	}
}

// onWait returns the function that a recipe calls while it waits; nil without -v.
func (f *holdFlags) onWait() func(recipes.Wait) {
	if !f.verbose && !f.json {
		return nil
	}
	f.waits = make(chan recipes.Wait, 1)
	return func(w recipes.Wait) {
		select {
		case <-f.waits: // nobody has read it yet, and it is out of date
		default:
		}
		select {
		case f.waits <- w:
		default:
		}
	}
}

// explain says whom the command waits for, and how long it has waited.
func (f *holdFlags) explain(w recipes.Wait) {
	const most = 3 // holders that are named
	now := time.Now()
	fields := []any{"ahead", w.Ahead, "waitedMs", now.Sub(w.Began).Milliseconds()}
	text := fmt.Sprintf("waits for %s, %d ahead", f.path, w.Ahead)
	var holders []contender
	for i, one := range w.Holders {
		c := newContender(one)
		holders = append(holders, c)
		switch {
		case i == 0:
			text += ": held by " + c.brief(now)
		case i < most:
			text += "; and by " + c.brief(now)
		case i == most:
			text += "; and by more"
		}
	}
	if len(holders) > 0 {
		fields = append(fields, "holders", holders)
	}
	if w.Next != nil {
		next := newContender(*w.Next)
		fields = append(fields, "next", next)
		if !next.Held {
			text += "; next before it is " + next.brief(now)
		}
	}
	if w.Delay > 0 {
		text = fmt.Sprintf("waits for %s: a holder has vanished, and its lock delay lasts %v more", f.path,
			age(w.Delay))
		fields = append(fields, "delayMs", w.Delay.Milliseconds())
	}
	if w.Yielded > 0 {
		text += fmt.Sprintf("; has let others go first, %d times", w.Yielded)
		fields = append(fields, "yielded", w.Yielded)
	}
	if waited := now.Sub(w.Began); waited >= time.Second {
		text += "; has waited for " + age(waited)
	}
	f.tell("waits", text, fields...)
}

// warnOfOpenPath writes a warning if the command shows an identity and everybody may delete the
// nodes of the path all the same, because somebody else has made it: a deleted node ends its
// holder.
func (f *holdFlags) warnOfOpenPath(c *client) {
	if id, ok, err := f.identity(); err != nil || !ok || !id.Proves() || f.acl != "" {
		return
	}
	got := make(chan []zk.ACL, 1)
	go func() {
		acls, _, _ := c.Conn().(*zk.Conn).GetACL(f.path) // with an error it is not everybody's
		got <- acls
	}()
	var acls []zk.ACL
	select {
	case acls = <-got:
	case <-time.After(warnPatience): // the connection is lost, which is more urgent
	}
	for _, a := range acls {
		if a.Scheme == "world" && a.Perms&zk.PermDelete != 0 {
			f.say("open path", "everybody may delete the nodes below "+f.path+", which ends the holder: "+
				"it was made without an identity, or with another -acl")
			return
		}
	}
}

// notAcquired writes why there is no grant, and returns the exit status.
func (f *holdFlags) notAcquired(c *client, err error) exitStatus {
	switch {
	case errors.Is(err, recipes.ErrLocked):
		f.say("locked", "another holds "+f.path)
		return exitTimedOut
	case errors.Is(err, context.DeadlineExceeded) && !c.connected():
		f.say("unreachable", c.unreachable())
		return exitTrouble
	case errors.Is(err, recipes.ErrLoginRequired):
		f.say("failed", loginRequired().Error())
		return exitTrouble
	case errors.Is(err, zk.ErrNoAuth):
		f.say("failed", err.Error()+": the path belongs to another identity (-auth-file; -acl of the command "+
			"that made it)")
		return exitTrouble
	case errors.Is(err, context.DeadlineExceeded):
		f.say("timeout", "not acquired in time: "+f.path)
		return exitTimedOut
	}
	f.say("failed", err.Error())
	return exitTrouble
}

// grace returns how long the command may take to end when the lock is lost. A grant is lost after
// two thirds of the session timeout that the servers granted, which may be shorter than -session;
// nobody else gets the lock before the last third is over.
func (f *holdFlags) grace(granted time.Duration) time.Duration {
	if f.killAfter >= 0 {
		return f.killAfter
	}
	return granted / 4
}

// hold runs the command until it ends, or the grant is lost, and then releases the grant. The error
// is an exitStatus. lost reports that the command was ended because the grant was lost.
func (f *holdFlags) hold(conn *client, g *recipes.Grant, signals <-chan os.Signal) (lost bool, err error) {
	defer f.release(g, signals)
	grace := f.grace(conn.Timeout())
	if third := conn.Timeout() / 3; grace > third && f.onLost == onLostKill {
		f.say("kill-after is long", fmt.Sprintf(
			"-kill-after %v is more than %v, a third of the session timeout: %s may still run when somebody else "+
				"has the lock",
			f.killAfter, third.Round(time.Millisecond), f.args[0]))
	}
	// With a session file the next process has the same lock at once, when CMD has ended, and all
	// that it has started but may not leave behind.
	c, err := guard.Start(f.args, f.variables(g), guard.Options{
		Die: f.onLost == onLostKill || f.sessionFile != "", Kept: conn.FileLock(), Inherit: f.rest != restLeave,
	})
	if err != nil {
		return false, f.fail(exitStatus(guard.CannotStart(err)), err)
	}
	gone, ended := g.Lost(), c.Ended
	var late <-chan time.Time
	for {
		select {
		case <-c.Done:
			return false, exitStatus(c.Status)
		case <-ended:
			ended = nil
			switch {
			case f.rest == restKill, c.WasAskedToEnd():
				f.end(c, grace, signals)
			case f.rest == restLeave:
				c.Leave()
			default:
				late = time.After(restPatience)
			}
		case <-late:
			f.say("background", fmt.Sprintf("%s has ended, and holds %s until what it has started ends, too%s; see "+
				"-background",
				f.args[0], f.path, runs(c)))
		case s := <-signals:
			if _, ok := guard.Interrupts(s); ok && ended == nil {
				f.end(c, grace, signals)
				continue
			}
			c.Forward(s)
		case <-gone:
			gone = nil
			if f.onLost == onLostContinue {
				continue
			}
			f.say("lost", fmt.Sprintf("lost %s: %v", f.path, g.Err()), "token", g.Token())
			if f.onLost == onLostKill {
				f.end(c, grace, signals)
				return true, exitStatus(exitLost)
			}
		}
	}
}

// restPatience is the time after which a message reports processes that outlive the command.
const restPatience = time.Second

// runs says which processes of a command run yet.
func runs(c *guard.Child) string {
	const most = 5
	names := c.Names()
	if len(names) > most {
		names = append(names[:most], fmt.Sprintf("and %d more", len(names)-most))
	}
	if len(names) == 0 {
		return ""
	}
	return ": " + strings.Join(names, ", ")
}

// end ends the command with all that it has started, and returns when none of it is left.
func (f *holdFlags) end(c *guard.Child, grace time.Duration, signals <-chan os.Signal) {
	c.Kill(grace, signals, func() {
		f.say("still running", fmt.Sprintf("what %s has started does not end%s", f.args[0], runs(c)))
	})
}

// variables are the entries of the environment that tell CMD of the lock.
func (f *holdFlags) variables(g *recipes.Grant) []string {
	all := []string{
		"LOCKKEEPER_LOCK=" + f.path, "LOCKKEEPER_TOKEN=" + strconv.FormatInt(g.Token(), 10), f.withinVariable(g),
	}
	if f.sessionFile != "" {
		all = append(all, "LOCKKEEPER_RESUMED="+strconv.FormatBool(g.Resumed()))
	}
	return all
}

// withinVariable returns the environment entry that lists the locks around a command: g, and those
// around this process.
func (f *holdFlags) withinVariable(g *recipes.Grant) string {
	sessions := sessionText(g.Session())
	if outer := f.e.variables[recipes.WithinVariable]; outer != "" {
		sessions = outer + "," + sessions
	}
	return recipes.WithinVariable + "=" + sessions
}

// releaseTimeout bounds the release of the lock; after it, or when a signal comes, the cluster
// releases it with the session. lostTimeout bounds it when the lock has been lost.
const (
	releaseTimeout = 5 * time.Second
	lostTimeout    = 100 * time.Millisecond
)

func (f *holdFlags) release(g *recipes.Grant, signals <-chan os.Signal) {
	held, timeout := g.Held(), min(releaseTimeout, f.session)
	if !held {
		timeout = lostTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	go func() {
		for {
			select {
			case s := <-signals:
				if _, ok := guard.Interrupts(s); ok {
					cancel()
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	switch err := g.Unlock(ctx); {
	case !held: // there was a message that it is lost
	case err != nil:
		f.say("unlock failed", err.Error())
	default:
		f.tell("released", "gave back "+f.path, "token", g.Token())
	}
}
