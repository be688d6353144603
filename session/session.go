package session

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/session/admission"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Session is one generation of a session: the session on one connection. It ends with the
// connection. The client may attach the session again, which makes another Session.
type Session struct {
	m         *member
	connected *connected
	connection
	requests
	submitter

	// granted is the instant at which the session became the first in the queue of a lock, 0 once
	// its client has sent a request since.
	granted atomic.Int64
}

// requests is the queue of a session: the requests that are not answered yet, in their order.
type requests struct {
	mu       sync.Mutex
	dequeued waiters       // the queue has become shorter, or the connection has ended
	queue    *requestQueue // nil: there is no request in it
	seq      uint64        // of the last write
	// changing says that a reconfig is in the queue. It takes effect some time after it has been
	// applied, so no write may follow it before it is answered.
	changing bool
	// deferred says that the reconfig has been applied and the change of the members is being
	// carried out. Pings do not wait for that, because it may take longer than the session timeout.
	deferred bool
}

// requestQueue is a queue of requests that is not empty. requests.mu guards it.
type requestQueue struct {
	gate *admission.Gate
	list []pending
	held admission.Ticket // the sum of list
}

// requestQueues holds free queues, whose lists have room for a usual number of requests.
var requestQueues = sync.Pool{New: func() any { return new(requestQueue) }}

// keptRequests is the longest list of a queue that is used again.
const keptRequests = 8

// lenLocked is the number of requests in the queue.
func (r *requests) lenLocked() int {
	if r.queue == nil {
		return 0
	}
	return len(r.queue.list)
}

// submitter is the state of Submit's goroutine.
type submitter struct {
	ignoring    bool   // a request has ended the connection: later ones are ignored
	proposedIDs int32  // the length of ids in the newest command that carried them
	arriving    int    // bytes that are counted for the arriving frame
	pausedUntil moment // by a rate quota; 0: it is not
}

// errNullToken says that a client began SASL without a token. ZooKeeper closes the connection.
var errNullToken = errors.New("session: null SASL token")

// newSession returns a Session of the connection in account, with the identity of its address.
func newSession(m *member, connected *connected, account admission.Account, generation uint64,
	timeout time.Duration, since int64, identity *[]znode.Identity) *Session {
	s := &Session{m: m, connected: connected}
	c := &s.connection
	c.generation, c.account = generation, account
	c.out.outputs, c.out.lease = &m.outputs, &c.lease
	c.lease.init(&m.instants, timeout, since)
	c.stats.init(m.cfg.Now(), m.now())
	if m.cfg.Auth.SkipACL {
		identity = &[]znode.Identity{(*identity)[0], superIdentity}
	}
	c.ids.Store(identity)
	m.gate.Open(&c.account, *identity)
	return s
}

func (s *Session) executor() executor { return executor{s.m, &s.connection} }

func (s *Session) login() login { return login{s.m, &s.connection} }

// ID is the session's id.
func (s *Session) ID() wire.SessionID { return s.id() }

// Generation is the number of the session's connection; 0 in read-only mode.
func (s *Session) Generation() uint64 { return s.generation }

// Ended reports whether the session has ended its connection, or lost it. It answers no request any
// more.
func (s *Session) Ended() bool { return s.ended.Load() || s.out.finishing() }

// Submit takes one frame from the client, and keeps its memory. It blocks while too many requests
// of the session are unanswered, or too much output is unsent. An error means that the connection
// must be closed. Calls must come from one goroutine, in the order of the frames, which calls Flush
// before it waits for the client.
func (s *Session) Submit(frame []byte) error {
	if s.ignoring {
		return nil
	}
	req, err := wire.DecodeRequest(frame)
	if err != nil {
		return err
	}
	if req.Op != wire.OpAuth && req.Op != wire.OpSASL {
		s.m.reports.hear(&s.connection)
	}
	s.pause()
	now := time.Now()
	s.stats.hear(req, s.m.of(now))
	s.m.stats.inc(&s.m.stats.PacketsReceived)
	if req.Op != wire.OpPing && s.granted.Load() != 0 {
		s.reacted()
	}
	p := pending{req: req, received: now, ids: *s.ids.Load(), size: len(frame)}
	if p.ticket, err = s.m.gate.Begin(p.size); err != nil {
		return err
	}
	if err = s.waitToEnter(&p); err == nil {
		err = s.m.gate.Turn(s.m.ctx, (*waiter)(s), &p.ticket, p.size)
	}
	if err == nil {
		err = s.admit(&p)
	}
	if !p.ticket.Empty() { // the request is in no queue
		s.m.gate.Release(p.ticket)
	}
	return err
}

// RefuseLarge takes the beginning of a frame that is larger than this member reads, xid and
// operation, as Submit takes a frame: the request is answered in its turn with BadArguments, and
// the connection ends after that.
func (s *Session) RefuseLarge(head []byte) error {
	if s.ignoring {
		return nil
	}
	req, err := wire.DecodeRequest(head)
	if err != nil {
		return err
	}
	s.m.reports.hear(&s.connection)
	s.stats.hear(req, s.m.now())
	p := pending{req: req, received: time.Now(), ids: *s.ids.Load(), size: len(head)}
	if err = s.waitToEnter(&p); err == nil {
		p.code, p.last = wire.CodeBadArguments, true
		if s.login().lacksRequired(req.Op) {
			p.code = wire.CodeSessionClosedRequireSASLAuth
		}
		err = s.admit(&p)
	}
	return err
}

// pause waits until the quotas of the session allow one more request.
func (s *Session) pause() {
	if s.pausedUntil == 0 {
		return
	}
	until := s.m.time(s.pausedUntil)
	timer := time.AfterFunc(time.Until(until), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.dequeued.wake()
	})
	defer timer.Stop()
	_ = s.waitWhile(func() bool { return time.Now().Before(until) })
	s.pausedUntil = 0
}

// errNotLoggedIn says that a client that has yet to authenticate sends a frame that needs no such
// length.
var errNotLoggedIn = errors.New("session: a long frame from a client that has not logged in")

// Expect counts n bytes of memory for the arriving frame. An error means that there is no room for
// it, and that the connection must be closed. Only Submit's goroutine may call it.
func (s *Session) Expect(n int) error {
	if !s.login().provedEnough() {
		return errNotLoggedIn
	}
	if err := s.m.gate.Memory.Arrive(s.arriving, n); err != nil {
		return err
	}
	s.arriving += n
	return nil
}

// Arrived gives back the memory of Expect: the frame has been submitted, or will never be. Only
// Submit's goroutine may call it.
func (s *Session) Arrived() {
	s.m.gate.Memory.Add(-s.arriving)
	s.arriving = 0
}

// waitToEnter waits until a request may be taken. One that has waited for too long is refused.
func (s *Session) waitToEnter(p *pending) error {
	if err := s.waitForQueue(p.req.Op); err != nil {
		return err
	}
	if s.m.gate.Wait((*waiter)(s), p.req.Op) {
		p.code = wire.CodeThrottledOp
	}
	return nil
}

// admit gives a request its place in the session's order.
func (s *Session) admit(p *pending) error {
	if p.code == wire.CodeOK {
		if err := s.classify(p); err != nil {
			return err
		}
	}
	s.ignoring = p.last || p.req.Op == wire.OpCloseSession
	if _, is := s.executor().reportOf(p); is {
		// A report is not made in the critical section of a write. It does not wait for a change of
		// the members.
		if err := s.waitWhile(func() bool { return s.queue != nil && !s.deferred }); err != nil {
			return err
		}
	}
	if p.seq != 0 {
		return s.submitWrite(p)
	}
	s.mu.Lock()
	if s.ended.Load() {
		s.mu.Unlock()
		return errEnded
	}
	if s.queue != nil && !(s.deferred && p.req.Op == wire.OpPing) {
		s.Arrived() // from here on it counts as a request
		s.enqueueLocked(s.m.gate, p)
		s.mu.Unlock()
		return nil
	}
	s.mu.Unlock()
	// The queue is empty (or p is a ping), and only this goroutine adds to it.
	p.own = true
	if p.code != wire.CodeOK || !s.executor().executeReport(p) && !s.executor().executeLong(p) {
		s.m.replica.View(func(store *znode.Store) { s.executor().execute(store, p) })
	}
	return nil
}

// waiter is a session to the gate.
type waiter Session

// Wake implements admission.Conn.
func (w *waiter) Wake() { w.out.wake() }

// Over implements admission.Conn.
func (w *waiter) Over() bool { return w.ended.Load() }

// View implements admission.Payer.
func (w *waiter) View(f func(*znode.Store)) { w.m.replica.View(f) }

// EphemeralCount implements admission.Payer.
func (w *waiter) EphemeralCount() (n int) {
	w.View(func(store *znode.Store) {
		n = store.Sessions().EphemeralCount(w.id())
		w.mu.Lock()
		if w.queue != nil {
			n += w.queue.held.Ephemerals
		}
		w.mu.Unlock()
	})
	return n
}

// bytes returns the memory of a request in a queue: its frame, its struct, and, of a read, the
// decoded record. The small parts of the record take up to four times their bytes in the frame.
func (p *pending) bytes() int {
	const around = 256
	if p.record != nil {
		return around + 5*p.size
	}
	return around + p.size
}

// enqueueLocked adds p, and its ticket, to the queue.
func (r *requests) enqueueLocked(gate *admission.Gate, p *pending) {
	gate.Queue(&p.ticket, p.price, p.bytes())
	if r.queue == nil {
		r.queue = requestQueues.Get().(*requestQueue)
		r.queue.gate = gate
	}
	q := r.queue
	q.list = append(q.list, *p)
	q.held.Add(p.ticket)
	r.changing = r.changing || p.req.Op == wire.OpReconfig && p.seq != 0
	p.ticket = admission.Ticket{}
}

// dequeueLocked removes the first n requests from the queue, which are answered, or never will be.
// It returns the sum of their tickets, which are to be released.
func (r *requests) dequeueLocked(n int) (over admission.Ticket) {
	q := r.queue
	if q == nil {
		return over
	}
	for i := range q.list[:n] {
		over.Add(q.list[i].ticket)
	}
	clear(q.list[:n])
	if n < len(q.list) {
		q.list = q.list[n:]
		q.held.Sub(over)
	} else {
		r.queue = nil
		if cap(q.list) > keptRequests {
			q.list = nil
		}
		*q = requestQueue{list: q.list[:0]}
		requestQueues.Put(q)
	}
	return over
}

// classify makes a request a write (seq != 0), a request to be executed at its place (record), or a
// refused one (code).
func (s *Session) classify(p *pending) error {
	if s.login().lacksRequired(p.req.Op) {
		p.code, p.last = wire.CodeSessionClosedRequireSASLAuth, true
		return nil
	}
	if s.classifyLocal(p) {
		return nil
	}
	record, err := wire.DecodeBody(p.req.Op, p.req.Body)
	if pause := s.m.gate.Charge(&s.account, record, p.ids, p.size, isWrite(p.req.Op)); pause > 0 {
		s.pausedUntil = s.m.of(p.received.Add(min(pause, admission.PauseLimit(s.timeout()))))
	}
	switch op := p.req.Op; {
	case op == wire.OpAuth:
		if err != nil {
			return err // closed without an answer
		}
		if p.code, err = s.login().authenticate(record.(*wire.AuthPacket)); err != nil {
			return err
		}
		p.last = p.code != wire.CodeOK
	case op == wire.OpSASL:
		if err != nil {
			return err // as auth
		}
		token := record.(*wire.SASLRequest).Token
		if token == nil {
			return errNullToken
		}
		p.record, p.code = s.login().stepSASL(token)
		p.last = p.code != wire.CodeOK
	case isWrite(op):
		if err != nil {
			p.code = wire.CodeMarshallingError
			return nil
		}
		if p.price, p.code = s.m.gate.Price((*waiter)(s), &s.account, record, p.ids); p.code != wire.CodeOK {
			return nil
		}
		p.nameCreator(&s.m.cfg.Auth, record)
		s.mu.Lock()
		s.seq++
		p.seq = s.seq
		s.mu.Unlock()
	case isLocal(op):
		p.record = record
		if err != nil {
			p.code = wire.CodeMarshallingError
		} else if op == wire.OpMultiRead {
			_, p.code = s.m.gate.Price((*waiter)(s), &s.account, record, p.ids)
		}
	default:
		p.code, p.last = wire.CodeUnimplemented, true
	}
	return nil
}

func (s *Session) submitWrite(p *pending) error {
	s.mu.Lock()
	if s.ended.Load() {
		s.mu.Unlock()
		return errEnded
	}
	s.Arrived() // from here on it counts as a request
	s.enqueueLocked(s.m.gate, p)
	s.mu.Unlock()
	s.out.wake() // Propose may wait
	request := &znode.Request{Op: p.req.Op, Body: p.req.Body}
	// A connection gains identities and never loses one, and the state keeps those that a command
	// of the generation has carried. It has the address from the handshake.
	if n := int32(len(p.ids)); n > max(1, s.proposedIDs) {
		s.proposedIDs = n
		request.Identities = p.ids[1:]
	}
	return s.m.replica.Propose(s.m.ctx, &znode.Command{Session: s.id(), Generation: s.generation, Seq: p.seq,
		Body: request})
}

// waitForQueue waits until the session's own limits allow one more request.
func (s *Session) waitForQueue(op wire.Op) error {
	if err := s.waitWhile(func() bool { return s.blockedLocked(op) }); err != nil {
		return err
	}
	if s.m.gate.Memory.Crowded() {
		return s.out.waitBelow(0)
	}
	return s.out.waitBelow(outputPauseBytes)
}

// blockedLocked reports whether a request has to wait until requests before it are answered.
func (r *requests) blockedLocked(op wire.Op) bool {
	return r.changing && isWrite(op) ||
		isLong(op) && r.queue != nil && !r.deferred ||
		r.fullLocked() && !(r.deferred && op == wire.OpPing) // such a ping does not enter the queue
}

// fullLocked reports whether the next request must wait until some in the queue are answered.
func (r *requests) fullLocked() bool {
	q := r.queue
	return q != nil && (len(q.list) >= sessionQueueMax || q.held.Bytes >= queuePauseBytes || q.gate.Crowded())
}

// waitWhile waits while blocked, which sees the queue under its lock. The error is errEnded.
func (s *Session) waitWhile(blocked func() bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.ended.Load() {
		if !blocked() {
			return nil
		}
		s.out.wake()
		s.dequeued.wait(&s.mu)
	}
	return errEnded
}

// writeApplied is called inside the critical section in which a write of this session was applied.
func (s *Session) writeApplied(store *znode.Store, c *znode.Command, res *znode.Result) {
	switch res.Status {
	case znode.Duplicate, znode.Gap:
		return // a duplicate has been answered, and the sender repeats the commands after a gap
	case znode.Done:
	default:
		s.end(res.Status.String())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended.Load() {
		return
	}
	if s.queue == nil || s.queue.list[0].seq != c.Seq {
		// Order: seqs are applied without gaps, and the reads before a write in the queue are
		// executed before it.
		panic(fmt.Sprintf("session: %v: write %d applied out of order", s.id(), c.Seq))
	}
	if res.Deferred {
		s.deferred = true
		s.answerPingsLocked(store)
		s.dequeued.wake() // pings and long reads do not wait any more
		return            // reconfigured answers the request
	}
	s.answerFirstLocked(store, res)
}

// reconfigured is called like writeApplied, when a reconfig of this session has ended.
func (s *Session) reconfigured(store *znode.Store, c *znode.Command, res *znode.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended.Load() && s.queue != nil && s.queue.list[0].seq == c.Seq {
		s.answerFirstLocked(store, res)
	}
}

// answerFirstLocked answers the write at the head of the queue, and executes the reads that follow
// it, unless the connection has ended.
func (s *Session) answerFirstLocked(store *znode.Store, res *znode.Result) {
	list := s.queue.list
	s.executor().answerWrite(store, &list[0], res)
	if list[0].req.Op == wire.OpReconfig {
		s.changing, s.deferred = false, false
	}
	n := 1
	for ; n < len(list) && list[n].seq == 0; n++ {
		if !s.out.ended() {
			s.executor().execute(store, &list[n])
		}
	}
	s.m.gate.Release(s.dequeueLocked(n))
	s.dequeued.wake()
}

// answerPingsLocked answers the pings in the queue that follow its head.
func (s *Session) answerPingsLocked(store *znode.Store) {
	var over admission.Ticket
	q := s.queue
	q.list = append(q.list[:1], slices.DeleteFunc(slices.Clone(q.list[1:]), func(p pending) bool {
		if p.req.Op != wire.OpPing {
			return false
		}
		s.executor().execute(store, &p)
		over.Add(p.ticket)
		return true
	})...)
	q.held.Sub(over)
	s.m.gate.Release(over)
}

// Detach ends this generation of the session, because its connection has ended, or is to be closed
// by the caller. The session itself lives until its lease expires. Detach may be called more than
// once, from any goroutine.
func (s *Session) Detach() {
	s.markEnded()
	s.out.detach()
}

// end ends the connection and drops the unsent output.
func (s *Session) end(why string) {
	s.markEnded()
	if s.out.abort(true) {
		s.m.log.Info("connection ended", "session", s.id(), "client", s.addr(), "why", why)
	}
}

// markEnded removes the session from the Manager, once.
func (s *Session) markEnded() {
	s.mu.Lock()
	was := s.ended.Swap(true)
	var last uint64
	if s.queue != nil {
		for i := range s.queue.list {
			last = max(last, s.queue.list[i].seq)
		}
	}
	s.m.gate.Release(s.dequeueLocked(s.lenLocked())) // even of nothing: it wakes a wait
	s.dequeued.wake()
	s.mu.Unlock()
	if !was {
		s.m.gate.Close(&s.account)
		s.m.audit.left(s.id(), s.generation, last)
		s.connected.remove(s)
		s.m.watches.abandon(&s.connection)
	}
}

// ResetStats sets the counters of the connection to zero (the four-letter word crst).
func (s *Session) ResetStats() { s.stats.reset() }

// Stats returns the statistics of the connection.
func (s *Session) Stats() ConnStats {
	unsent, _, _ := s.out.holds()
	queued := s.queued() // Lock: before the lock of the statistics, which is taken inside it
	st := s.stats.read(s.m.moments)
	st.Session, st.Timeout, st.Queued, st.Unsent = s.id(), s.timeout(), queued, unsent
	return st
}

func (r *requests) queued() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lenLocked()
}

// Identify adds an identity that the connection has proved before its handshake, as the holder of a
// certificate has. It must be called before the first Submit. It returns false if the connection
// would have too many identities; it has to be closed then.
func (s *Session) Identify(id znode.Identity) bool {
	return s.login().add([]znode.Identity{id}, "connection refused: the identities of its certificate are too long")
}

// Open gives the session the connection on which its output is sent, the answer to the handshake
// first. Its caller calls Flush next. Three goroutines send, one at a time; see Flusher.
func (s *Session) Open(c Conn, answer []byte) { s.out.open(c, answer) }

// Flush sends the output that may be sent now; if another call of Flush is sending, that call sends
// it.
//
// Errors: io.EOF says that everything has been sent and nothing more will come, so that the
// connection can be closed in order; any other error, that it has to be closed at once. The session
// is detached then, so that a Submit that waits returns, and the connection's memory is free.
func (s *Session) Flush(by Flusher) error {
	err := s.out.flush(by)
	if err != nil && err != io.EOF {
		s.Detach()
	}
	return err
}

// classifyLocal refuses the requests that a member in read-only mode cannot carry out, before their
// body is decoded, as ZooKeeper does. It reports whether it has classified p.
func (s *Session) classifyLocal(p *pending) bool {
	if s.local == nil {
		return false
	}
	switch op := p.req.Op; {
	case op == wire.OpCloseSession:
		s.local.closed.Store(true)
		p.last = true
		return true
	case isWrite(op), op == wire.OpCheck, op == wire.OpDeleteContainer:
		p.code = wire.CodeNotReadOnly
		return true
	}
	return false
}

// reacted is called with each request of a session that has been granted a lock.
func (s *Session) reacted() {
	if at := s.granted.Swap(0); at != 0 {
		s.m.stats.Handoff.Observe(int64(s.m.recent() - at))
	}
}

// quiet reports whether no request of the session is under way, and no output unsent.
func (s *Session) quiet() bool {
	unsent, _, _ := s.out.holds()
	return unsent == 0 && s.queued() == 0
}

// connected holds the sessions with a connection to this member.
type connected struct {
	mu       sync.Mutex
	sessions map[wire.SessionID]*Session
}

// get returns the connection of a session, nil if there is none.
func (c *connected) get(id wire.SessionID) *Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sessions[id]
}

// put adds s, in the place of an earlier connection of the session.
func (c *connected) put(s *Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions[s.id()] = s
}

// remove removes s, unless the session has a newer connection.
func (c *connected) remove(s *Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sessions[s.id()] == s {
		delete(c.sessions, s.id())
	}
}

func (c *connected) all() []*Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.sessions))
}

func (c *connected) endAll(why string) {
	for _, s := range c.all() {
		s.end(why)
	}
}

// endUnconfirmed ends the connections that could not get a confirmation of their lease. It returns
// the number of those with a request since the last confirmation, and of the clients from which
// this member withholds output.
func (c *connected) endUnconfirmed(now int64) (ended, withheld int) {
	var closing []*Session
	c.mu.Lock()
	for _, s := range c.sessions {
		if s.lease.overdue(now) {
			withheld++
		}
		if s.lease.mustClose(now) {
			closing = append(closing, s)
		}
	}
	c.mu.Unlock()
	for _, s := range closing {
		if s.lease.openSince.Load() != 0 {
			ended++
		}
		s.end("lease not confirmed: this member does not reach the leader, or the client is silent")
	}
	return ended, withheld
}
