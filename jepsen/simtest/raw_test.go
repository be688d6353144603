package simtest

import (
	"bufio"
	"fmt"
	"net"
	"time"

	"lockkeeper/wire"
)

// rawConn is a client connection without a library in between: it sees every
// frame, in order.
type rawConn struct {
	net.Conn
	r       *bufio.Reader
	session wire.SessionID
	timeout time.Duration
	xid     wire.Xid
}

// dialRaw opens a connection with a new session.
func (c *cluster) dialRaw(host, server string, timeout time.Duration) (*rawConn, error) {
	nc, err := c.net.Host(host).DialTimeout("tcp", server, time.Second)
	if err != nil {
		return nil, err
	}
	r := &rawConn{Conn: nc, r: bufio.NewReader(nc)}
	nc.SetDeadline(time.Now().Add(timeout))
	_, err = nc.Write(wire.AppendFrame(nil, wire.ConnectRequest{TimeoutMs: int32(timeout.Milliseconds())}))
	var frame []byte
	if err == nil {
		frame, err = wire.ReadFrame(r.r, nil, wire.DefaultMaxBuffer)
	}
	var resp wire.ConnectResponse
	if err == nil {
		err = wire.Decode(frame, &resp)
	}
	if err == nil && resp.TimeoutMs == 0 {
		err = fmt.Errorf("a new session was refused")
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	nc.SetDeadline(time.Time{})
	r.session, r.timeout = resp.SessionID, time.Duration(resp.TimeoutMs)*time.Millisecond
	return r, nil
}

// request is one that was sent.
type request struct {
	xid  wire.Xid
	op   wire.Op
	body wire.Record
}

// append encodes the next request.
func (r *rawConn) append(b []byte, op wire.Op, body wire.Record) ([]byte, request) {
	r.xid++
	q := request{xid: r.xid, op: op, body: body}
	if op == wire.OpPing {
		r.xid--
		q.xid = wire.XidPing
	}
	return wire.AppendRequest(b, q.xid, op, body), q
}

// next reads a frame within the silence that a client library bears: two thirds
// of the session timeout.
func (r *rawConn) next() (h wire.ReplyHeader, body []byte, err error) {
	r.SetReadDeadline(time.Now().Add(r.timeout * 2 / 3))
	frame, err := wire.ReadFrame(r.r, nil, wire.DefaultMaxBuffer)
	if err != nil {
		return h, nil, err
	}
	return wire.DecodeReply(frame)
}
