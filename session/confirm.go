package session

import (
	"context"
	"time"

	"lockkeeper/wire"
)

// hear records that the client of s has sent something.
func (m *Manager) hear(s *Session) {
	now := m.recent()
	if s.local {
		s.lease.confirmed.Store(now)
		return
	}
	s.lease.openSince.CompareAndSwap(0, now)
	m.toReport(s)
	if s.lease.sendable(now) < s.lease.timeout/6 {
		m.leaseNow.set()
	}
}

// toReport has the next report to the leader include s.
func (m *Manager) toReport(s *Session) {
	if !s.lease.waiting.Swap(true) {
		m.mu.Lock()
		m.heard = append(m.heard, s)
		m.mu.Unlock()
	}
}

// leaseRetry is the pause after a report that did not reach the leader.
const leaseRetry = 30 * time.Millisecond

// leaseLoop reports to the leader several times within a third of the smallest timeout, and at once
// when a session's confirmation is older than a sixth of its timeout.
func (m *Manager) leaseLoop(ctx context.Context) {
	interval := max(m.cfg.MinTimeout/9, time.Millisecond)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			m.endUnconfirmed()
		case <-m.leaseNow:
		}
		if !m.report(ctx) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(leaseRetry):
				m.endUnconfirmed()
				m.leaseNow.set()
			}
		}
	}
}

// report sends the leader the sessions that this member has heard from; false if that failed.
func (m *Manager) report(ctx context.Context) bool {
	m.mu.Lock()
	heard := m.heard
	m.heard = nil
	m.mu.Unlock()
	ids := make([]wire.SessionID, 0, len(heard))
	opens := make([]int64, 0, len(heard))
	live := heard[:0]
	for _, s := range heard {
		if s.ended.Load() {
			continue
		}
		s.lease.waiting.Store(false) // what is heard from now on is for the next report
		live = append(live, s)
		ids = append(ids, s.id)
		opens = append(opens, s.lease.openSince.Swap(0))
	}
	if len(ids) == 0 {
		return true
	}
	extended, from, err := m.replica.Touch(ctx, ids)
	if err != nil {
		m.log.Debug("lease report failed", "sessions", len(ids), "err", err)
		for i, s := range live {
			m.reportAgain(s, opens[i])
		}
		return false
	}
	at := m.instant(from)
	for i, s := range live {
		// The answer keeps the order of the report.
		if len(extended) > 0 && extended[0] == s.id {
			extended = extended[1:]
			if s.confirm(at); s.lease.sendable(m.recent()) <= 0 {
				m.reportAgain(s, opens[i]) // it counts from too long ago, or from before a suspend
			}
		} else {
			m.reportAgain(s, opens[i])
		}
	}
	return true
}

// reportAgain has the next report include s, which this one did not confirm. open is since when
// it has been heard from without a confirmation.
func (m *Manager) reportAgain(s *Session, open int64) {
	s.lease.openSince.Store(open)
	m.toReport(s)
}

// confirm records that the lease of s runs for its full timeout from that instant.
func (s *Session) confirm(at int64) {
	for {
		old := s.lease.confirmed.Load()
		if at <= old {
			return
		}
		if s.lease.confirmed.CompareAndSwap(old, at) {
			break
		}
	}
	s.out.wake()
}

// endUnconfirmed ends the connections whose lease could not be confirmed.
func (m *Manager) endUnconfirmed() {
	now := m.since()
	ended, withheld := 0, 0
	var closing []*Session
	m.mu.Lock()
	for _, s := range m.sessions {
		if s.lease.overdue(now) {
			withheld++
		}
		if s.lease.mustClose(now) {
			closing = append(closing, s)
		}
	}
	m.mu.Unlock()
	for _, s := range closing {
		if s.lease.openSince.Load() != 0 {
			ended++
		}
		s.end("lease not confirmed: this member does not reach the leader, or the client is silent")
	}
	m.leaseTrouble(ended, withheld)
}

// leaseTrouble warns of clients that are cut off because the leader does not confirm their leases.
func (m *Manager) leaseTrouble(ended, withheld int) {
	if withheld > 0 {
		m.refusals.Warn("leases withheld", "clients get no answers: the leader has not confirmed their leases within a third of "+
			"their timeouts; look at the network to the leader, and at the load of the leader and of this member", "clients", withheld)
	}
	if ended > 0 {
		m.refusals.Warn("leases lost", "connections closed: their clients sent something, and the leader did not confirm their leases; "+
			"clients go to other members and keep their sessions if they reach one in time", "connections", ended)
	}
}

// expiryLoop proposes the end of expired sessions while this member leads.
func (m *Manager) expiryLoop(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		ends, next := m.tracker.due()
		for _, c := range ends {
			m.log.Info("session expires: nothing heard from it for its timeout", "session", c.Session)
			c.Seq = m.nonce()
			// If this is lost, so is the leadership, or due returns it again.
			_ = m.replica.ProposeOnce(ctx, c)
		}
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-m.tracker.wake:
		}
	}
}
