package session

import (
	"errors"
	"slices"
	"sync"
	"time"

	"lockkeeper/wire"
)

// errEnded says that the connection has lost its session, or the session its connection.
var errEnded = errors.New("session: connection ended")

// output is what is still to be sent on one connection: replies and notifications in one order.
// What sends it is in flush.go.
type output struct {
	lease  *lease
	memory *memory
	max    int // bytes that it may hold

	mu       sync.Mutex
	changed  sync.Cond
	conn     Conn      // nil until the connection is ready to be written to
	pieces   []*piece  // what is to be sent; while busy, the first is being written
	unsent   int       // bytes that pieces count for
	holding  bool      // events wait in later
	later    []notice  // see holdEvents
	lateSize int       // bytes that later counts for
	since    time.Time // when the client last received something, or output began to wait
	busy     bool      // a goroutine sends, and will check again for what is unsent
	woken    bool      // Conn.Wake was called, and the goroutine has not begun to send
	finished bool      // nothing more will come; close when all is sent
	farewell bool      // the last reply is to closeSession: sending it needs no lease
	aborted  bool      // what is unsent has been dropped
	// Flush has returned an error, or the server has closed the connection: nothing is sent any
	// more
	over bool
}

// piece is a unit of output: a buffer of short frames, or one long frame. A long frame is encoded
// when it is sent: not while the state is locked, and not for a client that does not read. What its
// body refers to is never modified.
type piece struct {
	bytes  []byte           // whole frames; nil for a long frame that is not encoded yet
	header wire.ReplyHeader // of a long frame
	body   wire.Record      // of a long frame or a notice with may, else nil
	may    func() bool      // see notice
	size   int              // bytes that it counts for
	done   int              // bytes that have been written
}

// encode encodes a long frame, or a notice with may. The frame is empty if that must not be sent.
func (p *piece) encode() {
	p.bytes = []byte{}
	if p.may == nil || p.may() {
		p.bytes = wire.AppendReply(make([]byte, 0, p.size), p.header, p.body)
	}
}

// notice is a notification that is to be sent.
type notice struct {
	zxid  wire.Zxid
	event wire.WatcherEvent
	// may reports whether the client may see it, which takes long to find out: this is done when it
	// is sent, not while the state is locked. nil if the client may.
	may func() bool
}

// noticeBytes and askedBytes are at least what a notice counts for besides its path, and what one
// with may counts for in addition.
const (
	noticeBytes = 64
	askedBytes  = 256
)

func (n *notice) bytes() int {
	if n.may != nil {
		return noticeBytes + askedBytes + len(n.event.Path)
	}
	return noticeBytes + len(n.event.Path)
}

// keptBufferBytes is up to which size the buffer of a piece is used again.
const keptBufferBytes = 64 << 10

// pieces holds free pieces. A connection has one only while there is something to send.
var pieces = sync.Pool{New: func() any { return new(piece) }}

func (o *output) init(l *lease, m *memory, max int) {
	o.lease, o.memory, o.max = l, m, max
	o.changed.L = &o.mu
}

// frameHead is the length in front of a frame.
const frameHead = 4

// addLocked adds a frame that has about so many bytes; 0 for one that is short.
func (o *output) addLocked(h wire.ReplyHeader, body wire.Record, bytes int) {
	if bytes > outputCollectBytes {
		o.sentLocked(h, bytes)
		o.pieces = append(o.pieces, &piece{header: h, body: body})
		o.countLocked(o.pieces[len(o.pieces)-1], bytes)
		return
	}
	p := o.bufferLocked()
	before := len(p.bytes)
	p.bytes = wire.AppendReply(p.bytes, h, body)
	o.countLocked(p, len(p.bytes)-before)
	o.sentLocked(h, len(p.bytes)-before)
}

// sentLocked counts a frame of so many bytes.
func (o *output) sentLocked(h wire.ReplyHeader, bytes int) {
	stats, n := o.memory.stats, int64(bytes-frameHead)
	if h.Xid == wire.XidNotification {
		stats.NotificationBytes.Add(n)
		return
	}
	stats.ReplyBytes.Add(n)
	stats.Replies.add(n)
}

// bufferLocked returns the piece to which short frames are added: the last one, or a new one if the
// last is full, a long frame, or being written.
func (o *output) bufferLocked() *piece {
	if n := len(o.pieces); n > 1 || n == 1 && !o.busy {
		if p := o.pieces[n-1]; p.body == nil && len(p.bytes) <= outputCollectBytes {
			return p
		}
	}
	p := pieces.Get().(*piece)
	o.pieces = append(o.pieces, p)
	return p
}

// countLocked adds n bytes, which may be negative, to what p counts for.
func (o *output) countLocked(p *piece, n int) {
	p.size += n
	o.unsent += n
	o.memory.add(n)
}

// heldLocked returns how many bytes of output there are that have not been written.
func (o *output) heldLocked() int { return o.unsent + o.lateSize }

// holds returns heldLocked, and since when the client has received nothing of it.
func (o *output) holds() (bytes int, since time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.heldLocked(), o.since
}

// admitLocked reports whether n more bytes may be added. If not, it aborts the output.
func (o *output) admitLocked(n int) bool {
	held := o.heldLocked()
	if held == 0 {
		o.since = time.Now()
	}
	if held+n > o.max || !o.memory.allows(held+n, n) {
		o.memory.stats.inc(&o.memory.stats.EndedForMemory)
		o.abortLocked()
		return false
	}
	return true
}

// reply adds a reply of about so many bytes. own says that Submit has made it, whose caller sends
// it. It returns false when the client has left too much unread; the output is then aborted.
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
		o.wakeLocked()
	}
	return true
}

// notify returns false when the client has left too much unread; the output is then aborted.
func (o *output) notify(n notice) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.finished || o.aborted {
		return true
	}
	bytes := n.bytes()
	if !o.admitLocked(bytes) {
		return false
	}
	if o.holding && n.zxid != wire.ZxidNone {
		o.later = append(o.later, n)
		o.lateSize += bytes
		o.memory.add(bytes)
		return true
	}
	o.addNoticeLocked(n)
	o.wakeLocked()
	return true
}

func (o *output) addNoticeLocked(n notice) {
	h := wire.ReplyHeader{Xid: wire.XidNotification, Zxid: n.zxid}
	if n.may == nil {
		o.addLocked(h, n.event, n.bytes())
		return
	}
	p := &piece{header: h, body: n.event, may: n.may}
	o.pieces = append(o.pieces, p)
	o.countLocked(p, n.bytes())
}

// holdEvents makes events wait until releaseEvents, except for those with wire.ZxidNone.
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
		o.addNoticeLocked(l)
	}
	o.wakeLocked()
}

// waitBelow waits until at most n bytes are held.
func (o *output) waitBelow(n int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.heldLocked() > n && !o.aborted && !o.finished {
		o.wakeLocked()
		o.changed.Wait()
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

// finish ends the output with what is in it now. With farewell that is sent whatever the lease is.
func (o *output) finish(farewell bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.finished = true
	o.farewell = o.farewell || farewell
	o.wakeLocked()
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

// abortLocked drops what is unsent, and has the connection closed.
func (o *output) abortLocked() {
	o.dropLocked()
	if o.conn != nil {
		o.conn.Abort()
	}
}

func (o *output) dropLocked() {
	o.aborted = true
	o.memory.add(-o.lateSize)
	o.later, o.lateSize = nil, 0
	for n := len(o.pieces) - 1; n > 0 || n == 0 && !o.busy; n-- {
		o.removeLocked(n) // the goroutine that sends removes the one that is being written
	}
	o.changed.Broadcast()
}

// removeLocked removes piece number i, if there is one.
func (o *output) removeLocked(i int) {
	if i >= len(o.pieces) {
		return
	}
	p := o.pieces[i]
	o.countLocked(p, -p.size)
	if n := len(o.pieces); i == 0 && n > 1 { // there may be many notices
		o.pieces[0], o.pieces = nil, o.pieces[1:]
	} else {
		o.pieces = slices.Delete(o.pieces, i, i+1)
	}
	if p.body == nil && cap(p.bytes) <= keptBufferBytes {
		*p = piece{bytes: p.bytes[:0]}
		pieces.Put(p)
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
