package ways_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/jackc/pgx/v5"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/locklab/lock"
	"lockkeeper/jepsen/locklab/system"
	"lockkeeper/jepsen/locklab/ways"
)

const lease = 2 * time.Second

// start starts a system, or ends the test.
func start(t *testing.T, kind system.Kind) (system.System, []string) {
	t.Helper()
	jepsen.Need(t, kind.Needs())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := kind.Start(ctx, system.Site{Dir: t.TempDir(), Lease: lease})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	var addrs []string
	for _, server := range s.Servers() {
		addrs = append(addrs, server.Addr())
	}
	return s, addrs
}

// open connects a client, or ends the test: it is skipped if the client library is not installed.
func open(t *testing.T, w lock.Way, addrs []string, node string) lock.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, err := w.Open(ctx, lock.Config{Servers: addrs, Node: node, Lease: lease})
	if err != nil {
		jepsen.Need(t, fmt.Errorf("%s: %w", w.Name, err))
	}
	return c
}

// Without a fault every way excludes, and its tokens grow if it has any. Each system's clock can be
// set, and it goes on without the server that decides.
func TestSystems(t *testing.T) {
	for _, kind := range system.Kinds() {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			s, addrs := start(t, kind)
			var any lock.Way
			for _, w := range ways.All() {
				if w.System == kind.Name && !w.Broken {
					t.Run(w.Name, func(t *testing.T) {
						excludes(t, w, addrs)
						stores(t, w, addrs)
						asks(t, w, addrs)
					})
					if any.Name == "" || w.Fenced {
						any = w
					}
				}
			}
			t.Run("clock", func(t *testing.T) { clockMoves(t, kind, s, any, addrs) })
			t.Run("failover", func(t *testing.T) { failsOver(t, s, any, addrs) })
		})
	}
}

func excludes(t *testing.T, w lock.Way, addrs []string) {
	const clients, times = 3, 5
	var holders, newest, unheld atomic.Int64
	resource := "exclude-" + w.Name
	var all sync.WaitGroup
	for i := range clients {
		c := open(t, w, addrs, fmt.Sprintf("%s-%d", w.Name, i))
		all.Go(func() {
			defer c.Close()
			for range times {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				h, err := c.Lock(ctx, resource)
				if err != nil {
					t.Errorf("lock: %v", err)
					return
				}
				if n := holders.Add(1); n != 1 && !w.Optimistic {
					t.Errorf("%d holders", n)
				}
				if token := int64(h.Token()); w.Fenced != (token != 0) || w.Fenced && newest.Swap(token) >= token {
					t.Errorf("token %d is not after the one before", token)
				}
				select {
				case <-h.Lost():
					t.Error("the lock is said to be lost")
				default:
				}
				time.Sleep(2 * time.Millisecond)
				holders.Add(-1)
				if err := h.Unlock(ctx); err != nil {
					t.Errorf("unlock: %v", err)
				}
				unheld.Add(1)
			}
		})
	}
	all.Wait()
	if unheld.Load() != clients*times {
		t.Errorf("%d locks were given back, want %d", unheld.Load(), clients*times)
	}
}

// stores writes data that the system itself has, which refuses data of an old version, or of a
// client that does not hold the lock any more.
func stores(t *testing.T, w lock.Way, addrs []string) {
	c := open(t, w, addrs, "store")
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	h, err := c.Lock(ctx, "store-"+w.Name)
	if err != nil {
		t.Fatal(err)
	}
	store, ok := h.(lock.Store)
	if !ok {
		if err := h.Unlock(ctx); err != nil {
			t.Error(err)
		}
		return
	}
	for want := range int64(3) {
		version, err := store.Load(ctx)
		if err != nil || version != want {
			t.Errorf("version %d, %v; want %d", version, err, want)
		}
		if found, err := store.Save(ctx, version); err != nil || found != version {
			t.Errorf("saved beside version %d, %v; want %d", found, err, version)
		}
	}
	if err := h.Unlock(ctx); err != nil {
		t.Error(err)
	}
	if _, err := store.Save(ctx, 2); err == nil {
		t.Error("an old version, without the lock, was saved")
	}
}

// asks asks the servers for the holder.
func asks(t *testing.T, w lock.Way, addrs []string) {
	if w.Ask == nil {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	asker, err := w.Ask(ctx, lock.Config{Servers: addrs, Node: "resource", Lease: lease})
	if err != nil {
		t.Fatal(err)
	}
	defer asker.Close()
	c := open(t, w, addrs, "asked")
	defer c.Close()
	resource := "asked-" + w.Name
	h, err := c.Lock(ctx, resource)
	if err != nil {
		t.Fatal(err)
	}
	if err := asker.Holds(ctx, resource, h.Token()); err != nil {
		t.Error(err)
	}
	if asker.Holds(ctx, resource, h.Token()-1) == nil {
		t.Error("the lock is held with an older token")
	}
	if err := h.Unlock(ctx); err != nil {
		t.Error(err)
	}
	if asker.Holds(ctx, resource, h.Token()) == nil {
		t.Error("a lock that was given back is held")
	}
}

// wallClock asks a server for its time.
var wallClock = map[string]func(ctx context.Context, addr string) (seconds float64, err error){
	"redis": func(ctx context.Context, addr string) (float64, error) {
		text, err := system.RedisAsk(ctx, addr, "TIME")
		if err != nil {
			return 0, err
		}
		return strconv.ParseFloat(text, 64)
	},
	"mariadb": func(ctx context.Context, addr string) (now float64, err error) {
		db, err := sql.Open("mysql", system.MariaDBName(addr))
		if err != nil {
			return 0, err
		}
		defer db.Close()
		return now, db.QueryRowContext(ctx, "select unix_timestamp(now(3))").Scan(&now)
	},
	"postgresql": func(ctx context.Context, addr string) (now float64, err error) {
		c, err := pgx.Connect(ctx, system.PostgreSQLName(addr))
		if err != nil {
			return 0, err
		}
		defer c.Close(ctx)
		return now, c.QueryRow(ctx, "select extract(epoch from clock_timestamp())::float8").Scan(&now)
	},
	"zookeeper":  nodeTime,
	"lockkeeper": nodeTime,
}

// nodeTime is the time that the leader stamps a node with.
func nodeTime(_ context.Context, addr string) (float64, error) {
	c, _, err := zk.Connect([]string{addr}, 5*time.Second, zk.WithLogger(silentLogger{}))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	path, err := c.Create("/clock-", nil, zk.FlagSequence|zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	if err != nil {
		return 0, err
	}
	_, st, err := c.Exists(path)
	if err != nil {
		return 0, err
	}
	return float64(st.Ctime) / 1000, nil
}

type silentLogger struct{}

func (silentLogger) Printf(string, ...any) {}

// clockMoves puts the wall clock of the server that decides a day ahead and back: it shows, and
// whoever connects can still lock. Of etcd nobody can set it.
func clockMoves(t *testing.T, kind system.Kind, s system.System, w lock.Way, addrs []string) {
	primary, err := s.Primary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	server := s.Servers()[primary]
	family, _, _ := strings.Cut(kind.Name, "-")
	now := wallClock[family]
	if now == nil {
		if err := server.SetClock(time.Hour); !errors.Is(err, system.ErrClock) {
			t.Errorf("the clock of %s: %v", server.Name(), err)
		}
		return
	}
	for _, ahead := range []time.Duration{24 * time.Hour, 0} {
		if err := server.SetClock(ahead); err != nil {
			t.Fatal(err)
		}
		got, err := now(t.Context(), server.Addr())
		if err != nil {
			t.Fatal(err)
		}
		if off := got - float64(time.Now().UnixMilli())/1000 - ahead.Seconds(); math.Abs(off) > 60 {
			t.Errorf("put %v ahead, the clock of %s is %.0f s off that", ahead, server.Name(), off)
		}
		lockOnce(t, w, addrs, "clock")
	}
}

// failsOver kills the server that decides. If there are others one of them takes over. Started
// again, it serves.
func failsOver(t *testing.T, s system.System, w lock.Way, addrs []string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	primary, err := s.Primary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	server := s.Servers()[primary]
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if len(addrs) > 1 {
		if err := s.Failover(ctx); err != nil {
			t.Fatal(err)
		}
		if now, err := s.Primary(ctx); err != nil || now == primary && !strings.HasPrefix(w.Name, "redlock") {
			t.Errorf("server %d decided and was killed, and server %d decides, %v", primary, now, err)
		}
		lockOnce(t, w, addrs, "failover")
	}
	if err := server.Start(ctx); err != nil {
		t.Fatal(err)
	}
	lockOnce(t, w, addrs, "restart")
}

// lockOnce locks a resource that nobody has used.
func lockOnce(t *testing.T, w lock.Way, addrs []string, what string) {
	t.Helper()
	c := open(t, w, addrs, "node-"+what)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	h, err := c.Lock(ctx, fmt.Sprintf("%s-%s-%d", what, w.Name, time.Now().UnixNano()))
	if err == nil {
		err = h.Unlock(ctx)
	}
	if err != nil {
		t.Errorf("%s after %s: %v", w.Name, what, err)
	}
}

// The bugs of the two twins of a Redis lock take effect: once the lease of a holder that does not
// answer is over, its release opens the lock of the next one, or its renewal takes it away.
// (TestBrief has the impatient twin of every lock.)
func TestTwinsBreak(t *testing.T) {
	kinds := system.Kinds()
	redis := kinds[slices.IndexFunc(kinds, func(k system.Kind) bool { return k.Name == "redis" })]
	_, addrs := start(t, redis)
	for _, w := range ways.All() {
		if !strings.HasPrefix(w.Name, "twin-") {
			continue
		}
		t.Run(w.Name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			first, second := open(t, w, addrs, "first"), open(t, w, addrs, "second")
			defer first.Close()
			defer second.Close()
			held, err := first.Lock(ctx, w.Name)
			if err != nil {
				t.Fatal(err)
			}
			// As when the holder was stopped for longer than the lease.
			if _, err := system.RedisAsk(ctx, addrs[0], "DEL "+w.Name); err != nil {
				t.Fatal(err)
			}
			if _, err := second.Lock(ctx, w.Name); err != nil {
				t.Fatal(err)
			}
			value, err := system.RedisAsk(ctx, addrs[0], "GET "+w.Name)
			if err != nil || value == "" {
				t.Fatalf("the second holder's key: %q, %v", value, err)
			}
			if w.Name == "twin-unlock-without-compare" {
				if err := held.Unlock(ctx); err != nil {
					t.Error(err)
				}
			}
			err = jepsen.Poll(ctx, 10*time.Millisecond, func() error {
				if now, err := system.RedisAsk(ctx, addrs[0], "GET "+w.Name); err != nil || now == value {
					return fmt.Errorf("the key is the second holder's still, %v", err)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// Names are typed by people; each way needs an existing system.
func TestNames(t *testing.T) {
	var names []string
	for _, w := range ways.All() {
		if w.Name != strings.ToLower(w.Name) || slices.Contains(names, w.Name) {
			t.Errorf("%q", w.Name)
		}
		names = append(names, w.Name)
		if !slices.ContainsFunc(system.Kinds(), func(k system.Kind) bool { return k.Name == w.System }) {
			t.Errorf("%s needs %s", w.Name, w.System)
		}
	}
}
