package session

import (
	"cmp"
	"container/heap"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"lockkeeper/internal/clock"
	"lockkeeper/internal/histogram"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// tracker holds the leases of all sessions of the cluster while this member leads. Only the leader
// decides that a session has expired, and it decides by proposing its end; the committed command
// ends the session.
//
// Deadlines are moments of clock.Clock.Awake, which stands still while this machine is suspended: a
// session may expire later by that, never earlier.
type tracker struct {
	clock *clock.Clock
	moments
	// slack is added to each deadline, beside the share for clocks of different speed (extended).
	// It covers the time that the last bytes need from the member to the client.
	slack time.Duration
	wake  signal // the earliest deadline may have changed
	// margin records the rest of each lease when it is extended (Measures.LeaseMargin).
	margin *histogram.Histogram

	mu      sync.Mutex
	leading bool
	leases  map[wire.SessionID]*tracked
	queue   deadlines
}

// tracked is the lease of one session. The leader has one for each session of the cluster.
type tracked struct {
	id         wire.SessionID
	generation uint64
	timeout    time.Duration
	deadline   moment // not before this does it expire
	queuedFor  moment // its place in the queue, never later than deadline
	index      int32  // in the queue; -1: it is not there
	closing    bool   // its end has been proposed: its lease is not extended any more
}

// closeRetry is the time after which the end of a session is proposed again if it is not applied.
// A proposal is lost with the leadership, and then the next leader begins anew, or while a transfer
// of the leadership is tried and fails.
const closeRetry = 5 * time.Second

// driftShare is the part of its timeout, as a divisor, by which a session expires later because
// clocks differ in speed. The argument of docs/decisions/002-leases-that-silence-a-member.md holds
// while each of the clocks of leader, member and client is right to 2 %:
// 1.02 / 0.98 < 1 + 1/24.
const driftShare = 24

func newTracker(tick time.Duration, c *clock.Clock, margin *histogram.Histogram) *tracker {
	return &tracker{clock: c, moments: moments{c.Awake()}, slack: tick / 2, wake: newSignal(), margin: margin,
		leases: map[wire.SessionID]*tracked{}}
}

// lead begins to track. Every session gets its full timeout.
func (t *tracker) lead(store *znode.Store) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clear()
	t.leading = true
	for info := range store.Sessions().All() {
		t.renewLocked(info.ID, info.Generation, time.Duration(info.TimeoutMs)*time.Millisecond)
	}
}

// restart gives every session its full timeout, if this member leads: its sessions are new ones.
func (t *tracker) restart(store *znode.Store) {
	if t.leads() {
		t.lead(store)
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
			heap.Remove(&t.queue, int(l.index))
		}
	}
}

// extended is the deadline of a session that has its full timeout from now.
func (t *tracker) extended(timeout time.Duration) moment {
	return t.awake() + moment(timeout+timeout/driftShare+t.slack)
}

// awake is the present moment.
func (t *tracker) awake() moment { return t.of(t.clock.Awake()) }

// touch extends leases by their full timeout from now and returns those that it extended, in the
// same order. After the proposal of its end, a session is not extended any more.
func (t *tracker) touch(heard []wire.SessionID) []wire.SessionID {
	t.mu.Lock()
	defer t.mu.Unlock()
	extended := make([]wire.SessionID, 0, len(heard))
	for _, id := range heard {
		if l := t.leases[id]; l != nil && !l.closing {
			deadline := t.extended(l.timeout)
			left := l.timeout - time.Duration(deadline-l.deadline) // of the timeout itself
			t.margin.Observe(int64(left) * LeaseMarginUnit / int64(max(l.timeout, 1)))
			l.deadline = deadline
			extended = append(extended, id)
		}
	}
	return extended
}

// due marks the sessions that have expired as closing, and returns the commands that end them, and
// the time until the next one may be due.
func (t *tracker) due() (ends []*znode.Command, next time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.awake()
	for len(t.queue) > 0 {
		l := t.queue[0]
		if wait := l.queuedFor - now; wait > 0 {
			return ends, time.Duration(wait)
		}
		if l.deadline > now {
			t.enqueueLocked(l, l.deadline) // touched since
			continue
		}
		if !l.closing {
			t.margin.Observe(0)
		}
		l.closing = true
		t.enqueueLocked(l, now+moment(closeRetry))
		ends = append(ends, &znode.Command{Session: l.id, Generation: l.generation, Body: &znode.Expire{}})
	}
	return ends, time.Hour
}

func (t *tracker) enqueueLocked(l *tracked, at moment) {
	l.queuedFor = at
	if l.index >= 0 {
		heap.Fix(&t.queue, int(l.index))
	} else {
		heap.Push(&t.queue, l)
	}
	if l.index == 0 {
		t.wake.set()
	}
}

// deadlines is a heap of leases, the earliest first.
type deadlines []*tracked

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].queuedFor < d[j].queuedFor }
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = int32(i), int32(j)
}

// Push implements heap.Interface.
func (d *deadlines) Push(x any) {
	l := x.(*tracked)
	l.index = int32(len(*d))
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

// count returns the number of leases; -1 if this member does not lead.
func (t *tracker) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.leading {
		return -1
	}
	return len(t.leases)
}

// Deadline is the time at which a session expires if no member hears from its client until then.
type Deadline struct {
	Session wire.SessionID
	At      time.Time
}

// list is Manager.Deadlines.
func (t *tracker) list() (list []Deadline, leads bool) {
	t.mu.Lock()
	leads = t.leading
	now := t.awake()
	for _, l := range t.leases {
		list = append(list, Deadline{Session: l.id, At: time.Now().Add(time.Duration(l.deadline - now))})
	}
	t.mu.Unlock()
	slices.SortFunc(list, func(a, b Deadline) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(uint64(a.Session), uint64(b.Session)))
	})
	return list, leads
}

// expire proposes the end of expired sessions while this member leads, until ctx ends.
func (t *tracker) expire(ctx context.Context, m *member) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		ends, next := t.due()
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
		case <-t.wake:
		}
	}
}

// reap deletes containers that have become empty and TTL nodes that have expired, while this
// member leads (docs/protocol/semantics.md 5.2). It only proposes: each node is checked again when
// the command is applied.
func (t *tracker) reap(ctx context.Context, m *member) {
	every(ctx, m.cfg.Reap.Interval, func() {
		if t.leads() {
			reap(ctx, m)
		}
	})
}

// reapRows bounds the nodes that are read under one lock.
const reapRows = 20_000

// reap proposes the deletion of the nodes that are perishable now, at the pace of the
// configuration. Proposals that are lost with the leadership are made again by the next leader. If
// nothing is written, it brings the cluster's clock into the log: after a restart, containers and
// TTL nodes count from there.
func reap(ctx context.Context, m *member) {
	neverUsedMs := int32(min(m.cfg.Reap.NeverUsed.Milliseconds(), math.MaxInt32))
	var paths []string
	now, behind := m.replica.ClockMs(), int64(0)
	for row := uint32(0); ; {
		var found []string
		m.replica.View(func(s *znode.Store) {
			found, row = s.Perishable(now, neverUsedMs, row, reapRows)
			if s.HasPerishables() {
				behind = now - s.ClockMs()
			}
		})
		if paths = append(paths, found...); row == 0 {
			break
		}
	}
	slices.Sort(paths)
	if len(paths) == 0 && behind < m.cfg.Reap.Interval.Milliseconds()/2 {
		return
	}
	if len(paths) == 0 {
		paths = []string{""} // no node: its entry brings the clock into the log
	}
	m.log.Debug("reaping containers and TTL nodes", "nodes", len(paths))
	pace := time.NewTicker(max(time.Minute/time.Duration(m.cfg.Reap.PerMinute), 1))
	defer pace.Stop()
	for _, path := range paths {
		c := &znode.Command{Body: &znode.Reap{Path: path, NeverUsedMs: neverUsedMs}}
		if m.replica.ProposeOnce(ctx, c) != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
	}
}
