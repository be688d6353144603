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
	seen     contents   // what readers see
	synced   *contents  // what a power cut leaves; nil while that is what readers see
	unsynced []write    // what readers see and a power cut destroys, in order
	writing  []*write   // under way: neither seen nor durable

	writeBack map[File]time.Duration
	syncTime  time.Duration
	fault     error
	writes    int64
	trailing  uint64 // 0: the log is the program's own business
}

// File is a part of the disk that is synced for itself.
type File uint8

// The files of a disk.
const (
	LogFile File = iota + 1
	StableFile
	SnapshotFile
)

// write is one write. A power cut in the middle of it leaves some of its records, the first few.
type write struct {
	file    File
	records []func(*contents)
	dueAt   time.Time // when it becomes durable by itself, of those that are unsynced
}

func (w *write) apply(c *contents) {
	for _, r := range w.records {
		r(c)
	}
}

// applyFirst does some of the write and returns what it did.
func (w *write) applyFirst(torn *rand.Rand, c *contents) write {
	part := write{file: w.file, records: w.records[:torn.IntN(len(w.records)+1)]}
	part.apply(c)
	return part
}

var (
	_ raft.LogStore      = (*Disk)(nil)
	_ raft.StableStore   = (*Disk)(nil)
	_ raft.SnapshotStore = (*Disk)(nil)
)

// New returns an empty disk, on which writes take no time.
func New() *Disk { return &Disk{seen: newContents(), writeBack: make(map[File]time.Duration)} }

// Crash returns a disk with what is durable now, as a machine finds it after a power cut. d itself
// is left to the program that is no longer heard of. The copy has d's settings, and no fault.
func (d *Disk) Crash() *Disk { return d.CrashTorn(nil) }

// CrashTorn is Crash with chance for what was being written at that moment: nothing of it may be
// there, or all of it, or its first records, as torn says; with nil nothing is. Nobody has been
// told that it is there.
func (d *Disk) CrashTorn(torn *rand.Rand) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settleLocked()
	left := d.copyLocked()
	if left.synced != nil {
		left.seen, left.synced, left.unsynced = *left.synced, nil, nil
	}
	for _, w := range d.writing {
		if torn != nil && d.writeBack[w.file] == 0 {
			w.applyFirst(torn, &left.seen)
		}
	}
	for f, lag := range d.writeBack {
		left.SetWriteBack(f, lag)
	}
	return left
}

// Killed returns a disk with what readers of d see now, as another program finds it after its user
// was killed, with chance for what was being written. What is not durable still is not. d itself is
// left to the program that was killed.
func (d *Disk) Killed(torn *rand.Rand) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := d.copyLocked()
	for _, w := range d.writing {
		part := w.applyFirst(torn, &left.seen)
		if left.synced != nil {
			part.dueAt = time.Now().Add(d.writeBack[w.file])
			left.unsynced = append(left.unsynced, part)
		}
	}
	return left
}

func (d *Disk) copyLocked() *Disk {
	left := &Disk{seen: d.seen.clone(), unsynced: slices.Clone(d.unsynced), writeBack: maps.Clone(d.writeBack), syncTime: d.syncTime, trailing: d.trailing}
	if d.synced != nil {
		c := d.synced.clone()
		left.synced = &c
	}
	return left
}

// SetWriteBack makes writes to a file return before they are durable, as if the program had
// forgotten to sync it: a power cut within lag of the write destroys it. 0 makes them durable
// before they return again, and what was written before then is made so by the next write.
func (d *Disk) SetWriteBack(f File, lag time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writeBack[f] = lag
	if lag > 0 && d.synced == nil {
		c := d.seen.clone()
		d.synced = &c
	}
}

// SetTrailing makes each snapshot delete the log but for so many entries before
// it, so that members that were away need snapshots, though their program would
// keep a longer log. 0 leaves it to the program.
func (d *Disk) SetTrailing(entries uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.trailing = entries
}

// SetSyncTime sets how long each write takes from now on.
func (d *Disk) SetSyncTime(t time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.syncTime = t
}

// Fail makes every write fail with err, and write nothing, until it is called
// with nil.
func (d *Disk) Fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = err
}

// Writes returns how many writes have become durable.
func (d *Disk) Writes() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.writes
}

// write lets the time of a write pass and then does it.
func (d *Disk) write(f File, records ...func(*contents)) error {
	w := &write{file: f, records: records}
	d.mu.Lock()
	wait := d.syncTime
	if d.writeBack[f] > 0 {
		wait = 0
	}
	d.writing = append(d.writing, w)
	d.mu.Unlock()
	if wait > 0 {
		time.Sleep(wait)
	}
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

// settleLocked makes durable what is due: what its time has come for, and what the same file has
// had synced since.
func (d *Disk) settleLocked() {
	now := time.Now()
	for f := LogFile; f <= SnapshotFile; f++ {
		last := -1
		for i, w := range d.unsynced {
			if w.file == f && !w.dueAt.After(now) {
				last = i
			}
		}
		var left []write
		for i, w := range d.unsynced {
			if w.file == f && i <= last {
				w.apply(d.synced)
			} else {
				left = append(left, w)
			}
		}
		d.unsynced = left
	}
}

// FirstIndex implements raft.LogStore.
func (d *Disk) FirstIndex() (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen.low, nil
}

// LastIndex implements raft.LogStore.
func (d *Disk) LastIndex() (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen.high, nil
}

// GetLog implements raft.LogStore.
func (d *Disk) GetLog(index uint64, log *raft.Log) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	l, ok := d.seen.logs[index]
	if !ok {
		return raft.ErrLogNotFound
	}
	*log = copyLog(&l)
	return nil
}

// StoreLog implements raft.LogStore.
func (d *Disk) StoreLog(log *raft.Log) error { return d.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore.
func (d *Disk) StoreLogs(logs []*raft.Log) error {
	records := make([]func(*contents), len(logs))
	for i, l := range logs {
		kept := copyLog(l)
		records[i] = func(c *contents) { c.store(kept) }
	}
	return d.write(LogFile, records...)
}

// DeleteRange implements raft.LogStore.
func (d *Disk) DeleteRange(first, last uint64) error {
	return d.write(LogFile, func(c *contents) { c.delete(first, last) })
}

// errNotFound has the text that the raft library looks for.
var errNotFound = errors.New("not found")

// Set implements raft.StableStore.
func (d *Disk) Set(key, value []byte) error {
	value = bytes.Clone(value)
	return d.write(StableFile, func(c *contents) { c.values[string(key)] = value })
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
	return d.write(StableFile, func(c *contents) { c.numbers[string(key)] = value })
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
