package differ

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"lockkeeper/internal/zkconn"
	"lockkeeper/wire"
)

// conn is one connection of a session, byte by byte.
type conn struct {
	*zkconn.Conn
	xid  wire.Xid
	open []sent // not answered yet, oldest first
}

// sent is a request on its way.
type sent struct {
	request *Request
	// xids are the ones that the reply may have. The reply to a ping has the xid of pings; but when
	// ZooKeeper refuses one, because of an earlier request, its reply has the request's own.
	xids []wire.Xid
}

// dial connects.
func dial(addr string, patience time.Duration) (*conn, error) {
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, fmt.Errorf("differ: %w", err)
	}
	return &conn{Conn: zkconn.New(c)}, nil
}

// send sends bytes. When that fails, reading fails too.
func (c *conn) send(b []byte) { _, _ = c.Write(b) }

// frame appends the frame of a request, and records it as sent.
func (c *conn) frame(b []byte, r *Request, relative wire.Zxid) []byte {
	c.xid++
	xid := c.xid
	if r.OwnXid {
		xid = r.Xid
	}
	s := sent{request: r, xids: []wire.Xid{xid}}
	if r.Op == wire.OpPing {
		s.xids = []wire.Xid{wire.XidPing, xid}
	}
	c.open = append(c.open, s)
	return wire.AppendRequest(b, xid, r.Op, r.body(relative))
}

// answered removes the request with that xid from the open ones, and returns it; nil if there is
// none.
func (c *conn) answered(xid wire.Xid) *Request {
	i := slices.IndexFunc(c.open, func(s sent) bool { return s.xids[0] == xid })
	if i < 0 {
		i = slices.IndexFunc(c.open, func(s sent) bool { return slices.Contains(s.xids, xid) })
	}
	if i < 0 {
		return nil
	}
	r := c.open[i].request
	c.open = slices.Delete(c.open, i, i+1)
	return r
}

// next reads a frame and makes an item of it. The end of the connection is an item too.
func (c *conn) next(patience time.Duration, decode func(frame []byte, it *item) error) item {
	_ = c.SetReadDeadline(time.Now().Add(patience))
	frame, err := wire.ReadFrame(c.R, nil, zkconn.MaxFrameBytes)
	if err != nil {
		return ending(err)
	}
	var it item
	if decode(frame, &it) != nil {
		return item{kind: garbage, body: frame}
	}
	return it
}

// read reads a reply or an event.
func (c *conn) read(patience time.Duration) item {
	return c.next(patience, func(frame []byte, it *item) (err error) {
		it.header, it.body, err = wire.DecodeReply(frame)
		if it.kind = event; it.header.Xid != wire.XidNotification {
			it.kind, it.request = reply, c.answered(it.header.Xid)
		}
		return err
	})
}

// readHandshake reads the answer to a connect request.
func (c *conn) readHandshake(patience time.Duration) item {
	return c.next(patience, func(frame []byte, it *item) error {
		it.kind, it.body = handshake, frame
		return wire.Decode(frame, &it.connect)
	})
}

// ending is the item for an error of reading. A connection may end with a reset where the other
// server's ends in an orderly way, when bytes of ours were under way.
func ending(err error) item {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return item{kind: silence}
	case errors.Is(err, wire.ErrFrameLength), err == io.ErrUnexpectedEOF:
		return item{kind: garbage, body: []byte(err.Error())}
	}
	return item{kind: closed}
}

// itemKind is the kind of an item.
type itemKind string

const (
	reply     itemKind = "reply"             // to request
	event     itemKind = "event"             // a notification
	handshake itemKind = "handshake"         // a connect response
	closed    itemKind = "end of connection" // of the connection
	silence   itemKind = "silence"           // nothing came for too long
	garbage   itemKind = "garbage"           // something else
)

// item is one thing that came over a connection.
type item struct {
	kind    itemKind
	header  wire.ReplyHeader     // reply, event
	body    []byte               // reply, event; bytes that could not be decoded
	request *Request             // reply: its request; nil if no request has its xid
	connect wire.ConnectResponse // handshake
}

// over says whether nothing more can come.
func (it *item) over() bool { return it.kind == closed || it.kind == silence || it.kind == garbage }

// stream has the items of one connection during one step, in order.
type stream struct {
	slot  int
	old   bool // the connection that was taken over
	items []item
}

func (st stream) name() string {
	if st.old {
		return fmt.Sprintf("s%d (taken over)", st.slot)
	}
	return fmt.Sprintf("s%d", st.slot)
}
