package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"lockkeeper/jepsen/locklab/lock"
	"lockkeeper/jepsen/locklab/system"
)

// Ways are all locks in Redis, on one server, on a primary with a replica and sentinels, and on
// three and five independent servers.
func Ways() (ways []lock.Way) {
	for _, on := range []string{"redis", "redis-sentinel"} {
		ways = append(ways,
			lock.Way{Name: on + "-setnx", System: on, Open: openKey(keyLock{naive: true})},
			lock.Way{Name: on + "-set-px", System: on, Open: openKey(keyLock{})},
			lock.Way{Name: on + "-redisson", System: on, Open: openRedisson(false)},
			lock.Way{Name: on + "-redisson-fair", System: on, Open: openRedisson(true)})
	}
	return append(ways,
		lock.Way{Name: "redlock-3", System: "redis-3", Open: openRedLock},
		lock.Way{Name: "redlock", System: "redis-5", Open: openRedLock},
		lock.Way{Name: "twin-unlock-without-compare", System: "redis", Broken: true, Open: openKey(keyLock{blind: true})},
		lock.Way{Name: "twin-renewal-never-stops", System: "redis", Broken: true, Open: openKey(keyLock{renews: true})})
}

// spin is how long somebody who did not get a lock waits before the next try.
const spin = 25 * time.Millisecond

// replyPatience is how long a server may take to answer a request.
const replyPatience = time.Second

// connect makes a client of the server that is the primary. Each new connection looks for it, as
// clients of sentinels do; nothing is sent twice.
func connect(servers []string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Dialer:      func(ctx context.Context, _, _ string) (net.Conn, error) { return dialPrimary(ctx, servers) },
		ReadTimeout: replyPatience, WriteTimeout: replyPatience, DialTimeout: replyPatience, MaxRetries: -1, PoolSize: 4,
		DisableIdentity: true, Protocol: 2, ConnMaxIdleTime: -1,
	})
}

// dialPrimary asks all servers at once, as some may not answer.
func dialPrimary(ctx context.Context, servers []string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, replyPatience)
	defer cancel()
	if len(servers) == 1 {
		return new(net.Dialer).DialContext(ctx, "tcp", servers[0])
	}
	type answer struct {
		conn net.Conn
		err  error
	}
	answers := make(chan answer)
	for _, addr := range servers {
		go func() {
			c, err := dialIfPrimary(ctx, addr)
			select {
			case answers <- answer{c, err}:
			case <-ctx.Done():
				if c != nil {
					_ = c.Close()
				}
			}
		}()
	}
	errs := []error{errors.New("redis: there is no primary")}
	for range servers {
		select {
		case a := <-answers:
			if a.err == nil {
				return a.conn, nil
			}
			errs = append(errs, a.err)
		case <-ctx.Done():
			return nil, errors.Join(append(errs, ctx.Err())...)
		}
	}
	return nil, errors.Join(errs...)
}

// dialIfPrimary connects to a server, or returns an error if it is not the primary.
func dialIfPrimary(ctx context.Context, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	role, err := system.RedisSay(c, "ROLE")
	if err == nil && role != "master" {
		err = fmt.Errorf("redis: %s is a %s", addr, role)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// retry tries until it succeeds or ctx ends.
func retry(ctx context.Context, try func() (bool, error)) error {
	var last error
	for {
		ok, err := try()
		if ok {
			return nil
		}
		if err != nil {
			last = err
		}
		select {
		case <-time.After(spin):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), last)
		}
	}
}

var errNotHeld = errors.New("the lock was not held any more")

// silent is a lock without a notice of its loss.
type silent struct{}

// Token implements lock.Held.
func (silent) Token() uint64 { return 0 }

// Lost implements lock.Held.
func (silent) Lost() <-chan struct{} { return nil }

// keyLock is a key that exists while the lock is held.
type keyLock struct {
	naive  bool // SETNX and then EXPIRE, and DEL, without a token
	blind  bool // a bug: DEL although it may be somebody else's by now
	renews bool // a bug: a renewal that goes on after the release, whoever has the key by then

	redis *redis.Client
	node  string
	lease time.Duration
}

func openKey(kind keyLock) func(context.Context, lock.Config) (lock.Client, error) {
	return func(ctx context.Context, c lock.Config) (lock.Client, error) {
		k := kind
		k.redis, k.node, k.lease = connect(c.Servers), c.Node, c.Lease
		if err := k.redis.Ping(ctx).Err(); err != nil {
			return nil, errors.Join(fmt.Errorf("redis: %w", err), k.redis.Close())
		}
		return &k, nil
	}
}

// Lock implements lock.Client.
func (k *keyLock) Lock(ctx context.Context, resource string) (lock.Held, error) {
	h := &heldKey{client: k, key: resource, value: k.node}
	if !k.naive {
		h.value = rand.Text()
	}
	err := retry(ctx, func() (bool, error) {
		if !k.naive {
			return k.redis.SetNX(ctx, h.key, h.value, k.lease).Result()
		}
		ok, err := k.redis.SetNX(ctx, h.key, h.value, 0).Result()
		if ok {
			err = k.redis.PExpire(ctx, h.key, k.lease).Err()
		}
		return ok, err
	})
	if err != nil {
		return nil, err
	}
	if k.renews {
		go h.renew()
	}
	return h, nil
}

// Close implements lock.Client.
func (k *keyLock) Close() error { return k.redis.Close() }

// heldKey is a key that this client has set.
type heldKey struct {
	silent
	client     *keyLock
	key, value string
}

// renew is the bug of a twin: it never stops, and does not look at the holder.
func (h *heldKey) renew() {
	for range time.Tick(h.client.lease / 3) {
		ctx, cancel := context.WithTimeout(context.Background(), replyPatience)
		_ = h.client.redis.SetXX(ctx, h.key, h.value, h.client.lease).Err()
		cancel()
	}
}

// compareAndDelete deletes a key if it has a value.
var compareAndDelete = redis.NewScript(`
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('del', KEYS[1])`)

// Unlock implements lock.Held.
func (h *heldKey) Unlock(ctx context.Context) error {
	var n int64
	var err error
	if h.client.naive || h.client.blind {
		n, err = h.client.redis.Del(ctx, h.key).Result()
	} else {
		n, err = compareAndDelete.Run(ctx, h.client.redis, []string{h.key}, h.value).Int64()
	}
	if err == nil && n == 0 {
		err = errNotHeld
	}
	return err
}
