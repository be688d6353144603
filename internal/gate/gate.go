package gate

import (
	"net"
	"strings"
	"sync"

	"lockkeeper/internal/simnet"
)

// Gate is between a member and its clients: it can hold back everything, and close all connections.
// The zero value is open. Its methods may be called from any goroutine.
type Gate struct {
	mu     sync.Mutex
	frozen chan struct{} // closed by Thaw; nil while nothing is held back
	killed bool
	conns  map[*gatedConn]struct{}
	listen []net.Listener
}

// Freeze holds back everything until Thaw; connections stay.
func (g *Gate) Freeze() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.frozen == nil {
		g.frozen = make(chan struct{})
	}
}

// Thaw ends Freeze.
func (g *Gate) Thaw() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.frozen != nil {
		close(g.frozen)
		g.frozen = nil
	}
}

// IsFrozen reports whether everything is held back.
func (g *Gate) IsFrozen() bool { return g.closed() != nil }

// Listen returns a function that listens for a member whose peers are on a simulated network: at
// addresses of its host there, and at all others on the real one, behind the gate.
func (g *Gate) Listen(host *simnet.Host) func(network, addr string) (net.Listener, error) {
	return func(network, addr string) (net.Listener, error) {
		if strings.HasPrefix(addr, host.Name()+":") {
			return host.Listen(network, addr)
		}
		l, err := net.Listen(network, addr)
		if err != nil {
			return nil, err
		}
		return g.Listener(l), nil
	}
}

// closed is a channel that is closed when the gate opens; nil if it is open.
func (g *Gate) closed() chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.frozen
}

// Kill closes all connections and the listeners, and lets no new one through.
func (g *Gate) Kill() {
	g.mu.Lock()
	conns, listen := g.conns, g.listen
	g.killed, g.conns, g.listen = true, nil, nil
	g.mu.Unlock()
	for _, l := range listen {
		_ = l.Close()
	}
	for c := range conns {
		_ = c.Close()
	}
	g.Thaw()
}

// Listener has all connections of l go through the gate.
func (g *Gate) Listener(l net.Listener) net.Listener {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.listen = append(g.listen, l)
	return gatedListener{l, g}
}

type gatedListener struct {
	net.Listener
	g *Gate
}

// Accept implements net.Listener.
func (l gatedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	gc := &gatedConn{Conn: c, g: l.g, gone: make(chan struct{})}
	l.g.mu.Lock()
	defer l.g.mu.Unlock()
	if l.g.killed {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	if l.g.conns == nil {
		l.g.conns = map[*gatedConn]struct{}{}
	}
	l.g.conns[gc] = struct{}{}
	return gc, nil
}

// gatedConn is one client's connection, as the member sees it.
type gatedConn struct {
	net.Conn
	g    *Gate
	once sync.Once
	gone chan struct{} // closed by Close
}

// wait waits until the gate is open or the connection is closed.
func (c *gatedConn) wait() {
	for {
		closed := c.g.closed()
		if closed == nil {
			return
		}
		select {
		case <-closed:
		case <-c.gone:
			return
		}
	}
}

// Read implements net.Conn.
func (c *gatedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.wait()
	return n, err
}

// Write implements net.Conn.
func (c *gatedConn) Write(b []byte) (int, error) {
	c.wait()
	return c.Conn.Write(b)
}

// CloseWrite ends the direction to the client.
func (c *gatedConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return c.Close()
}

// Close implements net.Conn.
func (c *gatedConn) Close() error {
	c.once.Do(func() {
		close(c.gone)
		c.g.mu.Lock()
		delete(c.g.conns, c)
		c.g.mu.Unlock()
	})
	return c.Conn.Close()
}
