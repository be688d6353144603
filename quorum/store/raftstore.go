package store

import (
	"errors"
	"time"

	"github.com/hashicorp/raft"
)

// Owner is the replica above the stores of a member.
type Owner interface {
	// MayFlushLater reports whether raft may continue before these entries are durable: another
	// member must acknowledge each of them, and all before them, before they are committed.
	// Raft's main goroutine calls it.
	MayFlushLater(entries []*raft.Log) bool
	// Written is told that a write of entries, which began at start, is durable. later: raft
	// did not wait for it, and all entries before them are durable too. The goroutine that
	// wrote them calls it: raft's main goroutine, or the flush loop if later is set.
	Written(entries []*raft.Log, start time.Time, later bool)
	// FlushFailed is told that a write has failed for which raft did not wait. It follows
	// WriteFailed. The flush loop calls it.
	FlushFailed()
	// WriteFailed is told, once, that the stores write nothing any more: a write has failed
	// (ErrDiskFull: and has changed nothing), or Stop was called.
	WriteFailed(err error)
	// ReadFailed is told that an entry cannot be read. Nothing must be applied any more.
	ReadFailed(err error)
	// Yield is called before a term or a vote is saved: a simulation decides there which
	// goroutine continues.
	Yield()
}

// RaftStore is the log and the stable store as raft gets them: layers on top of the stores of a
// member (doc.go). Any goroutine may call its methods, except where they say otherwise.
type RaftStore struct {
	stores  *Stores
	guard   *guard
	backlog *backlog
	reads   *reads
}

// errStopped says that nobody waits for an entry to become durable any more.
var errStopped = errors.New("quorum: stopped")

// cachedEntries is the number of the newest entries that are kept in memory besides the log.
const cachedEntries = 64

// NewRaftStore puts the layers on top of the stores. It starts the flush loop, which Close ends.
func NewRaftStore(s *Stores, owner Owner) (*RaftStore, error) {
	g := newGuard(s.Log, s.Stable, owner)
	b := newBacklog(g, s.Log.Failed(), owner)
	// Followers are most often sent the newest entries.
	cached, err := raft.NewLogCache(cachedEntries, b)
	rs := &RaftStore{stores: s, guard: g, backlog: b, reads: &reads{LogStore: cached, guard: g}}
	if err == nil {
		err = rs.setEnd()
	}
	if err != nil {
		b.close()
		return nil, err
	}
	return rs, nil
}

// Log is the raft.LogStore.
func (s *RaftStore) Log() raft.LogStore { return s.reads }

// Stable is the raft.StableStore.
func (s *RaftStore) Stable() raft.StableStore { return s.guard }

// NewRaft is raft.NewRaft with an error where the library panics because it cannot read its log or
// save its term (UPSTREAM.md, 6). It has started no goroutine by then.
func (s *RaftStore) NewRaft(rc *raft.Config, fsm raft.FSM, transport raft.Transport) (lib *raft.Raft, err error) {
	defer func() {
		if p := recover(); p != nil {
			if err = s.guard.startErr; err == nil {
				panic(p)
			}
		}
	}()
	lib, err = raft.NewRaft(rc, fsm, s.reads, s.guard, s.stores.Snapshots, transport)
	if err == nil {
		s.guard.started.Store(true)
	}
	return lib, err
}

// GetLog reads an entry, durable or not. Other than Log().GetLog it stops nothing if that fails.
func (s *RaftStore) GetLog(index uint64, l *raft.Log) error { return s.backlog.GetLog(index, l) }

// Await waits until the entry and all those before it are durable. Errors: why they will never be;
// errStopped if stop is closed, or Release called, before they are.
func (s *RaftStore) Await(index uint64, stop <-chan struct{}) error {
	return s.backlog.await(index, stop)
}

// Flushed waits until the entry and all those before it are durable, also after Release. Errors:
// why they will never be.
func (s *RaftStore) Flushed(index uint64) error { return s.backlog.flushed(index) }

// Lacks reports whether the entry is not durable yet. It must not be applied then.
func (s *RaftStore) Lacks(index uint64) bool { return s.backlog.lacks(index) }

// Writing returns the write to the log that is under way; nil while there is none.
func (s *RaftStore) Writing() *Write { return s.guard.writing.Load() }

// Broken reports whether a write has failed, or a read of raft's, or Stop was called: nothing is
// written any more.
func (s *RaftStore) Broken() bool { return s.guard.broken.Load() }

// Stop writes nothing any more, so that nothing is acknowledged, and tells the owner why.
func (s *RaftStore) Stop(err error) { s.guard.stop(err) }

// Release ends all waiting for entries to become durable, and lets raft's calls return that wait
// for the member's end. The member must have been cut off from its peers. It is called once.
func (s *RaftStore) Release() {
	close(s.guard.released)
	s.backlog.release()
}

// Close flushes all entries and ends the flush loop. Raft must have been shut down. The stores stay
// open.
func (s *RaftStore) Close() { s.backlog.close() }
