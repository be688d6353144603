package session

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/session/admission"
	"lockkeeper/session/sasl"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Session is one generation of a session: the session as one connection has it. It ends with the
// connection. The session itself may be attached again, which makes another Session.
type Session struct {
	m          *Manager
	id         wire.SessionID
	generation uint64
	timeout    time.Duration
	addr       netip.Addr

	account admission.Account
	out     output
	lease   lease
	stats   connStats

	// ids are the identities that the connection has authenticated as, its address first. The list
	// is replaced and never modified.
	ids atomic.Pointer[[]znode.Identity]

	local bool // of read-only mode: not one of the cluster's sessions

	requests
	submitter
	watching

	ended atomic.Bool // set under mu
	// granted is the instant at which the session became the first in the queue of a lock, 0 once
	// its client has sent a request since.
	granted atomic.Int64
}

// requests are those of a session that are not answered yet, in their order.
type requests struct {
	mu       sync.Mutex
	dequeued sync.Cond // the queue has become shorter, or the connection has ended
	queue    []pending
	held     admission.Ticket // the sum of the queue
	seq      uint64           // of the last write
	// changing says that a reconfig is in the queue. It takes effect some time after it has been
	// applied, so no write may follow it before it is answered.
	changing bool
	// deferred says that the reconfig has been applied and the change of the members is being
	// carried out. Pings do not wait for that, because it may take longer than the session timeout.
	deferred bool
}

// submitter is the state of Submit's goroutine.
type submitter struct {
	ignoring    bool         // a request has ended the connection: what follows it is ignored
	proposedIDs int          // how many of ids the newest command that carried them had
	arriving    int          // bytes that are counted for the frame that arrives
	pausedUntil time.Time    // by a rate quota; zero: it is not
	sasl        *sasl.Server // the login, once it has begun
}

// watching is the share of a connection in the watch table, whose lock guards it.
type watching struct {
	// watched are the paths that the connection watches, in either table; nil if none
	watched    map[string]struct{}
	watchBytes int  // the bytes that these count for
	reachedAt  int  // position in fanout.reached, plus 1, while a command fires
	unwatched  bool // no watch is set any more
}

// pending is a request that is not answered yet.
type pending struct {
	req      wire.Request
	record   wire.Record      // nil for writes
	code     wire.Code        // != 0: the answer to a request that is refused
	ids      []znode.Identity // when it was received
	seq      uint64           // != 0: a write
	received time.Time
	size     int  // of the frame, in bytes
	last     bool // the connection ends after the answer
	own      bool // answered within Submit, whose caller sends the answer

	ticket admission.Ticket
	price  admission.Price
}

// errNullToken says that a client began SASL without a token. ZooKeeper closes the connection.
var errNullToken = errors.New("session: null SASL token")

func newSession(m *Manager, id wire.SessionID, generation uint64, addr netip.Addr, timeout time.Duration, since int64) *Session {
	s := &Session{m: m, id: id, generation: generation, timeout: timeout, addr: addr}
	s.dequeued.L = &s.mu
	s.account = admission.Account{Session: id, Addr: addr, Timeout: timeout}
	s.out.init(&s.lease, &m.gate.Memory, &m.stats, &m.answering, 2*m.gate.Limits().Response)
	s.lease.init(&m.instants, timeout, since)
	s.stats.init(id, timeout, m.cfg.Now())
	ids := []znode.Identity{AddrIdentity(addr)}
	if m.cfg.SkipACL {
		ids = append(ids, superIdentity)
	}
	s.ids.Store(&ids)
	m.gate.Open(&s.account, ids)
	return s
}

// ID is the session's id.
func (s *Session) ID() wire.SessionID { return s.id }

// Ended reports whether the session has ended its connection, or lost it. What the client sends is
// not answered any more.
func (s *Session) Ended() bool { return s.ended.Load() || s.out.finishing() }

// Timeout is the negotiated session timeout.
func (s *Session) Timeout() time.Duration { return s.timeout }

// Submit takes one frame from the client, whose memory it keeps. It blocks while too many requests
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
		s.m.hear(s)
	}
	s.pause()
	now := time.Now()
	s.stats.received(req, now)
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
	s.m.hear(s)
	s.stats.received(req, time.Now())
	p := pending{req: req, received: time.Now(), ids: *s.ids.Load(), size: len(head)}
	if err = s.waitToEnter(&p); err == nil {
		p.code, p.last = wire.CodeBadArguments, true
		if s.lacksRequired(req.Op) {
			p.code = wire.CodeSessionClosedRequireSASLAuth
		}
		err = s.admit(&p)
	}
	return err
}

// pause waits until the quotas of the session allow one more request.
func (s *Session) pause() {
	if s.pausedUntil.IsZero() {
		return
	}
	if d := time.Until(s.pausedUntil); d > 0 {
		s.out.wake()
		s.mu.Lock()
		defer s.mu.Unlock()
		timer := time.AfterFunc(d, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.dequeued.Broadcast()
		})
		defer timer.Stop()
		for !s.ended.Load() && time.Now().Before(s.pausedUntil) {
			s.dequeued.Wait()
		}
	}
	s.pausedUntil = time.Time{}
}

// errNotLoggedIn says that a client that has yet to authenticate sends a frame that needs no such
// length.
var errNotLoggedIn = errors.New("session: a long frame from a client that has not logged in")

// Expect counts n bytes of memory that the frame takes that is arriving. An error means that there
// is no room for it, and that the connection must be closed. Only Submit's goroutine may call it.
func (s *Session) Expect(n int) error {
	if !s.provedEnough() {
		return errNotLoggedIn
	}
	if err := s.m.gate.Memory.Arrive(s.arriving, n); err != nil {
		return err
	}
	s.arriving += n
	return nil
}

// Arrived ends what Expect began: the frame has been submitted, or will never be. Only Submit's
// goroutine may call it.
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
	if _, is := s.reportOf(p); is {
		if err := s.awaitEmpty(); err != nil {
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
	if len(s.queue) > 0 && !(s.deferred && p.req.Op == wire.OpPing) {
		s.enqueueLocked(p)
		s.mu.Unlock()
		return nil
	}
	s.mu.Unlock()
	// The queue is empty (or p is a ping), and only this goroutine adds to it.
	p.own = true
	if p.code != wire.CodeOK || !s.executeReport(p) && !s.executeLong(p) {
		s.m.replica.View(func(store *znode.Store) { s.execute(store, p) })
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
		n = store.Sessions().EphemeralCount(w.id)
		w.mu.Lock()
		n += w.held.Ephemerals
		w.mu.Unlock()
	})
	return n
}

// bytes returns what a request in a queue counts for: its frame, its struct, and, of a read, the
// decoded record, whose many small parts take up to four times as much as they do in the frame.
func (p *pending) bytes() int {
	const around = 256
	if p.record != nil {
		return around + 5*p.size
	}
	return around + p.size
}

// enqueueLocked adds p to the queue, which has its ticket from then on.
func (s *Session) enqueueLocked(p *pending) {
	s.Arrived() // from here on it counts as a request
	s.m.gate.Queue(&p.ticket, p.price, p.bytes())
	s.queue = append(s.queue, *p)
	s.held.Add(p.ticket)
	s.changing = s.changing || p.req.Op == wire.OpReconfig && p.seq != 0
	p.ticket = admission.Ticket{}
}

// dequeueLocked removes the first n requests from the queue, which are answered, or never will be.
func (s *Session) dequeueLocked(n int) {
	var over admission.Ticket
	for i := range s.queue[:n] {
		over.Add(s.queue[i].ticket)
	}
	clear(s.queue[:n])
	if n == len(s.queue) {
		s.queue = s.queue[:0]
	} else {
		s.queue = s.queue[n:]
	}
	s.held.Sub(over)
	s.m.gate.Release(over)
}

// classify decides what a request is: a write (seq != 0), something to be executed at its place
// (record), or something to be refused (code).
func (s *Session) classify(p *pending) error {
	if s.lacksRequired(p.req.Op) {
		p.code, p.last = wire.CodeSessionClosedRequireSASLAuth, true
		return nil
	}
	if s.classifyLocal(p) {
		return nil
	}
	record, err := wire.DecodeBody(p.req.Op, p.req.Body)
	if pause := s.m.gate.Charge(&s.account, record, p.ids, p.size, isWrite(p.req.Op)); pause > 0 {
		s.pausedUntil = p.received.Add(pause)
	}
	switch op := p.req.Op; {
	case op == wire.OpAuth:
		if err != nil {
			return err // closed without an answer
		}
		if p.code, err = s.authenticate(record.(*wire.AuthPacket)); err != nil {
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
		p.record, p.code = s.stepSASL(token)
		p.last = p.code != wire.CodeOK
	case isWrite(op):
		if err != nil {
			p.code = wire.CodeMarshallingError
			return nil
		}
		if p.price, p.code = s.m.gate.Price((*waiter)(s), &s.account, record, p.ids); p.code != wire.CodeOK {
			return nil
		}
		s.nameCreator(p, record)
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

// isWrite reports whether requests with op become commands of the log.
func isWrite(op wire.Op) bool {
	switch op {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL, wire.OpDelete,
		wire.OpSetData, wire.OpSetACL, wire.OpSync, wire.OpMulti, wire.OpReconfig, wire.OpCloseSession:
		return true
	}
	return false
}

func (s *Session) submitWrite(p *pending) error {
	s.mu.Lock()
	if s.ended.Load() {
		s.mu.Unlock()
		return errEnded
	}
	s.enqueueLocked(p)
	s.mu.Unlock()
	s.out.wake() // Propose may wait
	request := &znode.Request{Op: p.req.Op, Body: p.req.Body}
	// A connection gains identities and never loses one, and the state keeps those that a command
	// of the generation has carried. It has the address from the handshake.
	if len(p.ids) > max(1, s.proposedIDs) {
		s.proposedIDs = len(p.ids)
		request.Identities = p.ids[1:]
	}
	return s.m.replica.Propose(s.m.ctx, &znode.Command{Session: s.id, Generation: s.generation, Seq: p.seq, Body: request})
}

// waitForQueue waits until the session's own limits allow one more request.
func (s *Session) waitForQueue(op wire.Op) error {
	s.mu.Lock()
	for s.blockedLocked(op) && !s.ended.Load() {
		s.out.wake()
		s.dequeued.Wait()
	}
	ended := s.ended.Load()
	s.mu.Unlock()
	if ended {
		return errEnded
	}
	if s.m.gate.Memory.Crowded() {
		return s.out.waitBelow(0)
	}
	return s.out.waitBelow(outputPauseBytes)
}

// blockedLocked reports whether a request has to wait until requests before it are answered.
func (s *Session) blockedLocked(op wire.Op) bool {
	return s.changing && isWrite(op) ||
		isLong(op) && len(s.queue) > 0 && !s.deferred ||
		s.fullLocked() && !(s.deferred && op == wire.OpPing) // which does not enter the queue
}

// fullLocked reports whether no request may be taken until some of the session's own have been
// answered.
func (s *Session) fullLocked() bool {
	return len(s.queue) >= sessionQueueMax || s.held.Bytes >= queuePauseBytes ||
		len(s.queue) > 0 && s.m.gate.Crowded()
}

// writeApplied is called inside the critical section in which a write of this session was applied.
func (s *Session) writeApplied(store *znode.Store, c *znode.Command, res *znode.Result) {
	switch res.Status {
	case znode.Duplicate, znode.Gap:
		return // a duplicate has been answered, and what follows a gap is sent again
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
	if len(s.queue) == 0 || s.queue[0].seq != c.Seq {
		// Order: seqs are applied without gaps, and what is before a write in the queue is executed
		// before it.
		panic(fmt.Sprintf("session: %v: write %d applied out of order", s.id, c.Seq))
	}
	if res.Deferred {
		s.deferred = true
		s.answerPingsLocked(store)
		s.dequeued.Signal() // pings and long reads do not wait any more
		return              // reconfigured answers the request
	}
	s.answerFirstLocked(store, res)
}

// reconfigured is called like writeApplied, when a reconfig of this session has ended.
func (s *Session) reconfigured(store *znode.Store, c *znode.Command, res *znode.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended.Load() && len(s.queue) > 0 && s.queue[0].seq == c.Seq {
		s.answerFirstLocked(store, res)
	}
}

// answerFirstLocked answers the write at the head of the queue, and executes the reads that follow
// it, unless the connection has ended.
func (s *Session) answerFirstLocked(store *znode.Store, res *znode.Result) {
	s.answerWrite(store, &s.queue[0], res)
	if s.queue[0].req.Op == wire.OpReconfig {
		s.changing, s.deferred = false, false
	}
	n := 1
	for ; n < len(s.queue) && s.queue[n].seq == 0; n++ {
		if !s.out.ended() {
			s.execute(store, &s.queue[n])
		}
	}
	s.dequeueLocked(n)
	s.dequeued.Signal()
}

// answerPingsLocked answers the pings in the queue that follow its head.
func (s *Session) answerPingsLocked(store *znode.Store) {
	var over admission.Ticket
	s.queue = append(s.queue[:1], slices.DeleteFunc(slices.Clone(s.queue[1:]), func(p pending) bool {
		if p.req.Op != wire.OpPing {
			return false
		}
		s.execute(store, &p)
		over.Add(p.ticket)
		return true
	})...)
	s.held.Sub(over)
	s.m.gate.Release(over)
}

// answerWrite queues the reply to a write.
func (s *Session) answerWrite(store *znode.Store, p *pending, res *znode.Result) {
	var body wire.Record
	if res.Code == wire.CodeOK {
		body = s.writeReply(store, p, res)
	}
	s.reply(p, wire.ReplyHeader{Xid: p.req.Xid, Zxid: res.Zxid, Err: s.quotaError(res.Code)}, body, 0)
	if p.req.Op == wire.OpCloseSession && res.Code == wire.CodeOK {
		s.m.log.Debug("session closed by its client", "session", s.id, "zxid", res.Zxid)
		s.out.finish(true)
	}
}

// reply queues a reply, whose body has about so many bytes if it may be large.
func (s *Session) reply(p *pending, h wire.ReplyHeader, body wire.Record, bytes int) {
	if p.req.Op == wire.OpPing {
		h.Xid = wire.XidPing
	}
	sent, ok := s.out.reply(h, body, bytes, p.own)
	s.m.gate.Replied(&s.account, sent)
	if !ok {
		s.m.log.Warn("client does not read its answers, connection closed", "session", s.id, "client", s.addr)
		return
	}
	latency := time.Since(p.received)
	s.stats.sent(h, latency)
	s.m.stats.replied(isWrite(p.req.Op) && p.req.Op != wire.OpSync, latency)
	if p.last {
		s.out.finish(false)
	}
}

// notify queues a notification. It is called inside the critical section.
func (s *Session) notify(zxid wire.Zxid, t wire.EventType, path string) {
	event := wire.WatcherEvent{Type: t, State: wire.StateSyncConnected, Path: path}
	if s.notice(notice{zxid: zxid, event: event}) {
		s.m.stats.inc(&s.m.stats.PacketsSent)
	}
}

// notifyLater queues notifications that are encoded, and counted, when they are sent. It is called
// inside the critical section.
func (s *Session) notifyLater(b *backlog) { s.notice(notice{zxid: b.zxid(), backlog: b}) }

func (s *Session) notice(n notice) bool {
	if !s.out.notify(n) {
		s.m.log.Warn("client does not read its notifications, connection closed", "session", s.id, "client", s.addr)
		return false
	}
	return true
}

// Detach ends this generation of the session, because its connection has ended, or is to be closed
// by the caller. The session itself lives until its lease expires. Detach may be called more than
// once, from any goroutine.
func (s *Session) Detach() {
	s.markEnded()
	s.out.detach()
}

// end ends the connection and drops what is unsent.
func (s *Session) end(why string) {
	s.markEnded()
	if s.out.abort(true) {
		s.m.log.Info("connection ended", "session", s.id, "client", s.addr, "why", why)
	}
}

// markEnded removes the session from the Manager, once.
func (s *Session) markEnded() {
	s.mu.Lock()
	was := s.ended.Swap(true)
	var last uint64
	for i := range s.queue {
		last = max(last, s.queue[i].seq)
	}
	s.dequeueLocked(len(s.queue))
	s.dequeued.Broadcast()
	s.mu.Unlock()
	if !was {
		s.m.gate.Close(&s.account)
		s.m.forget(s, last)
	}
}

// ResetStats forgets what was counted on the connection, but not when it came and was heard from
// (the four-letter word crst).
func (s *Session) ResetStats() {
	c := &s.stats
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats = ConnStats{
		Session: s.id, Timeout: s.timeout, Established: c.stats.Established, LastHeard: c.stats.LastHeard,
		LastXid: -1, LastZxid: -1,
	}
}

// Stats returns the statistics of the connection.
func (s *Session) Stats() ConnStats {
	unsent, _, _ := s.out.holds()
	queued := s.queued() // Lock: before that of the statistics, which is taken inside it
	s.stats.mu.Lock()
	defer s.stats.mu.Unlock()
	st := s.stats.stats
	st.Queued, st.Unsent = queued, unsent
	return st
}

func (s *Session) queued() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue)
}

// isLocal says which requests are answered by this member alone, from its own state.
func isLocal(op wire.Op) bool {
	switch op {
	case wire.OpExists, wire.OpGetData, wire.OpGetACL, wire.OpGetChildren, wire.OpGetChildren2, wire.OpPing,
		wire.OpCheckWatches, wire.OpRemoveWatches, wire.OpAddWatch, wire.OpSetWatches, wire.OpSetWatches2,
		wire.OpMultiRead, wire.OpGetEphemerals, wire.OpGetAllChildrenNumber, wire.OpWhoAmI:
		return true
	}
	return false
}

// isLong reports whether a read may take long. Such a read waits until all requests before it are
// answered: reads behind a write are executed in the critical section of that write, and a thousand
// long reads would block it. It does not wait for a change of the members that is being carried
// out, which may take minutes.
func isLong(op wire.Op) bool {
	switch op {
	case wire.OpGetACL, wire.OpGetChildren, wire.OpGetChildren2, wire.OpMultiRead, wire.OpGetEphemerals,
		wire.OpSetWatches, wire.OpSetWatches2:
		return true
	}
	return false
}

// Open gives the session the connection on which its output is sent, the answer to the handshake
// first. Its caller calls Flush next. Two goroutines send, one at a time:
//
//   - The one that calls Submit sends the replies that Submit made at once. It calls Flush(false)
//     before it waits for the client, so all of them are one write.
//   - For replies to writes, events, and what the client or the lease has held up, the session
//     calls Conn.Wake, and the goroutine that this starts calls Flush(true). It ends when nothing
//     is left that may be sent.
func (s *Session) Open(c Conn, answer []byte) { s.out.open(c, answer) }

// Flush sends what may be sent now, unless another call of Flush is sending, which then sends that
// too. With wait it waits for as long as the client takes to receive it; without, what the client
// has not received after 10 ms is left to a goroutine that Conn.Wake starts.
//
// Errors: io.EOF says that everything has been sent and nothing more will come, so that the
// connection can be closed in order; any other error, that it has to be closed at once. The session
// is detached then, so that a Submit that waits returns, and what the connection holds is free.
func (s *Session) Flush(wait bool) error {
	err := s.out.flush(wait)
	if err != nil && err != io.EOF {
		s.Detach()
	}
	return err
}

// classifyLocal refuses what a member in read-only mode cannot do, before the request's body is
// decoded, as ZooKeeper does. It reports whether p is classified by that.
func (s *Session) classifyLocal(p *pending) bool {
	if !s.local {
		return false
	}
	switch op := p.req.Op; {
	case op == wire.OpCloseSession:
		s.m.mu.Lock()
		delete(s.m.readOnly.locals, s.id)
		s.m.mu.Unlock()
		p.last = true
		return true
	case isWrite(op), op == wire.OpCheck, op == wire.OpDeleteContainer:
		p.code = wire.CodeNotReadOnly
		return true
	}
	return false
}
