package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"lockkeeper/wire"
)

// Requests of heavyBytes or more take turns: heavyTogether bytes of them may be unanswered, in the
// order in which they came. Else the short requests of others would wait behind all of them: for a
// processor that decodes them, for the stream to the leader, for the log and its disk.
const (
	heavyBytes    = 16 << 10
	heavyTogether = 1 << 20
)

// errLarge says that a request was too much for LargeBytes.
var errLarge = errors.New("session: too many bytes of large requests are unanswered (largeRequestMaxBytes)")

// throttle counts the requests of all connections that are not answered yet.
type throttle struct {
	limits Limits
	stats  *stats

	mu          sync.Mutex
	left        sync.Cond // requests have been answered, or a connection has ended
	outstanding int       // Limits.Outstanding, which may change
	inProcess   int
	large       int // bytes

	heavy     *semaphore.Weighted // bytes, see heavyTogether
	answering *semaphore.Weighted // 1: see executeLong
}

func (t *throttle) init(l Limits, s *stats) {
	t.limits, t.stats, t.outstanding = l, s, l.Outstanding
	t.left.L = &t.mu
	t.heavy, t.answering = semaphore.NewWeighted(heavyTogether), semaphore.NewWeighted(1)
}

// takeTurn waits until n bytes of heavy requests may be processed, of which it returns how many
// have to be given back: none of a request that is not heavy. Its error is that of ctx.
func (t *throttle) takeTurn(ctx context.Context, s *Session, n int) (taken int, err error) {
	if n < heavyBytes {
		return 0, nil
	}
	n = min(n, heavyTogether)
	if t.heavy.TryAcquire(int64(n)) {
		return n, nil
	}
	s.out.wake()
	if err := t.heavy.Acquire(ctx, int64(n)); err != nil {
		return 0, err
	}
	return n, nil
}

func (t *throttle) setOutstanding(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.outstanding = n
}

// admitLarge counts the bytes of a large request, unless they are too many.
func (t *throttle) admitLarge(size int) (counted int, err error) {
	if t.limits.LargeRequest <= 0 || size <= t.limits.LargeRequest {
		return 0, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.large+size > t.limits.LargeBytes {
		t.stats.inc(&t.stats.TooLarge)
		return 0, errLarge
	}
	t.large += size
	return size, nil
}

// enter counts a request that is not answered at once.
func (t *throttle) enter() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inProcess++
}

// leave takes requests out of the count that are answered, or whose connection has ended. It also
// wakes a wait of that connection. heavyBytes are what takeTurn has returned for them.
func (t *throttle) leave(requests, largeBytes, heavyBytes int) {
	t.heavy.Release(int64(heavyBytes))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inProcess -= requests
	t.large -= largeBytes
	t.left.Broadcast()
}

// crowded reports whether connections that have a request outstanding must not be read.
func (t *throttle) crowded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.outstanding > 0 && t.inProcess > t.outstanding
}

// wait waits until one more request may be taken, or s has ended. tooLong says that op must be
// answered with ThrottledOp.
func (t *throttle) wait(s *Session, op wire.Op) (tooLong bool) {
	if t.limits.Requests <= 0 || op == wire.OpAuth || op == wire.OpSASL {
		return false
	}
	start := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.inProcess >= t.limits.Requests && !s.ended.Load() {
		s.out.wake()
		t.left.Wait()
	}
	if t.limits.Wait <= 0 || time.Since(start) <= t.limits.Wait || op == wire.OpPing || op == wire.OpCloseSession {
		return false
	}
	t.stats.inc(&t.stats.Throttled)
	return true
}
