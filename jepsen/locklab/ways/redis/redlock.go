package redis

import (
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	pool "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"lockkeeper/jepsen/locklab/lock"
)

// redLock is a client of RedLock, by redsync: the lock is a key on a majority of independent
// servers, valid for the lease less the time that this took and a share for clocks that drift.
type redLock struct {
	servers []*redis.Client
	sync    *redsync.Redsync
	lease   time.Duration
}

func openRedLock(_ context.Context, c lock.Config) (lock.Client, error) {
	r := &redLock{lease: c.Lease}
	var pools []pool.Pool
	for _, addr := range c.Servers {
		server := connect([]string{addr})
		r.servers, pools = append(r.servers, server), append(pools, goredis.NewPool(server))
	}
	r.sync = redsync.New(pools...)
	return r, nil // it does without some of them
}

// Lock implements lock.Client.
func (r *redLock) Lock(ctx context.Context, resource string) (lock.Held, error) {
	h := &majority{mutex: r.sync.NewMutex(resource, redsync.WithExpiry(r.lease), redsync.WithTries(1)), lost: make(chan struct{})}
	if err := retry(ctx, func() (bool, error) { err := h.mutex.LockContext(ctx); return err == nil, err }); err != nil {
		return nil, err
	}
	h.expiry = time.AfterFunc(time.Until(h.mutex.Until()), func() { close(h.lost) })
	return h, nil
}

// Close implements lock.Client.
func (r *redLock) Close() error {
	var errs []error
	for _, s := range r.servers {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// majority is a lock that a majority of servers has.
type majority struct {
	mutex  *redsync.Mutex
	lost   chan struct{}
	expiry *time.Timer
}

// Token implements lock.Held.
func (m *majority) Token() uint64 { return 0 }

// Lost implements lock.Held: it is closed when the validity that redsync has computed is over.
func (m *majority) Lost() <-chan struct{} { return m.lost }

// Unlock implements lock.Held.
func (m *majority) Unlock(ctx context.Context) error {
	m.expiry.Stop()
	ok, err := m.mutex.UnlockContext(ctx)
	if err == nil && !ok {
		err = errNotHeld
	}
	return err
}
