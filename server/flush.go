package server

import (
	"runtime"
	"slices"
	"sync"

	"lockkeeper/session"
)

// flushers send what others than the readers of connections make: answers to writes, events, and what a lease has held
// back. That comes for many connections at a time, with an entry that is applied, a node that many watch, a report to the
// leader; so a few goroutines go from one to the next, and write what each socket takes at once. For one that does not take
// all there is a goroutine of its own. They end when nothing is left.
//
// Lock: mu is taken while the session holds its locks, and no other is taken under it.
type flushers struct {
	mu      sync.Mutex
	waiting []*conn // from next on, each with what its session has to say and nobody else who sends it
	next    int
	running int
}

// flushShare is how many connections may wait for each flusher before another one is started, if there is a processor for it.
const flushShare = 8

// keptWaiting is up to how many connections the list of those that wait keeps its memory for.
const keptWaiting = 1024

// add has what the session of c has to say sent. It does not wait for that.
func (f *flushers) add(c *conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = append(f.waiting, c)
	if n := len(f.waiting) - f.next; f.running == 0 || n > flushShare*f.running && f.running < runtime.GOMAXPROCS(0) {
		f.running++
		go f.run()
	}
}

// take returns the next connection; nil when there is none, and a flusher is to end.
func (f *flushers) take() *conn {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next == len(f.waiting) {
		if f.waiting, f.next = f.waiting[:0], 0; cap(f.waiting) > keptWaiting {
			f.waiting = nil
		}
		f.running--
		return nil
	}
	c := f.waiting[f.next]
	f.waiting[f.next] = nil
	f.next++
	if f.next > keptWaiting && f.next > len(f.waiting)/2 {
		f.waiting, f.next = slices.Delete(f.waiting, 0, f.next), 0
	}
	return c
}

func (f *flushers) run() {
	for c := f.take(); c != nil; c = f.take() {
		if more, _ := c.send(c.session.Load()); more {
			f.add(c) // behind the others
		}
	}
}

// flush sends what the session has to say, unless somebody else is at it. It is for the reader of c, and so never waits for
// the client, who may need to be heard meanwhile.
func (c *conn) flush(sess *session.Session) error {
	if !sess.Begin() {
		return nil
	}
	for {
		if more, err := c.send(sess); err != nil || !more {
			return err
		}
	}
}

// send is called by the one who sends, and sends what there is to send now. There may be more afterwards; if there is not,
// its caller is not the one who sends any more. What the socket does not take at once is left to a goroutine. With an error
// the connection is closed.
func (c *conn) send(sess *session.Session) (more bool, err error) {
	out, err := c.next(sess)
	if out == nil {
		return false, err
	}
	n := 0
	if sess.MaySend() {
		n, err = c.sock.TryWrite(out.Bytes)
	}
	switch {
	case err != nil:
		c.giveUp(sess)
		return false, err
	case n < len(out.Bytes):
		go c.writeOn(sess, out, n)
		return false, nil
	}
	out.Free()
	return !sess.Settle(), nil
}

// writeOn sends what is left of out behind n bytes, and then what the session has to say, until that is nothing. It waits for
// the client.
func (c *conn) writeOn(sess *session.Session, out *session.Buffer, n int) {
	for out != nil {
		if err := c.writeAll(out.Bytes[n:], sess); err != nil {
			c.giveUp(sess)
			return
		}
		out.Free()
		out, _ = c.next(sess)
		n = 0
	}
}
