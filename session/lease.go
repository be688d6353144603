package session

import (
	"container/heap"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/internal/clock"
	"lockkeeper/internal/histogram"
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
	at *instants
	// local is set in read-only mode, in which there is no leader: confirmed is then when the
	// client was last heard from.
	local     bool
	timeout   int64        // nanoseconds
	confirmed atomic.Int64 // the lease runs until this instant plus timeout at least
	waiting   atomic.Bool  // heard from since the last report: the session is in Manager.heard
	openSince atomic.Int64 // since when it was heard from without a confirmation, 0 if not
}

func (l *lease) init(at *instants, timeout time.Duration, since int64) {
	l.at, l.timeout = at, int64(timeout)
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
	if woke := l.at.clock.Woke(); !woke.IsZero() && confirmed < l.at.instant(woke) {
		return 0
	}
	return confirmed + l.timeout/3 - now
}

// mayAnswer reports whether bytes may be sent to the client, as far as is known without a look
// whether the machine was suspended just now: sendUntil has it.
func (l *lease) mayAnswer() bool { return l.sendable(l.at.recent()) > 0 }

// sendUntil is the instant until which bytes may be sent to the client, for the deadline of the
// write that follows.
func (l *lease) sendUntil() time.Time {
	now := time.Now() // before the clock is read: this process may be stopped in between
	return now.Add(time.Duration(l.sendable(l.at.since())))
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
	for info := range store.Sessions().All() {
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

// instants are times in nanoseconds since base, by the clock of leases.
type instants struct {
	clock *clock.Clock
	base  time.Time
}

// since is the present instant in nanoseconds on the clock that counts suspends; never 0.
func (i *instants) since() int64 {
	return i.instant(i.clock.Now())
}

// recent is since for what may overlook a suspend that nobody has noticed yet. It costs less.
func (i *instants) recent() int64 {
	return i.instant(i.clock.Recent())
}

func (i *instants) instant(t time.Time) int64 { return int64(t.Sub(i.base)) + 1 }
