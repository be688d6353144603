package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// segmentLogDir holds the segments, in the log directory.
	segmentLogDir = "raft.wal"
	// segmentBytes is the length of a segment, unless one batch needs more.
	segmentBytes = 4 << 20
	// markAfter is how long a batch may be the newest one, or be followed by others, before a mark says that it is there.
	markAfter = time.Second
	// bufBytes is the largest buffer that is kept for the next write.
	bufBytes = 1 << 20
)

// segmentLog is a member's log in segments (segment.go), beside a log file that has the rest: the term, the vote,
// and which segments there must be. Whatever changes the log is one batch, appended and synced once.
type segmentLog struct {
	dir          string
	segmentBytes int64                    // of a segment, unless one batch needs more
	note         func(segmentsNote) error // has it on the disk that this much is there
	applied      uint64                   // as of when it was opened
	known        atomic.Uint64            // see SetApplied
	files        descriptorWaits

	// Lock: writing is for one write at a time; mu is taken under it, to publish what has been written.
	writing sync.Mutex
	// broken is why nothing can be written any more: what a write that failed has left is unknown.
	broken error
	end    int64  // of the batches in the tail
	sum    uint32 // of the last one
	mark   mark   // the newest one of the tail
	marked time.Time
	buf    []byte
	idle   *time.Timer // runs while there are batches without a mark

	mu          sync.RWMutex
	segments    []*segment // the last one is the tail; none when closed
	places      []place    // of the entries, in the order of their indexes
	first, last uint64     // the entries that are there; none when first > last
}

// place is where an entry's record stands.
type place struct {
	seg        *segment
	at, length uint32
}

var (
	_ raft.LogStore  = (*segmentLog)(nil)
	_ appliedTracker = (*segmentLog)(nil)

	errLogClosed = errors.New("quorum: the log is closed")
)

// newSegmentLog begins a log with its first segment, of h.size bytes, as the later ones.
func newSegmentLog(dir string, h segmentHead, note func(segmentsNote) error) (*segmentLog, error) {
	s, err := createSegment(dir, h)
	if err != nil {
		return nil, err
	}
	l := &segmentLog{dir: dir, segmentBytes: h.size, note: note, applied: h.applied,
		segments: []*segment{s}, first: h.first, last: h.last}
	l.continueIn(segmentStart, s.sum(), firstMark)
	return l, nil
}

// FirstIndex implements raft.LogStore.
func (l *segmentLog) FirstIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.first > l.last {
		return 0, nil
	}
	return l.first, nil
}

// LastIndex implements raft.LogStore.
func (l *segmentLog) LastIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.first > l.last {
		return 0, nil
	}
	return l.last, nil
}

// promised is an entry that has been in the log, so it must be there now, or in a snapshot.
func (l *segmentLog) promised() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return max(l.last, l.first-1)
}

// SetApplied takes note that the entries up to index are committed. It is written with the next other write.
func (l *segmentLog) SetApplied(index uint64) { l.known.Store(index) }

// Applied is an index up to which the entries are known to be committed, as of when the log was opened.
func (l *segmentLog) Applied() uint64 { return l.applied }

// GetLog implements raft.LogStore.
func (l *segmentLog) GetLog(index uint64, entry *raft.Log) error {
	l.mu.RLock()
	defer l.mu.RUnlock() // so long, the segment is not removed
	if len(l.segments) == 0 {
		return errLogClosed
	}
	if index < l.first || index > l.last {
		return raft.ErrLogNotFound
	}
	p := l.places[index-l.first]
	record := make([]byte, p.length)
	if _, err := p.seg.f.ReadAt(record, int64(p.at)); err != nil {
		return fmt.Errorf("quorum: read entry %d: %w", index, err)
	}
	if err := takeEntryRecord(index, record, entry); err != nil {
		return fmt.Errorf("quorum: %s is damaged: %w", p.seg.path, err)
	}
	return nil
}

// StoreLog implements raft.LogStore.
func (l *segmentLog) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

// StoreLogs implements raft.LogStore. The entries are on the disk when it returns.
func (l *segmentLog) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	from := logs[0].Index
	for i, e := range logs {
		if e.Index != from+uint64(i) {
			return fmt.Errorf("quorum: entry %d written behind entry %d", e.Index, from+uint64(i)-1)
		}
	}
	if from <= l.last {
		return fmt.Errorf("quorum: entry %d written behind entry %d", from, l.last)
	}
	if from != l.last+1 {
		// raft leaves a hole where a snapshot from the leader has replaced all that is here.
		if err := l.commit(batchReset, from); err != nil {
			return err
		}
		l.publish(nil, from, from-1)
		if err := l.removeUnneeded(); err != nil {
			return err
		}
	}
	l.begin()
	added := make([]place, len(logs))
	for i, e := range logs {
		l.buf = append(l.buf, 0, 0, 0, 0)
		at := len(l.buf)
		l.buf = appendEntryRecord(l.buf, e)
		length := uint32(len(l.buf) - at)
		binary.BigEndian.PutUint32(l.buf[at-4:], length)
		added[i] = place{at: uint32(at), length: length}
	}
	start, err := l.commitBuf(batchEntries, from)
	if err != nil {
		return err
	}
	tail := l.tail()
	for i := range added {
		added[i].seg, added[i].at = tail, added[i].at+uint32(start)
	}
	l.publish(append(l.places, added...), l.first, logs[len(logs)-1].Index)
	return nil
}

// DeleteRange implements raft.LogStore. It takes entries off one end of the log.
func (l *segmentLog) DeleteRange(lo, hi uint64) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	lo, hi = max(lo, l.first), min(hi, l.last)
	switch {
	case lo > hi:
		return nil
	case lo == l.first:
		if err := l.commit(batchFirst, hi+1); err != nil {
			return err
		}
		// A copy, so that what is gone takes no memory; the old one is left to those who read.
		l.publish(slices.Clone(l.places[hi+1-l.first:]), hi+1, l.last)
		return l.removeUnneeded()
	case hi == l.last:
		if applied := l.appliedNow(); lo <= applied {
			return fmt.Errorf("quorum: entries from %d are to be replaced, and those up to %d are committed", lo, applied)
		}
		if err := l.commit(batchCut, lo); err != nil {
			return err
		}
		l.publish(slices.Clone(l.places[:lo-l.first]), l.first, lo-1)
		return nil
	}
	return fmt.Errorf("quorum: entries %d to %d are in the middle of the log", lo, hi)
}

func (l *segmentLog) appliedNow() uint64 { return max(l.applied, l.known.Load()) }

// publish makes visible what has been written.
func (l *segmentLog) publish(places []place, first, last uint64) {
	l.mu.Lock()
	l.places, l.first, l.last = places, first, last
	l.mu.Unlock()
}

// tail is the segment that is written to. Lock: writing.
func (l *segmentLog) tail() *segment { return l.segments[len(l.segments)-1] }

// begin begins a batch in buf.
func (l *segmentLog) begin() { l.buf = append(l.buf[:0], make([]byte, batchHeadLen)...) }

// commit writes a batch without a payload.
func (l *segmentLog) commit(kind batchKind, index uint64) error {
	l.begin()
	_, err := l.commitBuf(kind, index)
	return err
}

// commitBuf writes the batch that stands in buf, syncs it, and returns where it stands. After an error nothing more is
// written. Lock: writing.
func (l *segmentLog) commitBuf(kind batchKind, index uint64) (at int64, err error) {
	if len(l.segments) == 0 {
		return 0, errLogClosed
	}
	if l.broken != nil {
		return 0, fmt.Errorf("quorum: an earlier write to the log has failed: %w", l.broken)
	}
	b := l.buf
	if cap(b) > bufBytes {
		l.buf = nil
	}
	at, l.broken = l.appendBatch(b, kind, index)
	return at, l.broken
}

func (l *segmentLog) appendBatch(b []byte, kind batchKind, index uint64) (at int64, err error) {
	need := batchBytes(len(b) - batchHeadLen)
	if l.end+need > l.tail().size {
		if err := l.rotate(need); err != nil {
			return 0, err
		}
	}
	tail := l.tail()
	b, sum := tail.sealBatch(b, l.end, kind, index, l.appliedNow())
	if time.Since(l.marked) >= markAfter {
		if err := l.writeMark(); err != nil {
			return 0, err
		}
	}
	if err := tail.append(b, l.end); err != nil {
		return 0, err
	}
	at = l.end
	l.end, l.sum = at+need, sum
	l.markLater()
	return at, nil
}

// rotate begins a new segment. Lock: writing.
func (l *segmentLog) rotate(need int64) error {
	old := l.tail()
	h := segmentHead{log: old.log, number: old.number + 1, first: l.first, last: l.last, applied: l.appliedNow(),
		prevEnd: l.end, prevSum: l.sum, size: max(l.segmentBytes, segmentStart+need)}
	var next *segment
	err := l.files.retry(func() (err error) {
		next, err = createSegment(l.dir, h)
		return err
	})
	if err != nil {
		// Whatever it was that failed, nothing that matters can be in it.
		return &fs.PathError{Op: opPreallocate, Path: segmentPath(l.dir, h.number), Err: err}
	}
	// From here on it is an error if the segment is not there, and only now something that would be missed gets into it.
	if err := l.note(segmentsNote{log: h.log, newest: h.number, end: segmentStart}); err != nil {
		_ = next.f.Close()
		return err
	}
	l.mu.Lock()
	l.segments = append(l.segments, next)
	l.mu.Unlock()
	l.continueIn(segmentStart, next.sum(), firstMark)
	return nil
}

// noted is what is to be noted of the segments as they are. Lock: writing.
func (l *segmentLog) noted() segmentsNote {
	return segmentsNote{log: l.tail().log, newest: l.tail().number, end: l.end}
}

// continueIn says where the tail goes on.
func (l *segmentLog) continueIn(end int64, sum uint32, m mark) {
	l.end, l.sum, l.mark, l.marked = end, sum, m, time.Now()
}

// writeMark writes that all batches are on the disk, which they are, if the newest mark does not say so. Lock: writing.
func (l *segmentLog) writeMark() error {
	if l.mark.end == l.end {
		return nil
	}
	m := mark{number: l.mark.number + 1, end: l.end}
	if err := l.tail().write(l.tail().encodeMark(m), m.place()); err != nil {
		return err
	}
	l.mark, l.marked = m, time.Now()
	return nil
}

// markLater sees to it that the newest batch gets its mark if no other one follows it. Lock: writing.
func (l *segmentLog) markLater() {
	if l.idle == nil {
		l.idle = time.AfterFunc(markAfter, l.markIdle)
	}
}

// markIdle writes a mark, a while after a batch that nothing has followed since.
func (l *segmentLog) markIdle() {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.idle = nil
	if len(l.segments) == 0 || l.broken != nil || l.mark.end == l.end {
		return
	}
	if time.Since(l.marked) < markAfter {
		l.markLater() // writes have marked those before them
		return
	}
	l.broken = l.writeMark()
}

// removeUnneeded removes the segments that hold nothing any more. Lock: writing.
func (l *segmentLog) removeUnneeded() error {
	l.mu.Lock()
	needed := l.tail()
	if len(l.places) > 0 {
		needed = l.places[0].seg
	}
	n := slices.Index(l.segments, needed)
	gone := slices.Clone(l.segments[:n])
	l.segments = slices.Clone(l.segments[n:])
	l.mu.Unlock()
	for _, s := range gone {
		if err := errors.Join(s.f.Close(), os.Remove(s.path)); err != nil {
			l.broken = err
			return fmt.Errorf("quorum: remove %s, which is not needed any more: %w", s.path, err)
		}
	}
	return nil // no sync: one that comes back after a power cut is removed at the next start
}

// Close writes what a start without a leader can go by, and how far the log goes, and closes all files.
func (l *segmentLog) Close() error {
	l.writing.Lock()
	defer l.writing.Unlock()
	if len(l.segments) == 0 {
		return nil
	}
	var err error
	if l.broken == nil {
		if l.known.Load() > l.applied {
			err = l.commit(batchFirst, l.first) // removes nothing
		}
		if err == nil { // better than a mark: it is not in the file that it is about
			err = l.note(l.noted())
		}
	}
	if l.idle != nil {
		l.idle.Stop()
	}
	l.mu.Lock()
	closing := l.segments
	l.segments, l.places = nil, nil
	l.mu.Unlock()
	for _, s := range closing {
		err = errors.Join(err, s.f.Close())
	}
	return err
}
