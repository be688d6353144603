package report

import (
	"slices"
	"strconv"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/workload"
)

// A hold is one grant of a lock to a contender: from the moment at which the worker told of it to
// the moment at which the worker was about to be asked to release it, or the lock was lost (see
// jepsen.History).
type hold struct {
	grant    jepsen.Op // the reply to acquire
	asked    time.Duration
	released jepsen.Op // FRelease, FLost or FExpired; zero if it lasted until the end
	line     int       // of released, in the history
	to       time.Duration
	late     [2]int // writes with its token, accepted and refused, after it was lost
}

// lost says that the hold did not end by its contender's wish.
func (h *hold) lost() bool { return h.released.F == jepsen.FLost || h.released.F == jepsen.FExpired }

// excludes says whether two holds of one lock are not allowed at the same time. The leases of a
// semaphore count as if they were.
func (h *hold) excludes(other *hold) bool {
	return h.grant.Mode != jepsen.Shared || other.grant.Mode != jepsen.Shared
}

// holdKey is one lock of one contender.
type holdKey struct{ worker, contender, lock string }

// findHolds finds when locks were held, in the order in which they were granted.
func findHolds(ops []jepsen.Op, end time.Duration) []*hold {
	var holds []*hold
	asked := make(map[holdKey]time.Duration)
	open := make(map[holdKey]*hold)
	last := make(map[holdKey]*hold)
	finish := func(i int, ends func(holdKey) bool) {
		for key, h := range open {
			if ends(key) {
				h.released, h.line, h.to = ops[i], i+1, ops[i].Time
				delete(open, key)
			}
		}
	}
	for i, op := range ops {
		key := holdKey{workerOf(op), op.Contender, op.Lock}
		switch {
		case op.F == jepsen.FAcquire && op.Kind == jepsen.Invoke:
			asked[key] = op.Time
		case op.F == jepsen.FAcquire && op.Kind == jepsen.OK:
			h := &hold{grant: op, asked: asked[key], to: end}
			open[key], last[key] = h, h
			holds = append(holds, h)
		case op.F == jepsen.FRelease && op.Kind == jepsen.Invoke, op.F == jepsen.FLost:
			finish(i, func(k holdKey) bool {
				return k.worker == key.worker && k.contender == key.contender && (key.lock == "" || k.lock == key.lock)
			})
		case op.F == jepsen.FExpired:
			finish(i, func(k holdKey) bool { return k.worker == key.worker })
		case op.F == workload.FUse && last[key] != nil && last[key].lost():
			switch op.Kind {
			case jepsen.OK:
				last[key].late[0]++
			case jepsen.Fail:
				last[key].late[1]++
			}
		}
	}
	return holds
}

// A lockRow has the grants of one lock.
type lockRow struct {
	Lock        string
	Y           int
	Grants      int
	Lost        int
	Held, Apart string // paths: it was held; it was lost and nobody had it yet
}

// A lockTimeline has a row for each lock that was granted.
type lockTimeline struct {
	Rows   []*lockRow
	Height int
	More   int // locks without a row
}

// layLocks makes the rows of the locks, by name.
func layLocks(holds []*hold, losses []Loss, length time.Duration) lockTimeline {
	held, apart := make(map[string][]span), make(map[string][]span)
	rows := make(map[string]*lockRow)
	for _, h := range holds {
		lock := h.grant.Lock
		if rows[lock] == nil {
			rows[lock] = &lockRow{Lock: lock}
		}
		rows[lock].Grants++
		held[lock] = append(held[lock], span{h.grant.Time, h.to})
	}
	for _, l := range losses {
		rows[l.Lock].Lost++
		to := l.NextAt
		if l.Next == "" {
			to = length
		}
		if to > l.Told {
			apart[l.Lock] = append(apart[l.Lock], span{l.Told, to})
		}
	}
	var t lockTimeline
	for _, r := range rows {
		t.Rows = append(t.Rows, r)
	}
	slices.SortFunc(t.Rows, func(a, b *lockRow) int { return compareNames(a.Lock, b.Lock) })
	if len(t.Rows) > maxRows {
		t.Rows, t.More = t.Rows[:maxRows], len(t.Rows)-maxRows
	}
	t.Height = rowHeight * len(t.Rows)
	s := scale{length}
	for i, r := range t.Rows {
		sortSpans(apart[r.Lock])
		r.Y = i * rowHeight
		r.Held, r.Apart = s.spansPath(held[r.Lock], float64(r.Y+8)), s.spansPath(apart[r.Lock], float64(r.Y+8))
	}
	return t
}

// silence is for how long a client had heard nothing, by the Value of its entry; false if the entry
// does not say.
func silence(op jepsen.Op) (time.Duration, bool) {
	if op.F != jepsen.FSuspended && op.F != jepsen.FLost {
		return 0, false
	}
	ms, err := strconv.Atoi(op.Value)
	return time.Duration(ms) * time.Millisecond, err == nil
}
