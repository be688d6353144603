package zkdata

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"io"
)

const (
	logMagic     = 0x5A4B4C47 // "ZKLG"
	logVersion   = 2
	logHeaderLen = 4 + 4 + 8
	recordHead   = 8 + 4
	// endOfRecord follows the payload of each record.
	endOfRecord = 'B'
	// maxRecordBytes is the longest record that is read; ZooKeeper's own limit follows from
	// jute.maxbuffer, which nobody sets to more.
	maxRecordBytes = 1 << 30
	// maxTornBytes is the longest record that may go beyond the end of the file: ZooKeeper with the
	// default of jute.maxbuffer writes none that is longer, and does not start with one.
	maxTornBytes = 2 * (1<<20 - 1)
)

// tornHeader is the Torn of a log that ends within its header. Nothing is missing, yet ZooKeeper
// (3.8.0) does not start with it.
const tornHeader = "it ends within its header"

// ErrDamaged says that a file differs from the file that ZooKeeper wrote. See DamageError.
var ErrDamaged = errors.New("damaged")

// DamageError names the place of the damage. It is an ErrDamaged.
type DamageError struct {
	File   string
	Offset int64 // in the file, or in its uncompressed content
	Reason string
}

// Error names the file, the offset and the fault.
func (e *DamageError) Error() string {
	return fmt.Sprintf("zkdata: %s: damaged at byte %d: %s", e.File, e.Offset, e.Reason)
}

// Is says that e is ErrDamaged.
func (e *DamageError) Is(target error) bool { return target == ErrDamaged }

// LogReader reads the transactions of one log file.
//
//	 0       4         8     16
//	+-------+---------+-----+--------+--------+---
//	| magic | version | db  | record | record | zeros
//	| ZKLG  | 2       | id  |        |        |
//	+-------+---------+-----+--------+--------+---
//
//	record:   long Adler-32 of the payload | int length | payload | byte 'B'
type LogReader struct {
	r      *bufio.Reader
	name   string
	offset int64 // of the next record
	torn   string
	buf    bytes.Buffer
}

// NewLogReader reads the header of a log; name is the name of the file, for messages. A file that
// ends within its header, as a crash may leave it, is one without transactions.
func NewLogReader(r io.Reader, name string) (*LogReader, error) {
	l := &LogReader{r: bufio.NewReaderSize(r, 256<<10), name: name}
	var head [logHeaderLen]byte
	switch _, err := io.ReadFull(l.r, head[:]); {
	case err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF):
		l.torn = tornHeader
		return l, nil
	case err != nil:
		return nil, fmt.Errorf("zkdata: read %s: %w", name, err)
	case binary.BigEndian.Uint32(head[:]) != logMagic:
		return nil, &DamageError{File: name, Reason: "this is no transaction log of ZooKeeper: it does not begin " +
			"with ZKLG"}
	case binary.BigEndian.Uint32(head[4:]) != logVersion:
		return nil, &DamageError{File: name, Offset: 4,
			Reason: fmt.Sprintf("version %d of the log, version %d is known", binary.BigEndian.Uint32(head[4:]),
				logVersion)}
	}
	l.offset = logHeaderLen
	return l, nil
}

// Offset is where in the file the next record begins.
func (l *LogReader) Offset() int64 { return l.offset }

// Torn says in which way the last record is incomplete, "" if it is whole. It is known when Next
// has returned io.EOF. ZooKeeper goes on without such a record: a crash left it, and nobody has
// been answered.
func (l *LogReader) Torn() string { return l.torn }

// Next returns the next transaction, io.EOF behind the last one, or a DamageError. A log counts as
// damaged if ZooKeeper refuses to start with it.
func (l *LogReader) Next() (*Txn, error) {
	if l.torn != "" {
		return nil, io.EOF
	}
	payload, err := l.record()
	if err != nil {
		return nil, err
	}
	t, err := DecodeTxn(payload)
	if err != nil {
		return nil, l.damage(err.Error())
	}
	l.offset += recordHead + int64(len(payload)) + 1
	return t, nil
}

// record reads a record and returns a copy of its payload.
func (l *LogReader) record() ([]byte, error) {
	var head [recordHead]byte
	switch _, err := io.ReadFull(l.r, head[:]); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		l.torn = fmt.Sprintf("the file ends within the record at byte %d", l.offset)
		return nil, io.EOF
	case err == io.EOF:
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("zkdata: read %s: %w", l.name, err)
	}
	sum, length := binary.BigEndian.Uint64(head[:]), int32(binary.BigEndian.Uint32(head[8:]))
	switch {
	case length == 0:
		return nil, io.EOF // the zeros that the file was filled with
	case length < 0 || length > maxRecordBytes:
		return nil, l.damage(fmt.Sprintf("a record of %d bytes", length))
	}
	l.buf.Reset()
	switch _, err := io.CopyN(&l.buf, l.r, int64(length)+1); {
	case err == io.EOF && length > maxTornBytes:
		return nil, l.damage(fmt.Sprintf("a record of %d bytes goes beyond the end of the file", length))
	case err == io.EOF:
		return nil, l.cut(length, "goes beyond the end of the file")
	case err != nil:
		return nil, fmt.Errorf("zkdata: read %s: %w", l.name, err)
	}
	if end := l.buf.Bytes()[length]; end != endOfRecord {
		return nil, l.cut(length, "has no end")
	}
	payload := l.buf.Bytes()[:length]
	if got := adler32.Checksum(payload); uint64(got) != sum {
		return nil, l.damage(fmt.Sprintf("checksum %08x of a record, computed %08x", sum, got))
	}
	return bytes.Clone(payload), nil
}

// cut judges an incomplete record: length bytes were announced, and l.buf has the present part of
// them and of the byte behind. A crash leaves one with nothing behind it. If whole records follow,
// transactions would be missing which may have been acknowledged, though ZooKeeper goes on without
// them: its bytes were damaged, or its length, or a crash left a part of several that were written
// together. That cannot be told apart.
func (l *LogReader) cut(length int32, why string) error {
	if _, err := io.CopyN(&l.buf, l.r, maxTornBytes); err != nil && err != io.EOF {
		return fmt.Errorf("zkdata: read %s: %w", l.name, err)
	}
	b := l.buf.Bytes()
	for at := 1; at < len(b); at++ {
		if wholeRecord(b[at:]) > 0 {
			return l.damage(fmt.Sprintf("a record of %d bytes %s, and another record begins %d bytes behind its "+
				"start: that one may have been "+
				"acknowledged, and ZooKeeper forgets it", length, why, at+recordHead))
		}
	}
	l.torn = fmt.Sprintf("the record at byte %d %s", l.offset, why)
	return io.EOF
}

// wholeRecord is the length of the record that b begins with, all in all; 0 if it does not.
func wholeRecord(b []byte) int {
	if len(b) <= recordHead || binary.BigEndian.Uint32(b) != 0 {
		return 0
	}
	end := recordHead + int(int32(binary.BigEndian.Uint32(b[8:])))
	if end <= recordHead || end >= len(b) || b[end] != endOfRecord ||
		adler32.Checksum(b[recordHead:end]) != binary.BigEndian.Uint32(b[4:]) {
		return 0
	}
	return end + 1
}

func (l *LogReader) damage(reason string) error {
	return &DamageError{File: l.name, Offset: l.offset, Reason: reason}
}
