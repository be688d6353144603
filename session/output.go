package session

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"lockkeeper/session/admission"
	"lockkeeper/wire"
)

// errEnded says that the connection has lost its session, or the session its connection.
var errEnded = errors.New("session: connection ended")

// longAnswers lets one goroutine at a time make a long answer, until ctx of the Manager ends.
type longAnswers struct {
	*semaphore.Weighted
	ctx context.Context
}

// outputs are the parts of output that all connections of a member share.
type outputs struct {
	moments
	log    *slog.Logger
	memory *admission.Memory
	stats  *stats
	long   *longAnswers
	max    int // bytes that one connection may hold
}

// output sends the output of one connection, replies and notifications in one order.
type output struct {
	*outputs
	lease *lease

	mu      sync.Mutex
	changed waiters
	conn    Conn         // nil until the connection is ready to be written to
	queue   *outputQueue // nil: nothing is unsent
	// since is when the client last received something, or output began to wait.
	since    moment
	woken    bool // Conn.Wake or Delegate was called, and the goroutine has not begun to send
	finished bool // nothing more will come; close when all is sent
	farewell bool // the last reply is to closeSession: sending it needs no lease
	aborted  bool // the unsent output has been dropped
	// over: Flush has returned an error, or the server has closed the connection. Nothing is
	// sent any more.
	over bool
}

// outputQueue is the unsent output of one connection, and its bytes. output.mu guards it. A
// connection has one only while there is something to send; the rest are in outputQueues.
type outputQueue struct {
	of *outputs

	pieces   []*piece
	busy     bool     // a goroutine is writing the first piece, and checks the queue again after it
	unsent   int      // bytes that pieces count for
	holding  bool     // events wait in later
	later    []notice // see holdEvents
	lateSize int      // bytes that later counts for
	shared   int      // the part of unsent and lateSize that is in bursts
}

// outputQueues holds free queues.
var outputQueues = sync.Pool{New: func() any { return new(outputQueue) }}

// queueLocked returns the queue, a new one if there is none.
func (o *output) queueLocked() *outputQueue {
	if o.queue == nil {
		o.queue = outputQueues.Get().(*outputQueue)
		o.queue.of = o.outputs
	}
	return o.queue
}

// freeQueueLocked gives the queue back if it is not in use.
func (o *output) freeQueueLocked() {
	q := o.queue
	if q == nil || q.busy || q.holding || len(q.pieces) > 0 || len(q.later) > 0 {
		return
	}
	o.queue = nil
	if cap(q.pieces) > keptPieces {
		q.pieces = nil
	}
	*q = outputQueue{pieces: q.pieces[:0]}
	outputQueues.Put(q)
}

// piece is a unit of output: a buffer of short frames, one long frame, or a backlog of
// notifications. The latter two are encoded when they are sent: not while the state is locked, and
// not for a client that does not read. The records that they refer to are never modified.
type piece struct {
	bytes   []byte           // whole frames; nil when encode is next
	header  wire.ReplyHeader // of a long frame
	body    wire.Record      // of a long frame, else nil
	backlog *backlog         // else nil
	size    int              // bytes that it counts for
	done    int              // bytes that have been written
}

// encode encodes a long frame, or the next frames of a backlog, and returns the number of the
// latter. The piece is empty if nothing of the backlog is left.
func (p *piece) encode() (notices int) {
	if p.backlog != nil {
		p.bytes, notices = p.backlog.appendFrames([]byte{})
		return notices
	}
	p.bytes = wire.AppendReply(make([]byte, 0, p.size), p.header, p.body)
	return 0
}

// plain reports whether a piece is a buffer of short frames.
func (p *piece) plain() bool { return p.body == nil && p.backlog == nil }

// notice is a notification that is to be sent, or a backlog of them.
type notice struct {
	zxid    wire.Zxid
	event   wire.WatcherEvent
	backlog *backlog // else nil
}

// bytes returns the size of a notice, and the part of it that is in a burst.
func (n *notice) bytes() (all, shared int) {
	if b := n.backlog; b != nil {
		return b.own + b.bytes, b.bytes
	}
	return noticeBytes + len(n.event.Path), 0
}

// keptBufferBytes is the largest buffer of a piece that is used again, keptPieces the longest list
// of pieces.
const (
	keptBufferBytes = 64 << 10
	keptPieces      = 16
)

// pieces holds free pieces. A connection has one only while there is something to send.
var pieces = sync.Pool{New: func() any { return new(piece) }}

// add adds a frame of about that many bytes; 0 for a short one.
func (q *outputQueue) add(h wire.ReplyHeader, body wire.Record, bytes int) {
	if bytes > outputCollectBytes {
		q.sent(h, bytes)
		q.pieces = append(q.pieces, &piece{header: h, body: body})
		q.count(q.pieces[len(q.pieces)-1], bytes, 0)
		return
	}
	p := q.buffer()
	before := len(p.bytes)
	p.bytes = wire.AppendReply(p.bytes, h, body)
	q.count(p, len(p.bytes)-before, 0)
	q.sent(h, len(p.bytes)-before)
}

// sent counts a frame of that many bytes.
func (q *outputQueue) sent(h wire.ReplyHeader, bytes int) {
	n := int64(bytes - frameHead)
	if h.Xid == wire.XidNotification {
		q.of.stats.NotificationBytes.Add(n)
		return
	}
	q.of.stats.ReplyBytes.Add(n)
	q.of.stats.Replies.add(n)
}

// buffer returns the piece to which short frames are added: the last one, or a new one if the
// last is full, encoded later, or being written.
func (q *outputQueue) buffer() *piece {
	if n := len(q.pieces); n > 1 || n == 1 && !q.busy {
		if p := q.pieces[n-1]; p.plain() && len(p.bytes) <= outputCollectBytes {
			return p
		}
	}
	p := pieces.Get().(*piece)
	q.pieces = append(q.pieces, p)
	return p
}

// count adds n bytes, which may be negative, to the size of p; shared of them are in a burst.
func (q *outputQueue) count(p *piece, n, shared int) {
	p.size += n
	q.unsent += n
	q.shared += shared
	q.of.memory.Add(n - shared)
}

// countLate adds n bytes, which may be negative, to the size of later; shared of them are in
// bursts.
func (q *outputQueue) countLate(n, shared int) {
	q.lateSize += n
	q.shared += shared
	q.of.memory.Add(n - shared)
}

// held returns the number of unsent bytes; 0 without a queue.
func (q *outputQueue) held() int {
	if q == nil {
		return 0
	}
	return q.unsent + q.lateSize
}

// any reports whether there is something to send.
func (q *outputQueue) any() bool { return q != nil && len(q.pieces) > 0 }

// beingSent reports whether a goroutine sends.
func (q *outputQueue) beingSent() bool { return q != nil && q.busy }

func (q *outputQueue) addNotice(n notice) {
	bytes, shared := n.bytes()
	if n.backlog == nil {
		q.add(wire.ReplyHeader{Xid: wire.XidNotification, Zxid: n.zxid}, n.event, bytes)
		return
	}
	p := &piece{backlog: n.backlog}
	q.pieces = append(q.pieces, p)
	q.count(p, bytes, shared)
}

// addLate adds a notice that waits for releaseEvents.
func (q *outputQueue) addLate(n notice) {
	q.later = append(q.later, n)
	q.countLate(n.bytes())
}

// takeLate empties later, and returns its notices.
func (q *outputQueue) takeLate() []notice {
	later := q.later
	for i := range later {
		bytes, shared := later[i].bytes()
		q.countLate(-bytes, -shared)
	}
	q.later = nil
	return later
}

// remove removes piece number i, if there is one.
func (q *outputQueue) remove(i int) {
	if i >= len(q.pieces) {
		return
	}
	p := q.pieces[i]
	shared := 0
	if b := p.backlog; b != nil {
		shared = b.bytes
		b.of.release()
	}
	q.count(p, -p.size, -shared)
	if n := len(q.pieces); i == 0 && n > 1 { // there may be many notices
		q.pieces[0], q.pieces = nil, q.pieces[1:]
	} else {
		q.pieces = slices.Delete(q.pieces, i, i+1)
	}
	if p.plain() && cap(p.bytes) <= keptBufferBytes {
		*p = piece{bytes: p.bytes[:0]}
		pieces.Put(p)
	}
}

// drop drops the queue, except for a piece that is being written: the goroutine that sends removes
// it.
func (q *outputQueue) drop() {
	for _, n := range q.takeLate() {
		n.release()
	}
	for n := len(q.pieces) - 1; n > 0 || n == 0 && !q.busy; n-- {
		q.remove(n)
	}
}

// holds returns the number of unsent bytes, the part of them that is in bursts, and the time since
// which the client has received nothing.
func (o *output) holds() (bytes, shared int, since time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.queue != nil {
		bytes, shared = o.queue.held(), o.queue.shared
	}
	return bytes, shared, o.time(o.since)
}

// admitLocked reports whether n more bytes may be added, shared of them in a burst. If not, it
// aborts the output.
func (o *output) admitLocked(n, shared int) bool {
	held := o.queue.held()
	if held == 0 {
		o.since = o.now()
	}
	if held+n > o.max || !o.memory.Allows(held+n, n-shared) {
		o.memory.Ended()
		o.abortLocked()
		return false
	}
	return true
}

// reply adds a reply of about that many bytes. own says that Submit has made it: its caller sends
// it. reply returns the size of the frame, and false when the client has left too much unread; the
// output is then aborted.
func (o *output) reply(h wire.ReplyHeader, body wire.Record, bytes int, own bool) (sent int, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.finished || o.aborted {
		return 0, true
	}
	if !o.admitLocked(bytes, 0) {
		return 0, false
	}
	q := o.queueLocked()
	before := q.unsent
	q.add(h, body, bytes)
	sent = q.unsent - before
	if !own || q.unsent > outputCollectBytes {
		o.wakeLocked()
	}
	return sent, true
}

// notify returns false when the client has left too much unread; the output is then aborted.
func (o *output) notify(n notice) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.finished || o.aborted {
		n.release()
		return true
	}
	bytes, shared := n.bytes()
	if !o.admitLocked(bytes, shared) {
		n.release()
		return false
	}
	q := o.queueLocked()
	if q.holding && n.zxid != wire.ZxidNone {
		q.addLate(n)
		return true
	}
	q.addNotice(n)
	o.wakeLocked()
	return true
}

// release is for a notice that will not be sent.
func (n *notice) release() {
	if n.backlog != nil {
		n.backlog.of.release()
	}
}

// holdEvents makes events wait until releaseEvents, except for those with wire.ZxidNone.
func (o *output) holdEvents() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queueLocked().holding = true
}

// releaseEvents adds the events that have waited, in the order in which they came.
func (o *output) releaseEvents() {
	o.mu.Lock()
	defer o.mu.Unlock()
	q := o.queueLocked()
	later := q.takeLate()
	q.holding = false
	for _, l := range later {
		q.addNotice(l)
	}
	o.wakeLocked()
	o.freeQueueLocked()
}

// waitBelow waits until at most n bytes are held.
func (o *output) waitBelow(n int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.queue.held() > n && !o.aborted && !o.finished {
		o.wakeLocked()
		o.changed.wait(&o.mu)
	}
	if o.aborted {
		return errEnded
	}
	return nil
}

// ended reports whether nothing will be sent any more.
func (o *output) ended() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.aborted || o.over
}

// finishing reports whether finish has been called.
func (o *output) finishing() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.finished
}

// finish ends the output with its present content. With farewell that is sent whatever the lease
// is.
func (o *output) finish(farewell bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.finished = true
	o.farewell = o.farewell || farewell
	o.wakeLocked()
	o.changed.wake()
}

// abort drops the unsent output, unless the output is finished, and reports whether it did.
func (o *output) abort(evenFinished bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.aborted || o.finished && !evenFinished {
		return false
	}
	o.abortLocked()
	return true
}

// dropLocked drops the unsent output.
func (o *output) dropLocked() {
	o.aborted = true
	if o.queue != nil {
		o.queue.drop()
		o.freeQueueLocked()
	}
	o.changed.wake()
}

// abortLocked drops the unsent output, and has the connection closed.
func (o *output) abortLocked() {
	o.dropLocked()
	if o.conn != nil {
		o.conn.Abort()
	}
}

// detach is called when the server has closed the connection, or is about to: nothing is sent any
// more.
func (o *output) detach() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	if !o.aborted {
		o.dropLocked()
	}
}

// Conn is the connection of a session. Package server implements it. The session calls Wake,
// Delegate and Abort while it holds locks, so none of them may block, nor call the session.
type Conn interface {
	// WriteUntil writes b, and returns how much of it was written. It fails with
	// os.ErrDeadlineExceeded at the given time, at once if that has passed.
	WriteUntil(b []byte, until time.Time) (int, error)
	// Wake has a goroutine that connections share call Session.Flush(FlushShared).
	Wake()
	// Delegate has a goroutine of this connection call Session.Flush(FlushAlone).
	Delegate()
	// Abort closes the connection. A WriteUntil that waits for the client fails.
	Abort()
}

// Flusher is the goroutine that calls Flush.
type Flusher int

const (
	// FlushReader is the goroutine that calls Submit. It sends the replies that Submit made at once
	// before it waits for the client, so all of them are one write. After 10 ms it leaves the rest
	// to FlushAlone.
	FlushReader Flusher = iota
	// FlushShared is a goroutine that many connections share. Conn.Wake has it send replies to
	// writes, events, and output that the lease has held up. It leaves long answers, and after a
	// millisecond the rest, to FlushAlone.
	FlushShared
	// FlushAlone is a goroutine that Conn.Delegate starts. It waits for the client, and ends when
	// nothing is left that may be sent.
	FlushAlone
)

const (
	// readerPatience and sharedPatience bound the time for which FlushReader and FlushShared send
	// to a client before they leave the rest to FlushAlone.
	readerPatience = 10 * time.Millisecond
	sharedPatience = time.Millisecond
	// outputCollectBytes bounds the output that Submit's goroutine collects before another
	// goroutine is started to send it.
	outputCollectBytes = 64 << 10
)

func (o *output) open(c Conn, answer []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.conn = c; o.aborted {
		c.Abort()
		return
	}
	q := o.queueLocked()
	if q.held() == 0 {
		o.since = o.now()
	}
	p := pieces.Get().(*piece)
	p.bytes = append(p.bytes, answer...)
	q.pieces = slices.Insert(q.pieces, 0, p)
	q.count(p, len(answer), 0)
}

// dueLocked reports whether there is something to do for a goroutine that sends. Nothing may be
// sent while the lease of the session is unconfirmed: a client takes every byte that it receives
// for a sign that it is connected.
func (o *output) dueLocked() bool {
	switch {
	case o.over || o.aborted:
		return false
	case o.queue.any():
		return o.farewell || o.lease.mayAnswer()
	}
	return o.finished
}

// mustWakeLocked reports whether there is something to send, and no goroutine that sends or has
// been woken. Its caller wakes one if so.
func (o *output) mustWakeLocked() bool {
	if o.queue.beingSent() || o.woken || o.conn == nil || !o.dueLocked() {
		return false
	}
	o.woken = true
	return true
}

// wakeLocked has a goroutine send, unless one sends or has been woken.
func (o *output) wakeLocked() {
	if o.mustWakeLocked() {
		o.conn.Wake()
	}
}

// wake starts a goroutine that sends the unsent output. Submit calls it before it waits, and
// confirm when the lease has been confirmed.
func (o *output) wake() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wakeLocked()
}

func (o *output) flush(by Flusher) error {
	if !o.begin(by) {
		return nil
	}
	wait := readerPatience
	if by == FlushShared {
		wait = sharedPatience
	}
	patience := time.Now().Add(wait)
	for n, wrote := 0, false; ; {
		p, until, err := o.next(n)
		if n = 0; p == nil {
			return err
		}
		if by == FlushShared && (p.bytes == nil || wrote && !time.Now().Before(patience)) {
			o.delegate()
			return nil
		}
		if p.bytes == nil {
			if o.encode(p); len(p.bytes) == 0 {
				o.skip()
			}
			continue // encoding takes time, and the lease is checked immediately before a write
		}
		if by != FlushAlone && patience.Before(until) {
			until = patience
		}
		n, err = o.conn.WriteUntil(p.bytes[p.done:min(len(p.bytes), p.done+writeChunkBytes)], until)
		wrote = true
		switch {
		case err == nil:
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return o.end(err)
		case n > 0: // the client is slow, but it receives
		case o.stalled():
			return o.end(err)
		case by != FlushAlone && !time.Now().Before(patience):
			o.delegate()
			return nil
		}
	}
}

// encode encodes a piece. Backlogs take turns with each other and with reads that have long answers
// (executeLong): hundreds of connections may have one at the same moment, and connections with
// short output would wait for a processor behind all of them.
func (o *output) encode(p *piece) {
	if p.backlog == nil {
		p.encode()
		return
	}
	if o.long.Acquire(o.long.ctx, 1) != nil {
		p.bytes = []byte{} // the member stops
		return
	}
	defer o.long.Release(1)
	notices := p.encode()
	o.stats.notified(notices, len(p.bytes))
}

// skip removes the current piece, which turned out to be empty.
func (o *output) skip() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue.remove(0)
	o.changed.wake()
}

// begin makes its caller the goroutine that sends. It returns false if there is nothing to do or if
// another goroutine sends.
func (o *output) begin(by Flusher) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if by != FlushReader {
		o.woken = false
	}
	if o.queue.beingSent() || !o.dueLocked() {
		return false
	}
	o.queueLocked().busy = true
	return true
}

// next records that n bytes of the current piece have been written, and returns the piece to write
// now, and until when. If p is nil, its caller does not send any more, and returns err.
func (o *output) next(n int) (p *piece, until time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n > 0 {
		o.since = o.now()
		p = o.queue.pieces[0]
		switch p.done += n; {
		case p.done < len(p.bytes):
		case p.backlog != nil: // there may be more of it
			p.bytes, p.done = nil, 0
		default:
			o.queue.remove(0)
			o.changed.wake()
		}
	}
	switch {
	case o.aborted:
		return nil, until, o.endLocked(errEnded)
	case !o.dueLocked():
		o.queue.busy = false
		o.freeQueueLocked()
		return nil, until, nil
	case len(o.queue.pieces) == 0:
		return nil, until, o.endLocked(io.EOF)
	}
	until = o.time(o.since).Add(time.Duration(o.lease.timeout))
	if lease := o.lease.sendUntil(); !o.farewell && lease.Before(until) {
		until = lease
	}
	return o.queue.pieces[0], until, nil
}

// stalled reports whether the client has received nothing for as long as its session timeout.
func (o *output) stalled() bool {
	_, _, since := o.holds()
	return time.Since(since) >= time.Duration(o.lease.timeout)
}

// delegate leaves the unsent output to a goroutine that may wait for the client.
func (o *output) delegate() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.queue.busy = false; o.aborted {
		o.queue.remove(0)
	}
	if o.mustWakeLocked() {
		o.conn.Delegate()
	}
	o.freeQueueLocked()
}

// end is called by the goroutine that sends: nothing will be sent after it.
func (o *output) end(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.endLocked(err)
}

func (o *output) endLocked(err error) error {
	o.over, o.queue.busy = true, false
	o.queue.remove(0)
	o.freeQueueLocked()
	o.changed.wake()
	return err
}
