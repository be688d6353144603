package splitbrain

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/jepsen"
)

// anyone may do anything.
var anyone = zk.WorldACL(zk.PermAll)

// A client is one program with a session: an unmodified go-zookeeper. What counts is what the
// library tells it.
type client struct {
	*zk.Conn
	hears func(connected bool) // called when the library says that it is connected, or not any more; may be nil

	up bool // the library has said that it is connected; used by its own goroutine only

	once sync.Once
	has  chan struct{} // closed, once, when there is a session for the first time

	mu     sync.Mutex
	over   bool
	socket net.Conn
}

// dial starts a client that knows some members only.
func dial(servers []string, session time.Duration, hears func(connected bool)) (*client, error) {
	c := &client{hears: hears, has: make(chan struct{})}
	conn, _, err := zk.Connect(servers, session, sliceOf(
		zk.WithLogger(silence{}),
		zk.WithLogInfo(false),
		zk.WithEventCallback(c.see),
		zk.WithDialer(c.open),
	)...)
	if err != nil {
		return nil, fmt.Errorf("splitbrain: client of %v: %w", servers, err)
	}
	c.Conn = conn
	return c, nil
}

// sliceOf makes a slice of a type that has no name outside of its package.
func sliceOf[T any](v ...T) []T { return v }

// silence is where the library's log goes.
type silence struct{}

// Printf implements zk.Logger.
func (silence) Printf(string, ...any) {}

// see gets the library's events, one after another.
func (c *client) see(e zk.Event) {
	if e.Type != zk.EventSession {
		return
	}
	was := c.up
	switch e.State {
	case zk.StateHasSession:
		c.up = true
		c.once.Do(func() { close(c.has) })
	case zk.StateDisconnected, zk.StateExpired:
		c.up = false
	}
	if c.up != was && c.hears != nil {
		c.hears(c.up)
	}
}

// open dials and keeps the socket for close.
func (c *client) open(network, addr string, timeout time.Duration) (net.Conn, error) {
	socket, err := net.DialTimeout(network, addr, timeout)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.socket = socket
	if c.over {
		_ = socket.Close()
	}
	return socket, nil
}

// await waits for the session.
func (c *client) await(ctx context.Context) error {
	select {
	case <-c.has:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("splitbrain: no session with %s: %w", c.Server(), context.Cause(ctx))
	}
}

// close ends the session, if a member answers within a second, and everything of the client.
func (c *client) close() {
	c.Close()
	c.mu.Lock()
	c.over = true
	if c.socket != nil {
		_ = c.socket.Close() // the library waits long for the answer to a handshake
	}
	c.mu.Unlock()
}

// A client repeats a request that failed after this time.
const retryPause = 20 * time.Millisecond

// lock takes a lock, the simplest there is: an ephemeral node, which exists once. It waits for as
// long as somebody else has it, through disconnects, until ctx ends. waits, if not nil, is called
// when somebody has it and the watch is set.
func (c *client) lock(ctx context.Context, path string, waits func()) error {
	for ctx.Err() == nil {
		_, err := c.Create(path, nil, zk.FlagEphemeral, anyone)
		if err == nil {
			return nil
		}
		if !errors.Is(err, zk.ErrNodeExists) {
			jepsen.Sleep(ctx, retryPause)
			continue
		}
		exists, stat, gone, err := c.ExistsW(path)
		switch {
		case err != nil:
			jepsen.Sleep(ctx, retryPause)
		case exists && stat.EphemeralOwner == c.SessionID():
			return nil // made by a request whose reply was lost
		case exists:
			if waits != nil {
				waits()
			}
			select {
			case <-gone:
			case <-ctx.Done():
			}
		}
	}
	return fmt.Errorf("splitbrain: lock %s: %w", path, context.Cause(ctx))
}
