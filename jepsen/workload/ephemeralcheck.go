package workload

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockkeeper/jepsen"
)

// checkEphemeral judges the workload ephemeral. Once all nodes of a session have been created:
//
//   - who lists them sees all of them or none, and none for ever after that;
//   - a session that its owner has not closed does not end within two thirds of
//     its timeout after the owner has sent a request that was answered. (Not the
//     whole of it: a member may answer on its own for a third.);
//   - no node is there after the close was answered, or after the owner was told
//     that the session has expired;
//   - the owner finds its nodes as long as it is answered;
//   - nodes in two directories vanish in the same zxid;
//   - at the end, some timeouts after the last owner has gone, none is left.
func checkEphemeral(ops []jepsen.Op) Verdict {
	v := Verdict{Checker: ephemeralName, Promise: "C7", Valid: Yes}
	c := &ephemeralChecker{v: &v, sessions: make(map[string]*ephemeralSession),
		nodes: make(map[string]*ephemeralSession), soonest: math.MaxInt64}
	final := c.collect(ops)
	for _, s := range c.order {
		c.missed(s)
	}
	for _, s := range c.snapshots {
		c.look(s)
	}
	complete, closed, expired := 0, 0, 0
	for _, s := range c.order {
		if s.complete() {
			complete++
			switch {
			case s.closeBegun != nil:
				closed++
			case s.gone != nil:
				expired++
			}
		}
	}
	v.judged(complete, "sessions")
	v.Text = fmt.Sprintf("%d sessions with %d ephemeral nodes each, of which %d were closed and %d expired, were "+
		"seen in %d lists behind a sync; %d were found to have gone in one zxid",
		complete, ephemeralEach+2, closed, expired, len(c.snapshots), c.together)
	if c.soonest != math.MaxInt64 {
		v.Figures = map[string]float64{"soonest expiry after a sign of life ms": float64(c.soonest.Milliseconds())}
	}
	switch {
	case !final:
		v.doubt("what is there at the end is not known")
	case complete == 0 || len(c.snapshots) == 0 || closed+expired == 0:
		v.doubt(tooLittle)
	}
	return v.concluded()
}

// ephemeralSession is the knowledge about a session.
type ephemeralSession struct {
	name    string
	timeout time.Duration
	creates []*call // of its nodes

	life                  *call   // the newest request that was answered
	missed                []*call // those that did not find the owner's node
	closeBegun, closeDone *jepsen.Op
	expired               *jepsen.Op
	gone                  *call // the first list without its nodes
	reported              bool  // they were seen when they could not be there
}

// complete says whether all nodes are known to have been created.
func (s *ephemeralSession) complete() bool {
	return len(s.creates) == ephemeralEach+2 && !slices.ContainsFunc(s.creates,
		func(c *call) bool { return c.end.Kind != jepsen.OK })
}

// created is when all of them were there.
func (s *ephemeralSession) created() time.Duration {
	var last time.Duration
	for _, c := range s.creates {
		last = max(last, c.end.Time)
	}
	return last
}

type ephemeralChecker struct {
	v         *Verdict
	sessions  map[string]*ephemeralSession
	order     []*ephemeralSession
	nodes     map[string]*ephemeralSession // by path
	snapshots []*call
	waiting   []*ephemeralSession // complete, in that order, and not yet looked for
	present   []*ephemeralSession // looked for
	together  int
	soonest   time.Duration
}

func (c *ephemeralChecker) session(name string) *ephemeralSession {
	s := c.sessions[name]
	if s == nil {
		s = &ephemeralSession{name: name}
		c.sessions[name] = s
		c.order = append(c.order, s)
	}
	return s
}

// collect goes through the history once. It says whether Final has looked.
func (c *ephemeralChecker) collect(ops []jepsen.Op) (final bool) {
	for i := range ops {
		op := &ops[i]
		switch {
		case !belongs(*op, ephemeralName):
		case op.F == fSession:
			ms, _ := strconv.Atoi(op.Value)
			c.session(op.Session).timeout = time.Duration(ms) * time.Millisecond
		case op.F == jepsen.FExpired && op.Session != "":
			c.session(op.Session).expired = op
		case op.F == fClosed && op.Kind == jepsen.Invoke:
			c.session(op.Session).closeBegun = op
		case op.F == fClosed && op.Kind == jepsen.OK:
			c.session(op.Session).closeDone = op
		case op.F == fFinal:
			final = true
		case op.F == fFound && op.Session != "":
			c.v.violate([]jepsen.Op{*op}, "%s is left at the end, of session %s", op.Path, op.Session)
		}
	}
	for _, call := range pair(ops, ephemeralName) {
		c.call(call)
	}
	for _, s := range c.order {
		if s.complete() {
			c.waiting = append(c.waiting, s)
		}
	}
	slices.SortStableFunc(c.waiting, func(a, b *ephemeralSession) int { return int(a.created() - b.created()) })
	return final
}

func (c *ephemeralChecker) call(call *call) {
	switch call.invoke.F {
	case fCreate, fAlive:
		s := c.session(call.invoke.Session)
		if call.invoke.F == fCreate {
			s.creates = append(s.creates, call)
			c.nodes[call.invoke.Path] = s
		}
		switch {
		case call.end.Kind == jepsen.OK && (s.life == nil || call.invoke.Time > s.life.invoke.Time):
			s.life = call
		case call.end.Kind == jepsen.Fail && call.invoke.F == fAlive:
			s.missed = append(s.missed, call)
		}
	case fSnapshot:
		if call.end.Kind == jepsen.OK {
			c.snapshots = append(c.snapshots, call)
		}
	case fGone:
		s := c.sessions[call.invoke.Session]
		if call.end.Kind != jepsen.OK || s == nil || !s.complete() {
			return
		}
		c.together++
		if want := fmt.Sprintf("%#x", call.end.Zxid); want != call.end.Value {
			c.v.violate([]jepsen.Op{call.end}, "the nodes of session %s vanished at %s and at %s", s.name, want,
				call.end.Value)
		}
	}
}

// look checks one list. They come in the order in which they were asked for.
func (c *ephemeralChecker) look(list *call) {
	for len(c.waiting) > 0 && c.waiting[0].created() <= list.invoke.Time {
		c.present, c.waiting = append(c.present, c.waiting[0]), c.waiting[1:]
	}
	seen := make(map[*ephemeralSession][]string)
	for _, name := range strings.Fields(list.end.Value) {
		if s := c.nodes[path.Join(ephemeralLive, name)]; s != nil {
			seen[s] = append(seen[s], name)
		}
	}
	for _, name := range strings.Fields(list.end.Value) {
		if s := c.nodes[path.Join(ephemeralLive, name)]; s != nil && name == seen[s][0] {
			c.there(s, list)
		}
	}
	c.present = slices.DeleteFunc(c.present, func(s *ephemeralSession) bool {
		names := seen[s]
		if len(names) > 0 {
			if len(names) < ephemeralEach {
				c.v.violate([]jepsen.Op{c.brief(list, s)}, "of the %d nodes of session %s only %s is there",
					ephemeralEach, s.name, strings.Join(names, ", "))
			}
			return false
		}
		s.gone = list
		c.vanished(s, list)
		return true
	})
}

// there checks a session with listed nodes.
func (c *ephemeralChecker) there(s *ephemeralSession, list *call) {
	if s.reported {
		return
	}
	before := len(c.v.Violations)
	defer func() { s.reported = len(c.v.Violations) > before }()
	switch {
	case s.closeDone != nil && s.closeDone.Time < list.invoke.Time:
		c.v.violate([]jepsen.Op{*s.closeDone, c.brief(list, s)}, "session %s was closed, and its nodes are there",
			s.name)
	case s.expired != nil && s.expired.Time < list.invoke.Time:
		c.v.violate([]jepsen.Op{*s.expired, c.brief(list, s)}, "session %s has expired, and its nodes are there",
			s.name)
	case s.gone != nil && s.gone.end.Time < list.invoke.Time:
		c.v.violate([]jepsen.Op{c.brief(s.gone, s), c.brief(list, s)},
			"the nodes of session %s had vanished, and are there again", s.name)
	}
}

// vanished checks a session without listed nodes.
func (c *ephemeralChecker) vanished(s *ephemeralSession, list *call) {
	if s.closeBegun != nil && s.closeBegun.Time <= list.end.Time {
		return
	}
	after := list.end.Time - s.life.invoke.Time
	c.soonest = min(c.soonest, max(after, 0))
	switch {
	case after < 0:
		c.v.violate(append([]jepsen.Op{c.brief(list, s)}, s.life.entries()...),
			"session %s is answered after its nodes have vanished", s.name)
	case after < s.timeout*2/3:
		c.v.violate(append(s.life.entries(), c.brief(list, s)),
			"the nodes of session %s vanished %v after a request that was answered; its timeout is %v",
			s.name, after.Round(time.Millisecond), s.timeout)
	}
}

// missed checks an owner that does not find its node. If the session has just
// expired, it may learn of it in this way.
func (c *ephemeralChecker) missed(s *ephemeralSession) {
	for _, m := range s.missed {
		if s.life != nil && m.end.Time-s.life.invoke.Time < s.timeout*2/3 {
			c.v.violate(append(s.life.entries(), m.entries()...), "session %s does not find its own %s: %s", s.name,
				m.invoke.Path, m.end.Note)
		}
	}
}

// brief is the end of a list, with the names of one session only.
func (c *ephemeralChecker) brief(list *call, s *ephemeralSession) jepsen.Op {
	op := list.end
	op.Value = strings.Join(slices.DeleteFunc(strings.Fields(op.Value), func(name string) bool {
		return c.nodes[path.Join(ephemeralLive, name)] != s
	}), ",")
	return op
}
