package simnet

import (
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"
)

type connState uint8

const (
	synSent     connState = iota + 1 // the dialer's end, until the SYN-ACK
	synReceived                      // the listener's end, until the ACK
	established
)

// Conn is one end of a connection. Dial and Accept return it as a net.Conn; the method beyond that
// interface is CloseWrite.
type Conn struct {
	net           *Network
	peer          *Conn
	peerName      string // of the peer's host
	local, remote *net.TCPAddr
	in, out       *pipe
	opened        chan struct{} // the dialer's: closed when the dial is settled

	// Guarded by net.mu.
	host     *Host     // of the listener's end: nil until the SYN has arrived
	listener *Listener // the listener's end only
	state    connState
	closed   bool          // by its program, or with its host
	gone     bool          // a segment that arrives here is answered with a reset
	err      syscall.Errno // why it is gone, if not closed; 0 = none
	dialErr  error         // why the dial failed
	finSent  bool
	writing  bool // a Write is under way, others wait

	keepAlive keepAlive

	readable, writable condition
}

// connectLocked makes the two ends of a connection that h dials.
func (n *Network) connectLocked(h *Host, target string, from, to netip.AddrPort) *Conn {
	n.lastID++
	newEnd := func(state connState, peerName string, local, remote netip.AddrPort) *Conn {
		c := &Conn{
			net: n, state: state, peerName: peerName,
			local: net.TCPAddrFromAddrPort(local), remote: net.TCPAddrFromAddrPort(remote),
		}
		c.readable.L, c.writable.L = &n.mu, &n.mu
		return c
	}
	there, back := n.linkLocked(h.name, target), n.linkLocked(target, h.name)
	newPipe := func(l, ackLink *link, src, dst *Conn) *pipe {
		return &pipe{id: n.lastID, net: n, link: l, ackLink: ackLink, src: src, dst: dst, rng: n.jitterSource(l)}
	}
	dialer := newEnd(synSent, target, from, to)
	dialer.host, dialer.opened = h, make(chan struct{})
	other := newEnd(synReceived, h.name, to, from)
	dialer.peer, other.peer = other, dialer
	dialer.out = newPipe(there, back, dialer, other)
	other.out = newPipe(back, there, other, dialer)
	dialer.in, other.in = other.out, dialer.out
	return dialer
}

// Read reads the bytes that have arrived. Errors: net.ErrClosed, os.ErrDeadlineExceeded (also when
// there is something to read, as on a real connection), io.EOF, ECONNRESET, ETIMEDOUT.
func (c *Conn) Read(b []byte) (int, error) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, c.opError("read", net.ErrClosed)
		case c.readable.passedLocked():
			return 0, c.opError("read", timeoutError{})
		case len(b) == 0:
			return 0, nil
		case c.in.unread > 0:
			return c.in.takeLocked(b), nil
		case c.err != 0:
			return 0, c.opError("read", errno("read", c.err))
		case c.in.finArrived:
			return 0, io.EOF
		}
		c.readable.Wait()
	}
}

// Write sends b, and waits while the buffer is full. Concurrent Writes do not mix. Errors:
// net.ErrClosed, os.ErrDeadlineExceeded, EPIPE after CloseWrite, ECONNRESET, ETIMEDOUT; the count
// says how much was sent nevertheless.
func (c *Conn) Write(b []byte) (int, error) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	for c.writing {
		if err := c.writeErrorLocked(); err != nil {
			return 0, err
		}
		c.writable.Wait()
	}
	c.writing = true
	defer func() {
		c.writing = false
		c.writable.Broadcast()
	}()
	sent := 0
	for {
		if err := c.writeErrorLocked(); err != nil {
			return sent, err
		}
		if sent == len(b) {
			return sent, nil
		}
		if room := c.out.roomLocked(); room > 0 {
			k := min(room, len(b)-sent)
			c.out.sendLocked(segment{kind: segData, data: append([]byte(nil), b[sent:sent+k]...)})
			sent += k
			if sent == len(b) {
				return sent, nil
			}
			continue
		}
		c.writable.Wait()
	}
}

func (c *Conn) writeErrorLocked() error {
	switch {
	case c.closed:
		return c.opError("write", net.ErrClosed)
	case c.writable.passedLocked():
		return c.opError("write", timeoutError{})
	case c.err != 0:
		return c.opError("write", errno("write", c.err))
	case c.finSent:
		return c.opError("write", errno("write", syscall.EPIPE))
	}
	return nil
}

// Close ends both directions. Written bytes still arrive, unless there is something that this end
// has not read: then the connection is reset, as Linux does. A second Close returns net.ErrClosed.
func (c *Conn) Close() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if c.closed {
		return c.opError("close", net.ErrClosed)
	}
	c.shutLocked()
	return nil
}

// CloseWrite ends the direction to the peer, which sees EOF after the written bytes.
func (c *Conn) CloseWrite() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	switch {
	case c.closed:
		return c.opError("close", net.ErrClosed)
	case c.err != 0:
		return c.opError("close", errno("shutdown", syscall.ENOTCONN))
	}
	if !c.finSent {
		c.finSent = true
		c.out.sendLocked(segment{kind: segFIN})
		c.writable.Broadcast()
	}
	return nil
}

// LocalAddr returns a *net.TCPAddr.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns a *net.TCPAddr.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets both deadlines; the zero time is none.
func (c *Conn) SetDeadline(t time.Time) error {
	return c.setDeadlines(t, &c.readable, &c.writable)
}

// SetReadDeadline ends Reads at t, those that wait included.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadlines(t, &c.readable) }

// SetWriteDeadline ends Writes at t, those that wait included.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(t, &c.writable) }

func (c *Conn) setDeadlines(t time.Time, which ...*condition) error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if c.closed {
		return c.opError("set", net.ErrClosed)
	}
	for _, d := range which {
		d.setLocked(t)
	}
	return nil
}

// arriveLocked is called for each segment that reaches this end by p, in order.
// False asks for the segment to be sent again in a while.
func (c *Conn) arriveLocked(p *pipe, s segment) bool {
	c.keepAlive.heardAt = time.Now()
	switch {
	case s.kind == segRST:
		if c.state == synSent {
			c.failLocked(syscall.ECONNREFUSED)
		} else {
			c.failLocked(syscall.ECONNRESET)
		}
	case s.kind == segSYN:
		return c.arriveSYNLocked()
	case c.gone:
		c.out.sendLocked(segment{kind: segRST})
	case c.closed && s.kind == segData, s.kind == segACK && c.listener.closed:
		c.abortLocked()
	case s.kind == segSYNACK:
		c.state = established
		c.keepAliveLocked()
		close(c.opened)
		c.out.sendLocked(segment{kind: segACK})
	case s.kind == segACK:
		c.state = established
		c.keepAliveLocked()
		c.listener.opening--
		c.listener.waiting = append(c.listener.waiting, c)
		c.listener.arrived.Signal()
	case s.kind == segData:
		c.net.stats.DataBytes += int64(len(s.data))
		p.received = append(p.received, s.data)
		p.unread += len(s.data)
		c.readable.Broadcast()
	case s.kind == segFIN:
		p.finArrived = true
		c.readable.Broadcast()
	}
	return true
}

// arriveSYNLocked settles who answers a dial.
func (c *Conn) arriveSYNLocked() bool {
	h := c.net.hosts[c.peer.peerName]
	l := h.listenerLocked(c.local.AddrPort())
	if l == nil {
		c.abortLocked()
		return true
	}
	if len(l.waiting)+l.opening >= c.net.cfg.Backlog {
		return false
	}
	c.host, c.listener = h, l
	h.conns[c] = struct{}{}
	l.opening++
	c.out.sendLocked(segment{kind: segSYNACK})
	return true
}

// shutLocked is Close, without its error.
func (c *Conn) shutLocked() {
	if c.closed {
		return
	}
	unread := c.in.unread
	c.leaveLocked()
	switch {
	case c.gone:
	case c.state == synSent:
		c.vanishLocked() // the answer to the SYN gets a reset
	case unread > 0:
		c.abortLocked()
	case !c.finSent:
		c.finSent = true
		c.out.sendLocked(segment{kind: segFIN})
	}
}

// abortLocked ends the connection with a reset.
func (c *Conn) abortLocked() {
	c.vanishLocked()
	c.out.sendLocked(segment{kind: segRST})
}

// vanishLocked ends this end and sends nothing to the other.
func (c *Conn) vanishLocked() {
	c.leaveLocked()
	c.gone = true
	if c.out.link.down {
		c.out.dropLocked() // nobody is left to send it again
	}
}

// failLocked is called when the connection was reset or timed out: it stays,
// for its program to find out and to close.
func (c *Conn) failLocked(e syscall.Errno) {
	if c.gone {
		return
	}
	c.gone = true
	c.net.stats.Resets++
	if c.err == 0 {
		c.err = e
	}
	c.out.dropLocked()
	c.stopProbesLocked()
	c.readable.Broadcast()
	c.writable.Broadcast()
	switch c.state {
	case synSent:
		c.dialErr = errno("connect", e)
		c.leaveLocked()
	case synReceived:
		c.leaveLocked()
	}
}

// leaveLocked takes the connection from its host, and wakes its program.
func (c *Conn) leaveLocked() {
	if c.closed {
		return
	}
	c.closed = true
	if c.state == synSent { // somebody waits in Dial
		if c.dialErr == nil {
			c.dialErr = errno("connect", syscall.ENETDOWN)
		}
		close(c.opened)
	}
	if c.host != nil {
		delete(c.host.conns, c)
		if c.opened != nil {
			delete(c.host.usedPorts, uint16(c.local.Port))
		}
	}
	if c.listener != nil && c.state == synReceived {
		c.listener.opening--
	}
	// A writer that waits for room learns of a vanished peer by sending more, as
	// it would by probing a window that was closed.
	c.in.outstanding -= c.in.unread
	c.in.received, c.in.unread = nil, 0
	c.stopProbesLocked()
	c.peer.writable.Broadcast()
	c.readable.setLocked(time.Time{})
	c.writable.setLocked(time.Time{})
	c.readable.Broadcast()
	c.writable.Broadcast()
}

// abandon gives up a dial, unless it is settled.
func (c *Conn) abandon(err error) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if c.state == synSent && c.dialErr == nil {
		c.dialErr = err
		c.vanishLocked()
		c.out.dropLocked()
	}
}

// dialResult is the outcome of a dial that is settled.
func (c *Conn) dialResult() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	return c.dialErr
}
