package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"lockkeeper/jepsen/locklab/lock"
)

// redisson is a client as Redisson's: a hash for each lock, with the holder as field and how often
// it holds it as value, which a watchdog renews every third of the lease. Who waits subscribes to a
// channel on which the release is published.
type redisson struct {
	redis *redis.Client
	node  string
	lease time.Duration
	fair  bool
}

func openRedisson(fair bool) func(context.Context, lock.Config) (lock.Client, error) {
	return func(ctx context.Context, c lock.Config) (lock.Client, error) {
		r := &redisson{redis: connect(c.Servers), node: c.Node, lease: c.Lease, fair: fair}
		if err := r.redis.Ping(ctx).Err(); err != nil {
			return nil, errors.Join(fmt.Errorf("redis: %w", err), r.redis.Close())
		}
		return r, nil
	}
}

// The scripts have the hash as KEYS[1]. Times are in ms.
var (
	// take takes a lock that is free or held by ARGV[2] already, for ARGV[1]. It returns -1, or for
	// how long it is still held.
	take = redis.NewScript(`
if redis.call('exists', KEYS[1]) == 1 and redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
	return redis.call('pttl', KEYS[1])
end
redis.call('hincrby', KEYS[1], ARGV[2], 1)
redis.call('pexpire', KEYS[1], ARGV[1])
return -1`)

	// takeInTurn is take for the fair lock: KEYS[2] is the list of who waits, KEYS[3] has by when
	// each of them has to come. ARGV[3] is the wall clock of the client, ARGV[4] how long one who
	// waits may be silent.
	takeInTurn = redis.NewScript(`
while true do
	local first = redis.call('lindex', KEYS[2], 0)
	if not first or tonumber(redis.call('zscore', KEYS[3], first)) > tonumber(ARGV[3]) then break end
	redis.call('zrem', KEYS[3], first)
	redis.call('lpop', KEYS[2])
end
local first = redis.call('lindex', KEYS[2], 0)
if redis.call('hexists', KEYS[1], ARGV[2]) == 1
	or redis.call('exists', KEYS[1]) == 0 and (not first or first == ARGV[2]) then
	if first == ARGV[2] then
		redis.call('lpop', KEYS[2])
		redis.call('zrem', KEYS[3], ARGV[2])
	end
	redis.call('hincrby', KEYS[1], ARGV[2], 1)
	redis.call('pexpire', KEYS[1], ARGV[1])
	return -1
end
if not redis.call('zscore', KEYS[3], ARGV[2]) then redis.call('rpush', KEYS[2], ARGV[2]) end
redis.call('zadd', KEYS[3], ARGV[3] + ARGV[4], ARGV[2])
return math.max(0, redis.call('pttl', KEYS[1]))`)

	// renewHash gives a lock that ARGV[2] still holds another ARGV[1].
	renewHash = redis.NewScript(`
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return 0 end
return redis.call('pexpire', KEYS[1], ARGV[1])`)

	// release counts down and, with the last one, deletes the hash and publishes on the channel
	// KEYS[2]. It returns 0 if ARGV[2] did not hold it.
	release = redis.NewScript(`
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return 0 end
if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then
	redis.call('pexpire', KEYS[1], ARGV[1])
	return 1
end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], '0')
return 1`)

	// leave takes somebody who gives up out of the queue of the fair lock.
	leave = redis.NewScript(`
redis.call('zrem', KEYS[3], ARGV[2])
return redis.call('lrem', KEYS[2], 0, ARGV[2])`)
)

// silence is for how long one who waits in the fair lock's queue may not be heard of, in leases.
// Redisson's default is five minutes, with a lease of half a minute.
const silence = 10

// channel is where a release is published.
func channel(key string) string { return "unlock:{" + key + "}" }

func (r *redisson) try(ctx context.Context, key string) (left time.Duration, err error) {
	lease := r.lease.Milliseconds()
	var ms int64
	if r.fair {
		ms, err = takeInTurn.Run(ctx, r.redis, queueKeys(key), lease, r.node, time.Now().UnixMilli(), silence*lease).Int64()
	} else {
		ms, err = take.Run(ctx, r.redis, []string{key}, lease, r.node).Int64()
	}
	return time.Duration(ms) * time.Millisecond, err
}

func queueKeys(key string) []string {
	return []string{key, "queue:{" + key + "}", "timeouts:{" + key + "}"}
}

// Lock implements lock.Client.
func (r *redisson) Lock(ctx context.Context, resource string) (lock.Held, error) {
	releases := r.redis.Subscribe(ctx, channel(resource))
	defer releases.Close()
	published := releases.Channel()
	var last error
	for {
		left, err := r.try(ctx, resource)
		if err == nil && left < 0 {
			return r.hold(resource), nil
		}
		if err != nil {
			last, left = err, spin
		}
		select {
		case <-published:
		case <-time.After(max(left, spin)):
		case <-ctx.Done():
			if r.fair {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replyPatience)
				last = errors.Join(last, leave.Run(ctx, r.redis, queueKeys(resource), 0, r.node).Err())
				cancel()
			}
			return nil, errors.Join(ctx.Err(), last)
		}
	}
}

// hold starts the watchdog.
func (r *redisson) hold(key string) *heldHash {
	h := &heldHash{client: r, key: key}
	var ctx context.Context
	ctx, h.stop = context.WithCancel(context.Background())
	h.watchdog.Go(func() { h.renew(ctx) })
	return h
}

// Close implements lock.Client.
func (r *redisson) Close() error { return r.redis.Close() }

// heldHash is a hash that this client has made.
type heldHash struct {
	silent
	client   *redisson
	key      string
	stop     context.CancelFunc
	watchdog sync.WaitGroup
}

// renew is the watchdog. When the lock turns out to be lost it ends, and tells nobody.
func (h *heldHash) renew(ctx context.Context) {
	tick := time.NewTicker(h.client.lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		renewed, err := renewHash.Run(ctx, h.client.redis, []string{h.key}, h.client.lease.Milliseconds(), h.client.node).Int64()
		if err == nil && renewed == 0 {
			return
		}
	}
}

// Unlock implements lock.Held.
func (h *heldHash) Unlock(ctx context.Context) error {
	h.stop()
	h.watchdog.Wait()
	n, err := release.Run(ctx, h.client.redis, []string{h.key, channel(h.key)}, h.client.lease.Milliseconds(), h.client.node).Int64()
	if err == nil && n == 0 {
		err = errNotHeld
	}
	return err
}
