package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/codec"
)

const (
	// DefaultSegmentBytes is the length of a segment, unless one batch needs more.
	DefaultSegmentBytes = 4 << 20
	// watermarkAfter is the age at which a batch gets a watermark.
	watermarkAfter = time.Second
	// bufBytes is the largest buffer that is kept for the next write.
	bufBytes = 1 << 20
)

var (
	// ErrNoSegment says that the next segment could not be created. The log is as it was, and
	// takes no more entries until it is opened again.
	ErrNoSegment = errors.New("the next segment cannot be created")
	// ErrClosed says that the log is closed.
	ErrClosed = errors.New("wal: the log is closed")
)

// Options say where a log is kept.
type Options struct {
	Dir          string // holds the segments, and nothing else
	FS           FS
	SegmentBytes int64 // of a segment, unless one batch needs more; 0: DefaultSegmentBytes
	// Save makes a manifest durable, in place of the one before. It is called by Create, by
	// writes that begin a segment, and by Close.
	Save func(Manifest) error
}

// Manifest says which segments there must be. It is kept outside of the log's directory, so that a
// segment that is lost is missed.
type Manifest struct {
	Log    uint64 // the log's random id, which each of its segments has
	Newest uint64 // the number of the last segment
	End    int64  // up to here the last segment was durable when the manifest was saved
}

func (m *Manifest) code(c *codec.Codec) {
	c.U64(&m.Log, &m.Newest)
	codec.I64(c, &m.End)
}

// Append encodes a manifest: three numbers of 8 bytes, big-endian.
func (m Manifest) Append(b []byte) []byte {
	c := codec.Encode(b)
	m.code(&c)
	return c.Encoded()
}

// DecodeManifest decodes a Manifest; false if b is none.
func DecodeManifest(b []byte) (m Manifest, ok bool) {
	c := codec.Decode(b)
	m.code(&c)
	return m, c.Err() == nil
}

// Log is a log in segments (segment.go). Whatever changes it is one batch, which is appended and
// synced once. Reads and writes may be called from any goroutine.
type Log struct {
	Options
	committed uint64        // the commit index as of when the log was opened
	known     atomic.Uint64 // the newest one, see SetCommitIndex

	// Lock: writing holds a token for the time of one write; mu is taken under it, to publish
	// the write. It is a channel, because waiting for a mutex stops the virtual time of a test.
	writing chan struct{}
	// broken is the error of a failed write, after which nothing is written: the content of the
	// disk is unknown.
	broken error
	failed chan error // capacity 1; see Failed
	end    int64      // of the batches in the last segment
	sum    uint32     // of the last batch
	mark   watermark  // the newest one of the last segment
	marked time.Time
	buf    []byte
	idle   *time.Timer // runs while there are batches without a watermark

	mu          sync.RWMutex
	segments    []*segment // in the order of their numbers; none when closed
	places      []place    // of the entries, in the order of their indexes
	first, last uint64     // the entries in the log; none when first > last
}

// place is where an entry's record is.
type place struct {
	seg        *segment
	at, length uint32
}

var _ raft.LogStore = (*Log)(nil)

// newLog returns a log without segments.
func newLog(o Options) *Log {
	if o.SegmentBytes == 0 {
		o.SegmentBytes = DefaultSegmentBytes
	}
	return &Log{Options: o, writing: make(chan struct{}, 1), failed: make(chan error, 1)}
}

func (l *Log) lock()   { l.writing <- struct{}{} }
func (l *Log) unlock() { <-l.writing }

// Create begins a log with next as its first index. The entries up to committed are known to be
// committed. It counts with the manifest that Save is called with: before that there is no log.
func Create(o Options, next, committed uint64) (*Log, error) {
	l := newLog(o)
	if err := o.FS.MkdirAll(o.Dir); err != nil {
		return nil, err
	}
	h := segmentHead{log: rand.Uint64(), number: 1, first: next, last: next - 1, committed: committed,
		size: l.SegmentBytes}
	s, err := createSegment(o.FS, o.Dir, h)
	if err != nil {
		return nil, err
	}
	l.committed, l.segments, l.first, l.last = committed, []*segment{s}, h.first, h.last
	l.continueAt(segmentStart, s.sum(), firstWatermark)
	if err := l.Save(l.manifest()); err != nil {
		return nil, errors.Join(err, s.f.Close())
	}
	return l, nil
}

// FirstIndex implements raft.LogStore.
func (l *Log) FirstIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.first > l.last {
		return 0, nil
	}
	return l.first, nil
}

// LastIndex implements raft.LogStore.
func (l *Log) LastIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.first > l.last {
		return 0, nil
	}
	return l.last, nil
}

// HighestIndex is the highest index of an entry that the log has had, 0 for none. The entry must be
// in the log, or in a snapshot.
func (l *Log) HighestIndex() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return max(l.last, l.first-1)
}

// SetCommitIndex records that the entries up to index are committed. It becomes durable with the
// next other write.
func (l *Log) SetCommitIndex(index uint64) { l.known.Store(index) }

// CommitIndex is an index up to which the entries were known to be committed when the log was
// opened.
func (l *Log) CommitIndex() uint64 { return l.committed }

// Failed has the error of a write of a watermark, which no caller waits for. Nothing more can be
// written then.
func (l *Log) Failed() <-chan error { return l.failed }

// GetLog implements raft.LogStore.
func (l *Log) GetLog(index uint64, entry *raft.Log) error {
	l.mu.RLock()
	defer l.mu.RUnlock() // until then the segment is not removed
	if len(l.segments) == 0 {
		return ErrClosed
	}
	if index < l.first || index > l.last {
		return raft.ErrLogNotFound
	}
	p := l.places[index-l.first]
	record := make([]byte, p.length)
	if _, err := p.seg.f.ReadAt(record, int64(p.at)); err != nil {
		return fmt.Errorf("wal: read entry %d: %w", index, err)
	}
	if err := decodeRecord(index, record, entry); err != nil {
		return fmt.Errorf("wal: %s is damaged: %w", p.seg.path, err)
	}
	return nil
}

// StoreLog implements raft.LogStore.
func (l *Log) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

// StoreLogs implements raft.LogStore. The entries are durable when it returns. After an error
// nothing more can be written; ErrNoSegment: and nothing was.
func (l *Log) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	l.lock()
	defer l.unlock()
	from := logs[0].Index
	for i, e := range logs {
		if e.Index != from+uint64(i) {
			return fmt.Errorf("wal: entry %d written behind entry %d", e.Index, from+uint64(i)-1)
		}
	}
	if from <= l.last {
		return fmt.Errorf("wal: entry %d written behind entry %d", from, l.last)
	}
	if from != l.last+1 {
		// raft leaves a gap where a snapshot from the leader has replaced the whole log.
		if err := l.commit(batchReset, from); err != nil {
			return err
		}
		l.publish(nil, from, from-1)
		if err := l.remove(l.takeUnneeded()); err != nil {
			l.broken = err
			return err
		}
	}
	l.begin()
	added := make([]place, len(logs))
	for i, e := range logs {
		l.buf = append(l.buf, 0, 0, 0, 0)
		at := len(l.buf)
		l.buf = appendRecord(l.buf, e)
		length := uint32(len(l.buf) - at)
		binary.BigEndian.PutUint32(l.buf[at-4:], length)
		added[i] = place{at: uint32(at), length: length}
	}
	start, err := l.commitBuf(batchEntries, from)
	if err != nil {
		return err
	}
	s := l.lastSegment()
	for i := range added {
		added[i].seg, added[i].at = s, added[i].at+uint32(start)
	}
	l.publish(append(l.places, added...), l.first, logs[len(logs)-1].Index)
	return nil
}

// DeleteRange implements raft.LogStore. It removes entries from one end of the log: committed ones
// that a snapshot has from the front, and others, which a leader's entries are to replace, from the
// back. Entries that are known to be committed are not removed from the back.
func (l *Log) DeleteRange(lo, hi uint64) error {
	unneeded, err := l.deleteRange(lo, hi)
	if err != nil {
		return err
	}
	// Lock: writing is not held: to remove the segments of 256 MB takes some 90 ms, for which no
	// write would get through.
	if err := l.remove(unneeded); err != nil {
		l.lock()
		defer l.unlock()
		l.broken = err
		return err
	}
	return nil
}

// deleteRange does what DeleteRange says, except that it returns the segments that are to be
// removed.
func (l *Log) deleteRange(lo, hi uint64) (unneeded []*segment, err error) {
	l.lock()
	defer l.unlock()
	lo, hi = max(lo, l.first), min(hi, l.last)
	switch {
	case lo > hi:
		return nil, nil
	case lo == l.first && (hi < l.last || lo <= l.commitIndexNow()):
		if err := l.commit(batchFirst, hi+1); err != nil {
			return nil, err
		}
		// A copy frees the memory of the removed entries; readers have the old slice.
		l.publish(slices.Clone(l.places[hi+1-l.first:]), hi+1, l.last)
		return l.takeUnneeded(), nil
	case hi == l.last:
		if committed := l.commitIndexNow(); lo <= committed {
			return nil, fmt.Errorf("wal: entries from %d are to be replaced, and those up to %d are committed", lo,
				committed)
		}
		if err := l.commit(batchCut, lo); err != nil {
			return nil, err
		}
		l.publish(slices.Clone(l.places[:lo-l.first]), l.first, lo-1)
		return nil, nil
	}
	return nil, fmt.Errorf("wal: entries %d to %d are in the middle of the log", lo, hi)
}

func (l *Log) commitIndexNow() uint64 { return max(l.committed, l.known.Load()) }

// publish makes a write visible to readers.
func (l *Log) publish(places []place, first, last uint64) {
	l.mu.Lock()
	l.places, l.first, l.last = places, first, last
	l.mu.Unlock()
}

// lastSegment is the segment that is written to. Lock: writing.
func (l *Log) lastSegment() *segment { return l.segments[len(l.segments)-1] }

// manifest describes the present segments. Lock: writing.
func (l *Log) manifest() Manifest {
	s := l.lastSegment()
	return Manifest{Log: s.log, Newest: s.number, End: l.end}
}

// begin begins a batch in buf.
func (l *Log) begin() { l.buf = append(l.buf[:0], make([]byte, batchHeadLen)...) }

// commit writes a batch without a payload. Lock: writing.
func (l *Log) commit(kind batchKind, index uint64) error {
	l.begin()
	_, err := l.commitBuf(kind, index)
	return err
}

// commitBuf writes the batch in buf, syncs it, and returns its offset. After an error nothing more
// is written. Lock: writing.
func (l *Log) commitBuf(kind batchKind, index uint64) (at int64, err error) {
	if len(l.segments) == 0 {
		return 0, ErrClosed
	}
	if l.broken != nil {
		return 0, fmt.Errorf("wal: an earlier write has failed: %w", l.broken)
	}
	b := l.buf
	if cap(b) > bufBytes {
		l.buf = nil
	}
	at, l.broken = l.appendBatch(b, kind, index)
	return at, l.broken
}

func (l *Log) appendBatch(b []byte, kind batchKind, index uint64) (at int64, err error) {
	need := batchBytes(len(b) - batchHeadLen)
	if l.end+need > l.lastSegment().size {
		if err := l.rotate(need); err != nil {
			return 0, err
		}
	}
	s := l.lastSegment()
	b, sum := s.sealBatch(b, l.end, kind, index, l.commitIndexNow())
	if time.Since(l.marked) >= watermarkAfter {
		if err := l.writeWatermark(); err != nil {
			return 0, err
		}
	}
	if err := s.append(b, l.end); err != nil {
		return 0, err
	}
	at = l.end
	l.end, l.sum = at+need, sum
	l.watermarkLater()
	return at, nil
}

// rotate begins a new segment. Lock: writing.
func (l *Log) rotate(need int64) error {
	old := l.lastSegment()
	h := segmentHead{log: old.log, number: old.number + 1, first: l.first, last: l.last, committed: l.commitIndexNow(),
		prevEnd: l.end, prevSum: l.sum, size: max(l.SegmentBytes, segmentStart+need)}
	next, err := createSegment(l.FS, l.Dir, h)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrNoSegment, segmentPath(l.Dir, h.number), err)
	}
	// From here on a start without the segment is refused, and only then a batch is written to
	// it.
	if err := l.Save(Manifest{Log: h.log, Newest: h.number, End: segmentStart}); err != nil {
		_ = next.f.Close()
		return err
	}
	l.mu.Lock()
	l.segments = append(l.segments, next)
	l.mu.Unlock()
	l.continueAt(segmentStart, next.sum(), firstWatermark)
	return nil
}

// continueAt sets where the next batch in the last segment will be.
func (l *Log) continueAt(end int64, sum uint32, m watermark) {
	l.end, l.sum, l.mark, l.marked = end, sum, m, time.Now()
}

// writeWatermark writes that all batches are durable, which they are, unless the newest watermark
// says so. It is synced with the next batch. Lock: writing.
func (l *Log) writeWatermark() error {
	if l.mark.end == l.end {
		return nil
	}
	m := watermark{number: l.mark.number + 1, end: l.end}
	if err := l.lastSegment().writeWatermark(m); err != nil {
		return err
	}
	l.mark, l.marked = m, time.Now()
	return nil
}

// watermarkLater has the newest batch get its watermark if no other batch follows it. Lock:
// writing.
func (l *Log) watermarkLater() {
	if l.idle == nil {
		l.idle = time.AfterFunc(watermarkAfter, l.watermarkIdle)
	}
}

// watermarkIdle writes a watermark, some time after a batch that no other one has followed.
func (l *Log) watermarkIdle() {
	l.lock()
	defer l.unlock()
	if err := l.syncWatermark(); err != nil {
		l.failed <- err // once: the log is broken
	}
}

// syncWatermark writes and syncs a watermark, if the log is open and needs one. Lock: writing.
func (l *Log) syncWatermark() error {
	l.idle = nil
	if len(l.segments) == 0 || l.broken != nil || l.mark.end == l.end {
		return nil
	}
	if time.Since(l.marked) < watermarkAfter {
		l.watermarkLater() // the batches that followed have written one
		return nil
	}
	if l.broken = l.writeWatermark(); l.broken == nil {
		l.broken = l.lastSegment().f.Sync()
	}
	return l.broken
}

// takeUnneeded takes the segments that hold no entry of the log out of it. Lock: writing.
func (l *Log) takeUnneeded() []*segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	needed := l.lastSegment()
	if len(l.places) > 0 {
		needed = l.places[0].seg
	}
	n := slices.Index(l.segments, needed)
	unneeded := slices.Clone(l.segments[:n])
	l.segments = slices.Clone(l.segments[n:])
	return unneeded
}

// remove removes segments that are no longer in the log, so no goroutine reads them.
func (l *Log) remove(unneeded []*segment) error {
	for _, s := range unneeded {
		if err := errors.Join(s.f.Close(), l.FS.Remove(s.path)); err != nil {
			return fmt.Errorf("wal: remove %s, which is not needed any more: %w", s.path, err)
		}
	}
	// No SyncDir: a segment that is there again after a crash is removed at the next start.
	return nil
}

// Close saves how far the log was committed and where it ends, and closes all files.
func (l *Log) Close() error {
	l.lock()
	defer l.unlock()
	if len(l.segments) == 0 {
		return nil
	}
	var err error
	if l.broken == nil {
		if l.known.Load() > l.committed {
			err = l.commit(batchFirst, l.first) // removes nothing
		}
		if err == nil { // instead of a watermark: damage to the file does not reach it
			err = l.Save(l.manifest())
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
