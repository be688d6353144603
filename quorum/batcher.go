package quorum

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

const (
	// entryMaxBytes and entryMaxCommands bound an entry. A single larger command fills an entry of
	// its own. The library advises against entries of more than 512 KiB, because they hold up the
	// entries behind them; and an entry is applied as a whole, before the next request is looked
	// at.
	entryMaxBytes    = 256 << 10
	entryMaxCommands = 1024
	// entryMaxWait is how long commands wait for the entries before theirs to complete.
	entryMaxWait = 5 * time.Millisecond
	// entriesInFlight bounds the entries that are proposed and not completed.
	entriesInFlight = 3
	// batcherMaxBytes bounds the commands that wait for an entry. Beyond it submit blocks.
	batcherMaxBytes = 16 << 20
)

var errStopped = errors.New("quorum: stopped")

// batcher is the leader's group commit: it puts many commands into one raft entry, because the cost
// of an entry hardly depends on its size. On other members it is idle.
//
// The next entry is proposed when the previous one completes; clients that this has answered are
// waited for as linger says. It is proposed earlier when it is full (entryMaxBytes,
// entryMaxCommands), or when entryMaxWait has passed since the previous one was proposed, which
// matters where disks are slow or members far from each other. A command that finds no entry in
// flight and no linger is proposed at once, in the goroutine that submits it.
//
// Commands may be lost with the leadership: outboxes keep them until they are applied.
type batcher struct {
	*engine
	doubt chan<- struct{} // capacity 1: an entry was not, or perhaps not, committed

	loop sync.WaitGroup

	mu         sync.Mutex
	queue      [][]byte
	size       int // bytes of queue
	closed     bool
	paused     bool
	inFlight   int
	proposedAt time.Time          // the newest entry
	linger     linger             // while no entry is in flight
	sessions   [][]wire.SessionID // of the commands of each entry in flight, in order
	timer      *time.Timer
	room       *sync.Cond // size went down
	drained    *sync.Cond // inFlight is 0

	proposed chan proposal // the entries in flight, in order; it has room for all of them
}

// proposal is an entry in flight.
type proposal struct {
	raft.ApplyFuture
	at time.Time
}

// newBatcher makes a batcher that takes commands when raft has been started.
func newBatcher(e *engine, doubt chan<- struct{}) *batcher {
	b := &batcher{engine: e, doubt: doubt, proposed: make(chan proposal, entriesInFlight)}
	b.room, b.drained = sync.NewCond(&b.mu), sync.NewCond(&b.mu)
	b.timer = time.AfterFunc(entryMaxWait, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.proposeLocked()
	})
	b.loop.Go(b.completeLoop)
	return b
}

// submit appends encoded commands of one sender, in order. It blocks while the queue is full.
func (b *batcher) submit(ctx context.Context, cmds [][]byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.size > batcherMaxBytes {
		defer broadcastAfter(ctx, b.room)()
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
		b.linger.arrive(znode.CommandSession(c))
	}
	b.proposeLocked()
	return nil
}

// proposeLocked gives raft the entries that are due. It does not block: raft's queue has more room
// than there may be entries in flight.
func (b *batcher) proposeLocked() {
	for b.dueLocked() {
		waiting := len(b.queue)
		cmds, size := b.takeLocked()
		entry := make([]byte, 0, 64+size+8*len(cmds))
		entry = znode.AppendEntry(entry, b.stamp(), cmds)
		b.measures.proposing(waiting, len(cmds), len(entry))
		f := b.raft.Apply(entry, 0)
		endWith(f, b.down)
		b.proposed <- proposal{f, b.proposedAt}
	}
}

// takeLocked takes the commands of one entry from the queue, and returns their size in bytes.
func (b *batcher) takeLocked() (cmds [][]byte, size int) {
	n := 0
	for n < min(len(b.queue), entryMaxCommands) && (n == 0 || size+len(b.queue[n]) <= entryMaxBytes) {
		size += len(b.queue[n])
		n++
	}
	cmds = b.queue[:n:n]
	if b.queue = b.queue[n:]; len(b.queue) == 0 {
		b.queue = nil
	}
	sessions := make([]wire.SessionID, n)
	for i, c := range cmds {
		sessions[i] = znode.CommandSession(c)
	}
	b.sessions = append(b.sessions, sessions)
	b.size -= size
	b.inFlight++
	b.proposedAt = time.Now()
	b.room.Broadcast()
	return cmds, size
}

// dueLocked reports whether an entry is to be proposed now. If commands have to wait, it sets the
// timer.
func (b *batcher) dueLocked() bool {
	if len(b.queue) == 0 || b.closed || b.paused || b.inFlight >= entriesInFlight {
		return false
	}
	if len(b.queue) >= entryMaxCommands || b.size >= entryMaxBytes {
		return true
	}
	now := time.Now()
	left := entryMaxWait - now.Sub(b.proposedAt)
	if b.inFlight == 0 {
		left = b.linger.left(now)
	}
	if left <= 0 {
		return true
	}
	b.timer.Reset(left)
	return false
}

// hold stops proposals. One caller at a time may hold or pause, and must call resume.
func (b *batcher) hold() (resume func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.paused = true
	return b.resume
}

// pause stops proposals, and returns when no entry is in flight or ctx has ended.
func (b *batcher) pause(ctx context.Context) (resume func(), err error) {
	defer broadcastAfter(ctx, b.drained)()
	resume = b.hold()
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.inFlight > 0 && ctx.Err() == nil {
		b.drained.Wait()
	}
	if b.inFlight > 0 {
		err = errors.New("entries are not committed in time")
	}
	return resume, err
}

func (b *batcher) resume() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.paused = false
	b.proposeLocked()
}

// answerable is called before any client can be answered by the entries in flight: before this
// member applies them, and before a follower may (early commit). It may be called several times.
func (b *batcher) answerable() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.sessions) > 0 && !b.linger.answering {
		b.linger.answerable(b.sessions[0]...)
	}
}

// completeLoop waits for the entries in flight, in order, proposes the next ones, and reports those
// that failed.
func (b *batcher) completeLoop() {
	for p := range b.proposed {
		if p.Error() != nil {
			signal(b.doubt)
		}
		b.mu.Lock()
		b.linger.completed(time.Now(), p.at)
		b.sessions = b.sessions[1:]
		if b.inFlight--; b.inFlight == 0 {
			b.drained.Broadcast()
		}
		b.proposeLocked()
		b.mu.Unlock()
	}
}

// drop forgets the commands that wait. It is called when the leadership ends.
func (b *batcher) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue, b.size, b.linger = nil, 0, linger{}
	b.room.Broadcast()
}

// close ends the batcher. raft must be shut down first.
func (b *batcher) close() {
	b.mu.Lock()
	b.closed = true
	close(b.proposed)
	b.room.Broadcast()
	b.mu.Unlock()
	b.loop.Wait()
	b.timer.Stop()
}

const (
	// lingerMin is the smallest batch after which commands linger.
	lingerMin = 2
	// lingerMax bounds the linger.
	lingerMax = 4 * time.Millisecond
	// lingerRest is the number of batches without a linger after the answered clients have not
	// sent their next commands in time.
	lingerRest = 4
)

// linger is the wait of commands after a batch of commands has completed: in the leader's batcher,
// where a batch is an entry, and in a follower's outbox, where it is the commands of its own
// clients that were applied together. docs/decisions/005-batching.md has the reasons.
//
// Closed-loop clients send their next request when they have been answered. If the commands that
// wait already went without theirs, the clients would form two groups that take turns, and each
// would wait for the other's entry. So the commands linger until as many commands as the batch had
// have arrived since the batch could first be answered, but no longer than twice the time that the
// batch took, and no longer than lingerMax. Open-loop clients send at moments of their own. If more
// than half of the answered commands are without a successor from the same session then, commands
// do not linger after the next lingerRest batches.
//
// The zero value is ready. Its owner's lock guards it.
type linger struct {
	answering bool // clients may be answered already by the batch that is to complete next
	answered  int  // commands of the batch
	arrived   int  // commands that have arrived since
	// successors counts the commands that each session of the batch has still to send, one for each
	// that was answered; missing is their sum.
	successors map[wire.SessionID]int
	missing    int
	until      time.Time // the end of the linger; zero: commands do not linger
	rest       int       // batches that are not waited for
}

// answerable is called when clients may be answered for commands of these sessions: all or a part
// of the batch that completes next.
func (l *linger) answerable(sessions ...wire.SessionID) {
	if !l.answering {
		l.answering, l.answered, l.arrived, l.missing = true, 0, 0, 0
		clear(l.successors)
	}
	if l.successors == nil {
		l.successors = map[wire.SessionID]int{}
	}
	for _, s := range sessions {
		l.successors[s]++
	}
	l.answered += len(sessions)
	l.missing += len(sessions)
}

// arrive is called when a command of a session has arrived.
func (l *linger) arrive(s wire.SessionID) {
	l.arrived++
	if n := l.successors[s]; n > 0 {
		l.successors[s] = n - 1
		l.missing--
	}
}

// completed is called when the batch that was sent at sentAt has completed.
func (l *linger) completed(now, sentAt time.Time) {
	answerable := l.answering
	l.answering, l.until = false, time.Time{}
	switch {
	case l.rest > 0:
		l.rest--
	case answerable && l.answered >= lingerMin:
		l.until = now.Add(min(2*now.Sub(sentAt), lingerMax))
	}
}

// left returns how long the commands that wait are to linger; 0: they are due.
func (l *linger) left(now time.Time) time.Duration {
	left := l.until.Sub(now)
	switch {
	case l.until.IsZero():
		return 0
	case l.arrived < l.answered && left > 0:
		return left
	case l.missing > l.answered/2:
		l.rest = lingerRest
	}
	l.until = time.Time{}
	return 0
}
