package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"lockkeeper/bench"
	"lockkeeper/jepsen"
)

const (
	// leaseSeconds is the lease of a lock's session.
	leaseSeconds = 30
	// keysPerClient is the number of keys that a client writes to, as in package bench.
	keysPerClient = 16
	sizeBytes     = 100
)

// etcdLoad are clients of etcd with the operations of package bench.
type etcdLoad struct {
	clients int
	prefix  string

	began    time.Time
	released atomic.Int64 // when the lock was last given back, in ns since began
}

// etcdClient is one of them. It works until ctx ends, and calls done for each operation.
type etcdClient func(ctx context.Context, c *clientv3.Client, n int, done func(took time.Duration)) error

// run measures for a duration. Each client has a connection of its own, client n to the n-th
// endpoint, and again from the first. With a rate they write at given times (open loop).
func (w *etcdLoad) run(ctx context.Context, e *etcd, endpoints []string, client etcdClient, rate float64,
	duration time.Duration) (*bench.Result, error) {
	w.began = time.Now()
	clients := make([]*clientv3.Client, w.clients)
	for n := range clients {
		var err error
		if clients[n], err = dialEtcd(endpoints[n%len(endpoints)]); err != nil {
			return nil, err
		}
		defer clients[n].Close()
	}
	cfg := bench.Config{Servers: endpoints, Clients: w.clients, Rate: rate, Duration: duration, Size: sizeBytes,
		PIDs: e.pids}
	if rate > 0 {
		return bench.MeasureRate(ctx, cfg, w.writeAt(clients))
	}
	return bench.Measure(ctx, cfg, func(ctx context.Context, n int, done func(time.Duration)) error {
		return client(ctx, clients[n], n, done)
	})
}

// writeAt puts a key of client n, in a goroutine of its own: a call of etcd's client waits for the
// reply.
func (w *etcdLoad) writeAt(clients []*clientv3.Client) func(ctx context.Context, n int, done func(error)) {
	data := string(make([]byte, sizeBytes))
	sent := 0
	return func(ctx context.Context, n int, done func(error)) {
		sent++
		key := fmt.Sprintf("%s/%d-%d", w.prefix, n, sent%keysPerClient)
		go func() {
			_, err := clients[n].Put(ctx, key, data)
			done(err)
		}()
	}
}

// write puts keys of its own.
func (w *etcdLoad) write(ctx context.Context, c *clientv3.Client, n int, done func(time.Duration)) error {
	data := string(make([]byte, sizeBytes))
	for i := 0; ctx.Err() == nil; i++ {
		start := time.Now()
		if _, err := c.Put(ctx, fmt.Sprintf("%s/%d-%d", w.prefix, n, i%keysPerClient), data); err != nil {
			return err
		}
		done(time.Since(start))
	}
	return nil
}

// openMutex opens a session and makes a lock; end closes the session.
func openMutex(c *clientv3.Client, prefix string) (m *concurrency.Mutex, end func(), err error) {
	s, err := concurrency.NewSession(c, concurrency.WithTTL(leaseSeconds))
	if err != nil {
		return nil, nil, err
	}
	return concurrency.NewMutex(s, prefix), func() { _ = s.Close() }, nil
}

// cycle takes and gives back a lock of its own.
func (w *etcdLoad) cycle(ctx context.Context, c *clientv3.Client, n int, done func(time.Duration)) error {
	return lockAndUnlock(ctx, c, fmt.Sprintf("%s/%d", w.prefix, n), done)
}

// share takes and gives back the lock that all clients share.
func (w *etcdLoad) share(ctx context.Context, c *clientv3.Client, _ int, done func(time.Duration)) error {
	return lockAndUnlock(ctx, c, w.prefix, done)
}

func lockAndUnlock(ctx context.Context, c *clientv3.Client, prefix string, done func(time.Duration)) error {
	m, end, err := openMutex(c, prefix)
	if err != nil {
		return err
	}
	defer end()
	for ctx.Err() == nil {
		start := time.Now()
		if err := m.Lock(ctx); err != nil {
			return err
		}
		if err := m.Unlock(ctx); err != nil {
			return err
		}
		done(time.Since(start))
	}
	return nil
}

// contend is one of many that want one lock. It measures from when Unlock is called until the next
// one's Lock returns, if that one was waiting by then; the lock is kept until one is.
func (w *etcdLoad) contend(ctx context.Context, c *clientv3.Client, _ int, done func(time.Duration)) error {
	m, end, err := openMutex(c, w.prefix)
	if err != nil {
		return err
	}
	defer end()
	for ctx.Err() == nil {
		wanted := int64(time.Since(w.began))
		err := m.Lock(ctx)
		if err == nil {
			if released := w.released.Load(); wanted < released {
				done(time.Since(w.began) - time.Duration(released))
			}
			if err = w.awaited(ctx, c); err == nil {
				w.released.Store(int64(time.Since(w.began)))
				err = m.Unlock(ctx)
			}
		}
		if err != nil {
			return errors.Join(err, ctx.Err())
		}
	}
	return nil
}

// watchTime is the time for a client of etcd to set up its watch, after its key is in the queue.
const watchTime = 5 * time.Millisecond

// awaited returns when the other of two clients is in the queue, and has had time to set its watch;
// it does not say when it has. Of more than two, one always waits.
func (w *etcdLoad) awaited(ctx context.Context, c *clientv3.Client) error {
	if w.clients > 2 {
		return nil
	}
	for {
		r, err := c.Get(ctx, w.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return err
		}
		if !jepsen.Sleep(ctx, watchTime) || r.Count >= 2 {
			return ctx.Err()
		}
	}
}
