package differ

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"lockkeeper/wire"
)

// maxReplyBytes is the largest frame that is taken from a server.
const maxReplyBytes = 64 << 20

// conn is one connection of a session, byte by byte.
type conn struct {
	net.Conn
	r    *bufio.Reader
	xid  wire.Xid
	open []sent // not answered yet, oldest first
}

// sent is a request on its way.
type sent struct {
	request *Request
	xid     wire.Xid
	// answer is the xid that the reply has, the xid of pings for a ping. (When ZooKeeper refuses a ping, because of what
	// stands before it, its reply has the request's own.)
	answer wire.Xid
}

// dial connects and sends a connect request, with whatever stands behind it.
func dial(addr string, patience time.Duration) (*conn, error) {
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, fmt.Errorf("differ: %w", err)
	}
	return &conn{Conn: c, r: bufio.NewReader(c)}, nil
}

// frame appends the frame of a request, and takes note of it as sent.
func (c *conn) frame(b []byte, r *Request, relative wire.Zxid) []byte {
	c.xid++
	xid := c.xid
	if r.OwnXid {
		xid = r.Xid
	}
	b = wire.AppendRequest(b, xid, r.Op, r.body(relative))
	s := sent{request: r, xid: xid, answer: xid}
	if r.Op == wire.OpPing {
		s.answer = wire.XidPing
	}
	c.open = append(c.open, s)
	return b
}

// answered takes the request with that xid from the open ones, nil if there is none.
func (c *conn) answered(xid wire.Xid) *Request {
	i := slices.IndexFunc(c.open, func(s sent) bool { return s.answer == xid })
	if i < 0 {
		i = slices.IndexFunc(c.open, func(s sent) bool { return s.xid == xid })
	}
	if i < 0 {
		return nil
	}
	r := c.open[i].request
	c.open = slices.Delete(c.open, i, i+1)
	return r
}

// read reads the next item. What ends the connection is an item too.
func (c *conn) read(patience time.Duration) item {
	_ = c.SetReadDeadline(time.Now().Add(patience))
	frame, err := wire.ReadFrame(c.r, nil, maxReplyBytes)
	if err != nil {
		return ending(err)
	}
	h, body, err := wire.DecodeReply(frame)
	if err != nil {
		return item{kind: garbage, body: frame}
	}
	if h.Xid == wire.XidNotification {
		return item{kind: event, header: h, body: body}
	}
	return item{kind: reply, header: h, body: body, request: c.answered(h.Xid)}
}

// readHandshake reads the answer to a connect request.
func (c *conn) readHandshake(patience time.Duration) item {
	_ = c.SetReadDeadline(time.Now().Add(patience))
	frame, err := wire.ReadFrame(c.r, nil, maxReplyBytes)
	if err != nil {
		return ending(err)
	}
	it := item{kind: handshake, body: frame}
	if err := wire.Decode(frame, &it.connect); err != nil {
		it.kind = garbage
	}
	return it
}

// ending is the item for an error of reading. A connection may end with a reset where the other server's ends
// in an orderly way, when bytes of ours were under way.
func ending(err error) item {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return item{kind: silence}
	case errors.Is(err, wire.ErrFrameLength), err == io.ErrUnexpectedEOF:
		return item{kind: garbage, body: []byte(err.Error())}
	}
	return item{kind: closed}
}

// itemKind says what came over a connection.
type itemKind int

const (
	reply     itemKind = iota // to request
	event                     // a notification
	handshake                 // a connect response
	closed                    // the end of the connection
	silence                   // nothing came for too long
	garbage                   // something else
)

// item is one thing that came over a connection.
type item struct {
	kind    itemKind
	header  wire.ReplyHeader     // reply, event
	body    []byte               // reply, event; what could not be decoded
	request *Request             // reply: what it answers; nil if nobody asked
	connect wire.ConnectResponse // handshake
}

// over says whether nothing more can come.
func (it *item) over() bool { return it.kind == closed || it.kind == silence || it.kind == garbage }

// stream is what came over one connection during one step, in order.
type stream struct {
	slot  int
	old   bool // the connection that was taken over
	items []item
}
