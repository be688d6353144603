package session

import (
	"errors"
	"sync"
	"time"

	"lockkeeper/wire"
)

// Limits bound the work that this member takes on (spec/sessions.md section 14). Zero switches a limit off.
type Limits struct {
	// Outstanding is how many requests may be unanswered before connections that have one among them are
	// not read any more (ZooKeeper's globalOutstandingLimit, divided as there).
	Outstanding int
	// Requests is how many requests may be unanswered before none is taken any more
	// (request_throttle_max_requests).
	Requests int
	// Wait is how long a request may have waited for that; after it, it gets ThrottledOp
	// (throttled_op_wait_time).
	Wait time.Duration
	// LargeRequest is the length in bytes from which on a request counts as large, and LargeBytes how many
	// bytes of such requests may be unanswered (largeRequestThreshold, largeRequestMaxBytes). A connection
	// that exceeds it is closed.
	LargeRequest, LargeBytes int
}

// errLarge says that a request was too much for LargeBytes.
var errLarge = errors.New("session: too many bytes of large requests are unanswered (largeRequestMaxBytes)")

// throttle counts the requests of all connections that are not answered yet.
type throttle struct {
	limits Limits

	mu        sync.Mutex
	room      *sync.Cond // requests have been answered, or a connection has ended, while somebody waits
	waiting   int
	inProcess int
	large     int   // bytes
	throttled int64 // requests that got ThrottledOp
	tooLarge  int64 // requests beyond LargeBytes
}

func (t *throttle) init(l Limits) {
	t.limits = l
	t.room = sync.NewCond(&t.mu)
}

// admitLarge counts the bytes of a large request, unless they are too many.
func (t *throttle) admitLarge(size int) (counted int, err error) {
	if t.limits.LargeRequest <= 0 || size <= t.limits.LargeRequest {
		return 0, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.large+size > t.limits.LargeBytes {
		t.tooLarge++
		return 0, errLarge
	}
	t.large += size
	return size, nil
}

// enter counts a request that is not answered at once.
func (t *throttle) enter() {
	t.mu.Lock()
	t.inProcess++
	t.mu.Unlock()
}

// leave takes answered requests out of the count.
func (t *throttle) leave(requests, largeBytes int) {
	t.mu.Lock()
	t.inProcess -= requests
	t.large -= largeBytes
	if t.waiting > 0 {
		t.room.Broadcast()
	}
	t.mu.Unlock()
}

// crowded says that connections which have something outstanding are not to be read.
func (t *throttle) crowded() bool {
	if t.limits.Outstanding <= 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.inProcess > t.limits.Outstanding
}

// wait waits until there is room for one more request, or s has ended, and says whether that took too long for op.
func (t *throttle) wait(s *Session, op wire.Op) (tooLong bool) {
	if t.limits.Requests <= 0 || op == wire.OpAuth || op == wire.OpSASL {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inProcess < t.limits.Requests {
		return false
	}
	start := time.Now()
	t.waiting++
	for t.inProcess >= t.limits.Requests && !s.gone.Load() {
		t.room.Wait()
	}
	t.waiting--
	if t.limits.Wait <= 0 || time.Since(start) <= t.limits.Wait || op == wire.OpPing || op == wire.OpCloseSession {
		return false
	}
	t.throttled++
	return true
}

// wake makes those that wait look whether their session has ended.
func (t *throttle) wake() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting > 0 {
		t.room.Broadcast()
	}
}

// refused is how many requests were refused: for having waited, and for being large.
func (t *throttle) refused() (throttled, tooLarge int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.throttled, t.tooLarge
}
