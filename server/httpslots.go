package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
)

// httpSlots is the listener of the HTTP port. It bounds how many connections there are, in total and from one address. A
// connection beyond a bound takes the place of the oldest one that is not being served: one that has been answered and is kept
// alive, or one whose request has not come as a whole. So whoever sends slowly makes nobody wait who does not. When all are
// being served, the new connection is closed.
type httpSlots struct {
	net.Listener
	maxConns, maxPerAddr int

	refused, displaced, late atomic.Int64 // see metrics

	mu    sync.Mutex
	conns []*httpConn // the oldest first
}

// httpConn is a connection of the HTTP port.
type httpConn struct {
	net.Conn
	slots *httpSlots
	host  string
	state httpState // guarded by slots.mu
}

type httpState int

const (
	httpWaiting   httpState = iota // for its first request
	httpServing                    // a request has come as a whole, and is not answered yet
	httpIdle                       // answered, and kept for the next request
	httpGivenUp                    // its request did not come in time, or is too long
	httpDisplaced                  // closed in favour of another
)

// Accept returns the next connection for which there is room.
func (l *httpSlots) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		hc := &httpConn{Conn: c, slots: l, host: c.RemoteAddr().String()}
		if host, _, err := net.SplitHostPort(hc.host); err == nil {
			hc.host = host
		}
		victim, ok := l.admit(hc)
		if victim != nil {
			_ = victim.Conn.Close()
		}
		if ok {
			return hc, nil
		}
		_ = c.Close()
	}
}

// admit gives c a place, that of victim if there was no other; false if there is none. The caller closes the victim.
func (l *httpSlots) admit(c *httpConn) (victim *httpConn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var sameHost int
	var oldest, oldestOfHost *httpConn // of those that are not being served
	for _, other := range l.conns {
		free := other.state != httpServing
		if free && oldest == nil {
			oldest = other
		}
		if other.host == c.host {
			sameHost++
			if free && oldestOfHost == nil {
				oldestOfHost = other
			}
		}
	}
	switch {
	case sameHost >= l.maxPerAddr:
		victim = oldestOfHost
	case len(l.conns) >= l.maxConns:
		victim = oldest
	default:
		l.conns = append(l.conns, c)
		return nil, true
	}
	if victim == nil {
		l.refused.Add(1)
		return nil, false
	}
	l.displaced.Add(1)
	l.removeLocked(victim)
	victim.state = httpDisplaced
	l.conns = append(l.conns, c)
	return victim, true
}

func (l *httpSlots) removeLocked(c *httpConn) {
	for i, other := range l.conns {
		if other == c {
			l.conns = append(l.conns[:i], l.conns[i+1:]...)
			return
		}
	}
}

// Close gives the place back.
func (c *httpConn) Close() error {
	c.slots.mu.Lock()
	c.slots.removeLocked(c)
	c.slots.mu.Unlock()
	return c.Conn.Close()
}

// Read counts the requests that do not come in time.
func (c *httpConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.slots.mu.Lock()
		if c.state == httpWaiting {
			c.slots.late.Add(1)
			c.state = httpGivenUp
		}
		c.slots.mu.Unlock()
	}
	return n, err
}

// setState is false when c has been closed in favour of another connection.
func (c *httpConn) setState(state httpState) bool {
	c.slots.mu.Lock()
	defer c.slots.mu.Unlock()
	if c.state == httpDisplaced {
		return false
	}
	c.state = state
	return true
}

// httpConnKey is where the context of a request has its connection.
type httpConnKey struct{}

func withHTTPConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, httpConnKey{}, c)
}

// httpStateChanged takes note that a request has been answered.
func httpStateChanged(c net.Conn, state http.ConnState) {
	if hc, ok := c.(*httpConn); ok && state == http.StateIdle {
		hc.setState(httpIdle)
	}
}
