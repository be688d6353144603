package etcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"lockkeeper/jepsen/locklab/lock"
)

// Ways are the mutex, and the same with the revision of its key as a fencing token.
func Ways() []lock.Way {
	return []lock.Way{
		{Name: "etcd-mutex", System: "etcd", Open: open(false)},
		{Name: "etcd-mutex-fenced", System: "etcd", Twin: "etcd-mutex", Fenced: true, Open: open(true), Ask: openAsker},
	}
}

type client struct {
	etcd    *clientv3.Client
	session *concurrency.Session
	ttl     int
	fenced  bool
}

func open(fenced bool) func(context.Context, lock.Config) (lock.Client, error) {
	return func(ctx context.Context, c lock.Config) (lock.Client, error) {
		e, err := dial(c)
		if err != nil {
			return nil, err
		}
		// A TTL is in whole seconds; etcd makes it 2 s at least.
		l := &client{etcd: e, ttl: int(math.Ceil(c.Lease.Seconds())), fenced: fenced}
		if err := l.begin(ctx); err != nil {
			return nil, errors.Join(err, e.Close())
		}
		return l, nil
	}
}

func dial(c lock.Config) (*clientv3.Client, error) {
	e, err := clientv3.New(clientv3.Config{Endpoints: c.Servers, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		DialKeepAliveTime: c.Lease, DialKeepAliveTimeout: c.Lease / 2})
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	return e, nil
}

// begin opens a session. The session does not use the context, with which it would end.
func (c *client) begin(ctx context.Context) error {
	lease, err := c.etcd.Grant(ctx, int64(c.ttl))
	if err == nil {
		c.session, err = concurrency.NewSession(c.etcd, concurrency.WithLease(lease.ID))
	}
	if err != nil {
		return fmt.Errorf("etcd: session: %w", err)
	}
	return nil
}

// prefix is the prefix of the keys of a resource's lock.
func prefix(resource string) string { return "/locks/" + resource }

// Lock implements lock.Client.
func (c *client) Lock(ctx context.Context, resource string) (lock.Held, error) {
	select {
	case <-c.session.Done(): // it has expired: a program opens another one
		if err := c.begin(ctx); err != nil {
			return nil, err
		}
	default:
	}
	m := concurrency.NewMutex(c.session, prefix(resource))
	if err := m.Lock(ctx); err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	h := &held{mutex: m, session: c.session}
	if c.fenced {
		got, err := c.etcd.Get(ctx, m.Key())
		if err != nil || len(got.Kvs) == 0 {
			return nil, errors.Join(fmt.Errorf("etcd: the revision of %s: %w", m.Key(), err), m.Unlock(ctx))
		}
		h.token = uint64(got.Kvs[0].CreateRevision)
	}
	return h, nil
}

// Close implements lock.Client.
func (c *client) Close() error { return errors.Join(c.session.Close(), c.etcd.Close()) }

type held struct {
	mutex   *concurrency.Mutex
	session *concurrency.Session
	token   uint64
}

// Token implements lock.Held.
func (h *held) Token() uint64 { return h.token }

// Lost implements lock.Held: the session says when its lease can no longer be kept alive.
func (h *held) Lost() <-chan struct{} { return h.session.Done() }

// Unlock implements lock.Held.
func (h *held) Unlock(ctx context.Context) error { return h.mutex.Unlock(ctx) }

// asker is a resource's connection to the cluster.
type asker struct{ etcd *clientv3.Client }

func openAsker(_ context.Context, c lock.Config) (lock.Asker, error) {
	e, err := dial(c)
	return asker{e}, err
}

// Holds implements lock.Asker: the key with the smallest revision is the holder's.
func (a asker) Holds(ctx context.Context, resource string, token uint64) error {
	got, err := a.etcd.Get(ctx, prefix(resource)+"/", clientv3.WithFirstCreate()...)
	if err == nil && (len(got.Kvs) == 0 || uint64(got.Kvs[0].CreateRevision) != token) {
		err = fmt.Errorf("etcd: the holder of %s does not have token %d", resource, token)
	}
	return err
}

// Close implements lock.Asker.
func (a asker) Close() error { return a.etcd.Close() }
