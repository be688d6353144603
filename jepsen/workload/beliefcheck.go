package workload

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"lockkeeper/jepsen"
)

// checkBelief judges the workload belief. For every session that expired: at the moment at
// which another client saw that its node was gone, its own library must not have
// taken itself for connected, nor do so later.
//
// A library takes itself for connected until it says otherwise, or until two thirds of the session
// timeout after the last byte that it has received, whichever is earlier; it follows the latter,
// and it may be told late when the machine is busy.
//
// The promise is silent on a client that did not run (FPause to FResume of its Worker) or had its
// own link disturbed (FCut to FHeal with its Worker): they do not count if that was at any time
// from a session timeout before its node vanished until its belief had ended.
func checkBelief(ops []jepsen.Op) Verdict {
	v := Verdict{Checker: beliefName, Promise: "C6", Valid: Yes}
	clients, vanished := beliefs(ops, beliefName)
	expired, exempt, worst := 0, 0, time.Duration(math.MinInt64)
	for _, name := range sortedKeys(clients) {
		c := clients[name]
		for _, node := range c.nodes {
			gone, ok := vanished[node.Path]
			if !ok || c.ended(node.Session, gone.Time) {
				continue
			}
			last := c.last(node.Session)
			if last == nil {
				continue
			}
			if c.excused(gone.Time-last.timeout, max(gone.Time, last.to)) {
				exempt++
				continue
			}
			expired++
			window := last.to - gone.Time
			worst = max(worst, window)
			if window > 0 {
				v.violate(last.ops(gone),
					"%s believed itself connected with session %s for %v after another had seen that its node was gone",
					name, node.Session, window.Round(time.Millisecond))
			}
		}
	}
	v.judged(expired, "expired sessions")
	v.Text = fmt.Sprintf("%d sessions of %d clients expired", expired, len(clients))
	if expired > 0 {
		v.Figures = map[string]float64{"window ms": float64(worst.Milliseconds())}
		word := fmt.Sprintf("every library knew at least %v before another saw it", -worst.Round(time.Millisecond))
		if worst > 0 {
			word = fmt.Sprintf("a library believed itself connected for up to %v longer", worst.Round(time.Millisecond))
		}
		v.Text += "; " + word
	}
	if exempt > 0 {
		v.Text += fmt.Sprintf("; %d more do not count, as their client was stopped or cut off itself", exempt)
	}
	if expired == 0 {
		v.doubt(tooLittle)
	}
	return v.concluded()
}

// believer has the reports of a client about itself.
type believer struct {
	nodes     []jepsen.Op // its own, with their sessions
	spans     []*span
	closed    []jepsen.Op
	stopped   []period
	lastEntry time.Duration
}

// span is a time in which a library took itself for connected.
type span struct {
	begin, end jepsen.Op // end is zero as long as it has not ended
	to         time.Duration
	timeout    time.Duration
}

type period struct{ from, to time.Duration }

// ops are the entries that show a belief that outlived the session.
func (s *span) ops(gone jepsen.Op) []jepsen.Op {
	list := []jepsen.Op{s.begin, gone}
	if s.end.F != "" {
		list = append(list, s.end)
	}
	slices.SortStableFunc(list, func(a, b jepsen.Op) int { return int(a.Time - b.Time) })
	return list
}

// beliefs goes through the history of a workload: every client's belief, and when each node was
// seen to be gone first, by another client.
func beliefs(ops []jepsen.Op, workload string) (map[string]*believer, map[string]jepsen.Op) {
	clients := make(map[string]*believer)
	vanished := make(map[string]jepsen.Op)
	owner := make(map[string]string)
	for _, op := range ops {
		if !belongs(op, workload) {
			continue
		}
		c := clients[op.Worker]
		if c == nil {
			c = &believer{}
			clients[op.Worker] = c
		}
		switch {
		case op.F == jepsen.FPause || op.F == jepsen.FCut:
			c.stopped = append(c.stopped, period{op.Time, math.MaxInt64})
			continue
		case op.F == jepsen.FResume || op.F == jepsen.FHeal:
			c.resumed(op.Time)
			continue
		}
		c.lastEntry = op.Time
		switch {
		case op.F == fCreate && op.Kind == jepsen.Invoke:
			owner[op.Path] = op.Worker
		case op.F == fCreate && op.Kind == jepsen.OK:
			c.nodes = append(c.nodes, op)
		case op.F == jepsen.FConnected:
			ms, _ := strconv.Atoi(op.Value)
			c.spans = append(c.spans, &span{begin: op, to: math.MaxInt64,
				timeout: time.Duration(ms) * time.Millisecond})
		case op.F == jepsen.FSuspended || op.F == jepsen.FExpired:
			c.doubts(op)
		case op.F == fClosed:
			c.closed = append(c.closed, op)
		case op.F == fVanished && owner[op.Path] != op.Worker:
			if first, ok := vanished[op.Path]; !ok || op.Time < first.Time {
				vanished[op.Path] = op
			}
		}
	}
	for _, c := range clients {
		if n := len(c.spans); n > 0 && c.spans[n-1].to == math.MaxInt64 {
			c.spans[n-1].to = c.lastEntry
		}
	}
	return clients, vanished
}

func (c *believer) resumed(at time.Duration) {
	for i := range c.stopped {
		c.stopped[i].to = min(c.stopped[i].to, at)
	}
}

// doubts ends the present span.
func (c *believer) doubts(op jepsen.Op) {
	if len(c.spans) == 0 {
		return
	}
	s := c.spans[len(c.spans)-1]
	if s.to != math.MaxInt64 {
		return
	}
	s.end, s.to = op, op.Time
	if ms, err := strconv.Atoi(op.Value); err == nil && s.timeout > 0 {
		heard := op.Time - time.Duration(ms)*time.Millisecond
		s.to = min(s.to, heard+s.timeout*2/3)
	}
}

// last is the last time at which the client took itself for connected with the
// session, nil if it never did. It took no time to believe anything if the answer to its
// handshake came together with the end of the connection, because the network
// had held back both: a library waits for that answer for as long as it takes.
func (c *believer) last(session string) *span {
	for _, s := range slices.Backward(c.spans) {
		if s.begin.Session == session && s.end.Time != s.begin.Time {
			return s
		}
	}
	return nil
}

// ended says whether the client had ended the session itself by then.
func (c *believer) ended(session string, by time.Duration) bool {
	return slices.ContainsFunc(c.closed, func(op jepsen.Op) bool { return op.Session == session && op.Time <= by })
}

// excused says whether the client was stopped or cut off at any time from one moment to another.
func (c *believer) excused(from, to time.Duration) bool {
	return slices.ContainsFunc(c.stopped, func(p period) bool { return p.from <= to && p.to >= from })
}
