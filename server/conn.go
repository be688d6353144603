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

	"lockkeeper/internal/rawsock"
	"lockkeeper/session"
	"lockkeeper/wire"
)

const (
	// idleBufferBytes is what a connection reads into, once there is something to read: it holds a few usual requests.
	idleBufferBytes = 512
	// readBufferBytes is what one gets whose client sends many requests without waiting for the answers.
	readBufferBytes = 16 << 10
	// writeChunkBytes is how much is given to the socket at a time: a client that takes nothing for as
	// long as it has for its session is given up, one that is only slow is not.
	writeChunkBytes = 64 << 10
	// restAfter is how long a client is silent whose connection dozes, or goes on on a fresh stack. Those that ping only are.
	restAfter = 500 * time.Millisecond
	// stallCheck is how often a writer whose client takes nothing looks whether the session has ended.
	stallCheck = 250 * time.Millisecond
	// farewellTimeout is how long a last answer (a four-letter word's, "session expired") may take.
	farewellTimeout = 10 * time.Second
	// lingerTimeout and lingerBytes bound what is still read from a client after the last answer.
	lingerTimeout = 2 * time.Second
	lingerBytes   = 1 << 20
)

// conn is one client connection.
type conn struct {
	net.Conn
	remote   netip.AddrPort
	number   int64 // in the order of acceptance
	accepted time.Time
	woke     time.Time // when there was last something to read, of the reader
	r        *bufio.Reader
	session  atomic.Pointer[session.Session] // nil before the handshake
	sock     tryWriter
	tcp      rawsock.Conn // Conn and sock, over TCP; in here because telling many connections something is waiting for memory
	writing  atomic.Bool  // somebody waits for the client to take what is sent
	parting  atomic.Bool  // what is sent now are its last words
	ending   atomic.Bool  // it is closed, or its reader has a deadline: it does not doze
	dozer    *dozer
}

// Close closes the connection, and has its reader know.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.ending.Store(true)
	c.dozer.rouse(c)
	return err
}

// tryWriter writes what a socket takes at once, which may be nothing.
type tryWriter interface {
	TryWrite(b []byte) (n int, err error)
}

// patient is the tryWriter of a connection that has none: all has to be written by one who may wait.
type patient struct{}

func (patient) TryWrite([]byte) (int, error) { return 0, nil }

func newConn(nc net.Conn) *conn {
	now := time.Now()
	c := &conn{Conn: nc, remote: remoteAddr(nc), accepted: now, woke: now, sock: patient{}}
	if c.tcp.Use(nc) {
		c.Conn, c.sock = &c.tcp, &c.tcp
	} else if w, ok := nc.(tryWriter); ok {
		c.sock = w
	}
	c.r = bufio.NewReaderSize(c.Conn, idleBufferBytes)
	return c
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

// serveConn is the life of a connection, from its first byte until it can be closed. It returns true when it is to be
// called again on a fresh stack, at once or when there is something to read: that may take long.
func (s *Server) serveConn(ctx context.Context, c *conn) (again bool) {
	if sess := c.session.Load(); sess != nil {
		if c.r == nil {
			c.r = bufio.NewReaderSize(c.Conn, idleBufferBytes)
		}
		if s.readLoop(c, sess) {
			return true
		}
		sess.Detach()
		_ = c.Close() // which ends a Write that waits for the client
		sess.Wait()
		return false
	}
	sess := s.open(ctx, c)
	if sess == nil {
		return false
	}
	c.session.Store(sess)
	sess.Open(func() { s.port.flushers.add(c) })
	return true
}

// open answers the first bytes of a connection. Without a session, the connection is done for.
func (s *Server) open(ctx context.Context, c *conn) *session.Session {
	_ = c.SetReadDeadline(time.Now().Add(s.cfg.HandshakeTimeout))
	first, err := c.r.Peek(4)
	if err != nil {
		s.silent(c, err)
		return nil
	}
	if word := string(first); isFourLetterWord(word) {
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
	if sess == nil {
		c.parting.Store(true)
	}
	if sess != nil && !sess.MaySend() { // this process was stopped for so long that the client may not take itself for connected
		sess.Detach()
		return nil
	}
	_ = c.SetWriteDeadline(time.Now().Add(farewellTimeout))
	if _, err := c.Write(wire.AppendFrame(nil, resp)); err != nil {
		if sess != nil {
			sess.Detach()
		}
		return nil
	}
	_ = c.SetWriteDeadline(time.Time{})
	if sess == nil {
		c.part()
	}
	return sess
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

// readLoop hands frames to the session until the connection or the session ends, and sends what the session answers at
// once, before it waits for the client. When the session has said its last word, it goes on reading, and the session
// ignores what comes, until the client closes too or the deadline for that has passed.
//
// It returns true to be called again on a fresh stack: when it has answered a client that was silent for restAfter, and is
// likely to be silent again. A request is answered further down the stack than the next one is waited for, and a stack that
// has grown does not shrink by much. For the same reason it waits here, and not further down.
func (s *Server) readLoop(c *conn, sess *session.Session) (again bool) {
	for rest := false; ; {
		if !c.frameBuffered() {
			err := c.flush(sess)
			if err == nil && rest {
				return true
			}
			if err == nil {
				_, err = c.r.Peek(1)
			}
			if err != nil {
				s.ends(c, sess, err)
				return false
			}
			now := time.Now()
			rest, c.woke = now.Sub(c.woke) > restAfter, now
		}
		if err := s.takeFrame(c, sess); err != nil {
			s.ends(c, sess, err)
			return false
		}
	}
}

// ping is the request that says nothing but that the client is there, as all clients send it.
var ping = wire.AppendRequest(nil, wire.XidPing, wire.OpPing, nil)

// servePing answers a client whose connection nobody reads, if all that has come is a ping, and nothing has to be waited for.
// Without that it has taken nothing.
func (s *Server) servePing(c *conn) bool {
	sess := c.session.Load()
	taken, err := sess.SubmitNow(ping[4:], c.takePing) // without its length
	if !taken {
		return false
	}
	s.counters.bytesReceived.Add(int64(len(ping)))
	if err != nil {
		_ = c.Close() // and it is served again, to its end
		return true
	}
	_ = c.flush(sess) // which has closed c if it fails
	return true
}

// takeFrame hands the next frame to the session.
func (s *Server) takeFrame(c *conn, sess *session.Session) error {
	frame, err := s.readFrame(c)
	if err != nil {
		return err
	}
	if err = sess.Submit(frame); err != nil {
		_ = c.flush(sess) // the answers to what came before
	}
	return err
}

func (s *Server) ends(c *conn, sess *session.Session, err error) {
	s.log.Debug("connection ends", "client", c.remote, "session", sess.ID(), "err", err)
}

// next gives the one who sends what is to be sent now. Without that, it is not the one any more; with an error, the
// connection is closed.
func (c *conn) next(sess *session.Session) (*session.Buffer, error) {
	out, err := sess.Output()
	switch {
	case err == io.EOF:
		c.halfClose()
		sess.Leave()
		return nil, nil
	case err != nil:
		c.giveUp(sess)
	}
	return out, err
}

// giveUp ends the connection, which ends the readLoop, for the one who sends.
func (c *conn) giveUp(sess *session.Session) {
	_ = c.Close()
	sess.Leave()
}

// writeAll sends b, while the lease of the session allows it. It gives up when the client takes nothing at all for as long as its
// session may be silent, and soon after the session has ended.
func (c *conn) writeAll(b []byte, sess *session.Session) error {
	if sess.MaySend() {
		n, err := c.sock.TryWrite(b)
		if b = b[n:]; err != nil || len(b) == 0 {
			return err
		}
	}
	c.writing.Store(true)
	defer c.writing.Store(false)
	defer c.SetWriteDeadline(time.Time{}) // a TryWrite may heed it
	progress := time.Now()
	for len(b) > 0 {
		until, err := sess.AwaitLease()
		if err != nil {
			return err
		}
		if check := time.Now().Add(stallCheck); check.Before(until) {
			until = check
		}
		_ = c.SetWriteDeadline(until)
		n, err := c.Write(b[:min(len(b), writeChunkBytes)])
		b = b[n:]
		if n > 0 {
			progress = time.Now()
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(progress) > sess.Timeout() || sess.Ended() {
			return err
		}
	}
	return nil
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
	c.ending.Store(true)
	c.dozer.rouse(c)
}

// part ends a connection that has no session: after the last answer.
func (c *conn) part() {
	c.halfClose()
	_, _ = io.CopyN(io.Discard, c.r, lingerBytes)
}
