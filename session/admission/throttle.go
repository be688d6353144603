package admission

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"lockkeeper/wire"
)

// Requests of HeavyBytes or more take turns: HeavyTogether bytes of them may be unanswered, in the
// order in which they came. Else the short requests of others would wait behind all of them: for a
// processor that decodes them, for the stream to the leader, for the log and its disk.
const (
	HeavyBytes    = 16 << 10
	HeavyTogether = 1 << 20
)

// ErrLarge says that a request was too much for LargeBytes.
var ErrLarge = errors.New("session: too many bytes of large requests are unanswered (largeRequestMaxBytes)")

// throttle counts the requests of all connections that are not answered yet.
type throttle struct {
	limits  *Limits
	refused *refusals

	mu          sync.Mutex
	left        sync.Cond // requests have been answered, or a connection has ended
	outstanding int       // Limits.Outstanding, which may change
	inProcess   int
	large       int // bytes

	heavy *semaphore.Weighted // bytes, see HeavyTogether
}

func (t *throttle) init(l *Limits, r *refusals) {
	t.limits, t.refused, t.outstanding = l, r, l.Outstanding
	t.left.L = &t.mu
	t.heavy = semaphore.NewWeighted(HeavyTogether)
}

// takeTurn waits until n bytes of heavy requests may be processed. It returns the bytes to release
// later; 0 if the request is not heavy. Its error is from ctx.
func (t *throttle) takeTurn(ctx context.Context, c Conn, n int) (taken int, err error) {
	if n < HeavyBytes {
		return 0, nil
	}
	n = min(n, HeavyTogether)
	if t.heavy.TryAcquire(int64(n)) {
		return n, nil
	}
	c.Wake()
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
		t.refused.inc(&t.refused.TooLarge)
		return 0, ErrLarge
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

// leave takes requests out of the count that are answered, or have lost their connection. It also
// wakes a wait of that connection. heavyBytes are from takeTurn.
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
func (t *throttle) wait(c Conn, op wire.Op) (tooLong bool) {
	if t.limits.Requests <= 0 || op == wire.OpAuth || op == wire.OpSASL {
		return false
	}
	start := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.inProcess >= t.limits.Requests && !c.Over() {
		c.Wake()
		t.left.Wait()
	}
	if t.limits.Wait <= 0 || time.Since(start) <= t.limits.Wait || op == wire.OpPing || op == wire.OpCloseSession {
		return false
	}
	t.refused.inc(&t.refused.Throttled)
	return true
}
