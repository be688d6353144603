package workload

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/jepsen"
)

// library is a connection of go-zookeeper that tells the history what it thinks
// of itself: FConnected, FSuspended, FExpired.
type library struct {
	*zk.Conn
	// connections counts those that got their session. Two requests with the
	// same count before the first and after the second went over one connection.
	connections atomic.Int64
	closed      sync.WaitGroup
	unhook      func() bool
	ended       chan struct{} // closed at the end of end

	mu     sync.Mutex
	over   bool
	socket net.Conn // the newest
}

// connect makes a connection that ends with ctx. close waits until it has.
func (w *worker) connect(ctx context.Context) (*library, error) {
	l := &library{ended: make(chan struct{})}
	ready := make(chan struct{}) // closed when l.Conn is there
	up := false
	see := func(e zk.Event) {
		if e.Type != zk.EventSession {
			return
		}
		<-ready
		op := jepsen.Op{Kind: jepsen.Info, Member: e.Server, Session: sessionText(l.Conn.SessionID())}
		switch e.State {
		case zk.StateHasSession:
			l.connections.Add(1)
			up, op.F = true, jepsen.FConnected
		case zk.StateDisconnected:
			if !up {
				return
			}
			up, op.F = false, jepsen.FSuspended
		case zk.StateExpired:
			up, op.F = false, jepsen.FExpired
		default:
			return
		}
		w.add(op)
	}
	conn, events, err := w.connection(l, see)
	if err != nil {
		return nil, fmt.Errorf("workload: %s: %w", w.name, err)
	}
	l.Conn = conn
	close(ready)
	l.closed.Go(func() {
		for range events { // there to be dropped: see has seen them
		}
	})
	l.unhook = context.AfterFunc(ctx, l.end)
	return l, nil
}

// close ends the session and waits for the library.
func (l *library) close() {
	if l.unhook() {
		l.end()
	}
	<-l.ended
	l.closed.Wait()
}

// end ends the session if a member answers, and the connection in any case: the
// library itself waits for ever for a handshake that was begun. It is called
// once: the library's Close sleeps while it holds a lock, and whoever waits for
// that stops a bubble's time.
func (l *library) end() {
	defer close(l.ended)
	l.Conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	if l.socket != nil {
		l.socket.Close()
	}
}

// keep takes note of the newest socket.
func (l *library) keep(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.socket = c
	if l.over {
		c.Close()
	}
}

// dial opens a connection of this worker to a member.
func (w *worker) dial(addr string, timeout time.Duration) (net.Conn, error) {
	dial := net.DialTimeout
	if w.env.Dial != nil {
		dial = w.env.Dial(w.name)
	}
	return dial("tcp", addr, timeout)
}

// connection opens a connection of go-zookeeper.
func (w *worker) connection(l *library, see zk.EventCallback) (*zk.Conn, <-chan zk.Event, error) {
	options := sliceOf(
		zk.WithHostProvider(w.hosts()),
		zk.WithLogger(libraryLog{w.env.Logger, w.name}),
		zk.WithLogInfo(w.env.Logger != nil),
		zk.WithEventCallback(see),
		zk.WithDialer(func(_, addr string, timeout time.Duration) (net.Conn, error) {
			c, err := w.dial(addr, timeout)
			if err == nil {
				l.keep(c)
			}
			return c, err
		}),
	)
	return zk.Connect(w.env.Servers, w.env.SessionTimeout, options...)
}

// sliceOf makes a slice of a type that has no name outside of its package.
func sliceOf[T any](v ...T) []T { return v }

// hosts is a provider with a seed of its own.
func (w *worker) hosts() *hosts {
	return &hosts{rng: rand.New(rand.NewPCG(w.env.Seed, w.rng.Uint64()))}
}

// sessionText is a session as ZooKeeper prints it.
func sessionText(id int64) string { return fmt.Sprintf("0x%x", uint64(id)) }

// What a request found that the server refused.
const (
	noteNoNode     = "no node"
	noteNodeExists = "node exists"
	noteBadVersion = "bad version"
)

// certainly says why a request has certainly not taken effect, if that is what
// the library's error says.
func certainly(err error) (why string, certain bool) {
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return noteNoNode, true
	case errors.Is(err, zk.ErrNodeExists):
		return noteNodeExists, true
	case errors.Is(err, zk.ErrBadVersion):
		return noteBadVersion, true
	case errors.Is(err, zk.ErrNoServer):
		return "never sent", true
	}
	return err.Error(), false
}

// libraryLog is go-zookeeper's log.
type libraryLog struct {
	log  *slog.Logger
	name string
}

// Printf implements zk.Logger.
func (l libraryLog) Printf(format string, args ...any) {
	if l.log != nil {
		l.log.Debug(fmt.Sprintf(format, args...), "client", l.name)
	}
}

// hosts is a zk.HostProvider that asks no DNS and shuffles with a seed.
type hosts struct {
	mu      sync.Mutex
	rng     *rand.Rand
	servers []string
	at      int
	tried   int // since the last that worked
}

// Init implements zk.HostProvider.
func (h *hosts) Init(servers []string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.servers = slices.Sorted(slices.Values(servers)) // the library has shuffled them with a source of its own
	h.rng.Shuffle(len(h.servers), func(i, j int) { h.servers[i], h.servers[j] = h.servers[j], h.servers[i] })
	return nil
}

// Len implements zk.HostProvider.
func (h *hosts) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.servers)
}

// Next implements zk.HostProvider.
func (h *hosts) Next() (server string, retryStart bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	server = h.servers[h.at]
	h.at = (h.at + 1) % len(h.servers)
	h.tried++
	return server, h.tried > 1 && h.tried%len(h.servers) == 1%len(h.servers)
}

// Connected implements zk.HostProvider.
func (h *hosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tried = 0
}
