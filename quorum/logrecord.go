package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// The values of the log file. bbolt keeps no checksum of its pages, and neither raft nor bbolt of a term, a vote or
// an entry of raft's own (a configuration), so every value has one. Numbers are big-endian, checksums CRC-32C.
//
// An entry, under its index (8 bytes) in the bucket "entries". The checksum covers the index too:
//
//	 0       4      5      13       21          25
//	+-------+------+------+--------+-----------+------+-----+
//	| crc32 | type | term | time   | extension | data | ext |
//	|       |      |      | ns     | bytes     |      |     |
//	+-------+------+------+--------+-----------+------+-----+
//
// The state, the only value of the bucket "state". It says which entries there must be, because a lost page takes its
// checksums with it; and it holds the term, the vote and the owner, of which none may be missing either:
//
//	 0       4        5       13     21        29
//	+-------+--------+-------+------+---------+---------------------------------------------------+
//	| crc32 | format | first | last | applied | for each: key length (1), key, length (4), value  |
//	+-------+--------+-------+------+---------+---------------------------------------------------+
//
// Applied is an entry that is known to be committed, as all before it are; there may be later ones.
// With no entries, first is last + 1: the entries up to last are in a snapshot.
//
// In format 2 the entries are not in the file but in segments (segment.go), and the value under segmentsKey says in which
// (segmentsNote). A program that knows only format 1 would take the log for empty, so it must not read it.
const (
	logFormat      = 1
	segmentsFormat = 2
	segmentsKey    = "lockkeeper/segments"
	entryHeaderLen = 25
	stateHeaderLen = 29
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	errChecksum  = errors.New("its checksum does not match")
	errTooShort  = errors.New("it is too short")
	errNotFound  = errors.New("not found") // the text that the raft library looks for
	errKeyLength = errors.New("key too long")
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

// decodeEntryRecord reads an entry into l, which shares no memory with the record.
func decodeEntryRecord(index uint64, record []byte, l *raft.Log) error {
	return takeEntryRecord(index, slices.Clone(record), l)
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

// logState is what the log file says of itself.
type logState struct {
	first, last uint64 // the entries that are there; none when first > last
	applied     uint64 // is committed
	values      map[string][]byte
}

func newLogState() logState { return logState{first: 1, values: map[string][]byte{}} }

func (s *logState) clone() logState {
	c := *s
	c.values = maps.Clone(s.values)
	return c
}

func (s *logState) format() byte {
	if _, ok := s.values[segmentsKey]; ok {
		return segmentsFormat
	}
	return logFormat
}

func (s *logState) empty() bool { return s.first > s.last }

// append encodes the state.
func (s *logState) append(b []byte) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0, s.format())
	b = binary.BigEndian.AppendUint64(b, s.first)
	b = binary.BigEndian.AppendUint64(b, s.last)
	b = binary.BigEndian.AppendUint64(b, s.applied)
	for _, key := range slices.Sorted(maps.Keys(s.values)) {
		b = append(append(b, byte(len(key))), key...)
		b = binary.BigEndian.AppendUint32(b, uint32(len(s.values[key])))
		b = append(b, s.values[key]...)
	}
	binary.BigEndian.PutUint32(b[start:], crc32.Checksum(b[start+4:], castagnoli))
	return b
}

// decodeLogState reads a state, which shares no memory with b.
func decodeLogState(b []byte) (s logState, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("its state: %w", err)
		}
	}()
	switch {
	case len(b) < stateHeaderLen:
		return s, errTooShort
	case binary.BigEndian.Uint32(b) != crc32.Checksum(b[4:], castagnoli):
		return s, errChecksum
	case b[4] != logFormat && b[4] != segmentsFormat:
		return s, fmt.Errorf("%w: the file has format %d, this program reads %d and %d", ErrFormat, b[4], logFormat, segmentsFormat)
	}
	format := b[4]
	s = newLogState()
	s.first, s.last, s.applied = binary.BigEndian.Uint64(b[5:]), binary.BigEndian.Uint64(b[13:]), binary.BigEndian.Uint64(b[21:])
	for b = slices.Clone(b[stateHeaderLen:]); len(b) > 0; {
		n := 1 + int(b[0])
		if len(b) < n+4 {
			return s, errTooShort
		}
		key, size := string(b[1:n]), int(binary.BigEndian.Uint32(b[n:]))
		if b = b[n+4:]; size > len(b) {
			return s, errTooShort
		}
		s.values[key] = b[:size:size]
		b = b[size:]
	}
	if format != s.format() {
		return s, errors.New("its format and its values do not match")
	}
	return s, nil
}

// segmentsNote is what a log file says of the segments that belong to it: the log's id (8 bytes), the number of the
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
