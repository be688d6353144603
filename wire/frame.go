package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrFrameLength says that a frame's length is negative or more than the reader allows. The caller
// closes the connection without an answer.
var ErrFrameLength = errors.New("wire: frame length out of range")

// FrameLengthError is an ErrFrameLength with the length, which may be negative.
type FrameLengthError struct{ Length, Max int }

// Error implements error.
func (e *FrameLengthError) Error() string {
	return fmt.Sprintf("%v: %d, at most %d", ErrFrameLength, e.Length, e.Max)
}

// Unwrap returns ErrFrameLength.
func (e *FrameLengthError) Unwrap() error { return ErrFrameLength }

// DefaultMaxBuffer is the default of jute.maxbuffer: the most bytes a client's frame may have, not
// counting its 4 length bytes. A frame of exactly this size is accepted. Replies have no limit.
const DefaultMaxBuffer = 0xFFFFF

// frameLenBytes is the number of length bytes in front of every frame.
const frameLenBytes = 4

// readStep is how much ReadFrame allocates ahead of the bytes it has received: a peer that
// announces a megabyte and sends nothing costs this much.
const readStep = 16 << 10

// ReadFrame reads one frame from r and returns its payload without the length. The payload is in
// buf's memory when that is large enough, otherwise in a new slice of its own. max is the largest
// payload allowed.
//
// The error is io.EOF when r ended before the frame, io.ErrUnexpectedEOF when it ended inside, and
// wraps ErrFrameLength when the length is not in 0..max. No error of r is wrapped.
func ReadFrame(r io.Reader, buf []byte, max int) ([]byte, error) {
	return ReadFrameInto(r, buf, max, nil)
}

// ReadFrameInto is ReadFrame for a reader that counts the memory of large frames: before more than
// 16 KiB is taken for a frame, room is called with the number of additional bytes. Its error is
// returned. room may be nil.
func ReadFrameInto(r io.Reader, buf []byte, max int, room func(bytes int) error) ([]byte, error) {
	if cap(buf) < frameLenBytes {
		buf = make([]byte, frameLenBytes)
	}
	if _, err := io.ReadFull(r, buf[:frameLenBytes]); err != nil {
		return nil, err
	}
	n := int32(binary.BigEndian.Uint32(buf[:frameLenBytes]))
	if n < 0 || int64(n) > int64(max) {
		return nil, &FrameLengthError{int(n), max}
	}
	return readPayload(r, buf[:0], int(n), room)
}

// readPayload reads n bytes into b, growing it in steps when it is too small.
func readPayload(r io.Reader, b []byte, n int, room func(bytes int) error) ([]byte, error) {
	if cap(b) < n && n <= readStep {
		b = make([]byte, 0, n)
	}
	for len(b) < n {
		if len(b) == cap(b) {
			// Doubling bounds the allocation by twice the received bytes, plus the first step.
			size := min(n, max(2*len(b), readStep))
			if room != nil && size > readStep {
				if err := room(size - max(cap(b), readStep)); err != nil {
					return nil, err
				}
			}
			grown := make([]byte, len(b), size)
			copy(grown, b)
			b = grown
		}
		start := len(b)
		b = b[:min(n, cap(b))]
		if _, err := io.ReadFull(r, b[start:]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return b, nil
}

// AppendFrame appends one frame that holds the records one after the other; nil records are left
// out.
func AppendFrame(b []byte, records ...Record) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	for _, r := range records {
		if r != nil {
			b = r.Append(b)
		}
	}
	return setFrameLen(b, start)
}

// setFrameLen fills in the length of the frame that begins at start and ends with b.
func setFrameLen(b []byte, start int) []byte {
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-frameLenBytes))
	return b
}
