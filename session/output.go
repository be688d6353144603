package session

import (
	"errors"
	"io"
	"sync"
	"time"

	"lockkeeper/wire"
)

// errEnded says that the connection has lost its session, or the session its connection.
var errEnded = errors.New("session: connection ended")

// output is what is still to be sent on one connection: replies and notifications in one order.
//
// One at a time sends it. There is no goroutine that waits for something to send: whoever adds something, or makes it
// possible to send what is there, starts a writer when nobody is sending, and the writer ends when nothing is left. The
// exception are replies that Submit makes: its caller sends them itself, when it has handed over all that it has received.
type output struct {
	lease  *lease
	memory *memory
	max    int // bytes that it may hold

	mu       sync.Mutex
	changed  sync.Cond
	start    func()  // starts a writer; nil until the connection is ready for one
	before   []piece // what is to be sent before buf
	buf      *Buffer // collects short frames; nil if there are none
	unsent   int     // bytes of before and buf
	holding  bool    // events wait in later
	later    []heldEvent
	lateSize int       // bytes that later counts for
	sending  int       // bytes that somebody has taken, and may not have sent yet
	since    time.Time // when the client last took something, or there was first something to take
	busy     bool      // somebody sends, and will look again
	finished bool      // nothing more will come; close when all is sent
	farewell bool      // what is left is a consented good-bye, for which no lease is needed
	aborted  bool      // what is unsent stays unsent
	over     bool      // somebody has learned of the end: no writer is needed any more
}

// Buffer holds bytes to be sent, whole frames.
type Buffer struct{ Bytes []byte }

// piece is what is taken at once: a buffer of short frames, or one long frame. That is encoded when it is taken: not while the state is
// locked, and not for a client that does not read. What its body refers to is never modified.
type piece struct {
	buf    *Buffer // nil of a long frame
	header wire.ReplyHeader
	body   wire.Record
	bytes  int // that it is counted for
}

// encoded returns the bytes of a piece.
func (p *piece) encoded() *Buffer {
	if p.buf == nil {
		p.buf = &Buffer{wire.AppendReply(make([]byte, 0, p.bytes), p.header, p.body)}
	}
	return p.buf
}

// heldEvent is an event that waits until its client has been told of what came before it.
type heldEvent struct {
	zxid  wire.Zxid
	event wire.WatcherEvent
}

// keptBufferBytes is up to which size a buffer is used again.
const keptBufferBytes = 64 << 10

// buffers are those that hold nothing. A connection has one only while there is something to send.
var buffers = sync.Pool{New: func() any { return new(Buffer) }}

// Free gives b back, when it has been sent.
func (b *Buffer) Free() {
	if cap(b.Bytes) <= keptBufferBytes {
		b.Bytes = b.Bytes[:0]
		buffers.Put(b)
	}
}

func (o *output) init(l *lease, m *memory, max int) {
	o.lease, o.memory, o.max = l, m, max
	o.changed.L = &o.mu
}

// addLocked adds a frame that has about so many bytes; 0 for one that is short.
func (o *output) addLocked(h wire.ReplyHeader, body wire.Record, bytes int) {
	if bytes > outputCollectBytes {
		o.sealLocked()
		o.before = append(o.before, piece{header: h, body: body, bytes: bytes})
		o.unsent += bytes
		o.memory.add(bytes)
		return
	}
	if o.buf == nil {
		o.buf = buffers.Get().(*Buffer)
	}
	before := len(o.buf.Bytes)
	o.buf.Bytes = wire.AppendReply(o.buf.Bytes, h, body)
	n := len(o.buf.Bytes) - before
	o.unsent += n
	o.memory.add(n)
	if len(o.buf.Bytes) > outputCollectBytes {
		o.sealLocked()
	}
}

// sealLocked begins a new piece.
func (o *output) sealLocked() {
	if o.buf != nil {
		o.before = append(o.before, piece{buf: o.buf, bytes: len(o.buf.Bytes)})
		o.buf = nil
	}
}

// takeLocked takes the next piece. There must be one.
func (o *output) takeLocked() piece {
	if len(o.before) == 0 {
		p := piece{buf: o.buf, bytes: len(o.buf.Bytes)}
		o.buf = nil
		return p
	}
	p := o.before[0]
	o.before[0] = piece{}
	if o.before = o.before[1:]; len(o.before) == 0 {
		o.before = nil
	}
	return p
}

// heldLocked is how many bytes there are that the client has not taken, as far as is known.
func (o *output) heldLocked() int { return o.unsent + o.lateSize + o.sending }

// holds is heldLocked, and since when the client has taken nothing of it.
func (o *output) holds() (bytes int, since time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.heldLocked(), o.since
}

// admitLocked says whether n more bytes may be added. If not, the output is aborted.
func (o *output) admitLocked(n int) bool {
	held := o.heldLocked()
	if held == 0 {
		o.since = time.Now()
	}
	if held+n > o.max || !o.memory.allows(held+n, n) {
		o.memory.ended.Add(1)
		o.abortLocked()
		return false
	}
	return true
}

// reply adds a reply, of about so many bytes. An own one is made by Submit, whose caller sends it. It returns false when the client has
// left too much unread; the output is then aborted.
func (o *output) reply(h wire.ReplyHeader, body wire.Record, bytes int, own bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.finished || o.aborted {
		return true
	}
	if !o.admitLocked(bytes) {
		return false
	}
	o.addLocked(h, body, bytes)
	if !own || o.unsent > outputCollectBytes {
		o.startLocked()
	}
	return true
}

// notificationBytes is at least what a notification has besides its path.
const notificationBytes = 64

// notification returns false when the client has left too much unread; the output is then aborted.
func (o *output) notification(zxid wire.Zxid, e wire.WatcherEvent) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.finished || o.aborted {
		return true
	}
	bytes := notificationBytes + len(e.Path)
	if !o.admitLocked(bytes) {
		return false
	}
	if o.holding && zxid != wire.ZxidNone {
		o.later = append(o.later, heldEvent{zxid, e})
		o.lateSize += bytes
		o.memory.add(bytes)
		return true
	}
	o.addLocked(wire.ReplyHeader{Xid: wire.XidNotification, Zxid: zxid}, e, bytes)
	o.startLocked()
	return true
}

// holdEvents has events wait, but for those with wire.ZxidNone, until releaseEvents.
func (o *output) holdEvents() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.holding = true
}

// releaseEvents adds the events that have waited, in the order in which they came.
func (o *output) releaseEvents() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.memory.add(-o.lateSize)
	later := o.later
	o.holding, o.later, o.lateSize = false, nil, 0
	for _, l := range later {
		o.addLocked(wire.ReplyHeader{Xid: wire.XidNotification, Zxid: l.zxid}, l.event, notificationBytes+len(l.event.Path))
	}
	o.startLocked()
}

// sentLocked takes note that the one who sends has sent what it took.
func (o *output) sentLocked() {
	if o.sending > 0 {
		o.memory.add(-o.sending)
		o.sending, o.since = 0, time.Now()
	}
}

// dueLocked says whether there is something to do for one who sends. Nothing may be sent while the lease of the session
// is unconfirmed: whatever a client receives, it takes for a sign that it is connected.
func (o *output) dueLocked() bool {
	switch {
	case o.over:
		return false
	case o.aborted:
		return true
	case o.unsent > 0:
		return o.farewell || o.lease.mayAnswer()
	}
	return o.finished
}

// startLocked starts a writer if there is something to do and nobody is at it.
func (o *output) startLocked() {
	if !o.busy && o.start != nil && o.dueLocked() {
		o.busy = true
		o.start()
	}
}

// open makes start the function that starts a writer.
func (o *output) open(start func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.start = start
	o.startLocked()
}

// begin makes its caller the one who sends, unless there is nothing to do or somebody else is at it.
func (o *output) begin() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.busy || !o.dueLocked() {
		return false
	}
	o.busy = true
	return true
}

// take gives the one who sends what may be sent now. When that is nothing it is not the one any more.
func (o *output) take() (*Buffer, error) {
	p, err := o.next()
	if err != nil || p.bytes == 0 {
		return nil, err
	}
	return p.encoded(), nil // without the lock, which the firing of watches waits for
}

// next takes the next piece; an empty one says that there is nothing to be sent now.
func (o *output) next() (p piece, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sentLocked()
	switch {
	case o.settleLocked():
		return p, nil
	case o.aborted:
		return p, errEnded
	case o.unsent == 0:
		return p, io.EOF
	}
	p = o.takeLocked()
	o.unsent -= p.bytes
	o.sending = p.bytes
	o.changed.Broadcast()
	return p, nil
}

// maySend says whether what was taken may be sent at this instant.
func (o *output) maySend() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.farewell || o.lease.mayAnswer()
}

// awaitLease waits until what was taken may be sent, and says until when.
func (o *output) awaitLease() (until time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.aborted && !o.farewell && !o.lease.mayAnswer() {
		o.changed.Wait()
	}
	switch {
	case o.aborted:
		return until, errEnded
	case o.farewell:
		return time.Now().Add(time.Duration(o.lease.timeout)), nil
	}
	return o.lease.sendUntil(), nil
}

// settle is for the one who sends, when it has sent what it took: it is not the one any more, and settle returns true, if that is all for now.
func (o *output) settle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sentLocked()
	return o.settleLocked()
}

func (o *output) settleLocked() bool {
	if o.dueLocked() {
		return false
	}
	o.busy = false
	o.changed.Broadcast()
	return true
}

// leave is called by the one who sends when it knows that nothing will be sent any more.
func (o *output) leave() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sentLocked()
	o.busy, o.over = false, true
	o.changed.Broadcast()
}

// empty says that all has been sent, or is being sent.
func (o *output) empty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.unsent == 0
}

// handOver lets a writer send what Submit has left, because Submit is about to wait.
func (o *output) handOver() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.startLocked()
}

// waitBelow waits until at most n bytes are held.
func (o *output) waitBelow(n int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.heldLocked() > n && !o.aborted && !o.finished {
		o.startLocked()
		o.changed.Wait()
	}
	if o.aborted {
		return errEnded
	}
	return nil
}

// finish ends the output behind what is in it now. With farewell it is sent in any case.
func (o *output) finish(farewell bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.finished = true
	o.farewell = o.farewell || farewell
	o.startLocked()
	o.changed.Broadcast()
}

// abort drops what is unsent, unless the output is finished, and reports whether it did.
func (o *output) abort(evenFinished bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.aborted || o.finished && !evenFinished {
		return false
	}
	o.abortLocked()
	return true
}

func (o *output) abortLocked() {
	o.aborted = true
	o.memory.add(-o.unsent - o.lateSize)
	o.before, o.buf, o.unsent = nil, nil, 0
	o.later, o.lateSize = nil, 0
	o.startLocked() // which closes the connection
	o.changed.Broadcast()
}

// detach aborts without a writer, because the connection is closed already, or is about to be.
func (o *output) detach() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	if !o.aborted {
		o.abortLocked()
	}
}

// wait waits until nobody sends.
func (o *output) wait() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.busy {
		o.changed.Wait()
	}
}

func (o *output) ended() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.aborted
}

// wake has a writer started, or go on, when the lease, confirmed again, allows what it did not.
func (o *output) wake() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.startLocked()
	o.changed.Broadcast()
}
