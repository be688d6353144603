package jepsen

import (
	"fmt"
	"slices"
	"time"
)

// LockReport is what CheckLocks found in a history.
type LockReport struct {
	// Violations are broken promises, each with the moment and the parties.
	Violations []string
	// Acquired counts, per contender, how often it got its lock. A history in
	// which nobody ever held anything proves nothing: look at this too.
	Acquired map[string]int
	// Crowd is, per lock, the largest number of holders at one time. A
	// semaphore of n should have seen n, a read lock more than 1.
	Crowd map[string]int
}

// CheckLocks is the overlap detector. It goes through a history and reports
// every moment at which a lock was held by more contenders than its mode
// allows, and every fencing token that did not grow.
//
// A contender holds from the reply to its acquire until its release is
// invoked, until its recipe says that the lock is lost, or until its session
// has expired. While its client library says that it has no connection, or
// while its process is stopped, its hold is *in doubt*: a correct program does
// not act on it, so an overlap is no violation yet. It becomes one if the hold
// comes back to life, that is if the same session is connected again and the
// recipe has not said that the lock was lost.
func CheckLocks(ops []Op) *LockReport {
	c := &lockChecker{
		report:   LockReport{Acquired: make(map[string]int), Crowd: make(map[string]int)},
		holds:    make(map[string]*hold),
		sessions: make(map[string]string),
		tokens:   make(map[string]tokens),
	}
	for _, op := range ops {
		c.see(op)
	}
	return &c.report
}

// hold is one contender's possession of a lock.
type hold struct {
	op      Op     // the reply to its acquire
	session string // of its worker at that time
	// inDoubt: its user must not rely on it now.
	inDoubt bool
	// overtaken is who got the lock in the meantime, while it was in doubt.
	overtaken string
}

// tokens are the largest fencing tokens that a lock has given out.
type tokens struct {
	any       int64 // to anybody
	exclusive int64 // to an exclusive holder
}

type lockChecker struct {
	report   LockReport
	holds    map[string]*hold  // by contender
	sessions map[string]string // by worker: its newest session
	tokens   map[string]tokens // by lock
}

func (c *lockChecker) violation(at time.Duration, format string, args ...any) {
	c.report.Violations = append(c.report.Violations, fmt.Sprintf("%.3fs: ", at.Seconds())+fmt.Sprintf(format, args...))
}

func (c *lockChecker) see(op Op) {
	switch {
	case op.F == FAcquire && op.Kind == OK:
		c.enter(op)
	case op.F == FRelease && op.Kind == Invoke, op.F == FLost:
		delete(c.holds, op.Contender)
	case op.F == FSuspended, op.F == FPause:
		for _, h := range c.holdsOf(op.Worker) {
			h.inDoubt = true
		}
	case op.F == FExpired:
		for contender := range c.holdsOf(op.Worker) {
			delete(c.holds, contender)
		}
	case op.F == FConnected:
		c.sessions[op.Worker] = op.Session
		c.comeBack(op)
	}
}

// holdsOf are the holds of one worker, by contender.
func (c *lockChecker) holdsOf(worker string) map[string]*hold {
	found := make(map[string]*hold)
	for contender, h := range c.holds {
		if h.op.Worker == worker {
			found[contender] = h
		}
	}
	return found
}

// comeBack handles a worker that has a connection again.
func (c *lockChecker) comeBack(op Op) {
	for contender, h := range c.holdsOf(op.Worker) {
		if h.session != op.Session {
			delete(c.holds, contender) // the old session and its locks are gone
			continue
		}
		if h.overtaken != "" {
			c.violation(op.Time, "%s: %s came back with its session and still holds (since %.3fs), but %s got the lock in the meantime",
				h.op.Lock, contender, h.op.Time.Seconds(), h.overtaken)
		}
		h.inDoubt, h.overtaken = false, ""
	}
}

// enter handles a contender that got its lock.
func (c *lockChecker) enter(op Op) {
	c.report.Acquired[op.Contender]++
	c.checkToken(op)

	// In the order of the names, so that the same history gives the same text.
	var sure []*hold
	for _, h := range c.holds {
		if h.op.Lock == op.Lock && excludes(h.op, op) {
			if h.inDoubt {
				h.overtaken = op.Contender
			} else {
				sure = append(sure, h)
			}
		}
	}
	slices.SortFunc(sure, func(a, b *hold) int { return int(a.op.Time - b.op.Time) })
	limit := 0
	if op.Mode == Lease {
		limit = op.Leases - 1
	}
	if len(sure) > limit {
		for _, h := range sure {
			c.violation(op.Time, "%s: %s got it (%s) while %s holds it (%s) since %.3fs",
				op.Lock, op.Contender, op.Mode, h.op.Contender, h.op.Mode, h.op.Time.Seconds())
		}
	}
	if old := c.holds[op.Contender]; old != nil {
		c.violation(op.Time, "%s: %s got it twice", op.Lock, op.Contender)
	}
	c.holds[op.Contender] = &hold{op: op, session: c.sessions[op.Worker]}

	crowd := 0
	for _, h := range c.holds {
		if h.op.Lock == op.Lock && !h.inDoubt {
			crowd++
		}
	}
	c.report.Crowd[op.Lock] = max(c.report.Crowd[op.Lock], crowd)
}

// excludes says whether the two holders of one lock count against each other.
func excludes(a, b Op) bool { return a.Mode != Shared || b.Mode != Shared }

// checkToken verifies that a token is larger than that of everybody whom the
// lock excluded from holding at the same time. Leases have no order.
func (c *lockChecker) checkToken(op Op) {
	if op.Token == 0 || op.Mode == Lease {
		return
	}
	t := c.tokens[op.Lock]
	before := t.any
	if op.Mode == Shared {
		before = t.exclusive
	}
	if op.Token <= before {
		c.violation(op.Time, "%s: %s got the fencing token %d (%s) after %d had been given out",
			op.Lock, op.Contender, op.Token, op.Mode, before)
	}
	t.any = max(t.any, op.Token)
	if op.Mode != Shared {
		t.exclusive = max(t.exclusive, op.Token)
	}
	c.tokens[op.Lock] = t
}
