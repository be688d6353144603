package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"lockkeeper/bench"
)

const (
	// warmUp is for how long clients work before they are measured; it is the same in package bench.
	warmUp = time.Second
	// leaseSeconds is that of a lock's session.
	leaseSeconds = 30
	// keysPerClient is how many keys a client writes to, as in package bench.
	keysPerClient = 16
	sizeBytes     = 100
)

// etcdLoad are clients of etcd, each with a connection of its own, that do what those of package bench do.
type etcdLoad struct {
	clients   int
	endpoints []string // client n has the n-th, and again from the first
	pids      []int
	prefix    string
	client    func(ctx context.Context, c *clientv3.Client, n int, done func(time.Duration)) error

	measuring atomic.Bool
	released  atomic.Int64 // when the lock was last given back, in ns since began
	began     time.Time
}

// run measures for a duration.
func (w *etcdLoad) run(ctx context.Context, duration time.Duration) (*bench.Result, error) {
	w.began = time.Now()
	clients := make([]*clientv3.Client, w.clients)
	defer func() {
		for _, c := range clients {
			if c != nil {
				_ = c.Close()
			}
		}
	}()
	for n := range clients {
		var err error
		if clients[n], err = dialEtcd(w.endpoints[n%len(w.endpoints)]); err != nil {
			return nil, err
		}
	}
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var all bench.Histogram
	var mu sync.Mutex
	var wg sync.WaitGroup
	for n, c := range clients {
		wg.Go(func() {
			var h bench.Histogram
			err := w.client(working, c, n, func(took time.Duration) {
				if w.measuring.Load() {
					h.Add(took)
				}
			})
			if err != nil && working.Err() == nil {
				stop(err)
			}
			mu.Lock()
			defer mu.Unlock()
			all.Merge(&h)
		})
	}
	_ = pause(working, warmUp)
	before, own, start := w.usage(), ownCPU(), time.Now()
	w.measuring.Store(true)
	_ = pause(working, duration)
	w.measuring.Store(false)
	took, ownUsed, used := time.Since(start), ownCPU()-own, w.usage()
	err := context.Cause(working)
	stop(nil)
	wg.Wait()
	if err != nil {
		return nil, err
	}
	r := bench.NewResult(&all, took, used.CPU-before.CPU, ownUsed)
	r.Servers, r.Clients, r.InFlight, r.Size = w.endpoints, w.clients, 1, sizeBytes
	for _, pid := range w.pids {
		if u, err := bench.UsageOf(pid); err == nil {
			r.Resident = append(r.Resident, u.Resident)
		}
	}
	return r, nil
}

// usage adds up the servers.
func (w *etcdLoad) usage() (total bench.Usage) {
	for _, pid := range w.pids {
		if u, err := bench.UsageOf(pid); err == nil {
			total.CPU += u.CPU
		}
	}
	return total
}

func ownCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
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

// mutex opens a session and makes a lock; end closes the session.
func mutex(c *clientv3.Client, prefix string) (m *concurrency.Mutex, end func(), err error) {
	s, err := concurrency.NewSession(c, concurrency.WithTTL(leaseSeconds))
	if err != nil {
		return nil, nil, err
	}
	return concurrency.NewMutex(s, prefix), func() { _ = s.Close() }, nil
}

// cycle takes and gives back a lock of its own.
func (w *etcdLoad) cycle(ctx context.Context, c *clientv3.Client, n int, done func(time.Duration)) error {
	m, end, err := mutex(c, fmt.Sprintf("%s/%d", w.prefix, n))
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

// contend is one of many that want one lock. It measures from when Unlock is called until the next one's Lock returns, if that one
// was waiting by then; the lock is kept until somebody is.
func (w *etcdLoad) contend(ctx context.Context, c *clientv3.Client, _ int, done func(time.Duration)) error {
	m, end, err := mutex(c, w.prefix)
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

// watchTime is what a client of etcd has to set up its watch, after its key is in the queue.
const watchTime = 5 * time.Millisecond

// awaited returns when the other of two clients is in the queue, and has had time to set its watch; it does not say when it has. Of
// more than two, somebody always waits.
func (w *etcdLoad) awaited(ctx context.Context, c *clientv3.Client) error {
	if w.clients > 2 {
		return nil
	}
	for {
		r, err := c.Get(ctx, w.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return err
		}
		if err := pause(ctx, watchTime); err != nil || r.Count >= 2 {
			return err
		}
	}
}
