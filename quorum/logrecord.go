package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/hashicorp/raft"
)

// The record of an entry, in a segment. Numbers are big-endian, the checksum is CRC-32C and covers the
// index too:
//
//	 0       4      5      13       21          25
//	+-------+------+------+--------+-----------+------+-----+
//	| crc32 | type | term | time   | extension | data | ext |
//	|       |      |      | ns     | bytes     |      |     |
//	+-------+------+------+--------+-----------+------+-----+
const entryHeaderLen = 25

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func damagedf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...)
}

var (
	errChecksum = errors.New("its checksum does not match")
	errTooShort = errors.New("it is too short")
)

// indexKey is where an entry is kept.
func indexKey(index uint64) []byte { return binary.BigEndian.AppendUint64(nil, index) }

// appendEntryRecord encodes an entry.
func appendEntryRecord(b []byte, l *raft.Log) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0, byte(l.Type))
	b = binary.BigEndian.AppendUint64(b, l.Term)
	b = binary.BigEndian.AppendUint64(b, appendedNs(l))
	b = binary.BigEndian.AppendUint32(b, uint32(len(l.Extensions)))
	b = append(append(b, l.Data...), l.Extensions...)
	binary.BigEndian.PutUint32(b[start:], entrySum(l.Index, b[start:]))
	return b
}

func entrySum(index uint64, record []byte) uint32 {
	return crc32.Update(crc32.Checksum(indexKey(index), castagnoli), castagnoli, record[4:])
}

// checkEntryRecord says whether record is the one that was written for that index.
func checkEntryRecord(index uint64, record []byte) error {
	switch {
	case len(record) < entryHeaderLen:
		return fmt.Errorf("entry %d: %w", index, errTooShort)
	case binary.BigEndian.Uint32(record) != entrySum(index, record):
		return fmt.Errorf("entry %d: %w", index, errChecksum)
	}
	return nil
}

// takeEntryRecord reads an entry into l, which keeps the memory of the record.
func takeEntryRecord(index uint64, record []byte, l *raft.Log) error {
	if err := checkEntryRecord(index, record); err != nil {
		return err
	}
	body := record[entryHeaderLen:]
	ext := int(binary.BigEndian.Uint32(record[21:]))
	if ext > len(body) {
		return fmt.Errorf("entry %d: %w", index, errTooShort)
	}
	*l = raft.Log{Index: index, Type: raft.LogType(record[4]), Term: binary.BigEndian.Uint64(record[5:])}
	if n := len(body) - ext; n > 0 {
		l.Data = body[:n:n]
	}
	if ext > 0 {
		l.Extensions = body[len(body)-ext:]
	}
	setAppendedNs(l, binary.BigEndian.Uint64(record[13:]))
	return nil
}

// appendedNs is when the leader appended an entry, as a record and the wire have it: nanoseconds since 1970, 0 for never.
func appendedNs(l *raft.Log) uint64 {
	if l.AppendedAt.IsZero() {
		return 0
	}
	return uint64(l.AppendedAt.UnixNano())
}

func setAppendedNs(l *raft.Log, ns uint64) {
	if ns != 0 {
		l.AppendedAt = time.Unix(0, int64(ns))
	}
}

// segmentsNote is what raft.db says of the segments that belong to it: the log's id (8 bytes), the number of the
// newest segment (8), and up to where that one was written when this was noted (8).
type segmentsNote struct {
	log, newest uint64
	end         int64
}

func (n segmentsNote) append(b []byte) []byte {
	for _, v := range []uint64{n.log, n.newest, uint64(n.end)} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return b
}

func decodeSegmentsNote(b []byte) (n segmentsNote, ok bool) {
	if len(b) != 24 {
		return n, false
	}
	return segmentsNote{log: binary.BigEndian.Uint64(b), newest: binary.BigEndian.Uint64(b[8:]), end: int64(binary.BigEndian.Uint64(b[16:]))}, true
}
