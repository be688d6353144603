package session

import (
	"context"
	"fmt"
	"sync"

	"lockkeeper/znode"
)

// syncs makes reads outside of any session linearizable. One sync command serves all calls of Sync
// before it was proposed, so at most one is in flight.
type syncs struct {
	m    *member
	wake signal // a call of Sync waits

	mu    sync.Mutex
	next  chan struct{} // of the calls that wait, closed when they may read; nil if there are none
	nonce uint64        // of the command in flight
	over  chan bool     // receives whether that command is known to have been applied
}

// sync is Manager.Sync.
func (q *syncs) sync(ctx context.Context) error {
	q.mu.Lock()
	if q.next == nil {
		q.next = make(chan struct{})
	}
	done := q.next
	q.mu.Unlock()
	q.wake.set()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("session: sync: %w", ctx.Err())
	}
}

// run proposes a sync when a call of Sync waits for one, until ctx ends.
func (q *syncs) run(ctx context.Context) {
	for received(ctx, q.wake) {
		q.mu.Lock()
		done := q.next
		q.next = nil
		q.mu.Unlock()
		if done == nil {
			continue // served by the round before
		}
		for applied := false; !applied; {
			var err error
			if applied, err = q.once(ctx); err != nil {
				return // the member stops
			}
		}
		close(done)
	}
}

// once proposes a sync and waits until it is applied; false if it is not known to be, and has
// to be made again.
func (q *syncs) once(ctx context.Context) (applied bool, err error) {
	c := &znode.Command{Seq: q.m.nonce(), Body: &znode.Sync{}}
	over := make(chan bool, 1)
	q.mu.Lock()
	q.nonce, q.over = c.Seq, over
	q.mu.Unlock()
	if err := q.m.replica.Propose(ctx, c); err != nil {
		return false, err
	}
	select {
	case applied := <-over:
		return applied, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// finish ends the round of the command with that nonce; the round in flight if nonce is 0.
func (q *syncs) finish(nonce uint64, applied bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over != nil && (q.nonce == nonce || nonce == 0) {
		q.over <- applied
		q.over = nil
	}
}
