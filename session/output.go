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
type output struct {
	lease *lease

	mu       sync.Mutex
	changed  *sync.Cond
	buf      []byte
	finished bool          // nothing more will come; close when all is sent
	farewell bool          // what is left is a consented good-bye, for which no lease is needed
	aborted  bool          // what is unsent stays unsent
	done     chan struct{} // closed with aborted
}

func (o *output) init(l *lease) {
	o.lease = l
	o.changed = sync.NewCond(&o.mu)
	o.done = make(chan struct{})
}

func (o *output) reply(h wire.ReplyHeader, body wire.Record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.finished || o.aborted {
		return
	}
	o.buf = wire.AppendReply(o.buf, h, body)
	o.changed.Broadcast()
}

// notification returns false when the client has left too much unread; the output is then aborted.
func (o *output) notification(zxid wire.Zxid, e wire.WatcherEvent) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.finished || o.aborted {
		return true
	}
	if len(o.buf) > outputMaxBytes {
		o.abortLocked()
		return false
	}
	o.buf = wire.AppendNotification(o.buf, zxid, e)
	o.changed.Broadcast()
	return true
}

// take waits until something may be sent and exchanges it for buf. Nothing may be sent while the lease
// of the session is unconfirmed: whatever a client receives, it takes for a sign that it is connected.
func (o *output) take(buf []byte) ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		switch {
		case o.aborted:
			return nil, errEnded
		case len(o.buf) > 0 && (o.farewell || o.lease.mayAnswer()):
			out := o.buf
			o.buf = buf[:0]
			o.changed.Broadcast()
			return out, nil
		case len(o.buf) == 0 && o.finished:
			return nil, io.EOF
		}
		o.changed.Wait()
	}
}

// waitBelow waits until at most n bytes are unsent.
func (o *output) waitBelow(n int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.buf) > n && !o.aborted && !o.finished {
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
	if !o.aborted {
		o.aborted = true
		o.buf = nil
		close(o.done)
	}
	o.changed.Broadcast()
}

// wake makes take look at the lease again.
func (o *output) wake() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changed.Broadcast()
}
