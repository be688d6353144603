package simdisk

import (
	"bytes"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Disk is one member's disk. Its methods may be called from any goroutine.
type Disk struct {
	mu       sync.Mutex // never held while a write takes its time
	names    directory  // of the files, as readers see them
	durable  directory  // the names that a power cut leaves
	changes  uint64     // the number of changes to files
	seen     contents   // the stores, as readers see them
	synced   *contents  // the stores, as a power cut leaves them; nil: as readers see them
	unsynced []write    // writes that readers see and a power cut destroys, in order
	writing  []*write   // under way: neither seen nor durable

	writeBack map[Store]time.Duration
	syncTime  time.Duration
	fault     error // of writes
	readFault error // of reads of files
	writes    int64
	hung      chan struct{} // closed when the disk answers again; nil while it does

	abandoned chan struct{} // closed by Abandon
}

// Store is one of the stores that the disk keeps as values, each of which is synced for itself.
type Store uint8

// The stores of a disk.
const (
	VoteStore   Store = iota + 1 // raft's vote: the values with keys that begin with "LastVote"
	ValuesStore                  // the other stable values: raft's term, and lockkeeper's
	SnapshotStore
)

// write is one write to a store. A power cut in the middle of it leaves all of it or nothing.
type write struct {
	store Store
	apply func(*contents)
	dueAt time.Time // when it becomes durable by itself, of those that are unsynced
}

// contents are the values in the stores of a disk: as their readers see them, or as a power cut
// would leave them.
type contents struct {
	values    map[string][]byte
	numbers   map[string]uint64
	snapshots []snapshot // the oldest state first; never changed in place
}

func newContents() contents {
	return contents{values: make(map[string][]byte), numbers: make(map[string]uint64)}
}

// clone copies the maps; their values are never changed.
func (c *contents) clone() contents {
	return contents{values: maps.Clone(c.values), numbers: maps.Clone(c.numbers), snapshots: slices.Clone(c.snapshots)}
}

var (
	_ raft.StableStore   = (*Disk)(nil)
	_ raft.SnapshotStore = (*Disk)(nil)
)

// New returns an empty disk, on which writes take no time.
func New() *Disk {
	return &Disk{names: make(directory), durable: make(directory), seen: newContents(),
		writeBack: make(map[Store]time.Duration), abandoned: make(chan struct{})}
}

// Crash returns a disk with the content that is durable now, as a machine finds it after a power
// cut. d itself is left to the program that is no longer heard of, whose writes take no time from
// now on. The copy has d's settings, and no fault.
func (d *Disk) Crash() *Disk { return d.CrashTorn(nil) }

// CrashTorn is Crash with chance for the bytes that were not durable at that moment. Of a file any
// subset of the sectors that were written since its last sync may be there, of a directory any
// subset of the names that were changed since, of a store nothing of the write that was under way,
// or all of it, as torn says; with nil nothing is. No write had returned that promised otherwise.
func (d *Disk) CrashTorn(torn *rand.Rand) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settleLocked()
	left := d.copyLocked()
	left.names = d.survivorsLocked(torn)
	left.durable = left.names.clone()
	if left.synced != nil {
		left.seen, left.synced, left.unsynced = *left.synced, nil, nil
	}
	for _, w := range d.writing {
		if torn != nil && d.writeBack[w.store] == 0 && torn.IntN(2) == 0 {
			w.apply(&left.seen)
		}
	}
	for f, lag := range d.writeBack {
		left.SetWriteBack(f, lag)
	}
	return left
}

// Killed returns a disk with the content that readers of d see now, as another program finds it
// after its user was killed, with chance for the write under way: its first sectors may be there.
// Bytes that are not durable stay so. d itself is left to the program that was killed.
func (d *Disk) Killed(torn *rand.Rand) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := d.copyLocked()
	left.names.interrupt(torn)
	for _, w := range d.writing {
		if torn.IntN(2) == 0 {
			continue
		}
		w.apply(&left.seen)
		if left.synced != nil {
			left.unsynced = append(left.unsynced, write{w.store, w.apply, time.Now().Add(d.writeBack[w.store])})
		}
	}
	return left
}

func (d *Disk) copyLocked() *Disk {
	left := &Disk{seen: d.seen.clone(), unsynced: slices.Clone(d.unsynced), writeBack: maps.Clone(d.writeBack),
		syncTime: d.syncTime, abandoned: make(chan struct{})}
	left.names, left.durable = copyDirectories(d.names, d.durable)
	left.changes = d.changes
	if d.synced != nil {
		c := d.synced.clone()
		left.synced = &c
	}
	return left
}

// Abandon says that only a program that is no longer heard of has the disk: its writes, those that
// are under way included, take no time any more, so that it can be stopped. It must be called once
// at most.
func (d *Disk) Abandon() { close(d.abandoned) }

// SetWriteBack makes writes to a store return before they are durable, as if the program had
// forgotten to sync it: a power cut within lag of the write destroys it. 0 makes them durable
// before they return again, and the next write makes earlier ones durable.
func (d *Disk) SetWriteBack(f Store, lag time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writeBack[f] = lag
	if lag > 0 && d.synced == nil {
		c := d.seen.clone()
		d.synced = &c
	}
}

// SetSyncTime sets how long each write to a store takes from now on, and each sync of a file or of
// a directory.
func (d *Disk) SetSyncTime(t time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.syncTime = t
}

// Fail makes every write and every sync fail with err until it is called with nil. A sync that has
// failed leaves its file as Linux does: readers see the written bytes, and they are not durable,
// even after a sync that succeeds; a process that opens the file anew sees the content of the disk.
func (d *Disk) Fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = err
}

// FailReads makes every read of a file fail with err until it is called with nil.
func (d *Disk) FailReads(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.readFault = err
}

// Writes returns the number of successful writes to stores and syncs of files and directories.
func (d *Disk) Writes() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.writes
}

// write lets the time of a write pass and then does it.
func (d *Disk) write(f Store, apply func(*contents)) error {
	w := &write{store: f, apply: apply}
	d.mu.Lock()
	wait := d.syncTime
	if d.writeBack[f] > 0 {
		wait = 0
	}
	d.writing = append(d.writing, w)
	d.mu.Unlock()
	d.pass(wait)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writing = slices.DeleteFunc(d.writing, func(o *write) bool { return o == w })
	if d.fault != nil {
		return d.fault
	}
	w.apply(&d.seen)
	d.writes++
	if d.synced != nil {
		w.dueAt = time.Now().Add(d.writeBack[f])
		d.unsynced = append(d.unsynced, *w)
		d.settleLocked()
	}
	return nil
}

// Hang makes every write and every sync that has not ended, and those that begin, take until it is
// called with false.
func (d *Disk) Hang(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case on && d.hung == nil:
		d.hung = make(chan struct{})
	case !on && d.hung != nil:
		close(d.hung)
		d.hung = nil
	}
}

// Hangs reports whether Hang was called with true last.
func (d *Disk) Hangs() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hung != nil
}

// pass lets the time of a write pass.
func (d *Disk) pass(wait time.Duration) {
	if wait > 0 {
		select {
		case <-time.After(wait):
		case <-d.abandoned:
		}
	}
	d.mu.Lock()
	hung := d.hung
	d.mu.Unlock()
	if hung != nil {
		select {
		case <-hung:
		case <-d.abandoned:
		}
	}
}

// settleLocked makes the due writes durable, and the earlier ones to the same store.
func (d *Disk) settleLocked() {
	now := time.Now()
	for f := VoteStore; f <= SnapshotStore; f++ {
		last := -1
		for i, w := range d.unsynced {
			if w.store == f && !w.dueAt.After(now) {
				last = i
			}
		}
		var left []write
		for i, w := range d.unsynced {
			if w.store == f && i <= last {
				w.apply(d.synced)
			} else {
				left = append(left, w)
			}
		}
		d.unsynced = left
	}
}

// storeOf is the store of a stable value.
func storeOf(key []byte) Store {
	if bytes.HasPrefix(key, []byte("LastVote")) {
		return VoteStore
	}
	return ValuesStore
}

// errNotFound has the text that the raft library looks for.
var errNotFound = errors.New("not found")

// Set implements raft.StableStore.
func (d *Disk) Set(key, value []byte) error {
	value = bytes.Clone(value)
	return d.write(storeOf(key), func(c *contents) { c.values[string(key)] = value })
}

// Get implements raft.StableStore.
func (d *Disk) Get(key []byte) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v, ok := d.seen.values[string(key)]
	if !ok {
		return nil, errNotFound
	}
	return bytes.Clone(v), nil
}

// SetUint64 implements raft.StableStore.
func (d *Disk) SetUint64(key []byte, value uint64) error {
	return d.write(storeOf(key), func(c *contents) { c.numbers[string(key)] = value })
}

// GetUint64 implements raft.StableStore.
func (d *Disk) GetUint64(key []byte) (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v, ok := d.seen.numbers[string(key)]
	if !ok {
		return 0, errNotFound
	}
	return v, nil
}

// SetVote saves raft's vote, the two values of the VoteStore, with one write.
func (d *Disk) SetVote(term uint64, candidate []byte) error {
	candidate = bytes.Clone(candidate)
	return d.write(VoteStore, func(c *contents) {
		c.numbers["LastVoteTerm"] = term
		c.values["LastVoteCand"] = candidate
	})
}
