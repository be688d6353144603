package workload

import (
	"context"
	"encoding/binary"
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

// library is a client of go-zookeeper that records its belief in the history: FConnected, with the
// session timeout in ms as Value; FSuspended, with the time in ms since the last byte was received;
// FExpired.
type library struct {
	*jepsen.GoClient
	// connections counts those that got their session. Two requests with the same count before the
	// first and after the second went over one connection.
	connections atomic.Int64
	closed      sync.WaitGroup
	unhook      func() bool
	ended       chan struct{} // closed at the end of end
	dark        atomic.Bool   // every byte disappears, in both directions

	mu     sync.Mutex
	socket *socket   // the newest
	byteAt time.Time // when the newest byte was received, on whichever socket
}

// connect makes a connection that ends with ctx. close waits until it has. Events of watches are
// given to watched, if it is not nil, before anything else.
func (w *worker) connect(ctx context.Context, watched func(zk.Event)) (*library, error) {
	l, events, err := w.attach(watched)
	if err != nil {
		return nil, err
	}
	l.closed.Go(func() {
		for range events { // attach has seen them; the channel is closed when the library has ended
		}
	})
	l.unhook = context.AfterFunc(ctx, l.end)
	return l, nil
}

// attach makes a connection that ends with close, and returns its events, for the caller.
func (w *worker) attach(watched func(zk.Event)) (l *library, events <-chan zk.Event, err error) {
	l = &library{ended: make(chan struct{})}
	last := int64(0) // the newest session
	l.GoClient, events, err = jepsen.OpenGoClient(jepsen.GoClientConfig{
		Servers: w.env.Servers, SessionTimeout: w.env.SessionTimeout, Hosts: w.hosts(),
		Logger: w.logger(), Fired: watched,
		Dial: func(_, addr string, timeout time.Duration) (net.Conn, error) {
			if l.dark.Load() {
				return nil, errDark
			}
			c, err := w.dial(addr, timeout)
			if err != nil {
				return nil, err
			}
			return l.keep(c), nil
		},
		Said: func(c *jepsen.GoClient, f, server string) {
			op := jepsen.Op{Kind: jepsen.Info, F: f, Member: server}
			switch heard := l.heard(); f {
			case jepsen.FConnected:
				l.connections.Add(1)
				last, op.Value = c.SessionID(), fmt.Sprint(heard.timeout.Milliseconds())
			case jepsen.FSuspended:
				op.Value = fmt.Sprint(time.Since(heard.last).Milliseconds())
			}
			op.Session = sessionText(last)
			w.add(op)
		},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("workload: %s: %w", w.name, err)
	}
	return l, events, nil
}

// The fault that a client makes for itself: its library loses every byte, in both directions, from
// FDark to FLight. Unlike a nemesis' cut it excuses nothing: the library has to notice in time.
const (
	FDark  = "dark"
	FLight = "light"
)

// darken begins it, and lighten ends it.
func (w *worker) darken(l *library) {
	w.add(jepsen.Op{Kind: jepsen.Info, F: FDark})
	l.dark.Store(true)
}

func (w *worker) lighten(l *library) {
	l.dark.Store(false)
	w.add(jepsen.Op{Kind: jepsen.Info, F: FLight})
}

// close ends the session and waits for the library.
func (l *library) close() {
	if l.unhook == nil || l.unhook() {
		l.end()
	}
	<-l.ended
	l.closed.Wait()
}

// end ends the session and the connection. It is called once: the library's Close sleeps while it
// holds a lock, and a goroutine that waits for it stops a bubble's time.
func (l *library) end() {
	defer close(l.ended)
	l.GoClient.Close()
}

// keep records the newest socket.
func (l *library) keep(c net.Conn) net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.socket = &socket{Conn: c, l: l, last: time.Now()}
	return l.socket
}

// heard is the record of the newest socket.
func (l *library) heard() (h struct {
	last    time.Time
	timeout time.Duration
}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.socket != nil {
		h.last, h.timeout = l.socket.last, l.socket.timeout
	}
	return h
}

// silent is for how long nothing was received, over reconnections.
func (l *library) silent() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.byteAt)
}

// socket is a connection of the library. It reads along with the answer to the
// handshake, for the session timeout, which go-zookeeper does not tell:
//
//	length(4) protocolVersion(4) timeOut(4, ms) ...
type socket struct {
	net.Conn
	l *library

	// Guarded by l.mu.
	last    time.Time     // when the newest byte was received
	timeout time.Duration // of the session; 0 before it is known
	head    []byte
}

const headBytes = 12

// Read implements net.Conn.
func (s *socket) Read(b []byte) (int, error) {
	for {
		n, err := s.Conn.Read(b)
		if s.took(b[:n]) || err != nil {
			return n, err
		}
	}
}

// took takes note of bytes that were received. It reports false when it is dark.
func (s *socket) took(b []byte) bool {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if s.l.dark.Load() {
		return false
	}
	if len(b) > 0 {
		s.last = time.Now()
		s.l.byteAt = s.last
	}
	if missing := headBytes - len(s.head); missing > 0 && len(b) > 0 {
		s.head = append(s.head, b[:min(len(b), missing)]...)
		if len(s.head) == headBytes {
			s.timeout = time.Duration(binary.BigEndian.Uint32(s.head[8:])) * time.Millisecond
		}
	}
	return true
}

// Write implements net.Conn.
func (s *socket) Write(b []byte) (int, error) {
	if s.l.dark.Load() {
		return len(b), nil
	}
	return s.Conn.Write(b)
}

// dial opens a connection of this worker to a member.
func (w *worker) dial(addr string, timeout time.Duration) (net.Conn, error) {
	dial := net.DialTimeout
	if w.env.Dial != nil {
		dial = w.env.Dial(w.name)
	}
	return dial("tcp", addr, timeout)
}

// hosts is a provider with a seed of its own.
func (w *worker) hosts() *hosts {
	return &hosts{rng: rand.New(rand.NewPCG(w.env.Seed, w.rng.Uint64()))}
}

var errDark = errors.New("workload: no way to the member")

// sessionText is a session as ZooKeeper prints it.
func sessionText(id int64) string { return fmt.Sprintf("0x%x", uint64(id)) }

// The result of a request that the server refused.
const (
	noteNoNode     = "no node"
	noteNodeExists = "node exists"
	noteBadVersion = "bad version"
)

// certainly says how a request ended that the library refuses with err: Fail, if it has certainly
// not taken effect, or Info; and why.
func certainly(err error) (kind jepsen.Kind, why string) {
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return jepsen.Fail, noteNoNode
	case errors.Is(err, zk.ErrNodeExists):
		return jepsen.Fail, noteNodeExists
	case errors.Is(err, zk.ErrBadVersion):
		return jepsen.Fail, noteBadVersion
	case errors.Is(err, zk.ErrNoServer):
		return jepsen.Fail, "never sent"
	}
	return jepsen.Info, err.Error()
}

// logger is where the library logs; nil discards it.
func (w *worker) logger() zk.Logger {
	if w.env.Logger == nil {
		return nil
	}
	return libraryLog{w.env.Logger, w.name}
}

// libraryLog is go-zookeeper's log.
type libraryLog struct {
	log  *slog.Logger
	name string
}

// Printf implements zk.Logger.
func (l libraryLog) Printf(format string, args ...any) {
	l.log.Debug(fmt.Sprintf(format, args...), "client", l.name)
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
	// The library has shuffled them with a source of its own.
	h.servers = slices.Sorted(slices.Values(servers))
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
