package session

import (
	"errors"
	"io"
	"os"
	"slices"
	"time"
)

// Conn is the connection of a session, which server has. The session calls Wake and Abort while it
// holds locks, so neither may wait, nor call the session.
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
	// writeChunkBytes is how much is written at a time: a client that takes none of it for as long
	// as its session may be silent is given up, one that is only slow is not.
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
	o.before = slices.Insert(o.before, 0, piece{buf: &buffer{answer}, size: len(answer)})
	o.unsent += len(answer)
	o.memory.add(len(answer))
}

// dueLocked says whether there is something to do for a goroutine that sends. Nothing may be sent
// while the lease of the session is unconfirmed: whatever a client receives, it takes for a sign
// that it is connected.
func (o *output) dueLocked() bool {
	switch {
	case o.over || o.aborted:
		return false
	case o.unsent > 0 || o.current.size > 0:
		return o.farewell || o.lease.mayAnswer()
	}
	return o.finished
}

// wakeLocked has a goroutine send what there is, unless one does or is about to.
func (o *output) wakeLocked() {
	if !o.busy && !o.woken && o.conn != nil && o.dueLocked() {
		o.woken = true
		o.conn.Wake()
	}
}

// wake is for Submit, which is about to wait, and for a lease that has been confirmed again: what
// could be left unsent until now has to be sent.
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
		if p.buf == nil {
			p.encode()
			continue // encoding takes time: the lease is looked at immediately before a write
		}
		if !wait && patience.Before(until) {
			until = patience
		}
		n, err = o.conn.WriteUntil(p.buf.bytes[p.done:min(len(p.buf.bytes), p.done+writeChunkBytes)], until)
		switch {
		case err == nil:
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return o.end(err)
		case n > 0: // it takes its time, but it takes
		case o.stalled():
			return o.end(err)
		case !wait && !time.Now().Before(patience):
			o.handOver()
			return nil
		}
	}
}

// begin makes its caller the one that sends, unless there is nothing to do or another one is at it.
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

// next takes note that n bytes of the current piece have been written, and returns what is to be
// written now, until when. Without that, its caller is not the one that sends any more, and returns
// err.
func (o *output) next(n int) (p *piece, until time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p = &o.current; n > 0 {
		o.since = time.Now()
		if p.done += n; p.done == len(p.buf.bytes) {
			o.releaseLocked()
			o.changed.Broadcast()
		}
	}
	switch {
	case o.aborted:
		return nil, until, o.endLocked(errEnded)
	case !o.dueLocked():
		o.busy = false
		return nil, until, nil
	case o.current.size == 0 && o.unsent == 0:
		return nil, until, o.endLocked(io.EOF)
	case o.current.size == 0:
		o.takeLocked()
	}
	until = o.since.Add(time.Duration(o.lease.timeout))
	if lease := o.lease.sendUntil(); !o.farewell && lease.Before(until) {
		until = lease
	}
	return p, until, nil
}

// stalled says that the client has taken nothing for as long as its session may be silent.
func (o *output) stalled() bool {
	_, since := o.holds()
	return time.Since(since) >= time.Duration(o.lease.timeout)
}

// handOver leaves what is to be sent to a goroutine that may wait for the client.
func (o *output) handOver() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.busy = false; o.aborted {
		o.releaseLocked()
	}
	o.wakeLocked()
}

// end is for the one that sends: nobody will send any more.
func (o *output) end(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.endLocked(err)
}

func (o *output) endLocked(err error) error {
	o.busy, o.over = false, true
	o.releaseLocked()
	o.changed.Broadcast()
	return err
}
