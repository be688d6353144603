package differ

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/wire"
)

// patience is how long a server may take to answer. Only a server that does not answer at all costs
// that time.
const patience = 30 * time.Second

// lingering is how long a connection may take to end behind an answer after which connections end.
const lingering = 5 * time.Second

// sessionTimeoutMs is the timeout that ordinary sessions request. They must not expire in the
// middle of a run.
const sessionTimeoutMs = 600_000

// side is one of the two servers, with the client side of its sessions. It belongs to one goroutine
// at a time.
type side struct {
	name   string
	member *jepsen.Member
	slots  []slot
	// filter, in tests of the tests, changes the items of the server.
	filter func([]item) []item

	sessions map[wire.SessionID]string // names of all sessions there have been
	zxid     wire.Zxid                 // the last one seen in a header
	marks    []mark                    // zxid after each step
	before   wire.Zxid                 // zxid before the current step
	times    map[wire.Zxid]int64       // the time of an update, as Stats have told it
	started  time.Time
}

// slot is the place for a session, and for one connection at a time.
type slot struct {
	conn        *conn // nil: none
	id          wire.SessionID
	password    []byte
	incarnation int // number of sessions that the slot has had
}

type mark struct {
	step int
	zxid wire.Zxid
}

func newSide(name string, member *jepsen.Member, slots int) *side {
	return &side{
		name: name, member: member, slots: make([]slot, slots),
		sessions: make(map[wire.SessionID]string), times: map[wire.Zxid]int64{0: 0},
		started: time.Now(),
	}
}

// close closes all connections.
func (s *side) close() {
	for i := range s.slots {
		s.hangUp(i)
	}
}

func (s *side) hangUp(i int) {
	if c := s.slots[i].conn; c != nil {
		_ = c.Close()
		s.slots[i].conn = nil
	}
}

// drop ends a connection from the client's side, and waits until the server has done its part.
// (When a client comes back before that, ZooKeeper takes the end of the old connection for the end
// of the new one.)
func (s *side) drop(i int) {
	c := s.slots[i].conn
	if err := c.Conn.Conn.(*net.TCPConn).CloseWrite(); err == nil {
		_ = c.SetReadDeadline(time.Now().Add(patience))
		_, _ = io.Copy(io.Discard, c)
	}
	s.hangUp(i)
}

// do does one step and returns the items that came over each connection because of it.
func (s *side) do(ctx context.Context, step *Step) (streams []stream, err error) {
	s.before = s.zxid
	connected, session := s.slots[step.Slot].conn != nil, s.slots[step.Slot].id != 0
	switch {
	case step.Kind == Do && connected:
		streams = append(streams, s.exchange(step))
	case step.Kind == Connect && !connected && !session, step.Kind == Attach && session:
		streams, err = s.connect(step)
	case step.Kind == Drop && connected:
		s.drop(step.Slot)
	case step.Kind == Raw && connected:
		streams = append(streams, s.raw(step))
	case step.Kind == Expire && !session:
		streams, err = s.expire(ctx, step)
	case step.Kind == Restart:
		err = s.restart(ctx)
	}
	if err != nil {
		return nil, err
	}
	streams = s.barrier(streams)
	for i := range streams {
		if s.filter != nil {
			streams[i].items = s.filter(streams[i].items)
		}
	}
	s.marks = append(s.marks, mark{step.ID, s.zxid})
	return streams, nil
}

// exchange sends the step's requests at once and collects all that comes until they are answered.
func (s *side) exchange(step *Step) stream {
	c := s.slots[step.Slot].conn
	bytes, wait := s.frames(c, nil, step)
	c.send(bytes)
	return s.collect(stream{slot: step.Slot}, c, wait)
}

// frames appends the frames of a step's requests. When no request can end the connection, the ping
// of the barrier goes with them; otherwise wait says that the end has to be waited for first.
func (s *side) frames(c *conn, b []byte, step *Step) (bytes []byte, wait bool) {
	for i := range step.Requests {
		r := &step.Requests[i]
		b = c.frame(b, r, s.mark(r.Since))
		wait = wait || r.mayClose()
	}
	if !wait {
		b = c.frame(b, barrierPing, 0)
	}
	return b, wait
}

// barrierPing is the request with a reply that shows that everything before it has been received.
var barrierPing = &Request{Op: wire.OpPing, Since: noStep}

// ping sends the ping of the barrier.
func (c *conn) ping() { c.send(c.frame(nil, barrierPing, 0)) }

// collect reads until the barrier, or the end of the connection. With wait, the ping of the barrier
// is sent when all requests are answered and the connection is not about to end.
func (s *side) collect(st stream, c *conn, wait bool) stream {
	for {
		limit := patience
		if wait && len(c.open) == 0 {
			if ends(st.items) {
				limit = lingering
			} else {
				c.ping()
				wait = false
			}
		}
		it := c.read(limit)
		switch {
		case it.kind == silence && limit == lingering: // it goes on, although it should not
			c.ping()
			wait = false
			continue
		case it.over():
			return s.finish(st, it)
		case it.kind == reply:
			s.zxid = max(s.zxid, it.header.Zxid)
			if it.request == barrierPing {
				return st
			}
		}
		st.items = append(st.items, it)
	}
}

// ends says whether connections end behind the last of these items.
func ends(items []item) bool {
	for _, it := range slices.Backward(items) {
		switch {
		case it.kind != reply:
			continue
		case it.request == nil:
			return false
		case it.request.Op == wire.OpCloseSession:
			return it.header.Err == wire.CodeOK
		case it.request.Op == wire.OpAuth, it.request.Op == wire.OpSASL:
			return it.header.Err != wire.CodeOK
		}
		return it.header.Err == wire.CodeUnimplemented && it.header.Zxid == wire.ZxidNone
	}
	return false
}

// finish ends a stream after the end of its connection.
func (s *side) finish(st stream, last item) stream {
	if !st.old {
		for _, it := range st.items {
			if answers(&it, []wire.Op{wire.OpCloseSession}) && it.header.Err == wire.CodeOK {
				s.slots[st.slot].id = 0 // the session is over
			}
		}
		s.hangUp(st.slot)
	}
	st.items = append(st.items, last)
	return st
}

// mark is the zxid that had been seen when a step was over, or the last one before it that was
// done.
func (s *side) mark(step int) wire.Zxid {
	i := sort.Search(len(s.marks), func(i int) bool { return s.marks[i].step > step })
	if i == 0 {
		return 0
	}
	return s.marks[i-1].zxid
}

// connect makes a connection for a new session or for the slot's own one.
func (s *side) connect(step *Step) ([]stream, error) {
	sl := &s.slots[step.Slot]
	if sl.conn != nil && step.Kind == Attach && step.Handshake.Password != RightPassword {
		// ZooKeeper would end the connection, lockkeeper would not (docs/compatibility.md).
		s.drop(step.Slot)
	}
	old := sl.conn
	c, err := dial(s.member.ClientAddr, patience)
	if err != nil {
		return nil, err
	}
	sl.conn = c
	bytes, wait := s.frames(c, s.hello(step), step)
	c.send(bytes)
	st := s.welcome(stream{slot: step.Slot}, c, step, wait)
	if old == nil {
		return []stream{st}, nil
	}
	old.ping()
	before := s.collect(stream{slot: step.Slot, old: true}, old, false)
	last := len(before.items) - 1
	if sl.conn == nil && (last < 0 || !before.items[last].over()) {
		// The client was turned away before anything was looked at, and goes on as before.
		sl.conn = old
	} else {
		// If the server has let two connections have the session, the streams say so.
		_ = old.Close()
	}
	return []stream{before, st}, nil
}

// hello is the frame of the connect request.
func (s *side) hello(step *Step) []byte {
	h, sl := step.Handshake, &s.slots[step.Slot]
	req := wire.ConnectRequest{
		TimeoutMs: h.TimeoutMs, ReadOnly: h.ReadOnly, HasReadOnly: h.HasReadOnly,
		Password: make([]byte, wire.PasswordLen),
	}
	if step.Kind == Attach {
		req.SessionID, req.Password = sl.id, sl.password
		if h.Foreign {
			req.SessionID ^= 0xABCDEF
		}
	}
	switch h.Password {
	case WrongPassword:
		req.Password = append([]byte{}, req.Password...)
		req.Password[3] ^= 1
	case ShortPassword:
		req.Password = req.Password[:5]
	case NullPassword:
		req.Password = nil
	}
	switch h.Zxid {
	case SeenLast:
		req.LastZxidSeen = s.zxid
	case SeenAhead:
		req.LastZxidSeen = s.zxid + 1
	}
	return wire.AppendFrame(nil, req, encoded(make([]byte, h.Tail)))
}

// welcome reads the answers to the handshake and to the requests behind it.
func (s *side) welcome(st stream, c *conn, step *Step, wait bool) stream {
	it := c.readHandshake(patience)
	if it.over() {
		return s.finish(st, it)
	}
	st.items = append(st.items, it)
	if it.connect.TimeoutMs <= 0 {
		return s.finish(st, c.read(patience))
	}
	sl := &s.slots[step.Slot]
	if _, known := s.sessions[it.connect.SessionID]; !known {
		sl.incarnation++
		s.sessions[it.connect.SessionID] = fmt.Sprintf("s%d.%d", step.Slot, sl.incarnation)
	}
	sl.id, sl.password = it.connect.SessionID, it.connect.Password
	return s.collect(st, c, wait)
}

// raw sends bytes that are no request, and reads until the connection ends.
func (s *side) raw(step *Step) stream {
	st, c := stream{slot: step.Slot}, s.slots[step.Slot].conn
	c.send(step.Bytes)
	it := c.read(lingering)
	for ; !it.over(); it = c.read(lingering) {
		st.items = append(st.items, it)
	}
	return s.finish(st, it)
}

// expire lets a session expire.
func (s *side) expire(ctx context.Context, step *Step) ([]stream, error) {
	sessions, err := s.metric(ctx, "zk_global_sessions")
	if err != nil {
		return nil, err
	}
	streams, err := s.connect(step)
	if err != nil {
		return nil, err
	}
	sl := &s.slots[step.Slot]
	if sl.id == 0 {
		return streams, nil
	}
	s.hangUp(step.Slot)
	sl.id = 0
	for { // only mntr shows that it has expired
		now, err := s.metric(ctx, "zk_global_sessions")
		if err != nil || now == sessions {
			return streams, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("differ: %s: a session does not expire: %w", s.name, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// metric is one figure of mntr.
func (s *side) metric(ctx context.Context, name string) (int, error) {
	text, err := jepsen.FourLetter(ctx, s.member.ClientAddr, "mntr")
	if err != nil {
		return 0, fmt.Errorf("differ: %w", err)
	}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok && key == name {
			return strconv.Atoi(value)
		}
	}
	return 0, fmt.Errorf("differ: %s: mntr has no %s", s.name, name)
}

// restart kills the server and starts it on the same data.
func (s *side) restart(ctx context.Context) error {
	if err := s.member.Kill(); err != nil {
		return err
	}
	s.close()
	return s.member.Restart(ctx)
}

// barrier collects the events of other sessions because of the step: events come before the answer
// to a ping that is sent when the step's own answers are there.
func (s *side) barrier(streams []stream) []stream {
	done := make(map[int]bool)
	for _, st := range streams {
		done[st.slot] = done[st.slot] || !st.old
	}
	var pinged []int
	for i := range s.slots {
		if c := s.slots[i].conn; c != nil && !done[i] {
			c.ping()
			pinged = append(pinged, i)
		}
	}
	for _, i := range pinged {
		streams = append(streams, s.collect(stream{slot: i}, s.slots[i].conn, false))
	}
	return streams
}
