package play

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/locklab/lock"
	"lockkeeper/jepsen/locklab/store"
	"lockkeeper/jepsen/locklab/system"
)

// A trio is three clients of one resource: A, whom the story is about, and B and C, who wait for
// its lock.
type trio struct {
	stage    *Stage
	fault    Fault
	plan     Plan
	lease    time.Duration
	way      string
	resource string
	number   int // of the round
	hosts    *hosts
	place    *lock.Place // of a counter under a real fence; nil if there is none
	history  *History
	a, b, c  *agent
	over     chan struct{} // closed when A has played its part
	others   sync.WaitGroup

	mu     sync.Mutex
	broken []string // why the story could not be played to its end
}

func newTrio(s *Stage, c *Case, f Fault, round, rounds int, all *hosts) *trio {
	t := &trio{
		stage: s, fault: f, number: round, hosts: all, lease: c.Lease, way: c.Way, history: NewHistory(), over: make(chan struct{}),
		plan: NewPlan(s.Seed, f, c.Lease, round, rounds),
		// Letters, digits and dashes: fit for a key, a node, a table and a channel.
		resource: fmt.Sprintf("r%d-%d-%s", s.cases, round, c.Way),
	}
	if len(s.Places) > 0 && f.Name != None && c.Fenced {
		t.place = &s.Places[round%len(s.Places)]
	}
	return t
}

// fail says that the story cannot go on as it should.
func (t *trio) fail(err error) {
	if err == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.broken = append(t.broken, err.Error())
}

func (t *trio) failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.broken) > 0
}

// start starts the clients and waits until they are connected.
func (t *trio) start(ctx context.Context) {
	var addrs []string
	for _, server := range t.stage.sys.Servers() {
		addrs = append(addrs, server.Addr())
	}
	if t.place != nil {
		t.fail(store.Prepare(ctx, *t.place, t.resource))
	}
	for i, agent := range []**agent{&t.a, &t.b, &t.c} {
		name := string(rune('A' + i))
		order := Order{Way: t.way, Name: name, Node: t.resource + "-" + name, Lease: t.lease, Resource: t.resource, Place: t.place}
		var err error
		// The first client of a process names it.
		process := fmt.Sprintf("r%d-%d-%s-%s", t.stage.cases, t.number-t.number%max(1, t.stage.Share), t.way, name)
		clock := func() *system.Clock {
			if t.fault.NeedsClientClock && name == "A" {
				return system.NewClock(t.stage.home, process)
			}
			return nil
		}
		*agent, err = startAgent(t.hosts, process, order, addrs, t.stage.ledger.Addr(), clock, t.history)
		t.fail(err)
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for _, name := range []string{"A", "B", "C"} {
		e, err := t.history.Await(ctx, []string{name}, []string{Ready, Failed})
		if err == nil && e.What == Failed {
			err = fmt.Errorf("play: client %s: %s", name, e.Text)
		}
		t.fail(err)
	}
}

// patience is how long anybody waits for the lock: long enough to call it left behind.
func (t *trio) patience() time.Duration {
	return t.plan.Hold + max(3*t.lease, 6*t.stage.Lease)
}

// acquire has A lock and read, and the others come after it. A fault that hits A while it asks for
// the lock is left to finish.
func (t *trio) acquire(ctx context.Context) {
	if t.failed() || t.fault.during == stepLock {
		return
	}
	e, err := t.a.do(ctx, Command{Do: "lock", Wait: t.patience()})
	if err == nil && e.What != Locked {
		err = fmt.Errorf("play: A did not get a lock that was free: %s", e.Text)
	}
	if err == nil {
		_, err = t.a.do(ctx, Command{Do: "read"})
	}
	if err == nil && t.fault.past {
		_, err = t.a.do(ctx, Command{Do: "check"})
	}
	t.fail(err)
	t.contend(ctx)
}

// contend has B and C ask for the lock. finish waits for them.
func (t *trio) contend(ctx context.Context) {
	if t.failed() {
		return
	}
	t.others.Go(func() { t.fail(t.take(ctx, t.b)) })
	t.others.Go(func() {
		jepsen.Sleep(ctx, t.lease/50) // C comes after B
		t.fail(t.take(ctx, t.c))
	})
}

// take is the part of B and C. They work for as long as A plays its part, and a little longer, but
// never for as long as a lease.
func (t *trio) take(ctx context.Context, a *agent) error {
	e, err := a.do(ctx, Command{Do: "lock", Wait: t.patience()})
	if err != nil || e.What != Locked {
		return err
	}
	if _, err := a.do(ctx, Command{Do: "read"}); err != nil {
		return err
	}
	began := time.Now()
	waiting, cancel := context.WithTimeout(ctx, 7*t.lease/10)
	defer cancel()
	select {
	case <-t.over:
		jepsen.Sleep(waiting, max(t.lease/10, t.lease/4-time.Since(began)))
	case <-waiting.Done():
	}
	if _, err := a.do(ctx, Command{Do: "write", Check: true}); err != nil {
		return err
	}
	_, err = a.do(ctx, Command{Do: "unlock", Wait: 2 * t.lease})
	return err
}

// finish plays A's part to its end, and then waits for the others.
func (t *trio) finish(ctx context.Context) {
	if !t.failed() {
		t.fail(t.finishA(ctx))
	}
	if t.a != nil {
		t.a.host.leave(t.a)
	}
	close(t.over)
	t.others.Wait()
}

func (t *trio) finishA(ctx context.Context) error {
	switch {
	case t.fault.hit == hitReply:
		return t.lateReply(ctx)
	case t.fault.hit == hitLate:
		return t.lateWrite(ctx)
	case t.fault.hit == hitPauseWrite:
		return t.pauseInWrite(ctx)
	case t.fault.hit == hitCrash || t.fault.Name == "clock-back":
		return t.crash(ctx)
	}
	undo, err := t.hitA(ctx)
	if err != nil {
		return err
	}
	t.hold(ctx)
	write := Command{Do: "write", Check: !t.fault.past}
	if t.fault.hit == hitPause { // it finds the command when it wakes up
		from := t.history.len()
		if err := errors.Join(t.a.send(write), undo()); err != nil {
			return err
		}
		_, err = t.history.await(ctx, from, []string{"A"}, ends["write"])
	} else {
		_, err = t.a.do(ctx, write)
		err = errors.Join(err, undo())
	}
	unlock := Command{Do: "unlock", Wait: 2 * t.lease}
	if t.fault.hit == hitApart { // it may not get through
		unlock.Wait = t.lease / 2
	}
	if err == nil {
		_, err = t.a.do(ctx, unlock)
	}
	if err != nil || t.fault.hit != hitApart {
		return err
	}
	e, err := t.a.do(ctx, Command{Do: "lock", Wait: 3 * t.lease / 2})
	if err == nil && e.What == Locked {
		_, err = t.a.do(ctx, unlock)
	}
	return err
}

// hold waits until A has held the lock for as long as planned.
func (t *trio) hold(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, t.plan.Hold)
	defer cancel()
	if !t.fault.next {
		<-ctx.Done()
		return
	}
	// The other one reads at once, before A goes on; a busy machine may take its time. If A is
	// stopped within a transaction, the other one's reading waits for that.
	_, err := t.history.Await(ctx, []string{"B", "C"}, []string{Locked})
	if err == nil && t.fault.hit != hitPauseWrite {
		_, err = t.history.Await(ctx, []string{"B", "C"}, []string{Read, Failed})
	}
	if err == nil {
		jepsen.Sleep(ctx, t.plan.Extra)
	}
}

// hitA applies a fault to A and its network. undo ends it.
func (t *trio) hitA(ctx context.Context) (undo func() error, err error) {
	undo = func() error { return nil }
	cut := func(how string, out, in bool) {
		t.history.Note("A", Broke, "its network is cut: %s", how)
		err = t.a.blockAll(out, in)
		undo = func() error {
			t.history.Note("A", Healed, "its network is whole again")
			return t.a.blockAll(false, false)
		}
	}
	switch t.fault.hit {
	case hitPause:
		return t.a.resume, t.a.pause(ctx)
	case hitDelay:
		t.history.Note("A", Broke, "its network is slow")
		undo = func() error {
			t.history.Note("A", Healed, "its network is fast again")
			return t.slow(t.a, 0)
		}
		return undo, t.slow(t.a, t.lease/10)
	case hitClientClock:
		return undo, t.hitClientClock(ctx)
	case hitCutOut:
		cut("what it sends is lost", true, false)
	case hitCutIn:
		cut("what is sent to it is lost", false, true)
	case hitCutBoth:
		cut("both ways", true, true)
	}
	return undo, err
}

// slow delays all that goes between a client and the servers.
func (t *trio) slow(a *agent, by time.Duration) error {
	var errs []error
	for host := range a.servers.Size() {
		errs = append(errs, a.servers.Shape(1+host, jepsen.Shape{Delay: by}))
	}
	return errors.Join(errs...)
}

// lateReply holds back the servers' answers to A while it asks for the lock.
func (t *trio) lateReply(ctx context.Context) error {
	t.history.Note("A", Broke, "what is sent to it is under way for long")
	from := t.history.len()
	err := errors.Join(t.a.blockAll(false, true), t.a.send(Command{Do: "lock", Wait: t.patience()}))
	jepsen.Sleep(ctx, t.lease/20)
	t.contend(ctx)
	jepsen.Sleep(ctx, t.plan.Hold)
	t.history.Note("A", Healed, "what was sent to it arrives")
	err = errors.Join(err, t.a.blockAll(false, false))
	if err != nil {
		return err
	}
	// A lock that it gets in its turn, when the others are through, does not count.
	wait, cancel := context.WithTimeout(ctx, t.lease/2)
	defer cancel()
	e, err := t.history.await(wait, from, []string{"A"}, ends["lock"])
	if err != nil {
		t.others.Go(func() { t.fail(t.giveBackLate(ctx, from)) })
		return nil
	}
	if e.What != Locked {
		return nil
	}
	if _, err := t.a.do(ctx, Command{Do: "read"}); err != nil {
		return err
	}
	jepsen.Sleep(ctx, t.lease/20)
	if _, err := t.a.do(ctx, Command{Do: "write", Check: true}); err != nil {
		return err
	}
	_, err = t.a.do(ctx, Command{Do: "unlock", Wait: 2 * t.lease})
	return err
}

// giveBackLate has A give back the lock if it gets it after all, since B and C may wait for it.
func (t *trio) giveBackLate(ctx context.Context, from int) error {
	ctx, cancel := context.WithTimeout(ctx, t.patience()+answerTimeout)
	defer cancel()
	e, err := t.history.await(ctx, from, []string{"A"}, append([]string{Killed}, ends["lock"]...))
	if err == nil && e.What == Locked {
		_, err = t.a.do(ctx, Command{Do: "unlock", Wait: 2 * t.lease})
	}
	return err
}

// pauseInWrite has A begin to write, and stops it at a moment of chance within.
func (t *trio) pauseInWrite(ctx context.Context) error {
	// The clients of a process are stopped at once, each at another moment of its write.
	jepsen.Sleep(ctx, maxInto(t.lease)-t.plan.Into)
	from := t.history.len()
	if err := t.a.send(Command{Do: "write"}); err != nil {
		return err
	}
	jepsen.Sleep(ctx, t.plan.Into)
	if err := t.a.pause(ctx); err != nil {
		return err
	}
	t.hold(ctx)
	if err := t.a.resume(); err != nil {
		return err
	}
	_, err := t.history.await(ctx, from, []string{"A"}, ends["write"])
	if err == nil {
		_, err = t.a.do(ctx, Command{Do: "unlock", Wait: 2 * t.lease})
	}
	return err
}

// lateWrite has A send a write over a slow network, and die.
func (t *trio) lateWrite(ctx context.Context) error {
	t.history.Note("A", Broke, "its way to the resource is slow")
	err := t.a.book.Shape(clientHost, jepsen.Shape{Delay: t.plan.Hold})
	if err == nil {
		_, err = t.a.do(ctx, Command{Do: "send"})
	}
	err = errors.Join(err, t.a.kill())
	jepsen.Sleep(ctx, t.plan.Hold)
	return err
}

// crash has A die: while it holds the lock, or in a step on a slow network.
func (t *trio) crash(ctx context.Context) error {
	if t.fault.during == stepHeld {
		jepsen.Sleep(ctx, t.lease/10)
		return t.a.kill()
	}
	t.history.Note("A", Broke, "its network is slow, and it dies %v after it began to %s", t.plan.Crash,
		[]string{"", "lock", "unlock"}[t.fault.during])
	err := t.slow(t.a, time.Duration(slowLink*float64(t.lease)))
	if t.stage.Share > 1 {
		// All clients of the process die at once, at different moments of the step.
		jepsen.Sleep(ctx, stepTime(t.lease)-t.plan.Crash)
	}
	if t.fault.during == stepLock {
		err = errors.Join(err, t.a.send(Command{Do: "lock", Wait: t.patience()}))
	} else {
		_, e := t.a.do(ctx, Command{Do: "write", Check: true})
		err = errors.Join(err, e, t.a.send(Command{Do: "unlock", Wait: t.patience()}))
	}
	jepsen.Sleep(ctx, t.plan.Crash)
	err = errors.Join(err, t.a.kill())
	if t.fault.during == stepLock {
		t.contend(ctx)
	}
	return err
}

// close ends the clients.
func (t *trio) close() error {
	var errs []error
	var all sync.WaitGroup
	var mu sync.Mutex
	for _, a := range []*agent{t.a, t.b, t.c} {
		if a != nil {
			all.Go(func() {
				err := a.close()
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			})
		}
	}
	all.Wait()
	return errors.Join(errs...)
}

// round makes the Round.
func (t *trio) round() Round {
	r := Round{Plan: t.plan, Events: t.history.Sorted(), Ledger: t.stage.ledger.Entries(t.resource),
		Broken: strings.Join(t.broken, "; ")}
	for _, e := range r.Events {
		if e.What == Stored {
			r.Ledger = append(r.Ledger, *e.Entry)
		}
	}
	t.stage.ledger.Forget(t.resource)
	if t.place != nil && r.Broken == "" {
		r.Place = t.place.Kind
		var err error
		if r.Count, err = store.Count(context.Background(), *t.place, t.resource); err != nil {
			r.Broken = err.Error()
		}
	}
	return r
}
