package secure

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"lockkeeper/internal/connlimit"
)

// listener accepts connections that speak TLS, or may. Nothing is read from them yet.
type listener struct {
	net.Listener
	also   bool // clients without TLS
	config *tls.Config
	begin  func(*Conn) error // of its connections
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &Conn{Conn: nc, also: l.also, config: l.config, begin: l.begin}, nil
}

// Conn is a connection that speaks TLS, or may. One goroutine begins: it calls Port.Begin,
// or Read does. After that it is a net.Conn like others, with two differences that the
// sessions need, because to crypto/tls a deadline that passes within a write is the end of the
// connection:
//
//   - After a Write that ran into its deadline, another one has to begin with the bytes that were
//     not written.
//   - Close does not tell the other side; CloseWrite does.
type Conn struct {
	net.Conn
	place  connlimit.Place[*Conn] // guarded by Port.mu
	also   bool                   // it may have no TLS
	config *tls.Config
	begin  func(*Conn) error // called by the first Read, unless nil
	first  []byte            // read by decide, to be read again
	heard  bool              // something has been read
	tls    *tls.Conn         // nil before decide, and if there is no TLS
	shaken bool              // the handshake is over, and records wait for send
	// bounded says that only allowed bytes more may be read.
	bounded bool
	allowed int

	encrypted int // bytes of the next Write that are in records already

	mu      sync.Mutex
	records []byte // to be sent
}

// TablePlace implements connlimit.Conn.
func (c *Conn) TablePlace() *connlimit.Place[*Conn] { return &c.place }

// NetConn returns the connection below.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// decide finds out whether the other side speaks TLS. If its first byte has to say so, it must come
// within timeout; until is the deadline for all that follows. Zeros leave the deadlines alone.
func (c *Conn) decide(timeout time.Duration, until time.Time) error {
	if c.also {
		if at := time.Now().Add(timeout); at.Before(until) {
			_ = c.SetReadDeadline(at)
		}
		var first [1]byte
		if _, err := io.ReadFull(c.Conn, first[:]); err != nil {
			return err
		}
		if !until.IsZero() {
			_ = c.SetReadDeadline(until)
		}
		c.heard, c.first = true, first[:]
		if first[0] != HandshakeByte {
			return nil
		}
	}
	c.tls = tls.Server((*recordConn)(c), c.config)
	c.bounded, c.allowed = true, HandshakeBytes
	return nil
}

func (c *Conn) handshake(ctx context.Context) error {
	err := c.tls.HandshakeContext(ctx)
	c.shaken, c.bounded = true, false
	return err
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	if c.begin != nil {
		begin := c.begin
		c.begin = nil
		if err := begin(c); err != nil {
			return 0, err
		}
	}
	if c.tls == nil {
		return (*recordConn)(c).Read(b)
	}
	return c.tls.Read(b)
}

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (n int, err error) {
	if c.tls == nil {
		return c.Conn.Write(b)
	}
	if c.encrypted > 0 {
		if err := c.send(); err != nil {
			return 0, err
		}
		n, c.encrypted = min(c.encrypted, len(b)), 0
	}
	for n < len(b) {
		part := b[n:min(len(b), n+recordBytes)]
		if _, err := c.tls.Write(part); err != nil {
			return n, err
		}
		if err := c.send(); err != nil {
			c.encrypted = len(part)
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// send sends the records that wait, until the write deadline.
func (c *Conn) send() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.records) == 0 {
		return nil
	}
	n, err := c.Conn.Write(c.records)
	if c.records = c.records[n:]; len(c.records) == 0 {
		c.records = nil // most connections are idle, and the next answer has another length
	}
	return err
}

// CloseWrite tells the other side that nothing more will come.
func (c *Conn) CloseWrite() error {
	hc, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	if c.tls != nil && c.shaken {
		_ = c.Conn.SetWriteDeadline(time.Now().Add(lingerTimeout))
		if err := errors.Join(c.tls.CloseWrite(), c.send()); err != nil {
			return err
		}
	}
	return hc.CloseWrite()
}

// recordConn is the connection below crypto/tls, which carries its records. Records after the
// handshake wait until Conn.send sends them.
type recordConn Conn

// Read implements net.Conn.
func (c *recordConn) Read(b []byte) (int, error) {
	if n := copy(b, c.first); n > 0 {
		c.first = c.first[n:]
		return n, nil
	}
	if c.bounded {
		if c.allowed == 0 && len(b) > 0 {
			return 0, ErrLongHandshake
		}
		b = b[:min(len(b), c.allowed)]
	}
	n, err := c.Conn.Read(b)
	if c.bounded {
		c.allowed -= n
	}
	if n > 0 && !c.heard { // later on, other goroutines read
		c.heard = true
	}
	return n, err
}

// Write implements net.Conn.
func (c *recordConn) Write(b []byte) (int, error) {
	if !c.shaken {
		return c.Conn.Write(b)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.records)+len(b) > unsentRecordBytes {
		return 0, errUnsentRecords
	}
	c.records = append(c.records, b...)
	return len(b), nil
}

// SetDeadline and SetWriteDeadline do nothing: the connection's owner sets its deadlines.
func (c *recordConn) SetDeadline(time.Time) error      { return nil }
func (c *recordConn) SetWriteDeadline(time.Time) error { return nil }

// Speaks reports whether the connection speaks TLS.
func (c *Conn) Speaks() bool { return c.tls != nil }

// Certificate is the one that the other side has shown; nil if there is none.
func (c *Conn) Certificate() *x509.Certificate {
	if c.tls == nil {
		return nil
	}
	if certs := c.tls.ConnectionState().PeerCertificates; len(certs) > 0 {
		return certs[0]
	}
	return nil
}
