package jepsen

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// A GoClient is a client in this process: the unmodified library go-zookeeper with one session, and
// the library's reports about its connection.
type GoClient struct {
	*zk.Conn
	opened chan struct{} // closed when Conn is set
	begun  chan struct{} // closed when there is a session for the first time

	up, had bool // it is connected; it has had a session; only see uses them

	mu     sync.Mutex
	closed bool
	socket net.Conn // the newest
}

// A GoClientConfig says how a GoClient connects.
type GoClientConfig struct {
	Servers        []string
	SessionTimeout time.Duration
	// Hosts chooses the order of the servers; nil leaves it to the library.
	Hosts zk.HostProvider
	// Dial opens sockets; nil is net.DialTimeout.
	Dial zk.Dialer
	// Logger gets the library's log; nil discards it.
	Logger zk.Logger
	// Said is called when the library says that its connection has changed: f is FConnected,
	// FSuspended or FExpired, server the member's address. Fired is called for each event of a
	// watch. There is one such call at a time. Both may be nil.
	Said  func(c *GoClient, f, server string)
	Fired func(zk.Event)
}

// OpenGoClient starts a client and returns it with the library's events. It does not wait for a
// session.
func OpenGoClient(cfg GoClientConfig) (*GoClient, <-chan zk.Event, error) {
	c := &GoClient{opened: make(chan struct{}), begun: make(chan struct{})}
	logger := cfg.Logger
	if logger == nil {
		logger = silentLogger{}
	}
	options := sliceOf(
		zk.WithLogger(logger),
		zk.WithLogInfo(cfg.Logger != nil),
		zk.WithDialer(c.dialer(cfg.Dial)),
		zk.WithEventCallback(func(e zk.Event) { c.see(cfg, e) }),
	)
	if cfg.Hosts != nil {
		options = append(options, zk.WithHostProvider(cfg.Hosts))
	}
	conn, events, err := zk.Connect(cfg.Servers, cfg.SessionTimeout, options...)
	if err != nil {
		return nil, nil, fmt.Errorf("jepsen: client of %v: %w", cfg.Servers, err)
	}
	c.Conn = conn
	close(c.opened)
	return c, events, nil
}

// see gets the library's events, one at a time.
func (c *GoClient) see(cfg GoClientConfig, e zk.Event) {
	<-c.opened
	said := ""
	switch {
	case e.Type != zk.EventSession:
		if cfg.Fired != nil {
			cfg.Fired(e)
		}
	case e.State == zk.StateHasSession:
		c.up, said = true, FConnected
		if !c.had {
			c.had = true
			close(c.begun)
		}
	case e.State == zk.StateDisconnected && c.up:
		// The library repeats it after each attempt to connect.
		c.up, said = false, FSuspended
	case e.State == zk.StateExpired:
		c.up, said = false, FExpired
	}
	if said != "" && cfg.Said != nil {
		cfg.Said(c, said, e.Server)
	}
}

// dialer is dial, or net.DialTimeout, and records the newest socket, for Close.
func (c *GoClient) dialer(dial zk.Dialer) zk.Dialer {
	if dial == nil {
		dial = net.DialTimeout
	}
	return func(network, addr string, timeout time.Duration) (net.Conn, error) {
		socket, err := dial(network, addr, timeout)
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.socket = socket
		if c.closed {
			_ = socket.Close()
		}
		return socket, nil
	}
}

// sliceOf makes a slice of a type that has no name outside of its package.
func sliceOf[T any](v ...T) []T { return v }

// silentLogger is a zk.Logger that discards everything.
type silentLogger struct{}

// Printf implements zk.Logger.
func (silentLogger) Printf(string, ...any) {}

// AwaitSession waits until the client has had a session.
func (c *GoClient) AwaitSession(ctx context.Context) error {
	select {
	case <-c.begun:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("jepsen: no session with %s: %w", c.Server(), context.Cause(ctx))
	}
}

// Close ends the session, if a member answers within a second, and closes the socket in any case:
// the library itself waits for the answer to a handshake for as long as it takes.
func (c *GoClient) Close() {
	c.Conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.socket != nil {
		_ = c.socket.Close()
	}
}
