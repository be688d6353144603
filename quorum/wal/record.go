package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/codec"
)

// The record of an entry, in the payload of a batch (segment.go). Numbers are big-endian. The
// checksum is CRC-32C; it covers the index too:
//
//	 0       4      5      13       21          25
//	+-------+------+------+--------+-----------+------+-----+
//	| crc32 | type | term | time   | extension | data | ext |
//	|       |      |      | ns     | bytes     |      |     |
//	+-------+------+------+--------+-----------+------+-----+
const recordHeaderLen = 25

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	// ErrDamaged says that the bytes of a file have changed since they were written. The
	// message names the file.
	ErrDamaged = errors.New("damaged")
	// ErrFormat says that a file was written by another version of this program.
	ErrFormat = errors.New("unknown format")

	errChecksum = errors.New("its checksum does not match")
	errTooShort = errors.New("it is too short")
)

func damagedf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...)
}

// codeHead encodes or decodes the header of a record after the checksum.
func codeHead(c *codec.Codec, l *raft.Log, extensionBytes *uint32) {
	codec.U8(c, &l.Type)
	c.U64(&l.Term)
	c.Time(&l.AppendedAt)
	codec.U32(c, extensionBytes)
}

// appendRecord encodes an entry.
func appendRecord(b []byte, l *raft.Log) []byte {
	start, ext := len(b), uint32(len(l.Extensions))
	c := codec.Encode(append(b, 0, 0, 0, 0))
	codeHead(&c, l, &ext)
	b = append(append(c.Encoded(), l.Data...), l.Extensions...)
	binary.BigEndian.PutUint32(b[start:], recordSum(l.Index, b[start:]))
	return b
}

func recordSum(index uint64, record []byte) uint32 {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], index)
	return crc32.Update(crc32.Checksum(b[:], castagnoli), castagnoli, record[4:])
}

// checkRecord verifies that record is the one that was written for that index.
func checkRecord(index uint64, record []byte) error {
	switch {
	case len(record) < recordHeaderLen:
		return fmt.Errorf("entry %d: %w", index, errTooShort)
	case binary.BigEndian.Uint32(record) != recordSum(index, record):
		return fmt.Errorf("entry %d: %w", index, errChecksum)
	}
	return nil
}

// decodeRecord decodes an entry into l, which keeps the memory of record.
func decodeRecord(index uint64, record []byte, l *raft.Log) error {
	if err := checkRecord(index, record); err != nil {
		return err
	}
	var ext uint32
	*l = raft.Log{Index: index}
	c := codec.Decode(record[4:recordHeaderLen])
	codeHead(&c, l, &ext)
	body := record[recordHeaderLen:]
	n := len(body) - int(ext)
	if n < 0 {
		return fmt.Errorf("entry %d: %w", index, errTooShort)
	}
	if n > 0 {
		l.Data = body[:n:n]
	}
	if ext > 0 {
		l.Extensions = body[n:]
	}
	return nil
}
