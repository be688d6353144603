package store

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// backlog lets a leader write its log while its followers write theirs (Ongaro's thesis, section
// 10.2.1). It is between raft and the log: StoreLogs takes a leader's entries and returns at once,
// and flushLoop writes all pending entries with one append. Until an entry is durable, the
// transport holds back every acknowledgement of it (RaftStore.Await). Raft counts this member's own
// copy as soon as StoreLogs returns, so all acknowledgements wait, not only the one that completes
// the majority.
//
// Invariant: a member applies only entries that are durable on its own disk. A deposed leader may
// learn the commit of an entry in its backlog; the state machine waits for it (RaftStore.Flushed).
//
// StoreLogs returns early only with the owner's permission (Owner.MayFlushLater), and if the
// backlog has room; otherwise the entries are durable when it returns. Raft calls StoreLogs from
// its main goroutine alone, which is also the only one that makes this member a leader and changes
// the configuration.
//
// A deposed leader may have a flush in progress. Its next write as a follower, and the truncation
// of its log, wait for the flush; so the log changes in the order of raft's calls. The member may
// vote, or be elected, with unflushed entries: it then refuses its vote to logs that it could have
// voted for, and as a leader again it commits nothing before they are durable. After a power
// failure a leader has a shorter log; nobody counted the lost entries as durable on it. It cannot
// reuse their indexes in that term: its vote for itself was durable before it led, and it leads no
// term twice.
type backlog struct {
	guard  *guard       // of the log; a write that fails stops the member
	failed <-chan error // of the log: Log.Failed
	owner  Owner

	wake     chan struct{} // capacity 1: there is something to write
	released chan struct{} // closed by release
	closing  chan struct{} // closed when there will be no more entries
	done     chan struct{} // closed when flushLoop has ended
	end      sync.Once

	// Lock: mu is a leaf, and never held while the log is written.
	mu    sync.Mutex
	logs  []*raft.Log   // unflushed entries, without a gap; flushLoop writes the first
	err   error         // why they will never be durable
	moved chan struct{} // closed at the next change of logs or err; nil while nobody waits for one
}

// backlogMax is the highest number of unflushed entries. The batcher alone never has as many in
// flight.
const backlogMax = 64

func newBacklog(g *guard, failed <-chan error, owner Owner) *backlog {
	b := &backlog{guard: g, failed: failed, owner: owner, wake: make(chan struct{}, 1),
		released: make(chan struct{}), closing: make(chan struct{}), done: make(chan struct{})}
	go b.flushLoop()
	return b
}

// release ends all waiting for entries to become durable.
func (b *backlog) release() { b.end.Do(func() { close(b.released) }) }

// close flushes all entries and ends flushLoop. Raft must have been shut down.
func (b *backlog) close() {
	b.release()
	close(b.closing)
	<-b.done
}

// StoreLog implements raft.LogStore.
func (b *backlog) StoreLog(l *raft.Log) error { return b.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore. When it returns the entries are durable, or this member leads
// and no entry is committed before it is.
func (b *backlog) StoreLogs(logs []*raft.Log) error {
	if b.owner.MayFlushLater(logs) && b.take(logs) {
		return nil
	}
	if err := b.drain(); err != nil {
		return err
	}
	return b.write(logs, false)
}

// write writes entries to the log and tells the owner.
func (b *backlog) write(logs []*raft.Log, later bool) error {
	start := time.Now()
	err := b.guard.StoreLogs(logs)
	if err == nil && len(logs) > 0 {
		b.owner.Written(logs, start, later)
	}
	return err
}

// take takes entries to be written later, if there is room and no write has failed.
func (b *backlog) take(logs []*raft.Log) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil || len(b.logs)+len(logs) > backlogMax {
		return false
	}
	b.logs = append(b.logs, logs...)
	select {
	case b.wake <- struct{}{}:
	default: // it is awake
	}
	return true
}

// flushLoop writes all pending entries with one append. It ends with close, or when a write fails:
// the log must not have a gap.
func (b *backlog) flushLoop() {
	defer close(b.done)
	for {
		b.mu.Lock()
		logs := b.logs[:len(b.logs):len(b.logs)]
		b.mu.Unlock()
		if len(logs) == 0 {
			select {
			case <-b.wake:
				continue
			case err := <-b.failed:
				_ = b.guard.check("write watermark", err)
				continue
			case <-b.closing:
				return
			}
		}
		err := b.write(logs, true)
		b.mu.Lock()
		if err == nil {
			b.logs = slices.Delete(b.logs, 0, len(logs))
		}
		b.err = err
		if b.moved != nil {
			close(b.moved)
			b.moved = nil
		}
		b.mu.Unlock()
		if err != nil {
			b.owner.FlushFailed()
			return
		}
	}
}

// await waits until the entry and all those before it are durable. Errors: why they will never be;
// errStopped if stop is closed, or release called, before they are.
func (b *backlog) await(index uint64, stop <-chan struct{}) error {
	return b.wait(index, stop, b.released)
}

// flushed waits until the entry and all those before it are durable, also after release. Errors:
// why they will never be.
func (b *backlog) flushed(index uint64) error { return b.wait(index, nil, nil) }

// drain waits until everything is durable.
func (b *backlog) drain() error { return b.flushed(math.MaxUint64) }

func (b *backlog) wait(index uint64, stop, released <-chan struct{}) error {
	for {
		b.mu.Lock()
		lacking, err := b.lackingLocked(index), b.err
		if lacking && b.moved == nil {
			b.moved = make(chan struct{})
		}
		moved := b.moved
		b.mu.Unlock()
		switch {
		case !lacking:
			return nil
		case err != nil:
			return err
		}
		select {
		case <-moved:
		case <-stop:
			return errStopped
		case <-released:
			return errStopped
		}
	}
}

func (b *backlog) lackingLocked(index uint64) bool {
	return len(b.logs) > 0 && b.logs[0].Index <= index
}

// lacks says whether the entry is not durable yet. It must not be applied then.
func (b *backlog) lacks(index uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lackingLocked(index)
}

// FirstIndex implements raft.LogStore.
func (b *backlog) FirstIndex() (uint64, error) {
	b.mu.Lock()
	waiting := uint64(0)
	if len(b.logs) > 0 {
		waiting = b.logs[0].Index
	}
	b.mu.Unlock()
	first, err := b.guard.FirstIndex()
	if err == nil && first == 0 {
		first = waiting
	}
	return first, err
}

// LastIndex implements raft.LogStore.
func (b *backlog) LastIndex() (uint64, error) {
	b.mu.Lock()
	if n := len(b.logs); n > 0 {
		defer b.mu.Unlock()
		return b.logs[n-1].Index, nil
	}
	b.mu.Unlock()
	return b.guard.LastIndex()
}

// GetLog implements raft.LogStore. Entries that are not durable yet are there: followers are to be
// sent them.
func (b *backlog) GetLog(index uint64, l *raft.Log) error {
	b.mu.Lock()
	if b.lackingLocked(index) && index-b.logs[0].Index < uint64(len(b.logs)) {
		*l = *b.logs[index-b.logs[0].Index]
		b.mu.Unlock()
		return nil
	}
	b.mu.Unlock()
	return b.guard.GetLog(index, l)
}

// DeleteRange implements raft.LogStore. Entries at the beginning have been applied and are durable;
// entries at the end are flushed first.
func (b *backlog) DeleteRange(lo, hi uint64) error {
	if err := b.flushed(hi); err != nil {
		return err
	}
	return b.guard.DeleteRange(lo, hi)
}
