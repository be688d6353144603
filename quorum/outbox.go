package quorum

import (
	"context"
	"sync"
	"time"

	"lockkeeper/znode"
)

const (
	// outboxMaxBytes bounds the commands of this member that are not applied yet; beyond it Propose
	// blocks, and with it the sockets that the commands come from.
	outboxMaxBytes = 32 << 20
	// takeMaxBytes is about how much is handed to the leader in one piece.
	takeMaxBytes = 256 << 10
)

// outbox keeps the commands of this member, in order, until they have been applied: handed over to the
// leader or not, a command may be lost with a leader, and then all that are open are handed over again.
//
// While there is a way to the leader, who adds a command hands it over himself, along with what others have added meanwhile; only
// what is left after that, or is to be handed over again, is for the route. If the way leads to another member, commands wait for each
// other (pacing), and whoever finds that their time has come hands them over: who adds one, the route, or the timer.
type outbox struct {
	mu     sync.Mutex
	byKey  map[znode.Key]*openCommand
	first  *openCommand // oldest
	last   *openCommand
	unsent *openCommand // first that the present round has not handed over
	round  uint64       // counts the times that everything was handed over again
	waits  int          // commands that the present round has not handed over
	size   int          // bytes
	closed bool

	handed  uint64               // commands that were handed over on the present way
	send    func([][]byte) error // the way to the leader; nil: there is none
	sending bool                 // somebody hands commands over, outside of mu
	failed  chan error           // capacity 1: of the way that there is, or was
	rest    *sync.Cond           // nobody is sending
	far     bool                 // the leader is another member
	pace    pacing               // if it is
	due     *time.Timer          // hands over what has waited for long enough

	work chan struct{} // capacity 1: there may be something unsent
	room *sync.Cond    // size went down
}

// openCommand is one link of the list.
type openCommand struct {
	key        znode.Key
	data       []byte // encoded
	sentRound  uint64 // 0: not handed over yet
	number     uint64 // which it was, from 0 on, of those that were handed over on the present way, if it was in the present round
	prev, next *openCommand
}

func newOutbox() *outbox {
	o := &outbox{byKey: map[znode.Key]*openCommand{}, work: make(chan struct{}, 1), round: 1}
	o.room, o.rest = sync.NewCond(&o.mu), sync.NewCond(&o.mu)
	o.due = time.AfterFunc(paceGap, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.handOverLocked()
	})
	return o
}

// add appends a command, unless the outbox holds it already. It blocks while the outbox is full, until ctx
// ends. An error says that the command was not added.
func (o *outbox) add(ctx context.Context, key znode.Key, data []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.size > outboxMaxBytes {
		defer context.AfterFunc(ctx, func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.room.Broadcast()
		})()
	}
	for o.size > outboxMaxBytes && !o.closed && ctx.Err() == nil {
		o.room.Wait()
	}
	switch {
	case o.closed:
		return errStopped
	case o.size > outboxMaxBytes:
		return ctx.Err()
	case o.byKey[key] != nil:
		return nil
	}
	c := &openCommand{key: key, data: data, prev: o.last}
	if o.last != nil {
		o.last.next = c
	} else {
		o.first = c
	}
	o.last = c
	if o.unsent == nil {
		o.unsent = c
	}
	o.byKey[key] = c
	o.waits++
	o.size += len(data)
	o.handOverLocked()
	return nil
}

// handOver hands over what is unsent, and what is added, until send fails or ctx ends; far says that it goes to another member. Send is
// called by one goroutine at a time. It is not called any more when handOver has returned.
func (o *outbox) handOver(ctx context.Context, far bool, send func([][]byte) error) error {
	o.mu.Lock()
	failed := make(chan error, 1)
	o.send, o.failed, o.far, o.pace, o.handed = send, failed, far, newPacing(), 0
	o.handOverLocked()
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.send = nil
		for o.sending {
			o.rest.Wait()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-failed:
			return err
		case <-o.work:
			o.mu.Lock()
			o.handOverLocked()
			o.mu.Unlock()
		}
	}
}

// handOverLocked hands over what is unsent, once, if it is time: what comes meanwhile is left to the route, for whoever called may have
// other things to do. It leaves everything to one who is at it already.
func (o *outbox) handOverLocked() {
	if o.sending || o.send == nil || o.unsent == nil {
		return
	}
	if o.far {
		now := time.Now()
		if left := o.pace.left(now, o.waits, len(o.byKey)-o.waits); left > 0 {
			o.due.Reset(left)
			return
		}
		o.pace.sent(now, o.waits)
	}
	o.sending = true
	send, failed, cmds := o.send, o.failed, o.takeLocked()
	o.mu.Unlock()
	err := send(cmds)
	o.mu.Lock()
	o.sending = false
	o.rest.Broadcast()
	if err != nil {
		o.send = nil
		failed <- err
	} else if o.unsent != nil {
		o.wake()
	}
}

// settle removes a command that has been applied or refused for good.
func (o *outbox) settle(key znode.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := o.byKey[key]; c != nil {
		o.pace.answered++
		o.removeLocked(c)
	}
}

func (o *outbox) removeLocked(c *openCommand) {
	delete(o.byKey, c.key)
	if c.sentRound != o.round {
		o.waits--
	}
	if o.unsent == c {
		o.unsent = c.next
	}
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		o.first = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		o.last = c.prev
	}
	o.size -= len(c.data)
	o.room.Broadcast()
}

// applying takes note that entries are about to be applied.
func (o *outbox) applying() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pace.applying(o.waits)
}

// applied takes note that they have been. What waits, and has nobody to wait for, is for the route: who applies has other things to do.
func (o *outbox) applied() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.far {
		return
	}
	now, underWay := time.Now(), len(o.byKey)-o.waits
	o.pace.applied(now, underWay)
	if o.unsent == nil {
		return
	}
	if left := o.pace.left(now, o.waits, underWay); left > 0 {
		o.due.Reset(left)
	} else {
		o.wake()
	}
}

// takeLocked returns the next unsent commands in order, none if there are none, and marks them handed over.
func (o *outbox) takeLocked() [][]byte {
	var cmds [][]byte
	for n := 0; o.unsent != nil && n < takeMaxBytes; o.unsent = o.unsent.next {
		o.unsent.sentRound, o.unsent.number = o.round, o.handed
		o.handed++
		cmds = append(cmds, o.unsent.data)
		n += len(o.unsent.data)
		o.waits--
	}
	return cmds
}

// rewind makes everything that is open unsent.
func (o *outbox) rewind() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rewindLocked()
}

func (o *outbox) rewindLocked() {
	o.round++
	o.unsent, o.waits, o.pace = o.first, len(o.byKey), newPacing()
	if o.unsent != nil {
		o.wake()
	}
}

// gap takes note that a command was refused because one before it is missing in the log. All are handed over again, unless that has
// happened since this one was handed over.
//
// It returns true if that would be in vain, and has removed the command then: the one before it is not here any more, because it
// could not be handed over. (One that has been applied leaves no gap.)
func (o *outbox) gap(key znode.Key) (undeliverable bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.byKey[key]
	before := key
	before.Seq--
	switch {
	case c == nil:
	case o.byKey[before] == nil:
		o.removeLocked(c)
		return true
	case c.sentRound == o.round:
		o.rewindLocked()
	}
	return false
}

// refuse removes the command that was handed over as number n on the present way, because the leader does not take it. It returns
// false if that is not known any more.
func (o *outbox) refuse(n uint64) (key znode.Key, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for c := o.first; c != nil && c.sentRound == o.round; c = c.next {
		if c.number == n {
			o.removeLocked(c)
			return c.key, true
		}
	}
	return znode.Key{}, false
}

func (o *outbox) wake() {
	select {
	case o.work <- struct{}{}:
	default:
	}
}

// open is the number of commands that have not been applied, and their size in bytes.
func (o *outbox) open() (commands, bytes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.byKey), o.size
}

func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.due.Stop()
	o.room.Broadcast()
}
