package simtest

import (
	"log/slog"
	"sync"
)

// elections takes note of who was elected, of which the members' raft libraries log: there must be one at most in a term.
type elections struct {
	mu      sync.Mutex
	winners map[int64]string // by term
}

// logged is called for each line that a member logs.
func (c *cluster) logged(who string, r slog.Record) {
	if r.Message != "election won" {
		return
	}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "term" {
			return true
		}
		term, ok := a.Value.Any().(uint64)
		if !ok {
			c.t.Errorf("%s was elected in term %v, which is no number", who, a.Value)
			return false
		}
		c.elected(who, int64(term))
		return false
	})
}

func (c *cluster) elected(who string, term int64) {
	e := &c.elections
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.winners == nil {
		e.winners = make(map[int64]string)
	}
	if other := e.winners[term]; other != "" && other != who {
		c.t.Errorf("after %v: two leaders in term %d: %s and %s", c.journal.age(), term, other, who)
	}
	e.winners[term] = who
}
