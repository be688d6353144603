package recipes

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// serverConn is a connection to one server. It stands between go-zookeeper and
// the network for what go-zookeeper does not do:
//
//   - The handshake has a deadline. go-zookeeper would wait for ten times its
//     receive timeout, and the session would be over long before.
//   - The session timeout that was granted is read from the server's answer.
//   - The identities of the program are shown right behind the handshake, before
//     any request, on every connection. go-zookeeper's AddAuth is a request like
//     others, and is not repeated if the connection breaks before its reply.
//   - The TreeWatch, which go-zookeeper does not know, is set on every connection.
//   - A server that does not answer anything for a third of the session timeout
//     after a request was written is given up, while there is time to have a grant
//     confirmed by another one. go-zookeeper waits for two thirds, as is done here
//     where all servers are slow: see hosts.replyPatience.
//     A reconfig may take longer, while pings are answered: the next ping tells.
//   - When reading fails, writing does, so that go-zookeeper gets on.
//
// go-zookeeper reads from a connection in one goroutine at a time, and writes in
// one at a time. The goroutine that does the handshake is the only one until it
// is done.
type serverConn struct {
	net.Conn
	d       *dialer
	address string

	begun   bool   // the handshake's answer has been awaited; reader only
	pending []byte // what is left of it for go-zookeeper; reader only

	mu          sync.Mutex
	established bool      // the handshake is over
	readBy      time.Time // go-zookeeper's deadline for reading; zero: none
	replyBy     time.Time // when something has to have arrived; zero: nothing is awaited
	// an answer before it shows that writes are answered soon; zero: no write is awaited
	soonBy  time.Time
	arrived uint64 // number of reads that brought something
}

func newServerConn(conn net.Conn, d *dialer, address string, deadline time.Time) (net.Conn, error) {
	if err := conn.SetDeadline(deadline); err != nil {
		conn.Close()
		return nil, err
	}
	return &serverConn{Conn: conn, d: d, address: address}, nil
}

// Read returns the answer to the handshake when all that belongs to the
// handshake is done, and from then on what arrives.
func (c *serverConn) Read(b []byte) (int, error) {
	if !c.begun {
		c.begun = true
		answer, err := c.handshake()
		if err != nil {
			return 0, c.fail(err)
		}
		c.pending = answer
	}
	if len(c.pending) > 0 {
		n := copy(b, c.pending)
		c.pending = c.pending[n:]
		return n, nil
	}
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.signOfLife()
	}
	if err == nil && requiresLogin(b[:n]) {
		return 0, c.fail(c.end(fmt.Errorf("%s: %w", c.address, ErrLoginRequired)))
	}
	if err != nil {
		if isTimeout(err) && c.awaitsReply() {
			c.d.hosts.isSilent()
		}
		err = c.fail(err)
	}
	return n, err
}

// requiresLogin reports whether a frame's body, which go-zookeeper reads at once, is the answer to
// a request that had to follow a login. go-zookeeper knows no such error.
//
//	xid(4) zxid(8) error(4)
func requiresLogin(body []byte) bool {
	const size, sessionClosedRequireSASLAuth = 16, -124
	return len(body) == size && int32(binary.BigEndian.Uint32(body[12:])) == sessionClosedRequireSASLAuth
}

// end ends the Session, and returns err: no server would do otherwise.
func (c *serverConn) end(err error) error {
	select {
	case c.d.refused <- err:
	default: // one is enough
	}
	return err
}

// Write writes, and from then on waits for something to arrive.
func (c *serverConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	arrived := c.arrived
	c.mu.Unlock()
	n, err := c.Conn.Write(b)
	if err != nil {
		return n, c.fail(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// What arrived meanwhile may be the reply. The next request, which is a ping
	// after at most a third of the timeout, tells.
	if c.replyBy.IsZero() && c.arrived == arrived && operation(b) != opReconfig {
		now, timeout := time.Now(), c.d.granted.timeout()
		c.replyBy = now.Add(c.d.hosts.replyPatience(timeout))
		c.soonBy = time.Time{}
		if throughLeader(b) {
			c.soonBy = now.Add(timeout / 3)
		}
		c.limitLocked()
	}
	return n, nil
}

// throughLeader reports whether a frame that go-zookeeper writes is a request that
// the leader has to answer. A server that is cut off, or waits for a slow leader,
// answers the others at once all the same.
func throughLeader(frame []byte) bool {
	switch operation(frame) {
	case 1, 2, 5, 7, 9, 14, 19, 21:
		// create, delete, setData, setACL, sync, multi, createContainer, createTTL
		return true
	}
	return false
}

// operation is the operation of a request, 0 if the frame is too short to have one.
//
//	length(4) xid(4) op(4) ...
func operation(frame []byte) uint32 {
	if len(frame) < 12 {
		return 0
	}
	return binary.BigEndian.Uint32(frame[8:])
}

const opReconfig = 16

// awaitsReply reports whether something was written that nothing has arrived after.
func (c *serverConn) awaitsReply() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.replyBy.IsZero()
}

func (c *serverConn) signOfLife() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arrived++
	if !c.replyBy.IsZero() {
		if time.Now().Before(c.soonBy) {
			c.d.hosts.repliesSoon()
		}
		c.replyBy = time.Time{}
		c.limitLocked()
	}
}

// SetReadDeadline is called by go-zookeeper. During the handshake the deadline is
// ours.
func (c *serverConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readBy = t
	return c.limitLocked()
}

// SetWriteDeadline is like SetReadDeadline.
func (c *serverConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.established {
		return nil
	}
	return c.Conn.SetWriteDeadline(t)
}

// limitLocked sets the deadline for reading: that of the reply that is awaited, or else
// go-zookeeper's, which counts from when something arrived last.
func (c *serverConn) limitLocked() error {
	if !c.established {
		return nil
	}
	t := c.replyBy
	if t.IsZero() {
		t = c.readBy
	}
	return c.Conn.SetReadDeadline(t)
}

// fail ends the connection, of which one direction has failed.
func (c *serverConn) fail(err error) error {
	if isTimeout(err) {
		c.d.hosts.isHung(c.address)
	}
	c.Conn.Close()
	return err
}

// handshake reads the server's answer to the handshake, shows the identities, sets
// the TreeWatch, and returns the answer, with the events behind it.
//
//	length(4) protocolVersion(4) timeOut(4, ms) sessionId(8) passwd(4+16) ...
func (c *serverConn) handshake() ([]byte, error) {
	answer, err := readFrame(c.Conn)
	if err != nil {
		return nil, c.misfit(err)
	}
	var events []byte
	const head = 20
	if len(answer) >= head {
		timeoutMs := int32(binary.BigEndian.Uint32(answer[8:]))
		sessionID := binary.BigEndian.Uint64(answer[12:])
		if timeoutMs > 0 && sessionID != 0 { // else the session has expired
			c.d.granted.ms.Store(timeoutMs)
			if err := c.authenticate(); err != nil {
				return nil, err
			}
			if events, err = c.watchTree(); err != nil {
				return nil, err
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.established, c.replyBy = true, time.Time{}
	return append(answer, events...), c.Conn.SetDeadline(time.Time{})
}

// Numbers of the protocol: the xid and the operation of a request that shows an
// identity, and the error of its refusal.
const (
	authXid      = -4
	authOp       = 100
	authFailed   = -115
	maxHandshake = 64 << 10 // bytes of a frame during the handshake; ZooKeeper's have 41
)

// authenticate shows the identities, and waits for the server to accept them:
// no other frame comes before that, as nothing has been asked for.
func (c *serverConn) authenticate() error {
	for _, a := range c.d.auth {
		if a.Scheme == SASL {
			if err := c.login(a); err != nil {
				return err
			}
			continue
		}
		if _, err := c.Conn.Write(authRequest(a)); err != nil {
			return err
		}
		reply, err := readFrame(c.Conn)
		if err != nil {
			return err
		}
		if len(reply) < 20 || int32(binary.BigEndian.Uint32(reply[4:])) != authXid {
			return fmt.Errorf("recipes: %s answers an authentication with a frame of %d bytes that is no reply to it",
				c.address, len(reply))
		}
		switch code := int32(binary.BigEndian.Uint32(reply[16:])); code {
		case 0:
		case authFailed:
			return c.refuse(a, nil)
		default:
			return fmt.Errorf("recipes: %s answers an authentication with error %d", c.address, code)
		}
	}
	return nil
}

// authRequest is the frame
//
//	length(4) xid(4) op(4) type(4) scheme(4+n) secret(4+n)
func authRequest(a Auth) []byte {
	xid := int32(authXid)
	b := make([]byte, 4, 24+len(a.Scheme)+len(a.Secret))
	b = binary.BigEndian.AppendUint32(b, uint32(xid))
	b = binary.BigEndian.AppendUint32(b, authOp)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(a.Scheme)))
	b = append(b, a.Scheme...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(a.Secret)))
	b = append(b, a.Secret...)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// readFrame reads a frame of the handshake, with its length.
func readFrame(r io.Reader) ([]byte, error) {
	frame := make([]byte, 4)
	if _, err := io.ReadFull(r, frame); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(frame)
	if n > maxHandshake {
		return nil, fmt.Errorf("recipes: the server answers the handshake with %d bytes", n)
	}
	frame = append(frame, make([]byte, n)...)
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}
