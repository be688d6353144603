package zkdata

import (
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/snappy"
)

// snappyMagic begins a stream that snappy-java has written. Two ints follow, versions; then blocks:
//
//	int length | a block of raw snappy
var snappyMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const (
	snappyHeaderLen = 8 + 4 + 4
	// snappyBlockBytes is the longest block that is read. snappy-java writes 32 KiB at a time.
	snappyBlockBytes = 16 << 20
)

// errCompressed says that compressed bytes are invalid.
var errCompressed = errors.New("cannot be decompressed")

// isFlateError reports whether gzip has found its input damaged.
func isFlateError(err error) bool {
	var corrupt flate.CorruptInputError
	return errors.As(err, &corrupt)
}

// snappyReader decompresses a stream of snappy-java.
type snappyReader struct {
	r       io.Reader
	started bool
	block   []byte
	plain   []byte
	left    []byte // of plain
}

// Read implements io.Reader.
func (s *snappyReader) Read(p []byte) (int, error) {
	for len(s.left) == 0 {
		if err := s.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.left)
	s.left = s.left[n:]
	return n, nil
}

// next decompresses the next block.
func (s *snappyReader) next() error {
	if !s.started {
		var head [snappyHeaderLen]byte
		if _, err := io.ReadFull(s.r, head[:]); err != nil {
			return err
		}
		s.started = true
	}
	var head [4]byte
	if _, err := io.ReadFull(s.r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > snappyBlockBytes {
		return fmt.Errorf("%w: a block of %d bytes", errCompressed, n)
	}
	if uint32(cap(s.block)) < n {
		s.block = make([]byte, n)
	}
	s.block = s.block[:n]
	if _, err := io.ReadFull(s.r, s.block); err != nil {
		return io.ErrUnexpectedEOF
	}
	size, err := snappy.DecodedLen(s.block)
	if err == nil && size > snappyBlockBytes {
		err = fmt.Errorf("a block of %d bytes", size)
	}
	if err == nil {
		s.plain, err = snappy.Decode(s.plain[:cap(s.plain)], s.block)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errCompressed, err)
	}
	s.left = s.plain
	return nil
}
