package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"lockkeeper/session"
	"lockkeeper/wire"
)

const (
	// idleBufferBytes is what a connection reads into that is mostly idle, as most are: it holds a few usual requests.
	idleBufferBytes = 512
	// readBufferBytes is what one gets whose client sends many requests without waiting for the answers.
	readBufferBytes = 16 << 10
	// writeChunkBytes is how much is given to the socket at a time: a client that takes nothing for as
	// long as it has for its session is given up, one that is only slow is not.
	writeChunkBytes = 64 << 10
	// keptBufferBytes is up to which size an output buffer is used again.
	keptBufferBytes = 64 << 10
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
	r        *bufio.Reader
	session  atomic.Pointer[session.Session] // nil before the handshake
	writing  atomic.Bool
	parting  atomic.Bool // what is sent now are its last words
}

func newConn(nc net.Conn) *conn {
	return &conn{Conn: nc, remote: remoteAddr(nc), accepted: time.Now(), r: bufio.NewReaderSize(nc, idleBufferBytes)}
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

// serveConn is the life of a connection, from its first byte until it can be closed.
func (s *Server) serveConn(ctx context.Context, c *conn) {
	_ = c.SetReadDeadline(time.Now().Add(s.cfg.HandshakeTimeout))
	first, err := c.r.Peek(4)
	if err != nil {
		s.silent(c, err)
		return
	}
	if word := string(first); isFourLetterWord(word) {
		s.answerWord(c, word)
		return
	}
	sess := s.handshake(ctx, c)
	if sess == nil {
		return
	}
	if ctx.Err() != nil {
		sess.Detach() // the member is stopping, and has ended all sessions that it knew of
		return
	}
	c.session.Store(sess)
	written := make(chan struct{})
	go func() {
		defer close(written)
		c.writeLoop(sess)
	}()
	s.readLoop(c, sess)
	sess.Detach()
	_ = c.Close() // which ends a Write that waits for the client
	<-written
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
	_ = c.SetWriteDeadline(time.Now().Add(farewellTimeout))
	if _, err := c.Write(wire.AppendFrame(nil, resp)); err != nil {
		if sess != nil {
			sess.Detach()
		}
		return nil
	}
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
}

// readLoop hands frames to the session until the connection or the session ends. When the session has
// said its last word, it goes on reading, and the session ignores what comes, until the client closes too
// or the writer's deadline for that has passed.
func (s *Server) readLoop(c *conn, sess *session.Session) {
	for {
		frame, err := s.readFrame(c)
		if err == nil {
			err = sess.Submit(frame)
		}
		if err != nil {
			s.log.Debug("connection ends", "client", c.remote, "session", sess.ID(), "err", err)
			return
		}
	}
}

// writeLoop sends what the session has to say. It closes the connection when the session has ended, which
// ends the readLoop.
func (c *conn) writeLoop(sess *session.Session) {
	var buf []byte
	for {
		out, err := sess.Output(buf)
		if err == io.EOF {
			c.halfClose()
			return
		}
		if err != nil {
			_ = c.Close()
			return
		}
		c.writing.Store(true)
		err = c.writeAll(out, sess)
		c.writing.Store(false)
		if err != nil {
			_ = c.Close()
			return
		}
		if buf = out[:0]; cap(buf) > keptBufferBytes {
			buf = nil
		}
	}
}

// writeAll sends b. It gives up when the client takes nothing at all for as long as its session may be
// silent, and soon after the session has ended.
func (c *conn) writeAll(b []byte, sess *session.Session) error {
	progress := time.Now()
	for len(b) > 0 {
		_ = c.SetWriteDeadline(time.Now().Add(stallCheck))
		n, err := c.Write(b[:min(len(b), writeChunkBytes)])
		b = b[n:]
		if n > 0 {
			progress = time.Now()
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(progress) > sess.Timeout() {
			return err
		}
		select {
		case <-sess.Done():
			return err
		default:
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
}

// part ends a connection that has no session: after the last answer.
func (c *conn) part() {
	c.halfClose()
	_, _ = io.CopyN(io.Discard, c.r, lingerBytes)
}
