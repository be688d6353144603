package quorum

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/znode"
)

const (
	// entryMaxBytes ends a batch; a single larger command fills an entry of its own. The library
	// advises against entries of more than 512 KiB, because they hold up what is behind them.
	entryMaxBytes = 256 << 10
	// entriesInFlight is how many entries may be on their way through raft at once.
	entriesInFlight = 3
	// entrySpacing is how long after an entry the next one follows at the earliest, unless the one before it is through. Commands
	// that arrive meanwhile gather in it. What an entry costs hardly depends on what it holds, so more than one in flight is
	// of use only where an entry takes long: where disks are slow, or members far from each other.
	entrySpacing = 5 * time.Millisecond
	// batcherMaxBytes bounds what waits to be batched.
	batcherMaxBytes = 16 << 20
)

var errStopped = errors.New("quorum: stopped")

// batcher puts many commands into one raft entry. It works on the leader; elsewhere it is idle. What
// it takes may be lost with the leadership: the senders keep their commands until they are applied.
//
// Entries are made by whoever finds that one is due: who brings commands, waitLoop when an entry is through, or the timer when
// that, or more commands, have been waited for long enough. So a command that comes alone reaches raft without another goroutine being woken for it.
type batcher struct {
	raft  *raft.Raft
	stamp func() (timeMs int64, flags znode.Flags)
	// failed is told that an entry was not, or perhaps not, committed.
	failed func(error)

	wg sync.WaitGroup

	mu     sync.Mutex
	queue  [][]byte
	size   int
	closed bool
	paused bool
	flying int         // entries in flight
	sentAt time.Time   // when the newest of them was sent
	gather gathering   // while there are none
	asked  int         // how many of the queue had come when answers to the newest entry became possible, and so were asked for before
	noted  bool        // that is known
	spaced *time.Timer // sends what has waited for long enough
	room   *sync.Cond
	landed *sync.Cond // flying is 0

	flights chan flight   // entries in flight, in order; it has room for all of them
	down    chan struct{} // closed when raft has shut down
}

// flight is an entry in flight.
type flight struct {
	raft.ApplyFuture
	commands int
	sentAt   time.Time
}

// newBatcher makes one that takes commands as soon as it has its raft.
func newBatcher(stamp func() (int64, znode.Flags), failed func(error)) *batcher {
	b := &batcher{stamp: stamp, failed: failed, gather: gathering{few: 2}, flights: make(chan flight, entriesInFlight),
		down: make(chan struct{})}
	b.room, b.landed = sync.NewCond(&b.mu), sync.NewCond(&b.mu)
	b.spaced = time.AfterFunc(entrySpacing, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.sendLocked()
	})
	b.wg.Go(b.waitLoop)
	return b
}

// submit appends encoded commands of one sender, in order. It blocks while the queue is full.
func (b *batcher) submit(ctx context.Context, cmds [][]byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.size > batcherMaxBytes {
		defer context.AfterFunc(ctx, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.room.Broadcast()
		})()
	}
	for b.size > batcherMaxBytes && !b.closed && ctx.Err() == nil {
		b.room.Wait()
	}
	if b.closed {
		return errStopped
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, c := range cmds {
		b.queue = append(b.queue, c)
		b.size += len(c)
	}
	b.sendLocked()
	return nil
}

// sendLocked gives raft the entries that are due. That does not block: raft has more room for them than may be in flight.
func (b *batcher) sendLocked() {
	for b.dueLocked() {
		cmds, size := b.nextLocked()
		timeMs, flags := b.stamp()
		f := b.raft.Apply(znode.AppendEntry(make([]byte, 0, 64+size+8*len(cmds)), timeMs, flags, cmds), 0)
		endWith(f, b.down)
		b.flights <- flight{f, len(cmds), b.sentAt}
	}
}

// endWith has a future end when raft is down. The library (UPSTREAM.md, 1) leaves those unanswered that stand in its queues when it
// shuts down: in that of Apply, and in that of the state machine. Its futures have a field for just this, ShutdownCh, which it
// sets in some of them and in others not; there is no other way to it from outside.
func endWith(f raft.Future, down chan struct{}) {
	v := reflect.ValueOf(f)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return // answered already
	}
	if field := v.Elem().FieldByName("ShutdownCh"); field.IsValid() && field.CanSet() && field.Type() == reflect.TypeOf(down) {
		field.Set(reflect.ValueOf(down))
	}
}

// nextLocked takes as many commands as fit into an entry, and their size.
func (b *batcher) nextLocked() (cmds [][]byte, size int) {
	n := 0
	for n < len(b.queue) && (n == 0 || size+len(b.queue[n]) <= entryMaxBytes) {
		size += len(b.queue[n])
		n++
	}
	cmds = b.queue[:n:n]
	if b.queue = b.queue[n:]; len(b.queue) == 0 {
		b.queue = nil
	}
	b.size -= size
	b.asked = max(0, b.asked-n)
	b.noted = false
	b.flying++
	b.sentAt = time.Now()
	b.room.Broadcast()
	return cmds, size
}

// dueLocked says whether an entry may be sent now. If it is only too early, it will be sent in time.
func (b *batcher) dueLocked() bool {
	if len(b.queue) == 0 || b.closed || b.paused || b.flying >= entriesInFlight {
		return false
	}
	now := time.Now()
	early := entrySpacing - now.Sub(b.sentAt)
	if b.flying == 0 {
		early = b.gather.left(now, len(b.queue))
	}
	if early <= 0 {
		return true
	}
	b.spaced.Reset(early)
	return false
}

// pause has what comes wait, and returns when no entry is in flight any more, or ctx has ended. It is called by one at a time, who
// must call resume.
func (b *batcher) pause(ctx context.Context) (resume func(), err error) {
	defer context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.landed.Broadcast()
	})()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.paused = true
	for b.flying > 0 && ctx.Err() == nil {
		b.landed.Wait()
	}
	if b.flying > 0 {
		err = errors.New("entries are not committed in time")
	}
	return b.resume, err
}

func (b *batcher) resume() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.paused = false
	b.sendLocked()
}

// answering takes note that the entries under way are about to be applied, here or by a follower (early commit). Who submits from now on may
// have been answered by them.
func (b *batcher) answering() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.noted {
		b.noted, b.asked = true, len(b.queue)
	}
}

// waitLoop waits for the entries in flight, in order, and reports those that failed.
func (b *batcher) waitLoop() {
	for f := range b.flights {
		if err := f.Error(); err != nil {
			b.failed(err)
		}
		b.mu.Lock()
		if b.flying--; b.flying == 0 {
			b.landed.Broadcast()
			now := time.Now()
			b.gather.landed(now, now.Sub(f.sentAt), f.commands, b.asked)
		}
		b.sendLocked()
		b.mu.Unlock()
	}
}

// drop forgets what waits; it is called when the leadership ends.
func (b *batcher) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue, b.size, b.asked = nil, 0, 0
	b.room.Broadcast()
}

// close ends the batcher. raft must be shut down first.
func (b *batcher) close() {
	close(b.down)
	b.mu.Lock()
	b.closed = true
	close(b.flights)
	b.room.Broadcast()
	b.mu.Unlock()
	b.wg.Wait()
	b.spaced.Stop()
}
