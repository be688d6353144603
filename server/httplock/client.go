package httplock

import (
	"context"
	"encoding/binary"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"lockkeeper/session"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// beatsPerTimeout is the number of pings of a client in each session timeout.
const beatsPerTimeout = 6

// client is a session of this member without a socket. It sends requests as the client of a
// connection does, so that the same limits, quotas, access checks and leases apply, and it is the
// session.Conn that the session sends its output to. One goroutine at a time uses it; the methods
// of session.Conn apart from WriteUntil are called by any.
//
// Invariant: the session sends nothing unless the leader has confirmed its lease within the last
// third of its timeout, and says until when that counts. So after each reply the client knows
// until when its session is proved to live.
type client struct {
	sess     *session.Session
	id       wire.SessionID
	password []byte
	timeout  time.Duration

	wake     chan struct{} // has an element while the session has output
	gone     chan struct{} // closed when the connection has ended
	goneOnce sync.Once
	beat     *time.Ticker // for pings; stopped when the user of the lock renews it

	xid     wire.Xid
	reply   *reply // to the newest call; nil before it
	pinging bool   // a ping is not answered yet
	pongs   int    // pings that have been answered
	greeted bool   // the answer to the handshake has been read
	input   []byte // an incomplete frame
	ignore  int    // bytes of a reply that is too long, which are not there yet
	events  []wire.WatcherEvent
	// sendable is until when bytes may be sent to the user of the lock: a third of the timeout
	// after the newest confirmation of the lease.
	sendable time.Time
}

// reply is the reply to a request.
type reply struct {
	code wire.Code
	body []byte // nil if it is longer than replyMost
}

// replyMost bounds the bytes of a reply: of the names of the contenders of a lock.
const replyMost = 1 << 20

// errGone says that the session has lost its connection to this member.
var errGone = &refusal{status: unavailable, text: "the session has ended, or this member cannot prove that it lives; " +
	"try again, or another member"}

// connect creates a session, or attaches to the one that req names, with the identities of a user
// of HTTP. Its caller calls close or abandon.
func connect(ctx context.Context, m *session.Manager, req *wire.ConnectRequest, addr netip.Addr,
	ids []znode.Identity) (*client, error) {
	sess, resp, err := m.Connect(ctx, req, addr)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return nil, cause
	}
	if err != nil {
		return nil, &refusal{status: unavailable, text: "this member cannot open a session now: " + err.Error()}
	}
	if sess == nil {
		return nil, errNoLock
	}
	c := &client{sess: sess, id: resp.SessionID, password: slices.Clone(resp.Password),
		timeout: time.Duration(resp.TimeoutMs) * time.Millisecond,
		wake:    make(chan struct{}, 1), gone: make(chan struct{})}
	c.beat = time.NewTicker(c.timeout / beatsPerTimeout)
	for _, id := range ids {
		if id.Scheme != "ip" && !sess.Identify(id) { // it has its address from the handshake
			c.abandon()
			return nil, &refusal{status: forbidden, text: "the request has too many identities (maxIdentities)"}
		}
	}
	sess.Open(c, wire.AppendFrame(nil, resp))
	c.flush()
	return c, nil
}

// WriteUntil implements session.Conn. It is called within flush.
func (c *client) WriteUntil(b []byte, until time.Time) (int, error) {
	if !time.Now().Before(until) {
		return 0, os.ErrDeadlineExceeded
	}
	c.sendable = until
	late := min(c.ignore, len(b))
	c.ignore -= late
	c.input = append(c.input, b[late:]...)
	for len(c.input) >= 4 {
		end := 4 + int(binary.BigEndian.Uint32(c.input))
		if end > replyMost {
			c.reply = &reply{code: wire.CodeOK}
			c.ignore = max(0, end-len(c.input))
			c.input = c.input[min(end, len(c.input)):]
			continue
		}
		if len(c.input) < end {
			return len(b), nil
		}
		c.take(c.input[4:end])
		c.input = c.input[end:]
	}
	if len(c.input) == 0 {
		c.input = nil
	}
	return len(b), nil
}

// take takes a frame of the session's output, which this member has made.
func (c *client) take(frame []byte) {
	if !c.greeted {
		c.greeted = true
		return
	}
	h, body, err := wire.DecodeReply(frame)
	var event wire.WatcherEvent
	switch {
	case err != nil:
		panic(err)
	case h.Xid == wire.XidPing:
		c.pinging = false
		c.pongs++
	case h.Xid != wire.XidNotification:
		if h.Xid == c.xid {
			c.reply = &reply{h.Err, body}
		}
	case wire.Decode(body, &event) == nil:
		c.events = append(c.events, event)
	}
}

// Wake implements session.Conn.
func (c *client) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Delegate implements session.Conn.
func (c *client) Delegate() { c.Wake() }

// Abort implements session.Conn.
func (c *client) Abort() { c.goneOnce.Do(func() { close(c.gone) }) }

// flush takes the output that the session may send.
func (c *client) flush() {
	if c.sess.Flush(session.FlushAlone) != nil {
		c.Abort()
	}
}

// submit sends a request. It waits while the member has too much to do.
func (c *client) submit(op wire.Op, xid wire.Xid, body wire.Record) error {
	const length = 4
	if c.sess.Submit(wire.AppendRequest(nil, xid, op, body)[length:]) != nil {
		c.abandon()
		return errGone
	}
	return nil
}

// ping has the session's lease extended. There is one ping at a time.
func (c *client) ping() error {
	if c.pinging {
		return nil
	}
	c.pinging = true
	err := c.submit(wire.OpPing, wire.XidPing, nil)
	c.flush()
	return err
}

// prove returns when the lease has been confirmed by the reply to a new ping.
func (c *client) prove(ctx context.Context) error {
	for c.pinging {
		if err := c.step(ctx); err != nil {
			return err
		}
	}
	if err := c.ping(); err != nil {
		return err
	}
	for c.pinging {
		if err := c.step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// call sends a request and waits for its reply. Errors: errGone, or the cause of ctx.
func (c *client) call(ctx context.Context, op wire.Op, body wire.Record) (*reply, error) {
	got, over, err := c.callInTurn(ctx, nil, op, body)
	over()
	return got, err
}

// callInTurn is call for a request with a long reply. Until turn has room for an element, the reply
// stays with the session, which accounts for its memory. The caller calls over, also after an
// error, when it has used the reply.
func (c *client) callInTurn(ctx context.Context, turn chan struct{}, op wire.Op, body wire.Record,
) (got *reply, over func(), err error) {
	over = func() {}
	c.xid++
	c.reply = nil
	if err := c.submit(op, c.xid, body); err != nil {
		return nil, over, err
	}
	if turn != nil {
		select {
		case turn <- struct{}{}:
			over = func() { <-turn }
		case <-c.gone:
			return nil, over, errGone
		case <-ctx.Done():
			return nil, over, context.Cause(ctx)
		}
	}
	for c.flush(); c.reply == nil; {
		if err := c.step(ctx); err != nil {
			return nil, over, err
		}
	}
	return c.reply, over, nil
}

// step waits until something has happened to the session. It pings when that is due.
func (c *client) step(ctx context.Context) error {
	select {
	case <-c.wake:
		c.flush()
		return nil
	case <-c.beat.C:
		return c.ping()
	case <-c.gone:
		return errGone
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// close closes the session, so that its nodes go at once. If that does not succeed in time, they go
// when the session expires.
func (c *client) close() {
	timer := time.AfterFunc(closeTimeout, c.abandon)
	defer timer.Stop()
	if _, err := c.call(context.Background(), wire.OpCloseSession, nil); err == nil {
		c.flush()
	}
	c.abandon()
}

// closeTimeout bounds the time for which a closed session waits for its reply.
const closeTimeout = 5 * time.Second

// abandon ends the connection and leaves the session to its lease: it lives for as long as the
// user of the lock may rely on the last line that it was sent, and can be attached to until then.
func (c *client) abandon() {
	c.beat.Stop()
	c.sess.Detach()
	c.Abort()
}
