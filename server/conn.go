package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"lockkeeper/server/zoocfg"
	"lockkeeper/session"
	"lockkeeper/wire"
)

const (
	// idleBufferBytes is what a connection reads into, once there is something to read: it holds a few usual requests.
	idleBufferBytes = 512
	// readBufferBytes is what one gets whose client sends many requests without waiting for the answers.
	readBufferBytes = 16 << 10
	// restAfter is how long a client is silent that is taken for idle. Clients that only ping are.
	restAfter = 500 * time.Millisecond
	// farewellTimeout is how long a last answer (a four-letter word's, "session expired") may take.
	farewellTimeout = 10 * time.Second
	// lingerTimeout and lingerBytes bound what is still read from a client after the last answer.
	lingerTimeout = 2 * time.Second
	lingerBytes   = 1 << 20
)

// conn is one client connection. Its session sends on it: it is a session.Conn.
type conn struct {
	net.Conn
	port     *clientPort
	remote   netip.AddrPort
	number   int64 // in the order of acceptance
	accepted time.Time
	r        *bufio.Reader
	session  atomic.Pointer[session.Session] // nil before the handshake
	parting  atomic.Bool                     // what is sent now are its last words
}

func newConn(nc net.Conn) *conn {
	return &conn{Conn: nc, remote: remoteAddr(nc), accepted: time.Now(), r: bufio.NewReaderSize(nc, idleBufferBytes)}
}

// WriteUntil implements session.Conn.
func (c *conn) WriteUntil(b []byte, until time.Time) (int, error) {
	_ = c.SetWriteDeadline(until)
	n, err := c.Write(b)
	_ = c.SetWriteDeadline(time.Time{}) // or its timer would wake the process later
	return n, err
}

// Wake implements session.Conn: it starts a goroutine that sends what the session has to say.
func (c *conn) Wake() {
	c.port.wg.Go(func() { _ = c.flush(true) })
}

// Abort implements session.Conn. It closes the connection in a goroutine of its own, because Close takes time, and many
// sessions may end in one entry.
func (c *conn) Abort() {
	c.port.wg.Go(func() { _ = c.Close() })
}

// flush sends what the session has to say, as Session.Flush does. With an error the connection is closed.
func (c *conn) flush(wait bool) error {
	switch err := c.session.Load().Flush(wait); err {
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

// remoteAddr is the client's address, an IPv4 one as such even on an IPv6 socket: limits and ACLs are
// about that.
func remoteAddr(nc net.Conn) netip.AddrPort {
	var at netip.AddrPort
	if tcp, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
		at = tcp.AddrPort()
	} else {
		at, _ = netip.ParseAddrPort(nc.RemoteAddr().String())
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// serveConn is the life of a connection, from its first byte until it can be closed. It returns true when it is to be called
// again in a new goroutine, because the client may be silent for long now: a request, or the handshake, is answered
// further down the stack than the next request is waited for, and a stack that has grown does not shrink below 4 KB. That is
// more than everything else that a silent client costs.
func (s *Server) serveConn(ctx context.Context, c *conn) (again bool) {
	sess := c.session.Load()
	if sess == nil {
		return s.open(ctx, c) != nil
	}
	err := s.readLoop(c, sess)
	if err == nil {
		return true
	}
	s.log.Debug("connection ends", "client", c.remote, "session", sess.ID(), "err", err)
	sess.Detach()
	return false
}

// open answers the first bytes of a connection. Without a session, the connection is done for.
func (s *Server) open(ctx context.Context, c *conn) *session.Session {
	_ = c.SetReadDeadline(time.Now().Add(s.cfg.HandshakeTimeout))
	first, err := c.r.Peek(4)
	if err != nil {
		s.silent(c, err)
		return nil
	}
	if word := string(first); zoocfg.IsFourLetterWord(word) {
		s.answerWord(c, word)
		return nil
	}
	sess := s.handshake(ctx, c)
	if sess != nil && ctx.Err() != nil {
		sess.Detach() // the member is stopping, and has ended all sessions that it knew of
		return nil
	}
	return sess
}

// silent takes note of a connection that ended before it said what it wanted.
func (s *Server) silent(c *conn, err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.counters.sessionlessExpired.Add(1)
	}
	s.log.Debug("connection closed before its handshake", "client", c.remote, "err", err)
}

// handshake reads the connect request and answers it. Without a session, the connection is done for.
func (s *Server) handshake(ctx context.Context, c *conn) *session.Session {
	frame, err := s.readFrame(c)
	if err != nil {
		s.silent(c, err)
		return nil
	}
	var req wire.ConnectRequest
	if err := wire.Decode(frame, &req); err != nil {
		s.counters.badHandshakes.Add(1)
		s.log.Debug("connection closed: its first frame is no connect request", "client", c.remote, "err", err)
		return nil
	}
	if !s.connects.take() {
		s.port.rejected.Add(1)
		s.log.Debug("client refused: too many handshakes (connection_throttle_tokens)", "client", c.remote)
		return nil
	}
	_ = c.SetReadDeadline(time.Time{})
	s.counters.connectRequests.Add(1)
	sess, resp, err := s.sessions.Connect(ctx, &req, c.remote.Addr())
	if err != nil {
		s.counters.refusedHandshakes.Add(1)
		s.log.Debug("connection closed without an answer: the client should try another member", "client", c.remote, "err", err)
		return nil
	}
	answer := wire.AppendFrame(nil, resp)
	if sess != nil {
		c.session.Store(sess)
		sess.Open(c, answer)
		_ = c.flush(false) // an error is that of the next read, too
		return sess
	}
	c.parting.Store(true)
	if _, err := c.WriteUntil(answer, time.Now().Add(farewellTimeout)); err == nil {
		c.part()
	}
	return nil
}

func (s *Server) readFrame(c *conn) ([]byte, error) {
	frame, err := wire.ReadFrame(c.r, nil, s.cfg.MaxBuffer)
	if err == nil {
		s.counters.bytesReceived.Add(int64(len(frame)) + 4)
	}
	if errors.Is(err, wire.ErrFrameLength) {
		s.counters.badLengths.Add(1)
	}
	if n := c.r.Buffered(); n > 0 && c.r.Size() == idleBufferBytes && n+len(frame) > idleBufferBytes/2 {
		c.widen()
	}
	return frame, err
}

// widen gives the connection a buffer into which much can be read at a time.
func (c *conn) widen() {
	rest, _ := c.r.Peek(c.r.Buffered()) // what is buffered can be peeked at
	c.r = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(bytes.Clone(rest)), c.Conn), readBufferBytes)
	_, _ = c.r.Peek(len(rest)) // so that it is buffered again
}

// frameBuffered says whether a whole frame has been received that is not read yet.
func (c *conn) frameBuffered() bool {
	n := c.r.Buffered()
	if n < 4 {
		return false
	}
	head, _ := c.r.Peek(4)
	return int64(binary.BigEndian.Uint32(head)) <= int64(n-4)
}

// readLoop hands frames to the session until the connection or the session ends, and has what the session answers at once
// sent before it waits for the client. When all that the session had to say has been sent, it goes on reading, and the
// session ignores what comes, until the client closes too or the deadline for that has passed.
//
// It returns nil when it has answered a client that was silent for restAfter, and is likely to be silent again.
func (s *Server) readLoop(c *conn, sess *session.Session) error {
	for rested := false; ; {
		if !c.frameBuffered() {
			if err := c.flush(false); err != nil || rested {
				return err
			}
			began := time.Now()
			if _, err := c.r.Peek(1); err != nil {
				return err
			}
			rested = time.Since(began) > restAfter
		}
		frame, err := s.readFrame(c)
		if err != nil {
			return err
		}
		if err = sess.Submit(frame); err != nil {
			_ = c.flush(false) // the answers to what came before
			return err
		}
	}
}

// halfClose says that nothing more will come, and bounds how long the client may take to say the same.
// Closing outright would make TCP send a reset if the client has sent anything that was not read, and a
// reset may destroy the last answer on its way.
func (c *conn) halfClose() {
	hc, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok || hc.CloseWrite() != nil {
		_ = c.Close()
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(lingerTimeout))
}

// part ends a connection that has no session: after the last answer.
func (c *conn) part() {
	c.halfClose()
	_, _ = io.CopyN(io.Discard, c.r, lingerBytes)
}
