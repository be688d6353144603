package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"lockkeeper/quorum/codec"
	"lockkeeper/quorum/peer"
	"lockkeeper/znode"
)

// ErrCommandTooLong says that a command is longer than MaxCommandBytes.
var ErrCommandTooLong = errors.New("quorum: command too long")

// MaxCommandBytes is the longest encoded command that becomes a part of the log. An entry holds one
// command of that length, or several of entryMaxBytes together; a frame of a forward stream one
// such command behind others of sendMaxBytes; and a raft frame the entries of one request.
const MaxCommandBytes = 5<<20 - 64<<10

// encodeCommand encodes a command that is to become a part of the log, if it fits into the frames
// between members.
func encodeCommand(c *znode.Command) ([]byte, error) {
	data := c.Append(nil)
	if len(data) > MaxCommandBytes {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrCommandTooLong, len(data), MaxCommandBytes)
	}
	return data, nil
}

// checkCommandSafely is checkCommand, of which a panic is an error.
func checkCommandSafely(b []byte) (kind znode.Kind, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("decoding it: %v", p)
		}
	}()
	return checkCommand(b)
}

func checkCommand(b []byte) (znode.Kind, error) {
	if len(b) > MaxCommandBytes {
		return 0, fmt.Errorf("%w: %d bytes, at most %d", ErrCommandTooLong, len(b), MaxCommandBytes)
	}
	c, rest, err := znode.DecodeCommand(b)
	if err != nil {
		return 0, err
	}
	if len(rest) > 0 {
		return 0, fmt.Errorf("%d bytes too many", len(rest))
	}
	switch kind := c.Kind(); kind {
	case znode.KindRequest, znode.KindCreateSession, znode.KindAttach, znode.KindSync, znode.KindReconfig,
		znode.KindRestore:
		return kind, nil
	default:
		return 0, fmt.Errorf("%v is for the leader alone", kind)
	}
}

func appendCommands(b []byte, cmds [][]byte) []byte {
	start := len(b)
	c := codec.Encode(peer.BeginFrame(b))
	for i := range cmds {
		c.Bytes(&cmds[i])
	}
	return peer.EndFrame(c.Encoded(), start)
}

func splitCommands(frame []byte) (cmds [][]byte, err error) {
	c := codec.Decode(frame)
	for c.More() {
		var cmd []byte
		c.Bytes(&cmd)
		cmds = append(cmds, cmd)
	}
	if c.Err() != nil {
		return nil, fmt.Errorf("%w: truncated command in a forward frame", peer.ErrRefused)
	}
	return cmds, nil
}

const (
	// outboxMaxBytes bounds the commands of this member that are not applied yet. Beyond it Propose
	// blocks, and with it the sockets that the commands come from (back-pressure).
	outboxMaxBytes = 32 << 20
	// sendMaxBytes is about how much is sent to the leader in one frame.
	sendMaxBytes = 256 << 10
)

// outbox keeps the commands of this member, in order, until they have been applied. A command that
// was sent to the leader may be lost with it, and then all that are not applied are sent again.
//
// While there is a route to the leader, the goroutine that adds a command also sends it, together
// with those that are about to be added; the route sends the rest, and the commands that are to be
// sent again. If the leader is another member, the cost of a frame hardly depends on its size. So
// clients that have just been answered are waited for, as linger says, and share a frame.
type outbox struct {
	mu     sync.Mutex
	byKey  map[znode.Key]*openCommand
	first  *openCommand // oldest
	last   *openCommand
	unsent *openCommand // first that was not sent in the present round
	round  uint64       // counts the times that everything was sent again
	size   int          // bytes
	closed bool

	send    func([][]byte) error // to the leader; nil: there is no route
	sending bool                 // a goroutine is in send, without mu
	failed  chan error           // capacity 1: why the present route, or the one before, failed
	idle    *sync.Cond           // sending is false
	sent    uint64               // commands sent on the present route

	remote   bool        // the leader is another member
	linger   linger      // if it is
	settleAt time.Time   // when the newest of the commands was sent that linger waits for
	timer    *time.Timer // ends the linger

	work chan struct{} // capacity 1: there may be something to send
	room *sync.Cond    // size went down
}

// openCommand is a command that is not applied yet, and an element of the outbox's list.
type openCommand struct {
	key        znode.Key
	data       []byte // encoded
	sentRound  uint64 // 0: not sent yet
	sentAt     time.Time
	number     uint64 // on the present route, from 0 on, if sentRound is the present round
	prev, next *openCommand
}

func newOutbox() *outbox {
	o := &outbox{byKey: map[znode.Key]*openCommand{}, work: make(chan struct{}, 1), round: 1}
	o.room, o.idle = sync.NewCond(&o.mu), sync.NewCond(&o.mu)
	o.timer = time.AfterFunc(lingerMax, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.sendLocked()
	})
	return o
}

// add appends a command, unless the outbox holds it already. It blocks while the outbox is full,
// until ctx ends. An error says that the command was not added.
func (o *outbox) add(ctx context.Context, key znode.Key, data []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.size > outboxMaxBytes {
		defer broadcastAfter(ctx, o.room)()
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
	o.linger.arrive(key.Session)
	o.size += len(data)
	o.sendLocked()
	return nil
}

// sendTo sends the unsent commands, and the ones that are added, until send fails or ctx ends.
// remote says that the leader is another member. send is called by one goroutine at a time, and not
// any more when sendTo has returned.
func (o *outbox) sendTo(ctx context.Context, remote bool, send func([][]byte) error) error {
	o.mu.Lock()
	failed := make(chan error, 1)
	o.send, o.failed, o.remote, o.linger, o.sent = send, failed, remote, linger{}, 0
	o.sendLocked()
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.send = nil
		for o.sending {
			o.idle.Wait()
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
			o.sendLocked()
			o.mu.Unlock()
		}
	}
}

// sendLocked sends one frame of unsent commands, unless they linger or another goroutine is
// sending. It leaves commands that are added meanwhile to the route: the caller may have other
// things to do.
func (o *outbox) sendLocked() {
	if o.sending || o.send == nil || o.unsent == nil {
		return
	}
	if left := o.linger.left(time.Now()); left > 0 {
		o.timer.Reset(left)
		return
	}
	o.sending = true
	send, failed := o.send, o.failed
	var err error
	if cmds := o.takeLocked(time.Now()); len(cmds) > 0 {
		o.mu.Unlock()
		err = send(cmds)
		o.mu.Lock()
	}
	o.sending = false
	o.idle.Broadcast()
	if err != nil {
		o.send = nil
		failed <- err
	} else if o.unsent != nil {
		signal(o.work)
	}
}

// settle removes a command that has been applied or refused for good.
func (o *outbox) settle(key znode.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := o.byKey[key]; c != nil {
		if o.remote {
			o.linger.answerable(key.Session)
			o.settleAt = c.sentAt
		}
		o.removeLocked(c)
	}
}

func (o *outbox) removeLocked(c *openCommand) {
	delete(o.byKey, c.key)
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

// applied is called when entries have been applied. Their clients have been answered, and other
// commands may linger for the next ones of those.
func (o *outbox) applied() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.linger.answering {
		o.linger.completed(time.Now(), o.settleAt)
	}
}

// takeLocked returns the next unsent commands in order, none if there are none, and marks them
// sent.
func (o *outbox) takeLocked(now time.Time) [][]byte {
	var cmds [][]byte
	for n := 0; o.unsent != nil && n < sendMaxBytes; o.unsent = o.unsent.next {
		c := o.unsent
		c.sentRound, c.sentAt, c.number = o.round, now, o.sent
		o.sent++
		cmds = append(cmds, c.data)
		n += len(c.data)
	}
	return cmds
}

// rewind makes every open command unsent.
func (o *outbox) rewind() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rewindLocked()
}

func (o *outbox) rewindLocked() {
	o.round++
	o.unsent, o.linger = o.first, linger{}
	if o.unsent != nil {
		signal(o.work)
	}
}

// gap is called when a command was refused because one before it is missing in the log. All are
// sent again, unless that has happened since this one was sent.
//
// It returns true if that would be in vain, and has removed the command then: the one before it is
// not here any more, because it could not be sent. (One that has been applied leaves no gap.)
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

// refuse removes the command with number n on the present route, which the leader refuses for good.
// It returns false if that is not known any more.
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

func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.timer.Stop()
	o.room.Broadcast()
}
