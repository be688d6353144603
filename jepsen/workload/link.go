package workload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"lockkeeper/internal/zkconn"
	"lockkeeper/jepsen"
	"lockkeeper/wire"
)

// link is one connection of a session, without a library in between: it sees every frame, in order.
// It behaves as libraries do: a ping after a third of the session timeout without a request, and it
// gives up after two thirds of silence. One goroutine uses it.
type link struct {
	*zkconn.Conn
	w       *worker
	member  string
	session session
	open    []request // not answered yet, oldest first
	heard   time.Time // when the newest byte was read
	sent    time.Time // when the newest request was sent
	unhook  func() bool
}

// session has the fields that a client needs to go on elsewhere.
type session struct {
	id       wire.SessionID
	password []byte
	timeout  time.Duration
	seen     wire.Zxid // the newest in a reply
}

// request is one that was sent. op is its entry in the history; pings have none.
type request struct {
	xid  wire.Xid
	code wire.Op
	body wire.Record
	op   jepsen.Op
}

// frame is a received frame: the reply to a request, or an event.
type frame struct {
	header  wire.ReplyHeader
	body    []byte
	request *request // nil: an event
}

var (
	// errExpired: the member says that the session is over.
	errExpired = errors.New("workload: session expired")
	// errSilent: nothing was heard for two thirds of the session timeout.
	errSilent = errors.New("workload: nothing heard for two thirds of the session timeout")
	// errOrder: an answer came that was not due. The frames of the connection cannot be told apart
	// any more.
	errOrder = errors.New("workload: out of order")
)

// The operations of connections, beside jepsen.FConnected and its like.
const (
	// fClosed: the client has ended its connection, or its session, itself.
	fClosed = "closed"
	// fOrder: a reply came that was not due. Note has the details.
	fOrder = "outoforder"
)

const dialTimeout = time.Second

// open connects to a member, with a new session if s is zero, and tells the
// history. The link ends with ctx.
func (w *worker) open(ctx context.Context, member string, s session) (*link, error) {
	c, err := w.dial(member, dialTimeout)
	if err != nil {
		return nil, fmt.Errorf("workload: %s: %w", w.name, err)
	}
	l := &link{Conn: zkconn.New(c), w: w, member: member}
	l.unhook = context.AfterFunc(ctx, func() { c.SetReadDeadline(time.Unix(1, 0)) })
	if err := l.handshake(s); err != nil {
		l.shut()
		if errors.Is(err, errExpired) {
			w.add(jepsen.Op{Kind: jepsen.Info, F: jepsen.FExpired, Member: member, Session: s.text()})
		}
		return nil, err
	}
	w.add(jepsen.Op{Kind: jepsen.Info, F: jepsen.FConnected, Member: member, Session: l.session.text()})
	return l, nil
}

func (s session) text() string { return sessionText(int64(s.id)) }

func (l *link) handshake(s session) error {
	timeout := s.timeout
	if s.id == 0 {
		timeout = l.w.env.SessionTimeout
	}
	l.SetDeadline(time.Now().Add(timeout))
	answer, err := l.Handshake(wire.ConnectRequest{
		LastZxidSeen: s.seen, TimeoutMs: int32(timeout.Milliseconds()), SessionID: s.id, Password: s.password,
	})
	if errors.Is(err, zkconn.ErrRefused) || err == nil && answer.SessionID == 0 {
		return errExpired
	}
	if err != nil {
		return fmt.Errorf("workload: handshake with %s: %w", l.member, err)
	}
	l.session = session{
		id: answer.SessionID, password: append([]byte(nil), answer.Password...),
		timeout: time.Duration(answer.TimeoutMs) * time.Millisecond, seen: s.seen,
	}
	l.heard, l.sent = time.Now(), time.Now()
	return nil
}

// add encodes a request, as the next one of the connection, and takes note of it. op is the result
// of invoke.
func (l *link) add(b []byte, code wire.Op, body wire.Record, op jepsen.Op) []byte {
	b, xid := l.Append(b, code, body)
	l.open = append(l.open, request{xid: xid, code: code, body: body, op: op})
	return b
}

// send sends the encoded requests.
func (l *link) send(b []byte) error {
	l.sent = time.Now()
	l.SetWriteDeadline(l.sent.Add(l.patience()))
	if _, err := l.Write(b); err != nil {
		return fmt.Errorf("workload: send: %w", err)
	}
	return nil
}

// patience is how long a client waits for a sign of life.
func (l *link) patience() time.Duration { return l.session.timeout * 2 / 3 }

// next waits for the next frame until a moment, and pings meanwhile. ok is false
// when none came until then. An error is the end of the connection.
func (l *link) next(ctx context.Context, until time.Time) (f frame, ok bool, err error) {
	for {
		ping := l.sent.Add(l.session.timeout / 3)
		silent := l.heard.Add(l.patience())
		if err := l.await(ctx, slices.MinFunc([]time.Time{until, ping, silent}, time.Time.Compare)); err == nil {
			f, err := l.read(silent)
			if err != nil || f.request == nil || f.request.code != wire.OpPing {
				return f, err == nil, err
			}
			continue
		} else if !errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil {
			return f, false, fmt.Errorf("workload: receive: %w", err)
		}
		now := time.Now()
		switch {
		case !now.Before(silent):
			return f, false, errSilent
		case !now.Before(ping):
			if err := l.send(l.add(nil, wire.OpPing, nil, jepsen.Op{})); err != nil {
				return f, false, err
			}
		}
		if !now.Before(until) {
			return f, false, nil
		}
	}
}

// await waits until there is something to read.
func (l *link) await(ctx context.Context, until time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.R.Buffered() > 0 {
		return nil
	}
	l.SetReadDeadline(until)
	if err := ctx.Err(); err != nil { // the hook may have come before
		return err
	}
	_, err := l.R.Peek(1)
	return err
}

func (l *link) read(until time.Time) (f frame, err error) {
	l.heard = time.Now()
	l.SetReadDeadline(until.Add(l.patience()))
	if f.header, f.body, err = l.ReadReply(); err != nil {
		return f, fmt.Errorf("workload: receive: %w", err)
	}
	if f.header.Xid == wire.XidNotification {
		return f, nil
	}
	if len(l.open) == 0 || l.open[0].xid != f.header.Xid {
		due := "nothing was"
		if len(l.open) > 0 {
			due = fmt.Sprintf("one to %d (%v) was", l.open[0].xid, l.open[0].code)
		}
		l.w.add(jepsen.Op{Kind: jepsen.Info, F: fOrder, Member: l.member, Session: l.session.text(),
			Note: fmt.Sprintf("a reply to %d came where %s due", f.header.Xid, due)})
		return f, errOrder
	}
	f.request = &l.open[0]
	l.open = l.open[1:]
	if f.request.code != wire.OpPing && f.header.Zxid > l.session.seen {
		l.session.seen = f.header.Zxid
	}
	return f, nil
}

// drain reads until every request is answered, and gives each frame to see. It ends with an error
// when the connection does. It does not wait for pings: next does not return their answers.
func (l *link) drain(ctx context.Context, see func(frame)) error {
	for slices.ContainsFunc(l.open, func(q request) bool { return q.code != wire.OpPing }) {
		f, ok, err := l.next(ctx, time.Now().Add(time.Minute))
		if err != nil {
			return err
		}
		if ok {
			see(f)
		}
	}
	return nil
}

// idle reads frames until a moment.
func (l *link) idle(ctx context.Context, d time.Duration, see func(frame)) error {
	for until := time.Now().Add(d); ; {
		f, ok, err := l.next(ctx, until)
		if err != nil || !ok {
			return err
		}
		see(f)
	}
}

// burst works on the connection until it ends, and says why it has: a bounded number of requests
// that are sent at once, their replies, and a pause. b is sent in front of the first ones.
func (l *link) burst(ctx context.Context, b []byte, most int, request func(b []byte) []byte, see func(frame)) error {
	for {
		for range 1 + l.w.rng.IntN(most) {
			b = request(b)
		}
		if err := l.send(b); err != nil {
			return err
		}
		if err := l.drain(ctx, see); err != nil {
			return err
		}
		if err := l.idle(ctx, l.w.thinking(), see); err != nil {
			return err
		}
		b = nil
	}
}

// finish ends the connection after an error: with its session if it is because the run is over.
func (l *link) finish(ctx context.Context, err error, see func(frame)) {
	if ctx.Err() != nil && !errors.Is(err, errOrder) {
		l.leave(see)
	} else {
		l.lost(err)
	}
}

// lost ends the connection after an error: the outcome of open requests is unknown.
func (l *link) lost(err error) {
	l.shut()
	for _, q := range l.open {
		if q.op.ID != 0 {
			l.w.end(q.op, jepsen.Info, err.Error())
		}
	}
	l.open = nil
	l.w.add(jepsen.Op{Kind: jepsen.Info, F: jepsen.FSuspended, Member: l.member, Session: l.session.text(),
		Note: err.Error()})
}

// shut closes the socket.
func (l *link) shut() {
	l.unhook()
	l.Conn.Close()
}

// leave closes the session, waiting for at most a second: so a client ends. Open requests may still
// be answered; see gets the answers.
func (l *link) leave(see func(frame)) {
	l.unhook()
	op := l.w.invoke(jepsen.Op{F: fClosed, Session: l.session.text(), Member: l.member})
	err := l.send(l.add(nil, wire.OpCloseSession, nil, op))
	for until := time.Now().Add(time.Second); err == nil && len(l.open) > 0; {
		f, ok, failed := l.next(context.Background(), until)
		switch {
		case failed != nil:
			err = failed
		case !ok:
			err = errSilent
		case f.request != nil && f.request.code == wire.OpCloseSession:
			l.w.end(op, jepsen.OK, "")
		default:
			see(f)
		}
	}
	if err != nil {
		l.lost(err)
		return
	}
	l.shut()
}
