package session

import (
	"errors"
	"io"
	"os"
	"slices"
	"time"
)

// Conn is the connection of a session. Package server implements it. The session calls Wake and
// Abort while it holds locks, so neither may block, nor call the session.
type Conn interface {
	// WriteUntil writes b, and returns how much of it was written. It fails with
	// os.ErrDeadlineExceeded at the given time, at once if that has passed.
	WriteUntil(b []byte, until time.Time) (int, error)
	// Wake has another goroutine call Session.Flush(true).
	Wake()
	// Abort closes the connection. A WriteUntil that waits for the client fails.
	Abort()
}

const (
	// flushPatience is how long Flush waits for the client on behalf of the goroutine that reads
	// from it.
	flushPatience = 10 * time.Millisecond
	// writeChunkBytes is how much is written at a time. A client that receives none of it for the
	// length of its session timeout is disconnected; one that is only slow is not.
	writeChunkBytes = 64 << 10
)

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

func (o *output) open(c Conn, answer []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.conn = c; o.aborted {
		c.Abort()
		return
	}
	if o.heldLocked() == 0 {
		o.since = time.Now()
	}
	o.pieces = slices.Insert(o.pieces, 0, &piece{bytes: answer})
	o.countLocked(o.pieces[0], len(answer), 0)
}

// dueLocked reports whether there is something to do for a goroutine that sends. Nothing may be
// sent while the lease of the session is unconfirmed: a client takes whatever it receives for a
// sign that it is connected.
func (o *output) dueLocked() bool {
	switch {
	case o.over || o.aborted:
		return false
	case len(o.pieces) > 0:
		return o.farewell || o.lease.mayAnswer()
	}
	return o.finished
}

// wakeLocked starts a goroutine that sends, unless one sends or has been started.
func (o *output) wakeLocked() {
	if !o.busy && !o.woken && o.conn != nil && o.dueLocked() {
		o.woken = true
		o.conn.Wake()
	}
}

// wake starts a goroutine that sends what is unsent. Submit calls it before it waits, and confirm
// when the lease has been confirmed.
func (o *output) wake() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wakeLocked()
}

func (o *output) flush(wait bool) error {
	if !o.begin(wait) {
		return nil
	}
	patience := time.Now().Add(flushPatience)
	for n := 0; ; {
		p, until, err := o.next(n)
		if n = 0; p == nil {
			return err
		}
		if p.bytes == nil {
			if o.encode(p); len(p.bytes) == 0 {
				o.skip()
			}
			continue // encoding takes time, and the lease is checked immediately before a write
		}
		if !wait && patience.Before(until) {
			until = patience
		}
		n, err = o.conn.WriteUntil(p.bytes[p.done:min(len(p.bytes), p.done+writeChunkBytes)], until)
		switch {
		case err == nil:
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return o.end(err)
		case n > 0: // the client is slow, but it receives
		case o.stalled():
			return o.end(err)
		case !wait && !time.Now().Before(patience):
			o.delegate()
			return nil
		}
	}
}

// encode encodes a piece. Backlogs take turns with each other and with reads that have long answers
// (executeLong): hundreds of connections may have one at the same moment, and those who are sent
// little would wait for a processor behind all of them.
func (o *output) encode(p *piece) {
	if p.backlog == nil {
		p.encode()
		return
	}
	m := o.lease.m
	if m.answering.Acquire(m.ctx, 1) != nil {
		p.bytes = []byte{} // the member stops
		return
	}
	defer m.answering.Release(1)
	notices := p.encode()
	m.stats.notified(notices, len(p.bytes))
}

// skip removes the current piece, of which nothing is to be sent.
func (o *output) skip() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.removeLocked(0)
	o.changed.Broadcast()
}

// begin makes its caller the goroutine that sends. It returns false if there is nothing to do or if
// another goroutine sends.
func (o *output) begin(woken bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if woken {
		o.woken = false
	}
	if o.busy || !o.dueLocked() {
		return false
	}
	o.busy = true
	return true
}

// next records that n bytes of the current piece have been written, and returns the piece to write
// now, and until when. If p is nil, its caller does not send any more, and returns err.
func (o *output) next(n int) (p *piece, until time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n > 0 {
		o.since = time.Now()
		p = o.pieces[0]
		switch p.done += n; {
		case p.done < len(p.bytes):
		case p.backlog != nil: // there may be more of it
			p.bytes, p.done = nil, 0
		default:
			o.removeLocked(0)
			o.changed.Broadcast()
		}
	}
	switch {
	case o.aborted:
		return nil, until, o.endLocked(errEnded)
	case !o.dueLocked():
		o.busy = false
		return nil, until, nil
	case len(o.pieces) == 0:
		return nil, until, o.endLocked(io.EOF)
	}
	until = o.since.Add(time.Duration(o.lease.timeout))
	if lease := o.lease.sendUntil(); !o.farewell && lease.Before(until) {
		until = lease
	}
	return o.pieces[0], until, nil
}

// stalled reports whether the client has received nothing for as long as its session timeout.
func (o *output) stalled() bool {
	_, _, since := o.holds()
	return time.Since(since) >= time.Duration(o.lease.timeout)
}

// delegate leaves what is unsent to a goroutine that may wait for the client.
func (o *output) delegate() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.busy = false; o.aborted {
		o.removeLocked(0)
	}
	o.wakeLocked()
}

// end is called by the goroutine that sends: nothing will be sent after it.
func (o *output) end(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.endLocked(err)
}

func (o *output) endLocked(err error) error {
	o.busy, o.over = false, true
	o.removeLocked(0)
	o.changed.Broadcast()
	return err
}
