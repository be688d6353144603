package wal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"path/filepath"
)

// A segment is one file of a log. It has its final length from the beginning, all zeros, and is
// written from the front to the back, a batch at a time; no batch is ever changed. Numbers are
// big-endian, checksums CRC-32C.
//
//	0        512         1024        1536       4096
//	+--------+-----------+-----------+----------+---------+---------+- - -+-------------+
//	| head   | watermark | watermark | zeros    | batch   | batch   |     | zeros       |
//	+--------+-----------+-----------+----------+---------+---------+- - -+-------------+
//
// Head: the first and the last entry of the log when the segment was created, so that segments can
// be removed from the front, and where the segment before this one ends, with the checksum of its
// last batch. The format is the version of all that is in the file:
//
//	 0      4       8        12         16    24       32      40     48        56         64   72
//	+------+-------+--------+----------+-----+--------+-------+------+---------+----------+------+
//	|"LKWL"| crc32 | format | previous | log | number | first | last | commit  | previous | size |
//	|      |       |        | sum      | id  |        |       |      |         | end      |      |
//	+------+-------+--------+----------+-----+--------+-------+------+---------+----------+------+
//
// Batch: the bytes of one write and fsync. It begins at a multiple of its head's length, so that
// the head is within one sector. The checksum of the head covers its place too: log, segment,
// offset.
//
//	 0       4          8        12     13      16      24        32
//	+-------+----------+--------+------+-------+-------+---------+---------+--------------+
//	| crc32 | crc32 of | length | kind | blank | index | commit  | payload | zeros to a   |
//	|       | payload  |        |      | sectors       |         |         | multiple of 32
//	+-------+----------+--------+------+-------+-------+---------+---------+--------------+
//
// The payload of a batch of entries is, for each of them, its length (4 bytes) and its record
// (record.go). Blank sectors are the sectors of the payload that were written as zeros.
//
// Watermark: an offset up to which the batches are durable. Watermark n is in place n mod 2. A
// segment begins with watermarks 1 and 2, so that one that is lost is missed.
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
	sectorBytes    = 512  // disks write a sector wholly or not at all
	batchHeadLen   = 32
	watermarkLen   = 24
	segmentSuffix  = ".log"
	// newSuffix marks a file that is being created: under its own name it is complete.
	newSuffix = ".new"
)

// batchKind is the effect of a batch on the log.
type batchKind byte

const (
	batchEntries batchKind = 1 + iota // appends entries, the first of them with the batch's index
	batchCut                          // removes the entries from index on
	batchFirst                        // removes the entries before index
	batchReset                        // removes all entries; the next one is index
	batchKinds
)

// segmentHead is the head of a segment.
type segmentHead struct {
	log, number            uint64
	first, last, committed uint64
	prevEnd                int64
	prevSum                uint32
	size                   int64
}

func (h *segmentHead) append(b []byte) []byte {
	start := len(b)
	b = append(append(b, segmentMagic...), 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, segmentFormat)
	b = binary.BigEndian.AppendUint32(b, h.prevSum)
	for _, n := range []uint64{h.log, h.number, h.first, h.last, h.committed, uint64(h.prevEnd), uint64(h.size)} {
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
	case len(b) < segmentHeadLen || string(b[:4]) != segmentMagic ||
		be.Uint32(b[4:]) != crc32.Checksum(b[8:segmentHeadLen], castagnoli):
		return h, damagedf("its head is not one")
	case be.Uint32(b[8:]) != segmentFormat:
		return h, fmt.Errorf("%w: the file has format %d, this program reads %d", ErrFormat, be.Uint32(b[8:]),
			segmentFormat)
	}
	return segmentHead{prevSum: be.Uint32(b[12:]), log: be.Uint64(b[16:]), number: be.Uint64(b[24:]),
		first: be.Uint64(b[32:]),
		last:  be.Uint64(b[40:]), committed: be.Uint64(b[48:]), prevEnd: int64(be.Uint64(b[56:])),
		size: int64(be.Uint64(b[64:]))}, nil
}

// seed begins the checksum of bytes at an offset of the segment.
func (h *segmentHead) seed(at int64) uint32 {
	var b [24]byte
	binary.BigEndian.PutUint64(b[:], h.log)
	binary.BigEndian.PutUint64(b[8:], h.number)
	binary.BigEndian.PutUint64(b[16:], uint64(at))
	return crc32.Checksum(b[:], castagnoli)
}

// batch is the head of a batch.
type batch struct {
	kind             batchKind
	length           int // of the payload
	blank            int // sectors of the payload that are all zeros, as they were written
	index, committed uint64
	sum              uint32
}

// bytes is the length of the batch in the file.
func (b *batch) bytes() int64 { return batchBytes(b.length) }

func batchBytes(payload int) int64 {
	return int64(batchHeadLen+payload+batchHeadLen-1) &^ (batchHeadLen - 1)
}

// sealBatch writes the head of a batch into b, which has space for it in front of the payload, and
// pads it.
func (h *segmentHead) sealBatch(b []byte, at int64, kind batchKind, index, committed uint64) (_ []byte, sum uint32) {
	be := binary.BigEndian
	be.PutUint32(b[4:], crc32.Checksum(b[batchHeadLen:], castagnoli))
	be.PutUint32(b[8:], uint32(len(b)-batchHeadLen))
	be.PutUint32(b[12:], uint32(blankSectors(b, at)))
	b[12] = byte(kind)
	be.PutUint64(b[16:], index)
	be.PutUint64(b[24:], committed)
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
		index: be.Uint64(head[16:]), committed: be.Uint64(head[24:]), sum: be.Uint32(head)}
	return b, b.kind > 0 && b.kind < batchKinds && b.sum == crc32.Update(h.seed(at), castagnoli, head[4:]) &&
		at+b.bytes() <= int64(len(content))
}

// whole reports whether the payload of the batch at an offset is the one that was written.
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

// blankSectors counts the sectors of b, which is at an offset of the file, that are all zeros. The
// first one, which has a head, does not count.
func blankSectors(b []byte, at int64) (n int) {
	for from := sectorBytes - int(at%sectorBytes); from < len(b); from += sectorBytes {
		if isZero(b[from:min(from+sectorBytes, len(b))]) {
			n++
		}
	}
	return n
}

// watermark says up to where the batches of a segment are durable.
type watermark struct {
	number uint64
	end    int64
}

// firstWatermark is the newest watermark of a segment without batches.
var firstWatermark = watermark{number: 2, end: segmentStart}

// place is the offset of the watermark in the segment.
func (m watermark) place() int64 { return sectorBytes * int64(1+m.number%2) }

func (h *segmentHead) encodeWatermark(m watermark) []byte {
	b := make([]byte, 8, watermarkLen)
	b = binary.BigEndian.AppendUint64(b, m.number)
	b = binary.BigEndian.AppendUint64(b, uint64(m.end))
	binary.BigEndian.PutUint32(b, crc32.Update(h.seed(m.place()), castagnoli, b[4:]))
	return b
}

// start is the content of a segment in front of its batches.
func (h *segmentHead) start() []byte {
	b := make([]byte, segmentStart)
	copy(b, h.append(nil))
	for n := range firstWatermark.number {
		m := watermark{number: n + 1, end: segmentStart}
		copy(b[m.place():], h.encodeWatermark(m))
	}
	return b
}

// newestWatermark reads the watermarks of a segment. A crash leaves the newest two, or the two
// before: each is within a sector.
func (h *segmentHead) newestWatermark(content []byte) (newest watermark, err error) {
	var found [2]watermark
	for i := range found {
		b := content[sectorBytes*(1+i):][:sectorBytes]
		m := watermark{number: binary.BigEndian.Uint64(b[8:]), end: int64(binary.BigEndian.Uint64(b[16:]))}
		if !bytes.Equal(b[:watermarkLen], h.encodeWatermark(m)) || int(m.number%2) != i {
			return newest, damagedf("watermark %d is not one", i)
		}
		found[i] = m
	}
	older, newest := found[0], found[1]
	if older.number > newest.number {
		older, newest = newest, older
	}
	if newest.number != older.number+1 {
		return newest, damagedf("its watermarks are %d and %d: one is lost", older.number, newest.number)
	}
	return newest, nil
}

// scan visits the batches of a segment, up to the first one that is not whole, or not there. It
// returns the offset of that one, and the checksum of the last whole one, or of the head.
func (h *segmentHead) scan(content []byte, visit func(at int64, b batch, payload []byte) error) (end int64, sum uint32,
	err error) {
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

// tornWrite tells a torn write from damage, in the last segment. Its whole batches end at end. A
// crash can cut short one batch at most, because each is synced before the next one is written; and
// every sector of that batch is as it was written, or zeros, as it was before. Up to synced there
// can be no such batch. It returns the offset of the end of a torn write; 0 when there is none.
func (h *segmentHead) tornWrite(content []byte, end, synced int64) (used int64, err error) {
	if end < synced {
		return 0, damagedf("the bytes at %d are not what was written; all was durable up to %d", end, synced)
	}
	used = int64(len(bytes.TrimRight(content, "\x00")))
	if used <= end {
		return 0, nil
	}
	for at := end + batchHeadLen; at < used; at += batchHeadLen {
		if _, ok := h.batchAt(content, at); ok {
			return 0, damagedf("the bytes at %d are not what was written; those at %d were written later", end, at)
		}
	}
	b, ok := h.batchAt(content, end)
	if !ok {
		if !isZero(content[end:min(int64(len(content)), (end/sectorBytes+1)*sectorBytes)]) {
			return 0, damagedf("the bytes at %d are not what was written, and no torn write leaves that", end)
		}
		return used, nil
	}
	last := end + batchHeadLen + int64(b.length)
	if used > last || blankSectors(content[end:last], end) <= b.blank {
		return 0, damagedf("the bytes at %d are not what was written, and no sector of them is missing", end)
	}
	return used, nil
}

// segment is the file of a segment.
type segment struct {
	segmentHead
	f      File
	path   string
	zeroed int64 // up to here this process has written the file, with batches or zeros
}

// zerosAhead is the number of zero bytes that are written ahead of the batches. The space of the
// file is reserved when it is created, but a write to a part that was only reserved has the file
// system note in its journal, with each fsync, that the part is written now.
const zerosAhead = 256 << 10

// zeros is never written to, so the kernel backs it with its one page of zeros.
var zeros [zerosAhead]byte

// append writes b, batches, at an offset of the file and syncs it. The bytes behind b are zeros
// before and after, so a write that a crash cuts short leaves of each sector the old or the new
// one.
func (s *segment) append(b []byte, at int64) error {
	if end := at + int64(len(b)); end > s.zeroed {
		ahead := min(zerosAhead, s.size-end)
		if _, err := s.f.WriteAt(zeros[:ahead], end); err != nil {
			return err
		}
		s.zeroed = end + ahead
	}
	return s.write(b, at)
}

// write writes b at an offset of the file and syncs it.
func (s *segment) write(b []byte, at int64) error {
	if _, err := s.f.WriteAt(b, at); err != nil {
		return err
	}
	return s.f.Sync()
}

// writeWatermark writes a watermark, which becomes durable with the next write that is synced.
func (s *segment) writeWatermark(m watermark) error {
	_, err := s.f.WriteAt(s.encodeWatermark(m), m.place())
	return err
}

func segmentPath(dir string, number uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%016d%s", number, segmentSuffix))
}

// createSegment creates a segment without batches. A crash leaves either none or a whole one, and
// so does an error.
func createSegment(files FS, dir string, h segmentHead) (_ *segment, err error) {
	path := segmentPath(dir, h.number)
	temp := path + newSuffix
	f, err := files.Create(temp, h.size)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_, _ = f.Close(), files.Remove(temp)
		}
	}()
	if _, err := f.WriteAt(h.start(), 0); err != nil {
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	if err := files.Rename(temp, path); err != nil {
		return nil, err
	}
	if err := files.SyncDir(dir); err != nil {
		return nil, err
	}
	return &segment{segmentHead: h, f: f, path: path}, nil
}

// openSegment opens a segment and reads all of it. Errors do not name the file.
func openSegment(files FS, dir string, log, number uint64) (s *segment, content []byte, err error) {
	s = &segment{path: segmentPath(dir, number)}
	if s.f, err = files.Open(s.path); err != nil {
		return nil, nil, err
	}
	content, err = readAll(s.f)
	if err == nil {
		err = s.check(content, log, number)
	}
	if err != nil {
		_ = s.f.Close()
		return nil, nil, err
	}
	return s, content, nil
}

func readAll(f File) ([]byte, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	content := make([]byte, size)
	if _, err := f.ReadAt(content, 0); err != nil && size > 0 {
		return nil, err
	}
	return content, nil
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
