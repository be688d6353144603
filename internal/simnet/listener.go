package simnet

import (
	"net"
	"net/netip"
	"sync"
)

// Listener is a net.Listener on a host.
type Listener struct {
	host *Host
	at   netip.AddrPort

	// Guarded by host.net.mu.
	closed  bool
	waiting []*Conn // established, not yet accepted
	opening int     // SYN answered, ACK not yet here; they count for the backlog
	arrived sync.Cond
}

func newListener(h *Host, at netip.AddrPort) *Listener {
	l := &Listener{host: h, at: at}
	l.arrived.L = &h.net.mu
	return l
}

// Accept waits for a connection. After Close it returns net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	n := l.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(l.waiting) == 0 && !l.closed {
		l.arrived.Wait()
	}
	if l.closed {
		return nil, l.opError("accept", net.ErrClosed)
	}
	c := l.waiting[0]
	l.waiting = l.waiting[1:]
	return c, nil
}

// Close stops listening; connections that nobody accepted are reset.
func (l *Listener) Close() error {
	n := l.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.closed {
		return l.opError("close", net.ErrClosed)
	}
	l.closeLocked((*Conn).abortLocked)
	return nil
}

// Addr returns the address as a *net.TCPAddr; 0.0.0.0 for a listener on any address.
func (l *Listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.at) }

// closeLocked takes the listener from its host and ends the connections that wait in it.
func (l *Listener) closeLocked(end func(*Conn)) {
	l.closed = true
	delete(l.host.listeners, l.at)
	for _, c := range l.waiting {
		end(c)
	}
	l.waiting = nil
	l.arrived.Broadcast()
}

func (l *Listener) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Addr: l.Addr(), Err: err}
}
