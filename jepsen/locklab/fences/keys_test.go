package fences

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/locklab/system"
	"lockkeeper/recipes/fence"
)

// A keyFence is a fence in a store of keys, whose writes append to a log.
type keyFence struct {
	// write appends the token to the log of a resource, if it is accepted.
	write func(ctx context.Context, resource string, token int64) error
	// log is the tokens in the order of their writes.
	log func(ctx context.Context, resource string) ([]int64, error)
}

// A change is a bug that is planted into the request on its way to the server.
type change struct {
	name     string
	from, to string // in the script, or in the JSON of the transaction
}

// start starts a server of a system; restart kills it and starts it again.
func start(t testing.TB, name string) (addr string, restart func()) {
	t.Helper()
	kinds := system.Kinds()
	kind := kinds[slices.IndexFunc(kinds, func(k system.Kind) bool { return k.Name == name })]
	jepsen.Need(t, kind.Needs())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	s, err := kind.Start(ctx, system.Site{Dir: t.TempDir()})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	all := s.Servers()
	return all[0].Addr(), func() {
		t.Helper()
		for _, one := range all {
			must(t, one.Kill())
		}
		var wg sync.WaitGroup
		for _, one := range all {
			wg.Go(func() {
				if err := one.Start(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}

// redisFence is fence.Redis; c is a bug, or nil.
func redisFence(t *testing.T, addr string, c *change) keyFence {
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { client.Close() })
	f := fence.Redis{Eval: func(ctx context.Context, script string, keys []string, args ...any) (any, error) {
		if c != nil {
			script = planted(t, script, c)
		}
		return client.Eval(ctx, script, keys, args...).Result()
	}}
	return keyFence{
		write: func(ctx context.Context, resource string, token int64) error {
			_, err := f.Do(ctx, resource, token, "RPUSH", []string{"log:" + resource}, token)
			return err
		},
		log: func(ctx context.Context, resource string) (log []int64, err error) {
			list, err := client.LRange(ctx, "log:"+resource, 0, -1).Result()
			for _, text := range list {
				n, _ := strconv.ParseInt(text, 10, 64)
				log = append(log, n)
			}
			return log, err
		},
	}
}

func planted(t *testing.T, text string, c *change) string {
	if !strings.Contains(text, c.from) {
		t.Fatalf("%s: there is no %q in %s", c.name, c.from, text)
	}
	return strings.ReplaceAll(text, c.from, c.to)
}

// redisBugs are found by testKeys.
var redisBugs = []change{
	{"compares after the write", "local newest", "if #KEYS > 1 then redis.call(ARGV[2], KEYS[2], ARGV[3]) end local newest"},
	{"accepts any token", "newest > token)", "false)"},
	{"refuses an equal token", "newest > token)", "newest >= token)"},
	{"compares as numbers of 53 bits", "if #newest > #token or (#newest == #token and newest > token)",
		"if tonumber(newest) > tonumber(token)"},
	{"compares shorter strings", "#newest > #token or (#newest == #token and newest > token)", "newest > token"},
	{"takes damage for a token", "if not string.match", "if false and not string.match"},
	{"forgets", "redis.call('SET', KEYS[1], token)", "redis.call('SET', KEYS[1] .. token, token)"},
	{"forgets after a moment", "redis.call('SET', KEYS[1], token)", "redis.call('SET', KEYS[1], token, 'PX', 1)"},
}

// etcdBugs are found by testKeys.
var etcdBugs = []change{
	{"accepts any token", `"result":"LESS"`, `"result":"NOT_EQUAL"`},
	{"does not compare", `"target":"VALUE"`, `"target":"VERSION"`},
	{"writes as at the first time", `"result":"EQUAL","target":"CREATE"`, `"result":"NOT_EQUAL","target":"CREATE"`},
	{"compares after the write", `{"compare":`, writesFirst},
	{"forgets", `{"compare":`, forgetsToken},
}

// Bugs of etcd's transaction that etcdChange makes, in the place of a text.
const (
	writesFirst  = "writes first"
	forgetsToken = "forgets the token"
)

// etcdChange is the transport of a client with a bug.
type etcdChange struct {
	t *testing.T
	c *change
}

func (e etcdChange) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	text := ""
	switch e.c.to {
	case writesFirst, forgetsToken:
		if text, err = e.transact(r, body); err != nil {
			return nil, err
		}
	default:
		text = planted(e.t, string(body), e.c)
	}
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
	return http.DefaultTransport.RoundTrip(r)
}

// transact returns the transaction without the token in its writes, or has its writes done before
// it. The first of them is the token's.
func (e etcdChange) transact(r *http.Request, body []byte) (string, error) {
	var txn struct {
		Compare json.RawMessage `json:"compare"`
		Success []any           `json:"success"`
		Failure json.RawMessage `json:"failure"`
	}
	if err := json.Unmarshal(body, &txn); err != nil {
		return "", err
	}
	if e.c.to == forgetsToken {
		txn.Success = txn.Success[1:]
		text, err := json.Marshal(txn)
		return string(text), err
	}
	writes, err := json.Marshal(map[string]any{"success": txn.Success[1:]})
	if err != nil {
		return "", err
	}
	resp, err := http.Post(r.URL.String(), "application/json", bytes.NewReader(writes))
	if err != nil {
		return "", err
	}
	return string(body), resp.Body.Close()
}

// etcdFence is fence.Etcd; c is a bug, or nil.
func etcdFence(t *testing.T, addr string, c *change) keyFence {
	client := &http.Client{Transport: &http.Transport{}}
	if c != nil {
		client.Transport = etcdChange{t, c}
	}
	t.Cleanup(client.CloseIdleConnections)
	f := fence.Etcd{URL: "http://" + addr, Client: client}
	return keyFence{
		write: func(ctx context.Context, resource string, token int64) error {
			key := fmt.Sprintf("log/%s/%d", resource, rand.Uint64())
			return f.Do(ctx, resource, token, fence.EtcdPut(key, fmt.Sprint(token)))
		},
		log: func(ctx context.Context, resource string) ([]int64, error) { return etcdLog(ctx, addr, resource) },
	}
}

// etcdLog reads the keys of a log by their revisions.
func etcdLog(ctx context.Context, addr, resource string) (log []int64, err error) {
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	body := fmt.Sprintf(`{"key":%q,"range_end":%q,"sort_order":"ASCEND","sort_target":"MOD"}`,
		encode("log/"+resource+"/"), encode("log/"+resource+"0"))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/v3/kv/range", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var answer struct{ Kvs []struct{ Value []byte } }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, err
	}
	for _, kv := range answer.Kvs {
		n, _ := strconv.ParseInt(string(kv.Value), 10, 64)
		log = append(log, n)
	}
	return log, nil
}

// keySteps are writes one after the other, and the answers to them.
var keySteps = []struct {
	token, newest int64 // newest is named by the refusal; 0: accepted, -1: invalid
}{
	{33, 0}, {33, 0}, {34, 0}, {33, 34}, {9, 34}, {34, 0}, {100, 0}, {35, 100}, {0, -1}, {-7, -1},
	{1<<53 + 1, 0}, {1 << 53, 1<<53 + 1}, {1<<53 + 2, 0}, {math.MaxInt64 - 1, 0}, {math.MaxInt64, 0}, {math.MaxInt64 - 1, math.MaxInt64},
}

// playKeys returns the faults of a fence: step by step, and with several holders at once.
func playKeys(t *testing.T, f keyFence, name string) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	ctx := t.Context()
	for _, resource := range []string{name, name + "\n\"é\x00'"} {
		var want []int64
		for _, s := range keySteps {
			err := f.write(ctx, resource, s.token)
			var stale *fence.StaleError
			switch {
			case s.newest == 0 && err == nil:
				want = append(want, s.token)
			case s.newest < 0 && errors.Is(err, fence.ErrInvalid):
			case errors.As(err, &stale) && *stale == fence.StaleError{Resource: resource, Token: s.token, Newest: s.newest}:
			default:
				fault("token %d: %v, want %d", s.token, err, s.newest)
			}
		}
		if log, err := f.log(ctx, resource); err != nil || !slices.Equal(log, want) {
			fault("written %d, %v; want %d", log, err, want)
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	accepted := 0
	for w := range uint64(6) {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(1, w))
			for range 40 {
				err := f.write(ctx, name+" many", 1+rnd.Int64N(60))
				mu.Lock()
				switch {
				case err == nil:
					accepted++
				case !errors.Is(err, fence.ErrStale):
					fault("many at once: %v", err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	log, err := f.log(ctx, name+" many")
	if err != nil || len(log) != accepted || accepted == 0 || !slices.IsSorted(log) {
		fault("%d were accepted, and written are %d, %v", accepted, log, err)
	}
	return faults
}

// testKeys plays a fence, and its twins with bugs; a token survives the restart of the server.
func testKeys(t *testing.T, name string, bugs []change, open func(t *testing.T, addr string, c *change) keyFence,
	damage func(addr, resource string) error) {
	addr, restart := start(t, name)
	// all also damages the memory of a resource.
	all := func(t *testing.T, f keyFence, name string) []string {
		faults := playKeys(t, f, name)
		for _, bad := range []string{"x", "12345678901234567890", "-7"} {
			must(t, damage(addr, name+bad+"\x00"+bad))
			if err := f.write(t.Context(), name+bad, 50); !errors.Is(err, fence.ErrDamaged) {
				faults = append(faults, fmt.Sprintf("with %q: %v, want ErrDamaged", bad, err))
			}
		}
		return faults
	}
	f := open(t, addr, nil)
	for _, fault := range all(t, f, "good") {
		t.Error(fault)
	}
	for i := range bugs {
		t.Run(bugs[i].name, func(t *testing.T) {
			faults := all(t, open(t, addr, &bugs[i]), fmt.Sprint("bug", i))
			if len(faults) == 0 {
				t.Error("not found")
			} else {
				t.Log(faults[0])
			}
		})
	}
	must(t, f.write(t.Context(), "restart", 8))
	restart()
	f = open(t, addr, nil)
	err := jepsen.Poll(t.Context(), 20*time.Millisecond, func() error {
		if err := f.write(t.Context(), "restart", 7); !errors.Is(err, fence.ErrStale) {
			return fmt.Errorf("after the restart: %v, want ErrStale", err)
		}
		return nil
	})
	must(t, err)
}

func TestRedis(t *testing.T) {
	testKeys(t, "redis", redisBugs, redisFence, func(addr, both string) error {
		resource, value, _ := strings.Cut(both, "\x00")
		client := redis.NewClient(&redis.Options{Addr: addr})
		defer client.Close()
		return client.Set(context.Background(), "fence:"+resource, value, 0).Err()
	})
}

func TestEtcd(t *testing.T) {
	testKeys(t, "etcd", etcdBugs, etcdFence, func(addr, both string) error {
		resource, value, _ := strings.Cut(both, "\x00")
		body, err := json.Marshal(map[string][]byte{"key": []byte("fence/" + resource), "value": []byte(value)})
		if err != nil {
			return err
		}
		resp, err := http.Post("http://"+addr+"/v3/kv/put", "application/json", bytes.NewReader(body))
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
}
