package session

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// An operator acts through a session like any client, so that the act has its place in the log, in
// the order of all updates, and in the audit log. The session belongs to the address of the
// operator, has the rights of the super user, and lives for one request.

// operator is the Conn of such a session: it keeps the output.
type operator struct {
	s       *Session
	writers sync.WaitGroup
	replies chan wire.ReplyHeader // with room for all of a session
	closed  chan struct{}
	once    sync.Once

	mu  sync.Mutex
	buf []byte // a frame that is not complete
}

// operatorTimeout is the timeout of the session, if it is left behind.
const operatorTimeout = 10 * time.Second

// WriteUntil implements Conn.
func (o *operator) WriteUntil(b []byte, _ time.Time) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf = append(o.buf, b...)
	for len(o.buf) >= 4 {
		n := int(binary.BigEndian.Uint32(o.buf))
		if len(o.buf) < 4+n {
			break
		}
		if h, _, err := wire.DecodeReply(o.buf[4 : 4+n]); err == nil {
			select {
			case o.replies <- h:
			default: // a notification: the operator watches nothing
			}
		}
		o.buf = o.buf[4+n:]
	}
	return len(b), nil
}

// Wake implements Conn.
func (o *operator) Wake() {
	o.writers.Go(func() {
		if o.s.Flush(FlushAlone) != nil {
			o.Abort()
		}
	})
}

// Delegate implements Conn.
func (o *operator) Delegate() { o.Wake() }

// Abort implements Conn.
func (o *operator) Abort() { o.once.Do(func() { close(o.closed) }) }

// errOperator says that the session ended before the request was answered.
var errOperator = errors.New("session: the outcome is unknown: this member has lost its leader, or stops")

func (m *Manager) operate(ctx context.Context, req *wire.ConnectRequest, addr netip.Addr, op wire.Op, body wire.Record,
) (zxid wire.Zxid, err error) {
	s, _, err := m.Connect(ctx, req, addr)
	if err != nil {
		return 0, err
	}
	if s == nil {
		return 0, errors.New("session: there is no such session any more")
	}
	o := &operator{s: s, replies: make(chan wire.ReplyHeader, 8), closed: make(chan struct{})}
	defer o.writers.Wait()
	defer s.Detach()
	ids := append(slices.Clone(*s.ids.Load()), superIdentity)
	s.ids.Store(&ids)
	s.Open(o, []byte{0, 0, 0, 0}) // the answer to the handshake: an empty frame
	if zxid, err = o.call(ctx, 1, op, body); err != nil || op == wire.OpCloseSession {
		return zxid, err
	}
	_, _ = o.call(ctx, 2, wire.OpCloseSession, nil) // else it expires
	return zxid, nil
}

// call sends one request and waits for its reply.
func (o *operator) call(ctx context.Context, xid wire.Xid, op wire.Op, body wire.Record) (wire.Zxid, error) {
	if err := o.s.Submit(wire.AppendRequest(nil, xid, op, body)[4:]); err != nil {
		return 0, fmt.Errorf("%w: %w", errOperator, err)
	}
	o.Wake()
	for {
		select {
		case r := <-o.replies:
			if r.Xid != xid {
				continue
			}
			if r.Err != wire.CodeOK {
				return 0, r.Err
			}
			return r.Zxid, nil
		case <-o.closed:
			select {
			case r := <-o.replies:
				if r.Xid == xid && r.Err == wire.CodeOK {
					return r.Zxid, nil
				}
			default:
			}
			return 0, errOperator
		case <-ctx.Done():
			return 0, fmt.Errorf("%w: %w", errOperator, ctx.Err())
		}
	}
}

// DeleteNode deletes a node for an operator at addr, with the rights of the super user. Errors: a
// wire.Code if it was refused; any other error leaves open whether it was done.
func (m *Manager) DeleteNode(ctx context.Context, addr netip.Addr, path string) (wire.Zxid, error) {
	req := &wire.ConnectRequest{TimeoutMs: int32(operatorTimeout.Milliseconds()),
		Password: make([]byte, wire.PasswordLen)}
	return m.operate(ctx, req, addr, wire.OpDelete, wire.DeleteRequest{Path: path, Version: -1})
}

// EndSession closes a session for an operator at addr, wherever it is connected. Its client's
// connection ends, and the client learns that its session has expired when it connects again.
// The errors are the same as in DeleteNode.
func (m *Manager) EndSession(ctx context.Context, addr netip.Addr, id wire.SessionID) (wire.Zxid, error) {
	var info znode.SessionInfo
	ok := false
	m.replica.View(func(store *znode.Store) { info, ok = store.Sessions().Get(id) })
	if !ok {
		return 0, errors.New("session: there is no such session")
	}
	req := &wire.ConnectRequest{TimeoutMs: info.TimeoutMs, SessionID: id, Password: info.Password[:]}
	return m.operate(ctx, req, addr, wire.OpCloseSession, nil)
}
