package workload

import (
	"fmt"
	"slices"
	"strconv"

	"lockkeeper/jepsen"
)

// checkOrder judges the workload session-order. For every session, over all its connections:
//
//   - replies come in the order of the requests, and their zxids never go back;
//   - what it reads of its own node is what it has set last. Of the sets that
//     were not answered on an earlier connection the first so many may have taken
//     effect: the version says whether one was left out; and none takes effect
//     once a later connection was answered;
//   - once it watches the hot node, an event comes before anything that shows a
//     later version of it, and with a zxid larger than all that came before.
func checkOrder(ops []jepsen.Op) Verdict {
	v := Verdict{Checker: orderName, Promise: "C2, C3", Valid: Yes}
	sessions := make(map[string]*orderSession)
	count := make(map[string]int)
	for _, op := range ops {
		if !belongs(op, orderName) || op.Session == "" {
			continue
		}
		s := sessions[op.Session]
		if s == nil {
			s = &orderSession{v: &v, name: op.Session, open: make(map[int64]bool)}
			sessions[op.Session] = s
		}
		switch {
		case op.F == jepsen.FConnected:
			count["connections"]++
			s.connected()
		case op.F == fOrder:
			v.violate([]jepsen.Op{op}, "session %s: %s", s.name, op.Note)
		case op.F == fEvent:
			count["events"]++
			s.event(op)
		case op.ID == 0 || op.F == fClosed:
		case op.Kind == jepsen.Invoke:
			s.open[op.ID] = true
		case s.open[op.ID]:
			delete(s.open, op.ID)
			if op.Kind == jepsen.Info {
				s.unanswered(op)
			} else {
				count["replies"]++
				s.reply(op)
			}
		}
	}
	moves := count["connections"] - len(sessions)
	v.judged(count["replies"]+count["events"], "replies and events")
	v.Text = fmt.Sprintf("%d replies and %d events in %d sessions, which moved %d times to another connection",
		count["replies"], count["events"], len(sessions), moves)
	if count["replies"] == 0 || count["events"] == 0 || moves <= 0 {
		v.doubt(tooLittle)
	}
	return v.concluded()
}

// orderSession is the knowledge about a session.
type orderSession struct {
	v    *Verdict
	name string
	open map[int64]bool

	newest jepsen.Op // the reply or event with the largest zxid

	base jepsen.Op     // the newest reply about the session's own node
	lost [][]jepsen.Op // its sets that were not answered since, by connection
	// settled are those that must not take effect any more, or have: a later connection was
	// answered.
	settled []jepsen.Op
	made    bool

	watch    jepsen.Op // the reply that has set the watch
	watching bool
}

func (s *orderSession) connected() { s.lost = append(s.lost, nil) }

// unanswered is a request that the end of its connection has left open.
func (s *orderSession) unanswered(op jepsen.Op) {
	if op.F == fSet && op.Path != orderHot && len(s.lost) > 0 {
		last := len(s.lost) - 1
		s.lost[last] = append(s.lost[last], op)
	}
}

func (s *orderSession) event(op jepsen.Op) {
	if op.Zxid > 0 {
		if op.Zxid <= s.newest.Zxid {
			s.v.violate([]jepsen.Op{s.newest, op}, "session %s: the event of zxid %#x came after state of zxid %#x",
				s.name, op.Zxid, s.newest.Zxid)
		}
		s.seen(op)
	}
	if op.Path == orderHot {
		s.watching = false
	}
}

func (s *orderSession) seen(op jepsen.Op) {
	if op.Zxid > s.newest.Zxid {
		s.newest = op
	}
}

func (s *orderSession) reply(op jepsen.Op) {
	if op.Zxid > 0 && op.Zxid < s.newest.Zxid {
		s.v.violate([]jepsen.Op{s.newest, op}, "session %s: a reply of zxid %#x came after one of zxid %#x", s.name,
			op.Zxid, s.newest.Zxid)
	}
	s.seen(op)
	switch {
	case op.Kind == jepsen.Fail:
		s.v.violate([]jepsen.Op{op}, "session %s: %s of %s was answered with %s", s.name, op.F, op.Path, op.Note)
	case op.F == fSync || op.F == fRewatch:
	case op.Path == orderHot:
		s.hot(op)
	default:
		s.own(op)
	}
}

// hot checks the observations of the watched node.
func (s *orderSession) hot(op jepsen.Op) {
	if s.watching && op.Version > s.watch.Version {
		s.v.violate([]jepsen.Op{s.watch, op},
			"session %s: version %d of %s was seen without the event for it; the watch was set at version %d",
			s.name, op.Version, op.Path, s.watch.Version)
		s.watching = false
	}
	if op.F == fWatch {
		s.watch, s.watching = op, true
	}
}

// own checks the observations of the session's own node.
func (s *orderSession) own(op jepsen.Op) {
	if !s.made || op.F == fMake {
		s.made, s.base = true, op
		s.settle()
		return
	}
	steps := int(op.Version - s.base.Version) // sets since
	// open is the number of unanswered ones that may have taken effect.
	open, want := 0, ""
	at := -1 // the connection that has set the value
	for i, sets := range s.lost {
		for j, set := range sets {
			if op.F == fGet && set.Value == op.Value {
				at = i
				steps -= j + 1
			}
		}
	}
	switch {
	case op.F == fSet:
		steps-- // itself
		at = len(s.lost)
	case at < 0 && op.Value != s.base.Value:
		want = fmt.Sprintf("read %q, where %q was set last", op.Value, s.base.Value)
	case at < 0:
		at = 0
	}
	for _, sets := range s.lost[:max(at, 0)] {
		open += len(sets)
	}
	if want == "" && (steps < 0 || steps > open) {
		want = "read version " + strconv.Itoa(int(op.Version))
		if op.F == fSet {
			want = "made version " + strconv.Itoa(int(op.Version))
		}
		want += fmt.Sprintf(", which does not follow from version %d with the sets between them", s.base.Version)
	}
	if want != "" {
		s.v.violate(append(s.between(), op), "session %s: %s", s.name, want)
	}
	s.base = op
	s.settle()
}

// settle forgets the sets that were not answered: a later connection was, so they
// have taken effect by now, or never.
func (s *orderSession) settle() {
	if sets := slices.Concat(s.lost...); len(sets) > 0 {
		s.settled = sets
	}
	s.lost = [][]jepsen.Op{nil}
}

// between is the newest reply about the own node, the unanswered requests since, and those before.
func (s *orderSession) between() []jepsen.Op {
	return append(append(slices.Clone(s.settled), s.base), slices.Concat(s.lost...)...)
}
