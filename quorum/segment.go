package quorum

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// A segment is one file of a log in segments (segmentlog.go). It is as long from the beginning as it will ever be, all
// zeros, and then written from the front to the back, a batch at a time; nothing in it is ever changed. Numbers are
// big-endian, checksums CRC-32C.
//
//	0        512      1024     1536       4096
//	+--------+--------+--------+----------+---------+---------+- - -+-------------+
//	| head   | mark   | mark   | zeros    | batch   | batch   |     | zeros       |
//	+--------+--------+--------+----------+---------+---------+- - -+-------------+
//
// Head: what the log was when the segment was begun, so that segments can be removed from the front, and where the
// segment before this one ends, with the checksum of its last batch:
//
//	 0      4       8        12         16    24       32      40     48        56         64     72
//	+------+-------+--------+----------+-----+--------+-------+------+---------+----------+------+
//	|"LKWL"| crc32 | format | previous | log | number | first | last | applied | previous | size |
//	|      |       |        | sum      | id  |        |       |      |         | end      |      |
//	+------+-------+--------+----------+-----+--------+-------+------+---------+----------+------+
//
// Batch: what was written and synced at once. It begins at a multiple of its head's length, so that the head stands
// in one sector. The checksum of the head covers where it stands too: the log, the segment, the offset.
//
//	 0       4          8        12     13      16      24        32
//	+-------+----------+--------+------+-------+-------+---------+---------+--------------+
//	| crc32 | crc32 of | length | kind | blank | index | applied | payload | zeros to a   |
//	|       | payload  |        |      | sectors       |         |         | multiple of 32
//	+-------+----------+--------+------+-------+-------+---------+---------+--------------+
//
// The payload of entries is, for each, its length (4) and its record (logrecord.go).
//
// Mark: up to where batches are on the disk for certain. Mark n stands in the place n mod 2. A segment begins with marks 1 and
// 2, so that a mark that is lost is missed.
//
//	 0       4   8        16    24
//	+-------+---+--------+-----+
//	| crc32 | 0 | number | end |
//	+-------+---+--------+-----+
const (
	segmentMagic   = "LKWL"
	segmentFormat  = 1
	segmentHeadLen = 72
	segmentStart   = 4096 // where batches begin
	sectorBytes    = 512  // what disks write wholly or not at all
	batchHeadLen   = 32
	markLen        = 24
	segmentSuffix  = ".log"
)

// batchKind is what a batch does to the log.
type batchKind byte

const (
	batchEntries batchKind = 1 + iota // appends entries, the first of them with the batch's index
	batchCut                          // removes the entries from index on
	batchFirst                        // removes the entries before index
	batchReset                        // removes all entries; the next one is index
	batchKinds
)

type segmentHead struct {
	log, number          uint64
	first, last, applied uint64
	prevEnd              int64
	prevSum              uint32
	size                 int64
}

func (h *segmentHead) append(b []byte) []byte {
	start := len(b)
	b = append(append(b, segmentMagic...), 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, segmentFormat)
	b = binary.BigEndian.AppendUint32(b, h.prevSum)
	for _, n := range []uint64{h.log, h.number, h.first, h.last, h.applied, uint64(h.prevEnd), uint64(h.size)} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	binary.BigEndian.PutUint32(b[start+4:], crc32.Checksum(b[start+8:], castagnoli))
	return b
}

// sum is the checksum of the head.
func (h *segmentHead) sum() uint32 { return binary.BigEndian.Uint32(h.append(nil)[4:]) }

func decodeSegmentHead(b []byte) (h segmentHead, err error) {
	be := binary.BigEndian
	switch {
	case len(b) < segmentHeadLen || string(b[:4]) != segmentMagic || be.Uint32(b[4:]) != crc32.Checksum(b[8:segmentHeadLen], castagnoli):
		return h, damagedf("its head is not one")
	case be.Uint32(b[8:]) != segmentFormat:
		return h, fmt.Errorf("%w: the file has format %d, this program reads %d", ErrFormat, be.Uint32(b[8:]), segmentFormat)
	}
	return segmentHead{prevSum: be.Uint32(b[12:]), log: be.Uint64(b[16:]), number: be.Uint64(b[24:]), first: be.Uint64(b[32:]),
		last: be.Uint64(b[40:]), applied: be.Uint64(b[48:]), prevEnd: int64(be.Uint64(b[56:])), size: int64(be.Uint64(b[64:]))}, nil
}

// seed begins the checksum of what stands at an offset of the segment.
func (h *segmentHead) seed(at int64) uint32 {
	var b [24]byte
	binary.BigEndian.PutUint64(b[:], h.log)
	binary.BigEndian.PutUint64(b[8:], h.number)
	binary.BigEndian.PutUint64(b[16:], uint64(at))
	return crc32.Checksum(b[:], castagnoli)
}

// batch is the head of a batch.
type batch struct {
	kind           batchKind
	length         int // of the payload
	blank          int // sectors of the payload that are all zeros, as they were written
	index, applied uint64
	sum            uint32
}

// bytes is the room that the batch takes in the file.
func (b *batch) bytes() int64 { return batchBytes(b.length) }

func batchBytes(payload int) int64 {
	return int64(batchHeadLen+payload+batchHeadLen-1) &^ (batchHeadLen - 1)
}

// sealBatch writes the head of a batch, whose payload stands in b behind the room for it, and pads it.
func (h *segmentHead) sealBatch(b []byte, at int64, kind batchKind, index, applied uint64) (_ []byte, sum uint32) {
	be := binary.BigEndian
	be.PutUint32(b[4:], crc32.Checksum(b[batchHeadLen:], castagnoli))
	be.PutUint32(b[8:], uint32(len(b)-batchHeadLen))
	be.PutUint32(b[12:], uint32(blankSectors(b, at)))
	b[12] = byte(kind)
	be.PutUint64(b[16:], index)
	be.PutUint64(b[24:], applied)
	sum = crc32.Update(h.seed(at), castagnoli, b[4:batchHeadLen])
	be.PutUint32(b, sum)
	for range batchBytes(len(b)-batchHeadLen) - int64(len(b)) {
		b = append(b, 0)
	}
	return b, sum
}

// batchAt decodes the head of the batch at an offset, if there is one.
func (h *segmentHead) batchAt(content []byte, at int64) (b batch, ok bool) {
	if at+batchHeadLen > int64(len(content)) {
		return b, false
	}
	head := content[at : at+batchHeadLen]
	be := binary.BigEndian
	b = batch{kind: batchKind(head[12]), length: int(be.Uint32(head[8:])), blank: int(be.Uint32(head[12:]) & 0xFFFFFF),
		index: be.Uint64(head[16:]), applied: be.Uint64(head[24:]), sum: be.Uint32(head)}
	return b, b.kind > 0 && b.kind < batchKinds && b.sum == crc32.Update(h.seed(at), castagnoli, head[4:]) &&
		at+b.bytes() <= int64(len(content))
}

// whole says whether the payload of the batch at an offset is the one that was written.
func (b *batch) whole(content []byte, at int64) bool {
	payload := content[at+batchHeadLen:]
	return binary.BigEndian.Uint32(content[at+4:]) == crc32.Checksum(payload[:b.length], castagnoli) &&
		isZero(payload[b.length:b.bytes()-batchHeadLen])
}

var zeroSector [sectorBytes]byte

func isZero(b []byte) bool {
	for len(b) > sectorBytes {
		if !bytes.Equal(b[:sectorBytes], zeroSector[:]) {
			return false
		}
		b = b[sectorBytes:]
	}
	return bytes.Equal(b, zeroSector[:len(b)])
}

// blankSectors counts the sectors of what stands at an offset that hold nothing but zeros. The first one, in which there is a
// head, does not count.
func blankSectors(b []byte, at int64) (n int) {
	for from := sectorBytes - int(at%sectorBytes); from < len(b); from += sectorBytes {
		if isZero(b[from:min(from+sectorBytes, len(b))]) {
			n++
		}
	}
	return n
}

// mark is up to where the batches of a segment are on the disk.
type mark struct {
	number uint64
	end    int64
}

// firstMark is the newest mark of a segment without batches.
var firstMark = mark{number: 2, end: segmentStart}

// place is where the mark stands in the segment.
func (m mark) place() int64 { return sectorBytes * int64(1+m.number%2) }

func (h *segmentHead) encodeMark(m mark) []byte {
	b := make([]byte, 8, markLen)
	b = binary.BigEndian.AppendUint64(b, m.number)
	b = binary.BigEndian.AppendUint64(b, uint64(m.end))
	binary.BigEndian.PutUint32(b, crc32.Update(h.seed(m.place()), castagnoli, b[4:]))
	return b
}

// start is what stands before the batches of a segment that has none.
func (h *segmentHead) start() []byte {
	b := make([]byte, segmentStart)
	copy(b, h.append(nil))
	for n := range firstMark.number {
		m := mark{number: n + 1, end: segmentStart}
		copy(b[m.place():], h.encodeMark(m))
	}
	return b
}

// newestMark reads the marks of a segment. A crash leaves the newest two, or the two before: each is within a sector.
func (h *segmentHead) newestMark(content []byte) (newest mark, err error) {
	var marks [2]mark
	for i := range marks {
		b := content[sectorBytes*(1+i):][:sectorBytes]
		m := mark{number: binary.BigEndian.Uint64(b[8:]), end: int64(binary.BigEndian.Uint64(b[16:]))}
		if !bytes.Equal(b[:markLen], h.encodeMark(m)) || int(m.number%2) != i {
			return newest, damagedf("mark %d is not one", i)
		}
		marks[i] = m
	}
	older, newest := marks[0], marks[1]
	if older.number > newest.number {
		older, newest = newest, older
	}
	if newest.number != older.number+1 {
		return newest, damagedf("its marks are %d and %d: one is lost", older.number, newest.number)
	}
	return newest, nil
}

// scan goes through the batches of a segment, up to the first one that is not whole, or not there. It returns where
// that is, and the checksum of the last whole one, or of the head.
func (h *segmentHead) scan(content []byte, visit func(at int64, b batch, payload []byte) error) (end int64, sum uint32, err error) {
	sum = binary.BigEndian.Uint32(content[4:])
	for end = segmentStart; ; {
		b, ok := h.batchAt(content, end)
		if !ok || !b.whole(content, end) {
			return end, sum, nil
		}
		if err := visit(end, b, content[end+batchHeadLen:][:b.length]); err != nil {
			return end, sum, fmt.Errorf("batch at %d: %w", end, err)
		}
		sum = b.sum
		end += b.bytes()
	}
}

// tornEnd tells the trace of a crash from damage, in the last segment, whose whole batches end at end. There was one
// batch at most whose write a crash could cut short, for each is synced before the next. Of such a batch every sector is
// as it was written or as it was before, zeros. Up to synced there can be no such trace. It returns up to where such a trace reaches; 0 when there is none.
func (h *segmentHead) tornEnd(content []byte, end, synced int64) (used int64, err error) {
	if end < synced {
		return 0, damagedf("what stands at %d is not what was written; up to %d all was on the disk", end, synced)
	}
	used = int64(len(bytes.TrimRight(content, "\x00")))
	if used <= end {
		return 0, nil
	}
	for at := end + batchHeadLen; at < used; at += batchHeadLen {
		if _, ok := h.batchAt(content, at); ok {
			return 0, damagedf("what stands at %d is not what was written; at %d stands what was written later", end, at)
		}
	}
	b, ok := h.batchAt(content, end)
	if !ok {
		if !isZero(content[end:min(int64(len(content)), (end/sectorBytes+1)*sectorBytes)]) {
			return 0, damagedf("what stands at %d is not what was written, and no write that was cut short leaves that", end)
		}
		return used, nil
	}
	last := end + batchHeadLen + int64(b.length)
	if used > last || blankSectors(content[end:last], end) <= b.blank {
		return 0, damagedf("what stands at %d is not what was written, and no sector of it is missing", end)
	}
	return used, nil
}

// segment is the file of a segment.
type segment struct {
	segmentHead
	f      *os.File
	path   string
	zeroed int64 // up to here this process has written the file, with batches or zeros
}

// zerosAhead is how many bytes of zeros are written ahead of the batches. The file's room is reserved
// when it is created, but a write to a part that was only reserved has the file system note in its
// journal, with each sync, that the part is written now.
const zerosAhead = 256 << 10

// append writes b, batches, at an offset of the file and syncs it. The bytes behind b are zeros
// before and after, so a write that a crash cuts short leaves of each sector the old or the new one.
func (s *segment) append(b []byte, at int64) error {
	if end := at + int64(len(b)); end > s.zeroed {
		s.zeroed = min(end+zerosAhead, s.size)
		b = slices.Concat(b, make([]byte, s.zeroed-end))
	}
	return s.write(b, at)
}

// write writes b at an offset of the file and syncs it.
func (s *segment) write(b []byte, at int64) error {
	if _, err := s.f.WriteAt(b, at); err != nil {
		return err
	}
	return syncData(s.f)
}

func segmentPath(dir string, number uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%016d%s", number, segmentSuffix))
}

// createSegment makes a segment without batches. A crash leaves either none or a whole one, and so does an error.
func createSegment(dir string, h segmentHead) (_ *segment, err error) {
	path := segmentPath(dir, h.number)
	temp := path + newSuffix
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_TRUNC|os.O_RDWR, logFileMode)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_, _ = f.Close(), os.Remove(temp)
		}
	}()
	if err := preallocate(f, h.size); err != nil {
		return nil, err
	}
	if _, err := f.WriteAt(h.start(), 0); err != nil {
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	if err := os.Rename(temp, path); err != nil {
		return nil, err
	}
	if err := syncDir(dir); err != nil {
		return nil, err
	}
	return &segment{segmentHead: h, f: f, path: path}, nil
}

// openSegment opens a segment and reads all of it, from the disk. Errors do not name the file.
func openSegment(dir string, log, number uint64) (s *segment, content []byte, err error) {
	s = &segment{path: segmentPath(dir, number)}
	if s.f, err = os.OpenFile(s.path, os.O_RDWR, 0); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			_ = s.f.Close()
		}
	}()
	if err := dropCache(s.f); err != nil {
		return nil, nil, err
	}
	st, err := s.f.Stat()
	if err != nil {
		return nil, nil, err
	}
	content = make([]byte, st.Size())
	if _, err := io.ReadFull(s.f, content); err != nil {
		return nil, nil, err
	}
	return s, content, s.check(content, log, number)
}

// check decodes the head of a segment.
func (s *segment) check(content []byte, log, number uint64) (err error) {
	if s.segmentHead, err = decodeSegmentHead(content); err != nil {
		return err
	}
	switch {
	case s.log != log || s.number != number:
		return damagedf("it is segment %d of log %x, not %d of %x", s.number, s.log, number, log)
	case s.size != int64(len(content)) || s.size < segmentStart:
		return damagedf("the file has %d bytes of %d", len(content), s.size)
	}
	return nil
}

// zeros writes zeros over what stands in the file from one offset up to another.
func (s *segment) zeros(from, to int64) error {
	return s.write(make([]byte, to-from), from)
}

// writeZeros makes the file so long by writing it.
func writeZeros(f *os.File, size int64) error {
	b := make([]byte, 1<<20)
	for at := int64(0); at < size; at += int64(len(b)) {
		if _, err := f.WriteAt(b[:min(int64(len(b)), size-at)], at); err != nil {
			return err
		}
	}
	return nil
}
