package simdisk

import (
	"bytes"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Disk is one member's disk. Its methods may be called from any goroutine.
type Disk struct {
	mu        sync.Mutex // never held while a write takes its time
	low, high uint64     // of the log; both 0 when it is empty
	logs      map[uint64]raft.Log
	values    map[string][]byte
	numbers   map[string]uint64
	snapshots []snapshot // the oldest state first; never changed in place
	syncTime  time.Duration
	fault     error
	writes    int64
	trailing  uint64 // 0: the log is the program's own business
}

var (
	_ raft.LogStore      = (*Disk)(nil)
	_ raft.StableStore   = (*Disk)(nil)
	_ raft.SnapshotStore = (*Disk)(nil)
)

// New returns an empty disk, on which writes take no time.
func New() *Disk {
	return &Disk{
		logs:    make(map[uint64]raft.Log),
		values:  make(map[string][]byte),
		numbers: make(map[string]uint64),
	}
}

// Crash returns a disk with what is durable now, as a machine finds it after a
// power cut. d itself is left to the program that is no longer heard of. The
// copy has d's sync time, and no fault.
func (d *Disk) Crash() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &Disk{
		low: d.low, high: d.high,
		logs:      maps.Clone(d.logs), // what they point to is never changed
		values:    maps.Clone(d.values),
		numbers:   maps.Clone(d.numbers),
		snapshots: append([]snapshot(nil), d.snapshots...),
		syncTime:  d.syncTime,
		trailing:  d.trailing,
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

// write lets the time of a write pass and then runs f, which does it.
func (d *Disk) write(f func()) error {
	d.mu.Lock()
	wait := d.syncTime
	d.mu.Unlock()
	if wait > 0 {
		time.Sleep(wait)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fault != nil {
		return d.fault
	}
	f()
	d.writes++
	return nil
}

// FirstIndex implements raft.LogStore.
func (d *Disk) FirstIndex() (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.low, nil
}

// LastIndex implements raft.LogStore.
func (d *Disk) LastIndex() (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.high, nil
}

// GetLog implements raft.LogStore.
func (d *Disk) GetLog(index uint64, log *raft.Log) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	l, ok := d.logs[index]
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
	return d.write(func() {
		for _, l := range logs {
			d.logs[l.Index] = copyLog(l)
			if d.low == 0 {
				d.low = l.Index
			}
			d.low, d.high = min(d.low, l.Index), max(d.high, l.Index)
		}
	})
}

// DeleteRange implements raft.LogStore.
func (d *Disk) DeleteRange(first, last uint64) error {
	return d.write(func() { d.deleteLocked(first, last) })
}

func (d *Disk) deleteLocked(first, last uint64) {
	for i := max(first, d.low); i <= min(last, d.high); i++ {
		delete(d.logs, i)
	}
	switch {
	case len(d.logs) == 0:
		d.low, d.high = 0, 0
	case first <= d.low:
		d.low = max(d.low, last+1)
	case last >= d.high:
		d.high = min(d.high, first-1)
	}
}

// errNotFound has the text that the raft library looks for.
var errNotFound = errors.New("not found")

// Set implements raft.StableStore.
func (d *Disk) Set(key, value []byte) error {
	value = bytes.Clone(value)
	return d.write(func() { d.values[string(key)] = value })
}

// Get implements raft.StableStore.
func (d *Disk) Get(key []byte) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v, ok := d.values[string(key)]
	if !ok {
		return nil, errNotFound
	}
	return bytes.Clone(v), nil
}

// SetUint64 implements raft.StableStore.
func (d *Disk) SetUint64(key []byte, value uint64) error {
	return d.write(func() { d.numbers[string(key)] = value })
}

// GetUint64 implements raft.StableStore.
func (d *Disk) GetUint64(key []byte) (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v, ok := d.numbers[string(key)]
	if !ok {
		return 0, errNotFound
	}
	return v, nil
}

func copyLog(l *raft.Log) raft.Log {
	c := *l
	c.Data, c.Extensions = bytes.Clone(l.Data), bytes.Clone(l.Extensions)
	return c
}
