package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/wire"
)

// lockCycle is taking and giving back a lock that no other client wants; each client has a lock of
// its own.
func lockCycle(ctx context.Context, r *run) error {
	if err := r.makeDirs(ctx, "lock", r.Clients); err != nil {
		return err
	}
	return r.clients(ctx, func(n int) work {
		dir := fmt.Sprintf("%s/lock%d", r.dir, n)
		return func(ctx context.Context, c *conn, done func(time.Duration)) error {
			for ctx.Err() == nil {
				start := time.Now()
				own, err := c.create(dir+"/lock-", wire.ModeEphemeralSequential)
				if err != nil {
					return err
				}
				names, err := c.children(dir)
				if err != nil {
					return err
				}
				if len(names) != 1 {
					// The nodes of an earlier connection of this client go with its session.
					r.fail(errors.New("somebody else in the queue"))
				}
				if _, err := c.call(wire.OpDelete, &wire.DeleteRequest{Path: own, Version: -1}); err != nil {
					return err
				}
				done(time.Since(start))
			}
			return ctx.Err()
		}
	})
}

// lockContended is one queue in which all clients stand. An operation is a handoff: its latency is
// from when the delete is sent that releases the lock until the next holder knows, having read the
// queue. A holder keeps the lock until the next one waits for it, so every lock that is given back
// is passed on.
func lockContended(ctx context.Context, r *run) error {
	if err := r.makeDirs(ctx, "lock", 1); err != nil {
		return err
	}
	q := &queue{dir: r.dir + "/lock0", began: time.Now(), watches: make(map[string]chan struct{})}
	return r.clients(ctx, func(int) work { return q.stand })
}

// queue is the lock of lockContended.
type queue struct {
	dir      string
	began    time.Time
	released atomic.Int64 // when the last delete was sent, in ns since began

	mu      sync.Mutex
	watches map[string]chan struct{} // closed when a client watches the node of this name
}

// stand takes the lock and gives it back, again and again.
func (q *queue) stand(ctx context.Context, c *conn, done func(time.Duration)) error {
	for ctx.Err() == nil {
		path, err := c.create(q.dir+"/lock-", wire.ModeEphemeralSequential)
		if err != nil {
			return err
		}
		own := path[len(q.dir)+1:]
		waited, err := q.await(ctx, c, own)
		if err != nil {
			return err
		}
		if waited {
			done(time.Since(q.began) - time.Duration(q.released.Load()))
		}
		select {
		case <-q.watched(own):
		case <-ctx.Done():
			return ctx.Err()
		}
		q.forget(own)
		q.released.Store(int64(time.Since(q.began)))
		if _, err := c.call(wire.OpDelete, &wire.DeleteRequest{Path: path, Version: -1}); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// watched is closed when a client watches a node.
func (q *queue) watched(node string) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.watchLocked(node)
}

func (q *queue) watchLocked(node string) chan struct{} {
	ch := q.watches[node]
	if ch == nil {
		ch = make(chan struct{})
		q.watches[node] = ch
	}
	return ch
}

// watch records that a client watches a node; another one with an ended session may have watched
// it.
func (q *queue) watch(node string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ch := q.watchLocked(node)
	select {
	case <-ch:
	default:
		close(ch)
	}
}

func (q *queue) forget(node string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.watches, node)
}

// await waits until own is the first in the queue; waited says that it was not at once.
func (q *queue) await(ctx context.Context, c *conn, own string) (waited bool, err error) {
	for {
		names, err := c.children(q.dir)
		if err != nil {
			return waited, err
		}
		slices.Sort(names)
		i := slices.Index(names, own)
		if i < 0 {
			return waited, errors.New("own node has gone")
		}
		if i == 0 {
			return waited, nil
		}
		waited = true
		before := names[i-1]
		_, err = c.call(wire.OpExists, &wire.PathWatchRequest{Path: q.dir + "/" + before, Watch: true})
		if errors.Is(err, wire.CodeNoNode) {
			continue // its session has ended
		}
		if err != nil {
			return waited, err
		}
		q.watch(before)
		if _, err := c.event(ctx); err != nil {
			return waited, err
		}
	}
}
