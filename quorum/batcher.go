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
	spaced *time.Timer // wakes who waits for entrySpacing to pass
	work   *sync.Cond  // there is something to do, or it may be done again
	room   *sync.Cond
	landed *sync.Cond // flying is 0

	futures chan raft.ApplyFuture // entries in flight, in order
	down    chan struct{}         // closed when raft has shut down
}

func newBatcher(r *raft.Raft, stamp func() (int64, znode.Flags), failed func(error)) *batcher {
	b := &batcher{raft: r, stamp: stamp, failed: failed, futures: make(chan raft.ApplyFuture, entriesInFlight-1),
		down: make(chan struct{})}
	b.work, b.room, b.landed = sync.NewCond(&b.mu), sync.NewCond(&b.mu), sync.NewCond(&b.mu)
	b.spaced = time.AfterFunc(entrySpacing, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.work.Signal()
	})
	b.wg.Add(2)
	go b.batchLoop()
	go b.waitLoop()
	return b
}

// submit appends encoded commands of one sender, in order. It blocks while the queue is full.
func (b *batcher) submit(ctx context.Context, cmds [][]byte) error {
	defer context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.room.Broadcast()
	})()
	b.mu.Lock()
	defer b.mu.Unlock()
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
	b.work.Signal()
	return nil
}

func (b *batcher) batchLoop() {
	defer b.wg.Done()
	defer close(b.futures)
	for {
		cmds := b.next()
		if cmds == nil {
			return
		}
		timeMs, flags := b.stamp()
		size := 64
		for _, c := range cmds {
			size += len(c) + 8
		}
		f := b.raft.Apply(znode.AppendEntry(make([]byte, 0, size), timeMs, flags, cmds), 0)
		endWith(f, b.down)
		b.futures <- f
	}
}

// endWith has a future end when raft is down. The library (v1.7.3) leaves those unanswered that stand in its queues when it
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

// next waits for commands and takes as many as fit into an entry; nil when closed.
func (b *batcher) next() [][]byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.dueLocked() && !b.closed {
		b.work.Wait()
	}
	if b.closed {
		return nil
	}
	n, size := 0, 0
	for n < len(b.queue) && (n == 0 || size+len(b.queue[n]) <= entryMaxBytes) {
		size += len(b.queue[n])
		n++
	}
	cmds := b.queue[:n:n]
	b.queue = b.queue[n:]
	b.size -= size
	b.flying++
	b.sentAt = time.Now()
	b.room.Broadcast()
	return cmds
}

// dueLocked says whether an entry may be sent now. If it is only too early, who waits is woken in time.
func (b *batcher) dueLocked() bool {
	if len(b.queue) == 0 || b.paused || b.flying >= entriesInFlight {
		return false
	}
	early := entrySpacing - time.Since(b.sentAt)
	if b.flying == 0 || early <= 0 {
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
	b.work.Broadcast()
}

// waitLoop waits for the entries in flight, in order, and reports those that failed.
func (b *batcher) waitLoop() {
	defer b.wg.Done()
	for f := range b.futures {
		if err := f.Error(); err != nil {
			b.failed(err)
		}
		b.mu.Lock()
		if b.flying--; b.flying == 0 {
			b.landed.Broadcast()
		}
		b.work.Signal()
		b.mu.Unlock()
	}
}

// drop forgets what waits; it is called when the leadership ends.
func (b *batcher) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue, b.size = nil, 0
	b.room.Broadcast()
}

// close ends the batcher. raft must be shut down first.
func (b *batcher) close() {
	close(b.down)
	b.mu.Lock()
	b.closed = true
	b.work.Broadcast()
	b.room.Broadcast()
	b.mu.Unlock()
	b.wg.Wait()
	b.spaced.Stop()
}
