package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// watermarkKey has the watermark of a log in raft.db: the last index of the log (8 bytes) and the
// commit index (8), as of its write.
var watermarkKey = []byte("lockkeeper/watermark")

// markAfter is the delay of the watermark after a write.
const markAfter = time.Second

// boltLog is raft-boltdb's log in raft.db, with a checksum for each entry and a watermark. The
// checksum is in front of raft.Log.Extensions, the field that raft keeps for middleware; reading an
// entry removes it.
//
// The watermark is written a second after a write at the latest, in a transaction of its own.
// Entries up to it must be in the log or in a snapshot at a start.
type boltLog struct {
	*boltFile
	committed uint64        // the commit index as of when the log was opened
	known     atomic.Uint64 // the newest one, see SetCommitIndex

	// Lock: mu is held for each write.
	mu     sync.Mutex
	mark   uint64      // the last entry of the watermark
	timer  *time.Timer // runs while there are entries behind the watermark
	broken error       // why the watermark could not be written
	failed chan error  // capacity 1; see Failed
	closed bool
}

var _ entryLog = (*boltLog)(nil)

func openBoltLog(f *boltFile) (*boltLog, error) {
	l := &boltLog{boltFile: f, failed: make(chan error, 1)}
	b, err := f.value(watermarkKey)
	if err == nil && len(b) == 16 {
		l.mark, l.committed = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	}
	return l, err
}

// FirstIndex implements raft.LogStore.
func (l *boltLog) FirstIndex() (uint64, error) { return l.db.FirstIndex() }

// LastIndex implements raft.LogStore.
func (l *boltLog) LastIndex() (uint64, error) { return l.db.LastIndex() }

// HighestIndex is the highest index of an entry that the log has had, as of the watermark. The
// entry must be in the log, or in a snapshot.
func (l *boltLog) HighestIndex() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mark
}

// SetCommitIndex implements Log. The index is written with the watermark.
func (l *boltLog) SetCommitIndex(index uint64) { l.known.Store(index) }

// CommitIndex implements Log.
func (l *boltLog) CommitIndex() uint64 { return l.committed }

func (l *boltLog) commitIndexNow() uint64 { return max(l.committed, l.known.Load()) }

// Failed implements Log.
func (l *boltLog) Failed() <-chan error { return l.failed }

// GetLog implements raft.LogStore.
func (l *boltLog) GetLog(index uint64, entry *raft.Log) error {
	var e raft.Log
	if err := l.db.GetLog(index, &e); err != nil {
		return err
	}
	if err := checkExtension(index, &e); err != nil {
		return fmt.Errorf("quorum: %s is damaged: %w", l.path, err)
	}
	e.Extensions = slices.Clip(e.Extensions[valueSumLen:])
	*entry = e
	return nil
}

// extend returns the entry with its checksum in front of its extensions. The entry itself is shared
// with others and is not changed.
func extend(entry *raft.Log) *raft.Log {
	e := *entry
	e.Extensions = append(binary.BigEndian.AppendUint32(nil, entryFieldsSum(entry)), entry.Extensions...)
	return &e
}

// checkExtension verifies an entry that extend has made.
func checkExtension(index uint64, e *raft.Log) error {
	if e.Index != index || len(e.Extensions) < valueSumLen {
		return fmt.Errorf("entry %d: %w", index, errTooShort)
	}
	bare := *e
	bare.Extensions = e.Extensions[valueSumLen:]
	if binary.BigEndian.Uint32(e.Extensions) != entryFieldsSum(&bare) {
		return fmt.Errorf("entry %d: %w", index, errChecksum)
	}
	return nil
}

// entryFieldsSum is the checksum of index, term, type, time, data and extensions of an entry.
func entryFieldsSum(e *raft.Log) uint32 {
	var b [33]byte
	binary.BigEndian.PutUint64(b[:], e.Index)
	binary.BigEndian.PutUint64(b[8:], e.Term)
	binary.BigEndian.PutUint64(b[16:], appendedNs(e))
	binary.BigEndian.PutUint64(b[24:], uint64(len(e.Data)))
	b[32] = byte(e.Type)
	sum := crc32.Update(crc32.Checksum(b[:], castagnoli), castagnoli, e.Data)
	return crc32.Update(sum, castagnoli, e.Extensions)
}

// StoreLog implements raft.LogStore.
func (l *boltLog) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

// StoreLogs implements raft.LogStore. The entries are on the disk when it returns.
func (l *boltLog) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil {
		return l.broken
	}
	last, err := l.LastIndex()
	if err != nil {
		return err
	}
	if from := logs[0].Index; last > 0 && from > last+1 {
		// raft leaves a hole where a snapshot from the leader has replaced all that is
		// here.
		if err := l.deleteLocked(0, last); err != nil {
			return err
		}
		last = 0
	}
	extended := make([]*raft.Log, len(logs))
	for i, e := range logs {
		if last > 0 && e.Index != last+1 {
			return fmt.Errorf("quorum: entry %d written behind entry %d", e.Index, last)
		}
		extended[i], last = extend(e), e.Index
	}
	if err := l.db.StoreLogs(extended); err != nil {
		return err
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(markAfter, l.markNow)
	}
	return nil
}

// deleteStep is the highest number of entries that one transaction deletes from the beginning of
// the log: all of some hundred MB would delay the next write by seconds.
const deleteStep = 1000

// DeleteRange implements raft.LogStore. It takes entries off one end of the log.
func (l *boltLog) DeleteRange(lo, hi uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, last, err := Bounds(l)
	if err != nil {
		return err
	}
	lo, hi = max(lo, first), min(hi, last)
	switch {
	case first == 0 || lo > hi:
		return nil
	case lo == first && (hi < last || lo <= l.commitIndexNow()):
		return l.deleteLocked(lo, hi)
	case hi < last:
		return fmt.Errorf("quorum: entries %d to %d are in the middle of the log", lo, hi)
	}
	if committed := l.commitIndexNow(); lo <= committed {
		return fmt.Errorf("quorum: entries from %d are to be replaced, and those up to %d are committed", lo, committed)
	}
	if l.mark >= lo {
		if err := l.setMarkLocked(lo - 1); err != nil {
			return err
		}
	}
	return l.db.DeleteRange(lo, hi) // in one transaction: a crash between two would leave a gap
}

func (l *boltLog) deleteLocked(lo, hi uint64) error {
	if first, err := l.FirstIndex(); err != nil {
		return err
	} else if first > lo {
		lo = first
	}
	for ; lo <= hi; lo += deleteStep {
		if err := l.db.DeleteRange(lo, min(hi, lo+deleteStep-1)); err != nil {
			return err
		}
	}
	return nil
}

// setMarkLocked writes the watermark. Entries up to last must be on the disk.
func (l *boltLog) setMarkLocked(last uint64) error {
	b := binary.BigEndian.AppendUint64(nil, last)
	b = binary.BigEndian.AppendUint64(b, l.commitIndexNow())
	if err := l.Set(watermarkKey, b); err != nil {
		return err
	}
	l.mark = last
	return nil
}

// markNow writes the watermark a while after a write.
func (l *boltLog) markNow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = nil
	if l.closed || l.broken != nil {
		return
	}
	if l.broken = l.markLastLocked(); l.broken != nil {
		l.failed <- l.broken
	}
}

// markLastLocked writes the watermark with the entry that is the last one now.
func (l *boltLog) markLastLocked() error {
	last, err := l.LastIndex()
	if err == nil && last == 0 {
		last = l.mark // all entries are in a snapshot
	}
	if err != nil {
		return err
	}
	return l.setMarkLocked(last)
}

// stop writes the watermark and leaves the file open.
func (l *boltLog) stop() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
	}
	if l.broken != nil {
		return l.broken
	}
	return l.markLastLocked()
}

// appendedNs is when the leader appended an entry, in nanoseconds since 1970; 0 if it has not said.
func appendedNs(l *raft.Log) uint64 {
	if l.AppendedAt.IsZero() {
		return 0
	}
	return uint64(l.AppendedAt.UnixNano())
}

// Close writes the watermark and closes the file.
func (l *boltLog) Close() error { return errors.Join(l.stop(), l.boltFile.Close()) }
