package server

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"lockkeeper/internal/connlimit"
	"lockkeeper/server/ops/words"
	"lockkeeper/server/secure"
	"lockkeeper/server/zoocfg"
	"lockkeeper/session"
	"lockkeeper/wire"
)

const (
	// restAfter is after which silence a client counts as idle. Clients that only ping are idle.
	restAfter = 500 * time.Millisecond
	// farewellTimeout bounds sending the last answer of a connection without a session: to a
	// four-letter word, or "session expired".
	farewellTimeout = 10 * time.Second
	// handshakeBytes bounds the first request of a connection. The libraries' have 45 bytes.
	handshakeBytes = 4096
	// lingerTimeout and lingerBytes bound the time and the bytes of reading from a client after the
	// last answer.
	lingerTimeout = 2 * time.Second
	lingerBytes   = 1 << 20
)

// conn is one client connection. Its session sends on it: it is a session.Conn.
type conn struct {
	net.Conn
	port     *clientPort
	accepted time.Time
	session  atomic.Pointer[session.Session] // nil before the handshake
	parting  atomic.Bool                     // its last answer is being sent
	in       input
	place    connlimit.Place[*conn]
}

func newConn(nc net.Conn) *conn { return &conn{Conn: nc, accepted: time.Now()} }

// TablePlace implements connlimit.Conn.
func (c *conn) TablePlace() *connlimit.Place[*conn] { return &c.place }

// Read reads from the client, through the buffer.
func (c *conn) Read(b []byte) (int, error) { return c.in.read(c.Conn, b) }

// WriteUntil implements session.Conn.
func (c *conn) WriteUntil(b []byte, until time.Time) (int, error) {
	_ = c.SetWriteDeadline(until)
	n, err := c.Write(b)
	_ = c.SetWriteDeadline(time.Time{}) // or its timer would wake the process later
	return n, err
}

// Wake implements session.Conn.
func (c *conn) Wake() { c.port.flushers.add(c) }

// Delegate implements session.Conn.
func (c *conn) Delegate() {
	c.port.wg.Go(func() { _ = c.flush(session.FlushAlone) })
}

// Abort implements session.Conn. It closes the connection in a goroutine of its own, because Close
// takes time, and many sessions may end in one entry.
func (c *conn) Abort() {
	c.port.wg.Go(func() { _ = c.Close() })
}

// flush sends the pending output of the session; see Session.Flush. With an error the connection is
// closed.
func (c *conn) flush(by session.Flusher) error {
	switch err := c.session.Load().Flush(by); err {
	case nil:
		return nil
	case io.EOF:
		c.halfClose()
		return nil
	default:
		_ = c.Close()
		return err
	}
}

// remote is the address of the client. An IPv4 address is returned as such even on an IPv6 socket,
// because limits and ACLs compare addresses.
func (c *conn) remote() netip.AddrPort {
	var at netip.AddrPort
	switch addr := c.RemoteAddr().(type) {
	case *net.TCPAddr:
		at = addr.AddrPort()
	default:
		at, _ = netip.ParseAddrPort(addr.String())
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// serveConn serves a connection from its first byte until it can be closed. It returns true when
// the caller calls it again in a new goroutine, because the client may now be silent for long. The
// stack of this one has grown with the last answer; docs/decisions/014-idle-connections.md has the
// memory that a new one saves.
func (p *clientPort) serveConn(ctx context.Context, c *conn) (again bool) {
	sess := c.session.Load()
	if sess == nil {
		return p.open(ctx, c) != nil
	}
	err := p.readLoop(c, sess)
	if err == nil {
		c.in.rest()
		return true
	}
	p.ended(c, sess, err)
	return false
}

// ended detaches a connection from its session. It is a function of its own to keep its variables
// out of the stack frame of serveConn, which every idle connection has.
func (p *clientPort) ended(c *conn, sess *session.Session, err error) {
	if !sess.Ended() {
		p.counters.drops.Add(1)
	}
	p.cfg.Logger.Debug("connection ends", "client", c.remote(), "session", sess.ID(), "err", err)
	sess.Detach()
}

// errNoTLS says that a client uses TLS at a port without it.
var errNoTLS = errors.New("server: a client uses TLS, and the port does not")

// open answers the first bytes of a connection. Without a session, the connection is to be closed.
func (p *clientPort) open(ctx context.Context, c *conn) *session.Session {
	if !p.secureClient(ctx, c) {
		return nil
	}
	_ = c.SetReadDeadline(c.accepted.Add(p.cfg.Client.HandshakeTimeout))
	first, err := c.in.peek(c.Conn, 4)
	if err != nil {
		p.silent(c, err)
		return nil
	}
	if first[0] == secure.HandshakeByte && first[1] == secure.HandshakeMajor {
		p.refusals.Warn("TLS "+c.remote().Addr().String(), "client refused: it uses TLS, and this port does not "+
			"(secureClientPort, client.portUnification)", "client", c.remote())
		p.silent(c, errNoTLS)
		return nil
	}
	if word := string(first); zoocfg.IsFourLetterWord(word) {
		p.answerWord(c, word)
		return nil
	}
	sess := p.handshake(ctx, c)
	if sess != nil && ctx.Err() != nil {
		sess.Detach() // the member is stopping, and has ended all sessions that it knew of
		return nil
	}
	return sess
}

// answerWord answers a four-letter word and ends the connection. The answer is sent in one piece,
// because kazoo reads only once. The rest of the client's input is read before the end, because
// otherwise TCP might drop the answer (docs/protocol/admin.md section 1).
func (p *clientPort) answerWord(c *conn, word string) {
	c.parting.Store(true)
	p.counters.wordsReceived.Add(1)
	p.counters.bytesReceived.Add(4)
	p.cfg.Logger.Debug("four-letter word", "client", c.remote(), "word", word)
	_, _ = io.CopyN(io.Discard, c, int64(len(word))) // it has been peeked at
	p.words.Answer(word, words.Asking{Remote: c.remote(), Input: c}, func(answer string) {
		p.counters.wordsSent.Add(1)
		if _, err := c.WriteUntil([]byte(answer), time.Now().Add(farewellTimeout)); err == nil {
			c.part()
		}
	})
}

// silent counts a connection that ended before its first request was complete.
func (p *clientPort) silent(c *conn, err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		p.counters.sessionlessExpired.Add(1)
	} else if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
		p.counters.drops.Add(1)
	}
	p.cfg.Logger.Debug("connection closed before its handshake", "client", c.remote(), "err", err)
}

// handshake reads the connect request and answers it. Without a session, the connection is to be
// closed.
func (p *clientPort) handshake(ctx context.Context, c *conn) *session.Session {
	frame, err := p.readFrame(c, min(p.cfg.Client.MaxBuffer, handshakeBytes), nil)
	if err != nil {
		p.silent(c, err)
		return nil
	}
	var req wire.ConnectRequest
	if err := wire.Decode(frame, &req); err != nil {
		p.counters.badHandshakes.Add(1)
		p.cfg.Logger.Debug("connection closed: its first frame is no connect request", "client", c.remote(), "err", err)
		return nil
	}
	if !p.mayConnect() {
		p.cfg.Logger.Debug("client refused: too many handshakes (connection_throttle_tokens)", "client", c.remote())
		return nil
	}
	_ = c.SetReadDeadline(time.Time{})
	p.heard(c)
	p.counters.connectRequests.Add(1)
	sess, resp, err := p.sessions.Connect(ctx, &req, c.remote().Addr())
	if err != nil {
		p.counters.refusedHandshakes.Add(1)
		p.cfg.Logger.Debug("connection closed without an answer: the client should try another member",
			"client", c.remote(), "err", err)
		return nil
	}
	answer := wire.AppendFrame(make([]byte, 0, 64), resp) // an answer has 41 bytes
	for _, id := range p.tls.certIdentities(c.Conn) {
		if sess != nil && !sess.Identify(id) {
			sess.Detach()
			return nil
		}
	}
	if sess != nil {
		c.session.Store(sess)
		sess.Open(recorded(&p.cfg.Machine, c, sess, p.cfg.Sessions.TickTime), answer)
		_ = c.flush(session.FlushReader) // the next read has the same error
		return sess
	}
	c.parting.Store(true)
	if _, err := c.WriteUntil(answer, time.Now().Add(farewellTimeout)); err == nil {
		c.part()
	}
	return nil
}

// readFrame reads a frame of at most max bytes; room is as in wire.ReadFrameInto.
func (p *clientPort) readFrame(c *conn, max int, room func(bytes int) error) ([]byte, error) {
	frame, err := wire.ReadFrameInto(c, nil, max, room)
	if err == nil {
		p.counters.bytesReceived.Add(int64(len(frame)) + 4)
	}
	if errors.Is(err, wire.ErrFrameLength) {
		p.counters.badLengths.Add(1)
	}
	return frame, err
}

// frameBuffered reports whether a whole frame has been received that has not been read yet.
func (c *conn) frameBuffered() bool {
	n := c.in.buffered()
	if n < 4 {
		return false
	}
	head, _ := c.in.peek(c.Conn, 4)
	return int64(binary.BigEndian.Uint32(head)) <= int64(n-4)
}

// readLoop submits frames to the session until the connection or the session ends, and flushes the
// replies that were made at once before it waits for the client. After the last output of a session
// that has ended, it goes on reading, and the session ignores the input, until the client closes
// too or the deadline for that has passed.
//
// It returns nil when it has answered a client that was silent for restAfter, and is likely to be
// silent again.
func (p *clientPort) readLoop(c *conn, sess *session.Session) error {
	defer sess.Arrived()
	for rested := false; ; {
		if !c.frameBuffered() {
			if err := c.flush(session.FlushReader); err != nil || rested {
				return err
			}
			began := time.Now()
			if _, err := c.in.peek(c.Conn, 1); err != nil {
				return err
			}
			rested = time.Since(began) > restAfter
		}
		frame, err := p.readFrame(c, p.cfg.Client.MaxBuffer, sess.Expect)
		if tooLarge, ok := errors.AsType[*wire.FrameLengthError](err); ok {
			return p.refuseLarge(c, sess, tooLarge)
		}
		if err != nil {
			return err
		}
		c.in.took(4 + len(frame))
		requested(&p.cfg.Machine, sess, frame)
		if err = sess.Submit(frame); err != nil {
			_ = c.flush(session.FlushReader) // the answers to earlier requests
			return err
		}
		sess.Arrived()
	}
}

// maxRefusedBytes is the largest frame that counts as a request that is too large: a longer one
// does not come from a client.
const maxRefusedBytes = 64 << 20

// headTimeout is how long the beginning of such a request may take after its length: a client sends
// both at once. restTimeout is how long the rest may take.
const (
	headTimeout = 200 * time.Millisecond
	restTimeout = 30 * time.Second
)

// refuseLarge answers a request that is larger than jute.maxbuffer, and reads the rest of it, so
// that a client that is sending still gets to the answer, which is the last one.
func (p *clientPort) refuseLarge(c *conn, sess *session.Session, e *wire.FrameLengthError) error {
	const head = 8 // xid and operation
	if e.Length < head || e.Length > maxRefusedBytes {
		return e
	}
	frame := make([]byte, head)
	_ = c.SetReadDeadline(time.Now().Add(headTimeout))
	if _, err := io.ReadFull(c, frame); err != nil {
		return e
	}
	// No earlier than the deadline that the last answer sets, which may have been set already.
	_ = c.SetReadDeadline(time.Now().Add(restTimeout))
	p.refusals.Warn("large "+c.remote().Addr().String(), "request refused: it is larger than jute.maxbuffer",
		"client", c.remote(), "session", sess.ID(), "bytes", e.Length, "limit", e.Max)
	requested(&p.cfg.Machine, sess, frame)
	if err := sess.RefuseLarge(frame); err != nil {
		return err
	}
	if err := c.flush(session.FlushReader); err != nil {
		return err
	}
	if _, err := io.CopyN(io.Discard, c, int64(e.Length-head)); err != nil {
		return err
	}
	_, err := io.CopyN(io.Discard, c, lingerBytes)
	return errors.Join(e, err)
}

// halfClose ends the direction to the client, and bounds how long the client may take to end the
// other. Closing both would make TCP send a reset if the client has sent anything that was not
// read, and a reset may destroy the last answer on its way.
func (c *conn) halfClose() {
	hc, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok || hc.CloseWrite() != nil {
		_ = c.Close()
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(lingerTimeout))
}

// part ends a connection that has no session, after the last answer.
func (c *conn) part() {
	c.halfClose()
	_, _ = io.CopyN(io.Discard, c, lingerBytes)
}
