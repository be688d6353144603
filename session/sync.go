package session

import (
	"context"
	"fmt"
	"sync"

	"lockkeeper/znode"
)

// syncs makes reads outside of any session linearizable. One sync command serves all calls of Sync
// that came before it was proposed, so at most one is in flight.
type syncs struct {
	wake chan struct{} // capacity 1: a call of Sync waits

	mu    sync.Mutex
	next  chan struct{} // of the calls that wait, closed when they may read; nil if there are none
	nonce uint64        // of the command under way
	over  chan bool     // its end: whether it is known to have been applied
}

func (q *syncs) init() { q.wake = make(chan struct{}, 1) }

// Sync returns when this member has applied everything that had been committed when it was called:
// a View that follows is linearizable. It waits for a leader if there is none, until ctx ends.
func (m *Manager) Sync(ctx context.Context) error {
	q := &m.syncs
	q.mu.Lock()
	if q.next == nil {
		q.next = make(chan struct{})
	}
	done := q.next
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("session: sync: %w", ctx.Err())
	}
}

// syncLoop proposes a sync when a call of Sync waits for one.
func (m *Manager) syncLoop(ctx context.Context) {
	defer m.wg.Done()
	q := &m.syncs
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.wake:
		}
		q.mu.Lock()
		done := q.next
		q.next = nil
		q.mu.Unlock()
		if done == nil {
			continue // served by the round before
		}
		for applied := false; !applied; {
			var err error
			if applied, err = m.syncOnce(ctx); err != nil {
				return // the member stops
			}
		}
		close(done)
	}
}

// syncOnce proposes a sync and waits until it is applied; false if it is not known to be, and has
// to be made again.
func (m *Manager) syncOnce(ctx context.Context) (applied bool, err error) {
	c := &znode.Command{Kind: znode.KindSync, Seq: m.nonce()}
	over := make(chan bool, 1)
	q := &m.syncs
	q.mu.Lock()
	q.nonce, q.over = c.Seq, over
	q.mu.Unlock()
	if err := m.replica.Propose(ctx, c); err != nil {
		return false, err
	}
	select {
	case applied := <-over:
		return applied, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// syncApplied is the part of Applied for syncs.
func (m *Manager) syncApplied(c *znode.Command) {
	q := &m.syncs
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over != nil && q.nonce == c.Seq {
		q.over <- true
		q.over = nil
	}
}

// lost is the part of Restored for syncs: what was under way may have been applied before the
// snapshot.
func (q *syncs) lost() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over != nil {
		q.over <- false
		q.over = nil
	}
}
