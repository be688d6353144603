package session

import (
	"cmp"
	"container/heap"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/internal/clock"
	"lockkeeper/internal/histogram"
	"lockkeeper/internal/mutant"
	"lockkeeper/wire"
	"lockkeeper/znode"
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
	if l.local || mutant.On(mutant.AnswersWithoutLease) {
		return l.timeout
	}
	confirmed := l.confirmed.Load()
	if woke := l.m.cfg.Clock.Woke(); !woke.IsZero() && confirmed < l.m.instant(woke) && !mutant.On(mutant.LeaseSleeps) {
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

// tracker holds the leases of all sessions of the cluster while this member leads. Only the leader
// decides that a session has expired, and it decides by proposing its end; what ends the session is
// the committed command.
//
// Deadlines are moments of clock.Clock.Awake, which stands still while this machine is suspended: a
// session may expire later by that, never earlier.
type tracker struct {
	clock *clock.Clock
	// slack is how much later than promised a session expires, besides what clocks may differ by
	// (extended). It covers the time that the last bytes need from the member to the client.
	slack time.Duration
	wake  signal // the earliest deadline may have changed
	// margin counts what was left of each lease when it was extended (Measures.LeaseMargin).
	margin *histogram.Histogram

	mu      sync.Mutex
	leading bool
	leases  map[wire.SessionID]*tracked
	queue   deadlines
}

// tracked is the lease of one session.
type tracked struct {
	id         wire.SessionID
	generation uint64
	timeout    time.Duration
	deadline   time.Time // not before this instant does it expire
	closing    bool      // its end has been proposed: its lease is not extended any more
	queuedFor  time.Time // its place in the queue, never later than deadline
	index      int
}

// closeRetry is after how long the end of a session is proposed again when it has not been applied.
// A proposal is lost with the leadership, and then the next leader begins anew, or while a transfer
// of the leadership is tried and fails.
const closeRetry = 5 * time.Second

// driftShare is the part of its timeout, as a divisor, by which a session expires later because
// clocks differ in speed. The argument of docs/decisions/002-leases-that-silence-a-member.md holds
// while each of the clocks of leader, member and client is right to 2 %:
// 1.02 / 0.98 < 1 + 1/24.
const driftShare = 24

func newTracker(tick time.Duration, c *clock.Clock, margin *histogram.Histogram) *tracker {
	return &tracker{clock: c, slack: tick / 2, wake: newSignal(), margin: margin, leases: map[wire.SessionID]*tracked{}}
}

// lead begins to track. Every session gets its full timeout.
func (t *tracker) lead(store *znode.Store) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clear()
	t.leading = true
	for info := range store.Sessions() {
		t.renewLocked(info.ID, info.Generation, time.Duration(info.TimeoutMs)*time.Millisecond)
	}
}

func (t *tracker) follow() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leading = false
	t.clear()
}

func (t *tracker) clear() {
	t.leases = map[wire.SessionID]*tracked{}
	t.queue = nil
}

// leads reports whether this member tracks leases, as the leader does.
func (t *tracker) leads() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.leading
}

// renew tracks a session that has just been created or attached.
func (t *tracker) renew(id wire.SessionID, generation uint64, timeout time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leading {
		t.renewLocked(id, generation, timeout)
	}
}

func (t *tracker) renewLocked(id wire.SessionID, generation uint64, timeout time.Duration) {
	l := t.leases[id]
	if l == nil {
		l = &tracked{id: id, index: -1}
		t.leases[id] = l
	}
	l.generation, l.timeout, l.closing = generation, timeout, false
	l.deadline = t.extended(timeout)
	t.enqueueLocked(l, l.deadline)
}

func (t *tracker) remove(id wire.SessionID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.leases[id]; l != nil {
		delete(t.leases, id)
		if l.index >= 0 {
			heap.Remove(&t.queue, l.index)
		}
	}
}

// extended is the deadline of a session that has its full timeout from now.
func (t *tracker) extended(timeout time.Duration) time.Time {
	return t.clock.Awake().Add(timeout + timeout/driftShare + t.slack)
}

// touch extends leases by their full timeout from now and returns those that it extended, in the
// same order. A session whose end has been proposed is not extended any more.
func (t *tracker) touch(heard []wire.SessionID) []wire.SessionID {
	t.mu.Lock()
	defer t.mu.Unlock()
	extended := make([]wire.SessionID, 0, len(heard))
	for _, id := range heard {
		if l := t.leases[id]; l != nil && !l.closing {
			deadline := t.extended(l.timeout)
			left := l.timeout - deadline.Sub(l.deadline) // of the timeout itself
			t.margin.Observe(int64(left) * LeaseMarginUnit / int64(max(l.timeout, 1)))
			l.deadline = deadline
			extended = append(extended, id)
		}
	}
	return extended
}

// due marks the sessions that have expired as closing and returns what ends them, and the time
// until the next one may be due.
func (t *tracker) due() (ends []*znode.Command, next time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Awake()
	for len(t.queue) > 0 {
		l := t.queue[0]
		if wait := l.queuedFor.Sub(now); wait > 0 {
			return ends, wait
		}
		if l.deadline.After(now) {
			t.enqueueLocked(l, l.deadline) // touched since
			continue
		}
		if !l.closing {
			t.margin.Observe(0)
		}
		l.closing = true
		t.enqueueLocked(l, now.Add(closeRetry))
		ends = append(ends, &znode.Command{Session: l.id, Generation: l.generation, Body: &znode.Expire{}})
	}
	return ends, time.Hour
}

func (t *tracker) enqueueLocked(l *tracked, at time.Time) {
	l.queuedFor = at
	if l.index >= 0 {
		heap.Fix(&t.queue, l.index)
	} else {
		heap.Push(&t.queue, l)
	}
	if l.index == 0 {
		t.wake.set()
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
			if mutant.On(mutant.ExpiryWithoutCommit) {
				m.replica.View(func(s *znode.Store) { s.Apply(0, &znode.Entry{Commands: []znode.Command{*c}}, nil) })
				continue
			}
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

// deadlines is a heap of leases, the earliest first.
type deadlines []*tracked

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].queuedFor.Before(d[j].queuedFor) }
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}

// Push implements heap.Interface.
func (d *deadlines) Push(x any) {
	l := x.(*tracked)
	l.index = len(*d)
	*d = append(*d, l)
}

// Pop implements heap.Interface.
func (d *deadlines) Pop() any {
	old := *d
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*d = old[:len(old)-1]
	l.index = -1
	return l
}

// Leases returns how many leases this member keeps; false if it does not lead.
func (m *Manager) Leases() (n int, leads bool) {
	t := m.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.leases), t.leading
}

// Deadline is when a session expires if no member hears from its client until then.
type Deadline struct {
	Session wire.SessionID
	At      time.Time
}

// Deadlines lists the leases of all sessions of the cluster, the earliest first. Only the leader
// has them; leads says whether this member does.
func (m *Manager) Deadlines() (list []Deadline, leads bool) {
	t := m.tracker
	t.mu.Lock()
	leads = t.leading
	now := t.clock.Awake()
	for _, l := range t.leases {
		list = append(list, Deadline{Session: l.id, At: time.Now().Add(l.deadline.Sub(now))})
	}
	t.mu.Unlock()
	slices.SortFunc(list, func(a, b Deadline) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(uint64(a.Session), uint64(b.Session)))
	})
	return list, leads
}
