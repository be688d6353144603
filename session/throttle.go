package session

import (
	"cmp"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/wire"
)

// Limits bound the work that this member takes on (docs/protocol/sessions.md section 14), and the
// memory that clients can make it use. Zero switches a limit off, unless its comment says
// otherwise.
type Limits struct {
	// Identities is how many identities a connection may show besides its address, and
	// IdentityBytes how many bytes of schemes and ids these may have. More is answered with
	// AuthFailed, and the connection ends. 0 means the default.
	Identities, IdentityBytes int
	// Response is how many bytes the answer to a request may have. More is not made: the answer is
	// BadArguments. A connection that holds more than twice as much unsent ends. 0 means the
	// default.
	Response int
	// MultiReadOps is how many reads a multiRead may have, and MultiReadBytes how many bytes its
	// answer (multiRead.maxOps, multiRead.maxResponseBytes). More is answered with BadArguments.
	MultiReadOps, MultiReadBytes int
	// Memory is how many bytes all connections of this member may hold together of unsent output
	// and unanswered requests (type memory). 0 means the default.
	Memory int
	// WatchBytes is how much memory the watches of all connections of this member may take, and an
	// eighth of it those of one. More is answered with BadArguments; setWatches ends the
	// connection. 0 means the default.
	WatchBytes int
	// Outstanding is how many requests may be unanswered before connections that have one among
	// them are not read any more (ZooKeeper's globalOutstandingLimit, divided as there).
	Outstanding int
	// Requests is how many requests may be unanswered before none is taken any more
	// (request_throttle_max_requests).
	Requests int
	// Wait is how long a request may have waited for that; after it, it gets ThrottledOp
	// (throttled_op_wait_time).
	Wait time.Duration
	// LargeRequest is the length in bytes from which on a request counts as large, and LargeBytes
	// how many bytes of such requests may be unanswered (largeRequestThreshold,
	// largeRequestMaxBytes). A connection that exceeds it is closed.
	LargeRequest, LargeBytes int

	// What follows bounds what one request may cost the members. Zero means the default of the same
	// name.

	// ACLEntries and ACLBytes bound the ACL that a request may give a node, in entries and in bytes
	// of their schemes and ids (maxACLEntries, maxACLBytes).
	ACLEntries, ACLBytes int
	// Cost is how long applying a request may take by znode.CostOf (maxRequestCost).
	Cost time.Duration
	// Ephemerals is how many ephemeral nodes a session may have: they vanish together
	// (maxSessionEphemerals).
	Ephemerals int
}

// Defaults of the limits that are never off.
const (
	DefaultIdentities    = 100
	DefaultIdentityBytes = 16 << 10

	DefaultACLEntries = 1000
	DefaultACLBytes   = 64 << 10
	DefaultCost       = 30 * time.Millisecond
	DefaultEphemerals = 20_000
	DefaultResponse   = 64 << 20 // as of ZooKeeper's multiRead.maxResponseBytes
	DefaultMemory     = 256 << 20
	DefaultWatchBytes = 512 << 20
)

func (l *Limits) setDefaults() {
	l.Identities = cmp.Or(l.Identities, DefaultIdentities)
	l.IdentityBytes = cmp.Or(l.IdentityBytes, DefaultIdentityBytes)
	l.ACLEntries = cmp.Or(l.ACLEntries, DefaultACLEntries)
	l.ACLBytes = cmp.Or(l.ACLBytes, DefaultACLBytes)
	l.Cost = cmp.Or(l.Cost, DefaultCost)
	l.Ephemerals = cmp.Or(l.Ephemerals, DefaultEphemerals)
	l.Response = cmp.Or(l.Response, DefaultResponse)
	l.Memory = cmp.Or(l.Memory, DefaultMemory)
	l.WatchBytes = cmp.Or(l.WatchBytes, DefaultWatchBytes)
}

// errLarge says that a request was too much for LargeBytes.
var errLarge = errors.New("session: too many bytes of large requests are unanswered (largeRequestMaxBytes)")

// throttle counts the requests of all connections that are not answered yet. Every write passes
// here, so it locks only where somebody waits.
type throttle struct {
	limits Limits

	outstanding atomic.Int64 // Limits.Outstanding, which may change

	inProcess atomic.Int64
	large     atomic.Int64 // bytes
	throttled atomic.Int64 // requests that got ThrottledOp
	tooLarge  atomic.Int64 // requests beyond LargeBytes

	// Order: who waits is counted before it looks at inProcess, and who leaves is taken out of
	// inProcess before it looks whether anybody waits; so nobody waits for room that is there.
	waiting atomic.Int64
	mu      sync.Mutex
	room    *sync.Cond // requests have been answered, or a connection has ended
}

func (t *throttle) init(l Limits) {
	t.limits = l
	t.outstanding.Store(int64(l.Outstanding))
	t.room = sync.NewCond(&t.mu)
}

// admitLarge counts the bytes of a large request, unless they are too many.
func (t *throttle) admitLarge(size int) (counted int, err error) {
	if t.limits.LargeRequest <= 0 || size <= t.limits.LargeRequest {
		return 0, nil
	}
	for {
		before := t.large.Load()
		if before+int64(size) > int64(t.limits.LargeBytes) {
			t.tooLarge.Add(1)
			return 0, errLarge
		}
		if t.large.CompareAndSwap(before, before+int64(size)) {
			return size, nil
		}
	}
}

// enter counts a request that is not answered at once.
func (t *throttle) enter() { t.inProcess.Add(1) }

// leave takes answered requests out of the count.
func (t *throttle) leave(requests, largeBytes int) {
	t.inProcess.Add(int64(-requests))
	t.large.Add(int64(-largeBytes))
	t.wake()
}

// crowded says that connections which have something outstanding are not to be read.
func (t *throttle) crowded() bool {
	limit := t.outstanding.Load()
	return limit > 0 && t.inProcess.Load() > limit
}

// full says that no request is taken until others are answered.
func (t *throttle) full() bool {
	return t.limits.Requests > 0 && t.inProcess.Load() >= int64(t.limits.Requests)
}

// wait waits until there is room for one more request, or s has ended, and says whether that took
// too long for op.
func (t *throttle) wait(s *Session, op wire.Op) (tooLong bool) {
	if op == wire.OpAuth || op == wire.OpSASL || !t.full() {
		return false
	}
	s.out.wake()
	start := time.Now()
	t.mu.Lock()
	t.waiting.Add(1)
	for t.full() && !s.gone.Load() {
		t.room.Wait()
	}
	t.waiting.Add(-1)
	t.mu.Unlock()
	if t.limits.Wait <= 0 || time.Since(start) <= t.limits.Wait || op == wire.OpPing || op == wire.OpCloseSession {
		return false
	}
	t.throttled.Add(1)
	return true
}

// wake makes those that wait look whether there is room, or their session has ended.
func (t *throttle) wake() {
	if t.waiting.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.room.Broadcast()
}
