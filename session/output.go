package session

import (
	"errors"
	"io"
	"sync"

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
	lease *lease

	mu       sync.Mutex
	changed  sync.Cond
	start    func() // starts a writer; nil until the connection is ready for one
	buf      *Buffer
	busy     bool // somebody sends, and will look again
	finished bool // nothing more will come; close when all is sent
	farewell bool // what is left is a consented good-bye, for which no lease is needed
	aborted  bool // what is unsent stays unsent
	over     bool // somebody has learned of the end: no writer is needed any more
}

// Buffer holds bytes to be sent, whole frames.
type Buffer struct{ Bytes []byte }

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

func (o *output) init(l *lease) {
	o.lease = l
	o.changed.L = &o.mu
}

func (o *output) unsentLocked() int {
	if o.buf == nil {
		return 0
	}
	return len(o.buf.Bytes)
}

func (o *output) roomLocked() *Buffer {
	if o.buf == nil {
		o.buf = buffers.Get().(*Buffer)
	}
	return o.buf
}

// reply adds a reply. An own one is made by Submit, whose caller sends it.
func (o *output) reply(h wire.ReplyHeader, body wire.Record, own bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.finished || o.aborted {
		return
	}
	b := o.roomLocked()
	b.Bytes = wire.AppendReply(b.Bytes, h, body)
	if !own || len(b.Bytes) > outputCollectBytes {
		o.startLocked()
	}
}

// notification returns false when the client has left too much unread; the output is then aborted.
func (o *output) notification(zxid wire.Zxid, e wire.WatcherEvent) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.finished || o.aborted {
		return true
	}
	if o.unsentLocked() > outputMaxBytes {
		o.abortLocked()
		return false
	}
	b := o.roomLocked()
	b.Bytes = wire.AppendNotification(b.Bytes, zxid, e)
	o.startLocked()
	return true
}

// dueLocked says whether there is something to do for one who sends. Nothing may be sent while the lease of the session
// is unconfirmed: whatever a client receives, it takes for a sign that it is connected.
func (o *output) dueLocked() bool {
	switch {
	case o.over:
		return false
	case o.aborted:
		return true
	case o.unsentLocked() > 0:
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
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.settleLocked():
		return nil, nil
	case o.aborted:
		return nil, errEnded
	case o.unsentLocked() == 0:
		return nil, io.EOF
	}
	b := o.buf
	o.buf = nil
	o.changed.Broadcast()
	return b, nil
}

// settle is for the one who sends, when it has sent what it took: it is not the one any more, and settle returns true, if that is all for now.
func (o *output) settle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
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
	o.busy, o.over = false, true
	o.changed.Broadcast()
}

// empty says that all has been sent, or is being sent.
func (o *output) empty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.unsentLocked() == 0
}

// handOver lets a writer send what Submit has left, because Submit is about to wait.
func (o *output) handOver() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.startLocked()
}

// waitBelow waits until at most n bytes are unsent.
func (o *output) waitBelow(n int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.unsentLocked() > n && !o.aborted && !o.finished {
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
	o.buf = nil
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

// wake has a writer started when the lease, confirmed again, allows what it did not.
func (o *output) wake() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.startLocked()
}
