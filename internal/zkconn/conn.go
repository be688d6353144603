package zkconn

import (
	"bufio"
	"errors"
	"net"

	"lockkeeper/wire"
)

// MaxFrameBytes is the largest frame that is taken from a server.
const MaxFrameBytes = 64 << 20

// ErrRefused says that the server has answered a handshake without giving a session.
var ErrRefused = errors.New("the session was refused")

// A Conn is one connection. One goroutine uses it, and sets the deadlines.
type Conn struct {
	net.Conn
	R     *bufio.Reader // of the frames that come; Buffered says whether something has come already
	xid   wire.Xid
	frame []byte
}

// New returns a Conn that uses c.
func New(c net.Conn) *Conn { return &Conn{Conn: c, R: bufio.NewReaderSize(c, 16<<10)} }

// Handshake sends a connect request, the first frame of every connection, and reads the answer.
func (c *Conn) Handshake(req wire.ConnectRequest) (answer wire.ConnectResponse, err error) {
	if _, err := c.Write(wire.AppendFrame(nil, req)); err != nil {
		return answer, err
	}
	frame, err := wire.ReadFrame(c.R, nil, MaxFrameBytes)
	if err == nil {
		err = wire.Decode(frame, &answer)
	}
	if err == nil && answer.TimeoutMs <= 0 {
		err = ErrRefused
	}
	return answer, err
}

// Append appends the frame of the connection's next request to b, and returns the xid that its
// reply will have.
func (c *Conn) Append(b []byte, op wire.Op, body wire.Record) ([]byte, wire.Xid) {
	var xid wire.Xid
	switch op {
	case wire.OpPing:
		xid = wire.XidPing
	case wire.OpAuth:
		xid = wire.XidAuth
	default:
		c.xid++
		xid = c.xid
	}
	return wire.AppendRequest(b, xid, op, body), xid
}

// ReadReply reads a reply or, with the xid of notifications, an event. body is valid until the next
// call.
func (c *Conn) ReadReply() (h wire.ReplyHeader, body []byte, err error) {
	if c.frame, err = wire.ReadFrame(c.R, c.frame, MaxFrameBytes); err != nil {
		return h, nil, err
	}
	return wire.DecodeReply(c.frame)
}
