package session

import (
	"context"
	"log/slog"
	"sync"

	"lockkeeper/wire"
)

// leaseReports tells the leader the sessions that this member has heard from. The leader extends
// their leases and confirms it.
type leaseReports struct {
	at  *instants
	log *slog.Logger
	now signal // a lease needs a confirmation before the next tick

	mu    sync.Mutex
	heard []*connection // since their last confirmation
}

func (r *leaseReports) init(at *instants, log *slog.Logger) {
	r.at, r.log, r.now = at, log, newSignal()
}

// hear records that the client of c has sent something.
func (r *leaseReports) hear(c *connection) {
	now := r.at.recent()
	if c.local != nil {
		c.lease.confirmed.Store(now)
		return
	}
	c.lease.openSince.CompareAndSwap(0, now)
	r.add(c)
	if c.lease.sendable(now) < c.lease.timeout/6 {
		r.now.set()
	}
}

// add has the next report include c.
func (r *leaseReports) add(c *connection) {
	if !c.lease.waiting.Swap(true) {
		r.mu.Lock()
		r.heard = append(r.heard, c)
		r.mu.Unlock()
	}
}

// addAgain has the next report include c, which this one did not confirm. open is the instant since
// which the client has been heard from without a confirmation.
func (r *leaseReports) addAgain(c *connection, open int64) {
	c.lease.openSince.Store(open)
	r.add(c)
}

// send sends one report; false if it did not reach the leader.
func (r *leaseReports) send(ctx context.Context, replica Replica) bool {
	r.mu.Lock()
	heard := r.heard
	r.heard = nil
	r.mu.Unlock()
	ids := make([]wire.SessionID, 0, len(heard))
	opens := make([]int64, 0, len(heard))
	live := heard[:0]
	for _, c := range heard {
		if c.ended.Load() {
			continue
		}
		c.lease.waiting.Store(false) // a request from now on is for the next report
		live = append(live, c)
		ids = append(ids, c.id())
		opens = append(opens, c.lease.openSince.Swap(0))
	}
	if len(ids) == 0 {
		return true
	}
	extended, from, err := replica.Touch(ctx, ids)
	if err != nil {
		r.log.Debug("lease report failed", "sessions", len(ids), "err", err)
		for i, c := range live {
			r.addAgain(c, opens[i])
		}
		return false
	}
	at := r.at.instant(from)
	for i, c := range live {
		// The answer keeps the order of the report.
		confirmed := len(extended) > 0 && extended[0] == c.id()
		if confirmed {
			extended = extended[1:]
			c.confirm(at)
		}
		// A confirmation may count from too long ago, or from before a suspend.
		if !confirmed || c.lease.sendable(r.at.recent()) <= 0 {
			r.addAgain(c, opens[i])
		}
	}
	return true
}

// confirm records that the lease of c runs for its full timeout from that instant.
func (c *connection) confirm(at int64) {
	for {
		old := c.lease.confirmed.Load()
		if at <= old {
			return
		}
		if c.lease.confirmed.CompareAndSwap(old, at) {
			break
		}
	}
	c.out.wake()
}
