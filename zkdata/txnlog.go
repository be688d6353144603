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
	// endOfRecord follows the payload of each record.
	endOfRecord = 'B'
	// maxRecordBytes is the longest record that is read; ZooKeeper's own limit follows from
	// jute.maxbuffer, which nobody sets to more.
	maxRecordBytes = 1 << 30
)

// ErrDamaged says that a file does not hold what ZooKeeper has written. See DamageError.
var ErrDamaged = errors.New("damaged")

// DamageError names the place of the damage. It is an ErrDamaged.
type DamageError struct {
	File   string
	Offset int64 // in the file, or in what it holds uncompressed
	Reason string
}

// Error names the file, the offset and what is wrong.
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

// NewLogReader reads the header of a log; name is that of the file, for messages. A file that ends
// within its header, as a crash may leave it, is one without transactions.
func NewLogReader(r io.Reader, name string) (*LogReader, error) {
	l := &LogReader{r: bufio.NewReaderSize(r, 256<<10), name: name}
	var head [logHeaderLen]byte
	switch _, err := io.ReadFull(l.r, head[:]); {
	case err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF):
		l.torn = "it ends within its header"
		return l, nil
	case err != nil:
		return nil, fmt.Errorf("zkdata: read %s: %w", name, err)
	case binary.BigEndian.Uint32(head[:]) != logMagic:
		return nil, &DamageError{File: name, Reason: "this is no transaction log of ZooKeeper: it does not begin with ZKLG"}
	case binary.BigEndian.Uint32(head[4:]) != logVersion:
		return nil, &DamageError{File: name, Offset: 4,
			Reason: fmt.Sprintf("version %d of the log, version %d is known", binary.BigEndian.Uint32(head[4:]), logVersion)}
	}
	l.offset = logHeaderLen
	return l, nil
}

// Offset is where in the file the next record begins.
func (l *LogReader) Offset() int64 { return l.offset }

// Torn says in what way the last record is not whole, "" if it is. It is known when Next has
// returned io.EOF. ZooKeeper goes on without such a record: a crash left it, and nobody has been
// answered.
func (l *LogReader) Torn() string { return l.torn }

// Next returns the next transaction, io.EOF behind the last one, or a DamageError. What is damaged
// is what ZooKeeper refuses to start with.
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
	l.offset += 8 + 4 + int64(len(payload)) + 1
	return t, nil
}

// record reads a record and returns a copy of its payload.
func (l *LogReader) record() ([]byte, error) {
	var head [12]byte
	if _, err := io.ReadFull(l.r, head[:]); err != nil {
		return nil, l.ends(err, err == io.EOF)
	}
	sum, length := binary.BigEndian.Uint64(head[:]), int32(binary.BigEndian.Uint32(head[8:]))
	switch {
	case length == 0:
		return nil, io.EOF // the zeros that the file was filled with
	case length < 0 || length > maxRecordBytes:
		return nil, l.damage(fmt.Sprintf("a record of %d bytes", length))
	}
	l.buf.Reset()
	if _, err := io.CopyN(&l.buf, l.r, int64(length)); err != nil {
		return nil, l.ends(err, false)
	}
	end, err := l.r.ReadByte()
	if err != nil {
		return nil, l.ends(err, false)
	}
	if end != endOfRecord {
		l.torn = fmt.Sprintf("the record at byte %d has no end", l.offset)
		return nil, io.EOF
	}
	if got := adler32.Checksum(l.buf.Bytes()); uint64(got) != sum {
		return nil, l.damage(fmt.Sprintf("checksum %08x of a record, computed %08x", sum, got))
	}
	return bytes.Clone(l.buf.Bytes()), nil
}

// ends turns the end of the file into io.EOF.
func (l *LogReader) ends(err error, clean bool) error {
	if err != io.EOF && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("zkdata: read %s: %w", l.name, err)
	}
	if !clean {
		l.torn = fmt.Sprintf("the file ends within the record at byte %d", l.offset)
	}
	return io.EOF
}

func (l *LogReader) damage(reason string) error {
	return &DamageError{File: l.name, Offset: l.offset, Reason: reason}
}
