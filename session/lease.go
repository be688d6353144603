package session

import (
	"context"
	"sync/atomic"
	"time"

	"lockkeeper/wire"
)

// A member's part in the leases (promise C6 of the contract).
//
// The member reports the sessions that it heard from to the leader, which extends their leases and
// confirms it. The confirmation counts from the moment before the report was sent, or from the last
// proof of leadership, whichever is earlier: no leader expires the session before that moment plus
// its timeout T.
//
// A client that receives nothing for 2/3 T considers itself disconnected. So a member sends a
// client nothing at all while the newest confirmation is older than T/3: then the client considers
// itself disconnected before its session can expire. When it is older than 2/3 T although the
// client was heard from, the member closes the connection, so that the client tries another one.
//
//	confirmed          +T/3                 +2/3 T                +T
//	   |  may answer     |  holds back         |  disconnects       |  may expire
//	   |------------------------------------------------------------|-> time
//	        last byte ---|---- client's 2/3 T of silence ----|
//
// All instants are of the clock that counts suspends (clock.Clock.Now); wall clocks may jump. A
// member that was suspended holds no lease when it wakes: a confirmation that counts from before
// the wake-up does not count any more. docs/decisions/002-leases-that-silence-a-member.md has the
// argument.

// lease is the member's knowledge of one session's lease. Instants as of Manager.since.
type lease struct {
	m *Manager
	// local is set in read-only mode, in which there is no leader: confirmed is then when the
	// client was last heard from.
	local     bool
	timeout   int64        // nanoseconds
	confirmed atomic.Int64 // the lease runs until this instant plus timeout at least
	waiting   atomic.Bool  // heard from since the last report: the session is in Manager.heard
	openSince atomic.Int64 // since when it was heard from without a confirmation, 0 if not
}

func (l *lease) init(m *Manager, timeout time.Duration, since int64) {
	l.m, l.timeout = m, int64(timeout)
	l.confirmed.Store(since)
}

func (l *lease) age(now int64) int64 { return now - l.confirmed.Load() }

// sendable is for how long, from the instant now, bytes may be sent to the client; 0 or less: they
// may not.
func (l *lease) sendable(now int64) int64 {
	if l.local {
		return l.timeout
	}
	confirmed := l.confirmed.Load()
	if woke := l.m.cfg.Clock.Woke(); !woke.IsZero() && confirmed < l.m.instant(woke) {
		return 0
	}
	return confirmed + l.timeout/3 - now
}

// mayAnswer reports whether bytes may be sent to the client, as far as is known without a look
// whether the machine was suspended just now: sendUntil has it.
func (l *lease) mayAnswer() bool { return l.sendable(l.m.recent()) > 0 }

// sendUntil is the instant until which bytes may be sent to the client, for the deadline of the
// write that follows.
func (l *lease) sendUntil() time.Time {
	now := time.Now() // before the clock is read: this process may be stopped in between
	return now.Add(time.Duration(l.sendable(l.m.since())))
}

// overdue reports whether the client was heard from, and may not be answered because the leader has
// not confirmed that.
func (l *lease) overdue(now int64) bool {
	open := l.openSince.Load()
	return !l.local && open != 0 && now-open > l.timeout/6 && l.sendable(now) <= 0
}

// mustClose reports whether the connection must be closed.
func (l *lease) mustClose(now int64) bool {
	age, open := l.age(now), l.openSince.Load()
	if l.local {
		return age > l.timeout
	}
	if age > l.timeout*4/3 {
		// its session has expired on the majority, even if this member has not applied that yet
		return true
	}
	// A client that was silent for long has sent something: the leader may still confirm that.
	return age > l.timeout*2/3 && open != 0 && now-open > l.timeout/6
}

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
