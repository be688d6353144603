package attack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"lockkeeper/internal/zkconn"
	"lockkeeper/wire"
)

// sessionTimeoutMs is the timeout that attackers request: they send no pings.
const sessionTimeoutMs = 30_000

// A client is one connection of an attacker with a session, without a library in between. One
// goroutine uses it.
type client struct{ *zkconn.Conn }

// connect opens a session at the attacked member.
func (p *Play) connect() (*client, error) { return p.connectFrom(p.host(0)) }

func (p *Play) connectFrom(from string) (*client, error) {
	nc, err := p.dial(p.attacked.ClientAddr, from)
	if err != nil {
		return nil, err
	}
	c := &client{zkconn.New(nc)}
	_ = c.SetDeadline(time.Now().Add(patience))
	answer, err := c.Handshake(wire.ConnectRequest{TimeoutMs: sessionTimeoutMs,
		Password: make([]byte, wire.PasswordLen)})
	if err == nil && answer.SessionID == 0 {
		err = zkconn.ErrRefused
	}
	if err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("attack: handshake: %w", err)
	}
	return c, nil
}

// Close ends the connection, if there is one.
func (c *client) Close() error {
	if c == nil {
		return nil
	}
	return c.Conn.Close()
}

// raw is a request body that is not made of a record.
type raw []byte

// Append implements wire.Record.
func (r raw) Append(b []byte) []byte { return append(b, r...) }

// post sends a request without waiting for its answer.
func (c *client) post(op wire.Op, body wire.Record) error { return c.postWithin(patience, op, body) }

// postWithin is post, with how long the member may take to accept the bytes.
func (c *client) postWithin(d time.Duration, op wire.Op, body wire.Record) error {
	_ = c.SetWriteDeadline(time.Now().Add(d))
	b, _ := c.Append(nil, op, body)
	_, err := c.Write(b)
	return err
}

// answer reads the next reply, past events. The error is the reply's code, or the end of the
// connection. body is valid until the next call.
func (c *client) answer() (body []byte, err error) {
	for {
		_ = c.SetReadDeadline(time.Now().Add(patience))
		h, body, err := c.ReadReply()
		if err != nil {
			return nil, err
		}
		if h.Xid != wire.XidNotification {
			return body, h.Err.Err()
		}
	}
}

// do sends a request and waits for its answer.
func (c *client) do(op wire.Op, body wire.Record) error {
	if err := c.post(op, body); err != nil {
		return err
	}
	_, err := c.answer()
	return err
}

// multiFailed is the code of the first part of a multi that failed, nil if none did.
func multiFailed(body []byte) error {
	const header = 9
	if len(body) >= header+4 && wire.Op(int32(binary.BigEndian.Uint32(body))) == wire.OpError && body[4] == 0 {
		for at := 0; at+header+4 <= len(body); at += header + 4 {
			if code := wire.Code(int32(binary.BigEndian.Uint32(body[at+header:]))); code != wire.CodeOK {
				return code
			}
		}
		return wire.CodeRuntimeInconsistency // the part that failed is further on
	}
	return nil
}

// multi sends a multi and returns the first code that is not OK.
func (c *client) multi(ops []wire.MultiOp) error {
	if err := c.post(wire.OpMulti, wire.MultiRequest{Ops: ops}); err != nil {
		return err
	}
	body, err := c.answer()
	if err != nil {
		return err
	}
	return multiFailed(body)
}

// make creates a node, which may be there already.
func (c *client) make(path string, data []byte) error {
	err := c.do(wire.OpCreate, wire.CreateRequest{Path: path, Data: data, ACL: wire.OpenACL})
	if errors.Is(err, wire.CodeNodeExists) {
		return nil
	}
	return err
}

// leave closes the session and the connection.
func (c *client) leave() {
	if c == nil {
		return
	}
	_ = c.do(wire.OpCloseSession, nil)
	_ = c.Close()
}
