package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"lockkeeper/wire"
)

const (
	// maxReplyBytes is the largest frame that is taken from a server.
	maxReplyBytes = 64 << 20
	// patience is how long a request may go unanswered before the connection counts as broken.
	patience = 30 * time.Second
)

var (
	// errRefused says that the server has answered the handshake with no session.
	errRefused = errors.New("the session was refused")
	// errTurnedAway says that there is a server, but it gave no session.
	errTurnedAway = errors.New("turned away")
)

// conn is one connection with a session. It is used by one goroutine.
type conn struct {
	net.Conn
	r       *bufio.Reader
	xid     wire.Xid
	timeout time.Duration // of the session, as negotiated
	session wire.SessionID
	frame   []byte    // the newest; its memory is used again
	out     []byte    // requests that flush has not sent yet
	sent    time.Time // when flush has sent some
	events  []wire.WatcherEvent
}

// dial connects and opens a session.
func dial(ctx context.Context, addr string, timeout time.Duration) (*conn, error) {
	return dialWithin(ctx, addr, timeout, patience)
}

// dialWithin gives up when the server has said nothing for so long.
func dialWithin(ctx context.Context, addr string, timeout, patience time.Duration) (*conn, error) {
	nc, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("bench: connect: %w", err)
	}
	c := &conn{Conn: nc, r: bufio.NewReaderSize(nc, 16<<10)}
	_ = c.SetDeadline(time.Now().Add(patience))
	if err := c.handshake(timeout); err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("bench: connect to %s: %w: %w", addr, errTurnedAway, err)
	}
	return c, nil
}

func (c *conn) handshake(timeout time.Duration) error {
	hello := wire.ConnectRequest{TimeoutMs: int32(timeout.Milliseconds()), Password: make([]byte, wire.PasswordLen), HasReadOnly: true}
	if _, err := c.Write(wire.AppendFrame(nil, hello)); err != nil {
		return err
	}
	frame, err := wire.ReadFrame(c.r, nil, maxReplyBytes)
	if err != nil {
		return err
	}
	var answer wire.ConnectResponse
	if err := wire.Decode(frame, &answer); err != nil {
		return err
	}
	if answer.TimeoutMs <= 0 {
		return errRefused
	}
	c.timeout, c.session = time.Duration(answer.TimeoutMs)*time.Millisecond, answer.SessionID
	return nil
}

// put appends a request to what flush sends.
func (c *conn) put(op wire.Op, body wire.Record) {
	c.xid++
	xid := c.xid
	if op == wire.OpPing {
		xid = wire.XidPing
	}
	c.out = wire.AppendRequest(c.out, xid, op, body)
}

// flush sends what has been put, with one system call.
func (c *conn) flush() error {
	_, err := c.Write(c.out)
	c.out, c.sent = c.out[:0], time.Now()
	return err
}

// read reads one frame. An event goes to events and has the xid of a notification here. body is
// valid until the next call.
func (c *conn) read() (h wire.ReplyHeader, body []byte, err error) {
	if c.r.Buffered() == 0 {
		_ = c.SetDeadline(time.Now().Add(patience))
	}
	if c.frame, err = wire.ReadFrame(c.r, c.frame, maxReplyBytes); err != nil {
		return h, nil, err
	}
	if h, body, err = wire.DecodeReply(c.frame); err != nil || h.Xid != wire.XidNotification {
		return h, body, err
	}
	var e wire.WatcherEvent
	if err := wire.Decode(body, &e); err != nil {
		return h, nil, err
	}
	c.events = append(c.events, e)
	return h, nil, nil
}

// next reads the next reply that is none to a ping.
func (c *conn) next() (h wire.ReplyHeader, body []byte, err error) {
	for {
		h, body, err = c.read()
		if err != nil || h.Xid != wire.XidNotification && h.Xid != wire.XidPing {
			return h, body, err
		}
	}
}

// call sends one request and waits for its reply. A code other than OK is an error, too.
func (c *conn) call(op wire.Op, body wire.Record) ([]byte, error) {
	c.put(op, body)
	if err := c.flush(); err != nil {
		return nil, err
	}
	h, reply, err := c.next()
	if err == nil && h.Err != wire.CodeOK {
		err = h.Err
	}
	return reply, err
}

// event waits for the next event. It pings when it has sent nothing for a third of the session
// timeout, as client libraries do, even if events come meanwhile: they are no sign of life of the
// client, and lockkeeper holds them back from one that it has not heard for that long
// (session/lease.go).
func (c *conn) event(ctx context.Context) (wire.WatcherEvent, error) {
	for len(c.events) == 0 {
		if err := ctx.Err(); err != nil {
			return wire.WatcherEvent{}, err
		}
		_ = c.SetReadDeadline(c.sent.Add(c.timeout / 3))
		if _, err := c.r.Peek(1); errors.Is(err, os.ErrDeadlineExceeded) {
			_ = c.SetWriteDeadline(time.Now().Add(patience))
			c.put(wire.OpPing, nil)
			if err := c.flush(); err != nil {
				return wire.WatcherEvent{}, err
			}
			continue
		}
		if _, _, err := c.read(); err != nil {
			return wire.WatcherEvent{}, err
		}
	}
	e := c.events[0]
	c.events = c.events[1:]
	return e, nil
}

// create makes a node and returns its path.
func (c *conn) create(path string, data []byte, mode wire.CreateMode) (string, error) {
	reply, err := c.call(wire.OpCreate, &wire.CreateRequest{Path: path, Data: data, ACL: wire.OpenACL, Mode: mode})
	if err != nil {
		return "", err
	}
	var r wire.CreateResponse
	err = wire.Decode(reply, &r)
	return r.Path, err
}

// children lists a node's children.
func (c *conn) children(path string) ([]string, error) {
	reply, err := c.call(wire.OpGetChildren, &wire.PathWatchRequest{Path: path})
	if err != nil {
		return nil, err
	}
	var r wire.GetChildrenResponse
	err = wire.Decode(reply, &r)
	return r.Children, err
}

// remove deletes a node, which may be gone already.
func (c *conn) remove(path string) error {
	_, err := c.call(wire.OpDelete, &wire.DeleteRequest{Path: path, Version: -1})
	if errors.Is(err, wire.CodeNoNode) {
		return nil
	}
	return err
}

// end closes the session and the connection.
func (c *conn) end() {
	_ = c.SetDeadline(time.Now().Add(time.Second))
	_, _ = c.call(wire.OpCloseSession, nil)
	_ = c.Close()
}

// fourLetter asks a server a four-letter word.
func fourLetter(addr, word string) (string, error) {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return "", fmt.Errorf("bench: %s: %w", word, err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := io.WriteString(c, word); err != nil {
		return "", fmt.Errorf("bench: %s: %w", word, err)
	}
	text, err := io.ReadAll(c)
	if err != nil {
		return "", fmt.Errorf("bench: %s: %w", word, err)
	}
	return string(text), nil
}
