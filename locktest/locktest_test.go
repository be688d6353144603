package locktest_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/locktest"
	"lockkeeper/recipes"
	"lockkeeper/server"
)

// limit ends a test that waits for something that does not come.
const limit = 20 * time.Second

func connect(t *testing.T, servers []string, timeout time.Duration) *recipes.Session {
	t.Helper()
	s, err := recipes.Connect(recipes.Config{Servers: servers, SessionTimeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func lock(t *testing.T, s *recipes.Session, path string) *recipes.Grant {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	g, err := recipes.NewMutex(s, path, recipes.MutexOptions{}).Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// One line is a server, and it says nothing.
func TestServer(t *testing.T) {
	t.Parallel()
	var said countingHandler
	before := slog.Default()
	slog.SetDefault(slog.New(&said))
	defer slog.SetDefault(before)
	conn, _, err := zk.Connect([]string{locktest.Server(t)}, 4*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Create("/a", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
		t.Error(err)
	}
	if said != 0 {
		t.Errorf("it logged %d lines", said)
	}
}

type silent struct{}

func (silent) Printf(string, ...any) {}

type countingHandler int

func (h *countingHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h *countingHandler) Handle(context.Context, slog.Record) error {
	*h++
	return nil
}
func (h *countingHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h *countingHandler) WithGroup(string) slog.Handler      { return h }

// A lock that is held stays held when the leader is killed, and the member that was killed comes
// back with it.
func TestKillLeader(t *testing.T) {
	t.Parallel()
	c := locktest.Start(t, 3)
	s := connect(t, c.Servers(), 10*time.Second)
	g := lock(t, s, "/locks/a")
	leader := c.Leader()
	c.Kill(leader)
	if next := c.Leader(); next == leader {
		t.Errorf("member %d still leads", leader)
	}
	if !g.Held() {
		t.Error("the lock is lost")
	}
	c.Restart(leader)
	other := connect(t, c.Servers()[leader:leader+1], 10*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if _, err := recipes.NewMutex(other, "/locks/a", recipes.MutexOptions{}).TryLock(ctx); !errors.Is(err, recipes.ErrLocked) {
		t.Errorf("somebody else gets it: %v", err)
	}
}

// A client of a member that is cut off loses its lock, and another one gets it; the first one knows
// before.
func TestIsolate(t *testing.T) {
	t.Parallel()
	c := locktest.Start(t, 3)
	victim := (c.Leader() + 1) % 3
	g := lock(t, connect(t, c.Servers()[victim:victim+1], time.Second), "/locks/a")
	c.Isolate(victim)
	others := append(c.Servers()[:victim:victim], c.Servers()[victim+1:]...)
	lock(t, connect(t, others, 10*time.Second), "/locks/a")
	if g.Held() {
		t.Error("two have the lock")
	}
	c.Heal()
}

// A frozen member takes connections and answers nothing, and goes on when it is thawed.
func TestFreeze(t *testing.T) {
	t.Parallel()
	c := locktest.Start(t, 3)
	leader := c.Leader()
	c.Freeze(leader)
	if next := c.Leader(); next == leader {
		t.Error("a frozen member leads")
	}
	conn, err := net.Dial("tcp", c.Servers()[leader])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("ruok")); err != nil {
		t.Fatal(err)
	}
	answered := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(conn)
		answered <- string(b)
	}()
	// takes a while, in which nothing is answered
	lock(t, connect(t, c.Servers(), 4*time.Second), "/locks/a")
	select {
	case got := <-answered:
		t.Errorf("a frozen member answered %q", got)
	default:
	}
	c.Thaw(leader)
	select {
	case got := <-answered:
		if got != "imok" {
			t.Errorf("it answered %q", got)
		}
	case <-time.After(limit):
		t.Error("it does not go on")
	}
}

// A session that is expired loses its lock.
func TestExpire(t *testing.T) {
	t.Parallel()
	addr := locktest.Start(t, 1)
	conn, events, err := zk.Connect(addr.Servers(), 10*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Create("/a", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	addr.Expire(conn.SessionID())
	for deadline := time.After(limit); ; {
		select {
		case e := <-events:
			if e.State == zk.StateExpired {
				exists, _, err := conn.Exists("/a")
				for err == zk.ErrNoServer { // the library gives requests up when it connects again
					exists, _, err = conn.Exists("/a")
				}
				if exists || err != nil {
					t.Errorf("its node is there: %v, %v", exists, err)
				}
				return
			}
		case <-deadline:
			t.Fatal("the client is not told")
		}
	}
}

// What a test wants otherwise, it can have.
func TestChange(t *testing.T) {
	t.Parallel()
	c := locktest.Start(t, 1, func(cfg *server.Config) { cfg.Client.MaxBuffer = 64 << 10 })
	conn, _, err := zk.Connect(c.Servers(), 4*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Create("/a", make([]byte, 100<<10), 0, zk.WorldACL(zk.PermAll)); err == nil {
		t.Error("a request of 100 KiB is taken")
	}
}
