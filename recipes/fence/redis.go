package fence

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// Redis remembers in a key of a Redis server, and executes the write in the script that checks the
// token. Nothing comes between the two. Any number of processes may share it; its methods may be
// called from any goroutine. It needs no library: Eval is a function of the caller's.
//
//	fenced := fence.Redis{Eval: func(ctx context.Context, script string, keys []string, args ...any) (any, error) {
//		return client.Eval(ctx, script, keys, args...).Result() // go-redis
//	}}
//
// The key is Prefix and the resource's name, its value the token in decimal digits. In a cluster of
// Redis the keys of one script are in one slot: give the resource the hash tag of the data's keys.
//
// The token is as durable as the data beside it. A failover or a restart that loses the newest
// writes loses both, and may accept a token that had been refused. The key has no expiry; a server
// that evicts keys without one (maxmemory-policy allkeys-*) forgets tokens, so do not use one.
type Redis struct {
	// Eval executes a script with EVAL. Integers may come back as int64 or int, strings as string
	// or []byte, arrays as []any.
	Eval func(ctx context.Context, script string, keys []string, args ...any) (any, error)

	// Prefix of the keys; "" stands for "fence:".
	Prefix string
}

// redisScript checks ARGV[1] against KEYS[1]; then it executes the command ARGV[2], unless that is
// empty, with the other keys and the other arguments. Lua's numbers hold 53 bits, and tokens have
// 63: so tokens are compared as strings, the longer one being the larger. It is the same text in
// all languages, so that a server caches it once.
const redisScript = `local newest, token = redis.call('GET', KEYS[1]), ARGV[1]
if newest then
  if not string.match(newest, '^[1-9]%d*$') or #newest > 19 then return {-1, newest} end
  if #newest > #token or (#newest == #token and newest > token) then return {0, newest} end
end
if newest ~= token then redis.call('SET', KEYS[1], token) end
if ARGV[2] == '' then return {1} end
local command = {ARGV[2]}
for i = 2, #KEYS do command[#command + 1] = KEYS[i] end
for i = 3, #ARGV do command[#command + 1] = ARGV[i] end
return {1, redis.call(unpack(command))}
`

// Check accepts a token or refuses it. A holder that reads before it writes begins with it: then no
// write with a smaller token comes after the read.
func (r *Redis) Check(ctx context.Context, resource string, token int64) error {
	_, err := r.Do(ctx, resource, token, "", nil)
	return err
}

// Do executes a command of Redis if the token is accepted, and returns its reply: command, keys and
// args in this order, as Do(ctx, "account", token, "SET", []string{"balance"}, 10). With an error
// other than ErrStale, ErrInvalid and ErrDamaged it is not known whether the token was remembered
// and the command executed. If the command itself fails, the token is remembered.
func (r *Redis) Do(ctx context.Context, resource string, token int64, command string, keys []string, args ...any,
) (reply any, err error) {
	if _, err := check(resource, token, 0); err != nil {
		return nil, err
	}
	prefix := r.Prefix
	if prefix == "" {
		prefix = "fence:"
	}
	all := append([]string{prefix + resource}, keys...)
	answer, err := r.Eval(ctx, redisScript, all, append([]any{strconv.FormatInt(token, 10), command}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("fence: redis: %w", err)
	}
	list, ok := answer.([]any)
	if !ok || len(list) == 0 {
		return nil, fmt.Errorf("fence: redis: an answer of the type %T", answer)
	}
	switch text := redisText(list[0]); {
	case text == "1" && len(list) > 1:
		return list[1], nil
	case text == "1":
		return nil, nil
	case len(list) > 1:
		return nil, refusal(resource, token, redisText(list[1]), all[0])
	}
	return nil, errors.New("fence: redis: an answer that the script does not give")
}

// redisText is a string or an integer of a reply, as text.
func redisText(v any) string {
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	return fmt.Sprint(v)
}

// refusal is the error for a token that a resource has refused; newest is the value in the place
// where it remembers.
func refusal(resource string, token int64, newest, place string) error {
	n, err := strconv.ParseInt(newest, 10, 64)
	if err != nil || n <= token {
		return fmt.Errorf("%w: %s has %.40q", ErrDamaged, place, newest)
	}
	return &StaleError{resource, token, n}
}
