package workload

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"lockkeeper/jepsen"
)

// checkLock judges the workload lock.
//
// A holder holds *for certain* from the moment at which it has told of its grant until it last
// asked the grant, and was told that it stands: a grant that stands has stood all the time. That is
// so whatever the process went through in between. Two that exclude each other never hold for
// certain at one time, of a semaphore never more than its number.
//
// A program that does not ask goes by its library: it holds, too, as long as the
// library takes itself for connected with the session of the lock, see belief.
// Nobody may hold for certain at that time; unless the program did not run, its
// link was disturbed, or it was told that the lock is lost.
//
// Tokens grow in the order of holding, except among those who share. The tokens that the resource
// accepts do not become smaller.
//
// A SimpleMutex has a gap, which its documentation tells of: an Unlock that is under way while its
// session expires may delete the next holder's node. A hold that was told so, or that stood while
// the outcome of such an Unlock was unknown, is not counted against the next one.
func checkLock(ops []jepsen.Op) Verdict {
	c := newLockJudge(lockName)
	c.collect(ops)
	c.judgeAll(ops)
	used := 0
	for _, name := range sortedKeys(c.writes) {
		c.resource(c.writes[name])
		used += len(c.writes[name])
	}
	c.v.Text = fmt.Sprintf("%s; %d writes accepted, %d refused", c.grants(), used, c.refused)
	if c.gaps > 0 {
		c.v.Text += fmt.Sprintf("; %d times a SimpleMutex was taken from its holder, as documented", c.gaps)
	}
	if c.acquired == 0 {
		c.v.doubt(tooLittle)
	}
	return c.v.concluded()
}

// judgeAll goes through the holders of all locks that collect has found.
func (c *lockJudge) judgeAll(ops []jepsen.Op) {
	c.clients, _ = beliefs(ops, c.workload)
	for _, name := range sortedKeys(c.locks) {
		c.judge(c.locks[name])
		c.acquired += len(c.locks[name])
	}
	c.v.judged(c.acquired, "grants")
}

// grants says how often each lock was acquired.
func (c *lockJudge) grants() string {
	var counts []string
	for _, lock := range sortedKeys(c.locks) {
		name := strings.TrimPrefix(lock, "/"+c.workload+"/")
		counts = append(counts, fmt.Sprintf("%s %d", name, len(c.locks[lock])))
	}
	return fmt.Sprintf("%d grants (%s), of which %d were lost", c.acquired, strings.Join(counts, ", "), c.lost)
}

type lockKey struct{ contender, lock string }

// holding is a lock that was acquired.
type holding struct {
	op    jepsen.Op // the reply to acquire
	held  jepsen.Op // when it was last asked for, successfully; zero if never
	end   jepsen.Op // its release, or its loss
	ended time.Duration
	span  *span // in which its library took itself for connected, if that matters
}

// from and to are between which moments it was held for certain.
func (h *holding) from() time.Duration { return h.op.Time }
func (h *holding) to() time.Duration   { return h.held.Time }

// certain says whether it was held for certain at all.
func (h *holding) certain() bool { return h.held.F != "" }

// A lockJudge is the checker of all that takes locks: the workloads lock and libraries.
type lockJudge struct {
	v        *Verdict
	workload string
	// acquiredIsHeld says that the clients do not check whether they still hold a lock: it is held
	// for certain at the moment at which it was acquired.
	acquiredIsHeld bool

	holds   map[lockKey]*holding
	locks   map[string][]*holding // by path, in the order in which they were told of
	writes  map[string][]jepsen.Op
	clients map[string]*believer

	releases map[string][]period // by lock, those of unknown outcome

	acquired, lost, refused, gaps int
	crowds                        map[string]int // by lock: the most that held it at one time
}

func newLockJudge(workload string) *lockJudge {
	return &lockJudge{
		v: &Verdict{Checker: workload, Promise: "C6", Valid: Yes}, workload: workload,
		holds: make(map[lockKey]*holding), locks: make(map[string][]*holding),
		writes: make(map[string][]jepsen.Op), releases: make(map[string][]period), crowds: make(map[string]int),
	}
}

func (c *lockJudge) collect(ops []jepsen.Op) {
	asked := make(map[lockKey]jepsen.Op)
	lockOf := make(map[string]string)   // by contender
	open := make(map[string][]*holding) // by worker: released, and never answered
	for _, op := range ops {
		if !belongs(op, c.workload) {
			continue
		}
		key := lockKey{op.Contender, op.Lock}
		if op.F == jepsen.FLost && op.Lock == "" { // a library names the handle, which has one lock
			key.lock = lockOf[op.Contender]
		}
		h := c.holds[key]
		switch {
		case op.F == jepsen.FAcquire && op.Kind == jepsen.OK:
			h = &holding{op: op, ended: math.MaxInt64}
			if c.acquiredIsHeld {
				h.held = op
			}
			c.holds[key], lockOf[op.Contender] = h, op.Lock
			c.locks[op.Lock] = append(c.locks[op.Lock], h)
			for _, o := range open[op.Worker] { // earlier requests have been answered, too
				c.releases[o.op.Lock] = append(c.releases[o.op.Lock], period{o.ended, op.Time})
			}
			delete(open, op.Worker)
		case op.F == FUse && op.Kind == jepsen.OK:
			c.writes[op.Lock] = append(c.writes[op.Lock], op)
		case op.F == FUse && op.Kind == jepsen.Fail:
			c.refused++
		case h == nil:
		case op.F == fHeld && op.Kind == jepsen.Invoke:
			asked[key] = op
		case op.F == fHeld && op.Kind == jepsen.OK:
			h.held = asked[key]
		case op.F == jepsen.FRelease && op.Kind == jepsen.Info:
			open[op.Worker] = append(open[op.Worker], h)
		case op.F == jepsen.FLost, op.F == jepsen.FRelease && op.Kind == jepsen.Invoke:
			if op.F == jepsen.FLost {
				c.lost++
			}
			if op.Time < h.ended {
				h.ended, h.end = op.Time, op
			}
		}
	}
	for _, holds := range open {
		for _, o := range holds {
			c.releases[o.op.Lock] = append(c.releases[o.op.Lock], period{o.ended, math.MaxInt64})
		}
	}
}

// lostInGap says whether the gap of a SimpleMutex may have cost o the lock before h had it.
func (c *lockJudge) lostInGap(o, h *holding) bool {
	if path.Base(o.op.Lock) != simpleLock {
		return false
	}
	return o.end.Note == NoteDeleted || slices.ContainsFunc(c.releases[o.op.Lock], func(p period) bool {
		return p.from <= h.from() && p.to >= o.from()
	})
}

// judge goes through one lock's holders.
func (c *lockJudge) judge(all []*holding) {
	var active, believed []*holding
	var tokens struct{ any, exclusive *holding }
	for _, h := range all {
		if !h.certain() {
			believed = append(believed, h)
			continue
		}
		c.tokens(h, tokens.any, tokens.exclusive)
		if tokens.any == nil || h.op.Token > tokens.any.op.Token {
			tokens.any = h
		}
		if h.op.Mode != jepsen.Shared && (tokens.exclusive == nil || h.op.Token > tokens.exclusive.op.Token) {
			tokens.exclusive = h
		}
		active = slices.DeleteFunc(active, func(a *holding) bool { return a.to() <= h.from() })
		c.overlap(h, active, "holds it")
		believed = slices.DeleteFunc(believed, func(b *holding) bool { return b.ended <= h.from() })
		believing := c.believing(believed, h)
		c.overlap(h, believing, "takes itself for connected and does not know that it lost it")
		c.crowds[h.op.Lock] = max(c.crowds[h.op.Lock], 1+len(active)+len(believing))
		active, believed = append(active, h), append(believed, h)
	}
}

// overlap checks h against those who hold at that time.
func (c *lockJudge) overlap(h *holding, others []*holding, how string) {
	var against []*holding
	for _, o := range others {
		if o.op.Mode != jepsen.Shared || h.op.Mode != jepsen.Shared {
			against = append(against, o)
		}
	}
	limit := 0
	if h.op.Mode == jepsen.Lease {
		limit = h.op.Leases - 1
	}
	if len(against) <= limit {
		return
	}
	if slices.ContainsFunc(against, func(o *holding) bool { return c.lostInGap(o, h) }) {
		c.gaps++
		return
	}
	var names []string
	var ops []jepsen.Op
	for _, o := range against {
		names = append(names, o.op.Contender)
		ops = append(ops, o.op)
		if o.held.F == fHeld {
			ops = append(ops, o.held)
		}
		if o.end.F != "" {
			ops = append(ops, o.end)
		}
		if o.span != nil && o.span.end.F != "" {
			ops = append(ops, o.span.begin, o.span.end)
		}
	}
	ops = append(ops, h.op)
	if h.held.F == fHeld {
		ops = append(ops, h.held)
	}
	slices.SortStableFunc(ops, func(a, b jepsen.Op) int { return int(a.Time - b.Time) })
	c.v.violate(ops, "%s: %s has it (%s) while %s %s (%s)", h.op.Lock, h.op.Contender, h.op.Mode,
		strings.Join(names, ", "), how, against[0].op.Mode)
}

// believing are those with a library that took itself for connected when h held for certain, though
// they did not for certain themselves.
func (c *lockJudge) believing(holds []*holding, h *holding) []*holding {
	var list []*holding
	for _, o := range holds {
		client := c.clients[o.op.Worker]
		if client == nil || o.op.Session == "" || o.op.Worker == h.op.Worker || o.certain() && o.to() > h.from() {
			continue
		}
		s := client.within(o.op.Session, h.from(), o.ended)
		if s == nil {
			continue
		}
		to := min(o.ended, s.to)
		if !client.excused(h.from()-s.timeout, to) {
			o.span = s
			list = append(list, o)
		}
	}
	return list
}

// tokens compares the token of h with earlier holders' tokens.
func (c *lockJudge) tokens(h, anybody, exclusive *holding) {
	before := anybody
	if h.op.Token == 0 {
		return // a recipe without tokens
	}
	switch h.op.Mode {
	case jepsen.Lease:
		return
	case jepsen.Shared:
		before = exclusive
	}
	if before != nil && h.op.Token <= before.op.Token {
		c.v.violate([]jepsen.Op{before.op, h.op}, "%s: %s got token %#x after %s had got %#x",
			h.op.Lock, h.op.Contender, h.op.Token, before.op.Contender, before.op.Token)
	}
}

// resource checks the order of the writes that it accepted.
func (c *lockJudge) resource(writes []jepsen.Op) {
	var newest jepsen.Op
	for _, op := range writes {
		if op.Token < newest.Token {
			c.v.violate([]jepsen.Op{newest, op}, "%s: the resource accepted token %#x after %#x", op.Lock, op.Token,
				newest.Token)
		} else {
			newest = op
		}
	}
}

// within is the first time between two moments in which the client took itself for connected with
// the session, nil if there is none; see last.
func (c *believer) within(session string, from, to time.Duration) *span {
	for _, s := range c.spans {
		if s.begin.Session == session && s.begin.Time < to && s.to > from && s.end.Time != s.begin.Time {
			return s
		}
	}
	return nil
}
