package bench

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"lockkeeper/internal/zkconn"
	"lockkeeper/wire"
)

// patience is how long a request may go unanswered before the connection counts as broken.
const patience = 30 * time.Second

// errTurnedAway says that there is a server, but it gave no session.
var errTurnedAway = errors.New("turned away")

// conn is one connection with a session. It is used by one goroutine, or by one that reads while
// another one writes (put and flush).
type conn struct {
	*zkconn.Conn
	timeout time.Duration // of the session, as negotiated
	out     []byte        // requests that flush has not sent yet
	sent    time.Time     // when flush has sent some
	events  []wire.WatcherEvent
}

// route is the way from here to a server.
type route struct {
	tls    *tls.Config // nil: without TLS
	source netip.Addr  // the zero one: as the system chooses
}

func (c *Config) route() route { return route{tls: c.TLS, source: c.Source} }

// connect connects, with TLS if there is a config for it.
func connect(ctx context.Context, via route, addr string, patience time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: patience}
	if via.source.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(via.source, 0))
	}
	nc, err := d.DialContext(ctx, "tcp", addr)
	config := via.tls
	if err != nil || config == nil {
		return nc, err
	}
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName, _, _ = net.SplitHostPort(addr)
	}
	return tls.Client(nc, config), nil
}

// dial connects and opens a session. It gives up when the server has sent nothing for so long.
func dial(ctx context.Context, via route, addr string, timeout, patience time.Duration) (*conn, error) {
	nc, err := connect(ctx, via, addr, patience)
	if err != nil {
		return nil, fmt.Errorf("bench: connect: %w", err)
	}
	c := &conn{Conn: zkconn.New(nc)}
	_ = c.SetDeadline(time.Now().Add(patience))
	answer, err := c.Handshake(wire.ConnectRequest{
		TimeoutMs: int32(timeout.Milliseconds()), Password: make([]byte, wire.PasswordLen), HasReadOnly: true,
	})
	if err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("bench: connect to %s: %w: %w", addr, errTurnedAway, err)
	}
	c.timeout = time.Duration(answer.TimeoutMs) * time.Millisecond
	return c, nil
}

// put appends a request to the output of flush.
func (c *conn) put(op wire.Op, body wire.Record) { c.out, _ = c.Append(c.out, op, body) }

// flush sends the output with one system call.
func (c *conn) flush() error {
	_, err := c.Write(c.out)
	c.out, c.sent = c.out[:0], time.Now()
	return err
}

// read reads one frame. An event goes to events, too. body is valid until the next call.
func (c *conn) read() (h wire.ReplyHeader, body []byte, err error) {
	if c.R.Buffered() == 0 {
		_ = c.SetDeadline(time.Now().Add(patience))
	}
	if h, body, err = c.ReadReply(); err == nil && h.Xid == wire.XidNotification {
		var e wire.WatcherEvent
		err = wire.Decode(body, &e)
		c.events = append(c.events, e)
	}
	return h, body, err
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
		if _, err := c.R.Peek(1); errors.Is(err, os.ErrDeadlineExceeded) {
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
func (c *conn) create(path string, mode wire.CreateMode) (string, error) {
	reply, err := c.call(wire.OpCreate, &wire.CreateRequest{Path: path, ACL: wire.OpenACL, Mode: mode})
	if err != nil {
		return "", err
	}
	var r wire.CreateResponse
	err = wire.Decode(reply, &r)
	return r.Path, err
}

// set writes zeros to a node.
func (c *conn) set(path string, sizeBytes int) error {
	_, err := c.call(wire.OpSetData, &wire.SetDataRequest{Path: path, Data: make([]byte, sizeBytes), Version: -1})
	return err
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

// end closes the session and the connection, and waits for the reply, at most a second.
func (c *conn) end() {
	_ = c.SetDeadline(time.Now().Add(time.Second))
	_, _ = c.call(wire.OpCloseSession, nil)
	_ = c.Close()
}

// leave closes the session and the connection without waiting.
func (c *conn) leave() {
	_ = c.SetDeadline(time.Now().Add(time.Second))
	c.put(wire.OpCloseSession, nil)
	_ = c.flush()
	_ = c.Close()
}

// whole says whether another frame has come completely.
func (c *conn) whole() bool {
	const lengthBytes = 4
	if c.R.Buffered() < lengthBytes {
		return false
	}
	b, _ := c.R.Peek(lengthBytes)
	return c.R.Buffered() >= lengthBytes+int(binary.BigEndian.Uint32(b))
}

// pipelineWindow is the number of requests that pipeline has in flight.
const pipelineWindow = 256

// pipeline sends n requests, many at a time, and reads all replies. see is called for each; an
// error that it returns ends it.
func (c *conn) pipeline(ctx context.Context, n int, request func(i int) (wire.Op, wire.Record),
	see func(i int, code wire.Code) error) error {
	for sent, answered := 0, 0; answered < n; {
		for ; sent < n && sent-answered < pipelineWindow; sent++ {
			c.put(request(sent))
		}
		if err := c.flush(); err != nil {
			return err
		}
		for more := true; more; more = answered < n && c.whole() {
			h, _, err := c.next()
			if err == nil {
				err = see(answered, h.Err)
			}
			if err != nil {
				return err
			}
			answered++
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// createAll makes n nodes with an open ACL.
func (c *conn) createAll(ctx context.Context, n int, path func(i int) string, data []byte) error {
	return c.pipeline(ctx, n, func(i int) (wire.Op, wire.Record) {
		return wire.OpCreate, &wire.CreateRequest{Path: path(i), Data: data, ACL: wire.OpenACL}
	}, func(i int, code wire.Code) error {
		if code != wire.CodeOK {
			return fmt.Errorf("create %s: %w", path(i), code)
		}
		return nil
	})
}

// removeAll deletes a node and everything below it.
func (c *conn) removeAll(path string) error {
	names, err := c.children(path)
	if errors.Is(err, wire.CodeNoNode) {
		return nil
	}
	// Most have no children: only those that turn out to have some are looked into.
	var deep []string
	if err == nil {
		err = c.pipeline(context.Background(), len(names), func(i int) (wire.Op, wire.Record) {
			return wire.OpDelete, &wire.DeleteRequest{Path: path + "/" + names[i], Version: -1}
		}, func(i int, code wire.Code) error {
			if code == wire.CodeNotEmpty {
				deep = append(deep, path+"/"+names[i])
			}
			return nil
		})
	}
	for _, d := range deep {
		if err == nil {
			err = c.removeAll(d)
		}
	}
	if err != nil {
		return err
	}
	return c.remove(path)
}

// mode is the mode in a server's answer to the four-letter word srvr: leader, follower, observer,
// standalone; "" if nothing. ZooKeeper, which is measured too, has no JSON with it on that port.
func mode(via route, addr string) string {
	c, err := connect(context.Background(), via, addr, time.Second)
	if err != nil {
		return ""
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	_, _ = io.WriteString(c, "srvr") // if it fails, reading fails too
	text, _ := io.ReadAll(c)
	_, rest, _ := strings.Cut(string(text), "\nMode: ")
	role, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(role)
}
