package peer

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"time"
)

// All streams of the peer port but those of a few bytes carry frames: a 4-byte big-endian length, then that many bytes. On a raft stream
// the first of them is the kind.
const (
	// MaxFrame bounds a frame of the forward stream.
	MaxFrame = 64 << 20
	// DefaultFrameBytes has room for the largest request of raft, and for some of the forward stream beside it.
	DefaultFrameBytes = maxRequestBytes + MaxFrame
	// frameStep is what a frame gets room for before more of it has arrived.
	frameStep = 64 << 10
	// framePiece is the largest piece that room is made for at once.
	framePiece = 1 << 20
	// frameTime is how long a frame that has begun may take. A member gives up on a frame after rpcTimeout at most.
	frameTime = 2 * rpcTimeout
)

// errFrameRoom says that too many large frames are on their way here at once.
var errFrameRoom = fmt.Errorf("%w: no memory for a large frame while others arrive", ErrRefused)

// BeginFrame appends the head of a frame, and EndFrame fills in the length of the frame that begins
// at b[start].
func BeginFrame(b []byte) []byte { return append(b, 0, 0, 0, 0) }

// EndFrame is the end of BeginFrame.
func EndFrame(b []byte, start int) []byte {
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	return b
}

// frameReader reads the frames of one stream. Room for one is made as it arrives, and a frame that has begun must end within frameTime.
type frameReader struct {
	*bufio.Reader
	// limit sets the deadline of reads; nil: frames may take as long as they like.
	limit func(time.Time) error
	// room is what all streams share for frames larger than frameStep; nil: there is no bound.
	room  *frameRoom
	held  int64 // of room, by the newest frame
	timed bool  // the stream has a deadline for the frame
}

// readFrame reads one frame, into buf if there is room in it. Errors: ErrRefused, those of the
// stream.
func (r *frameReader) readFrame(limit int, buf []byte) ([]byte, error) {
	r.release()
	defer r.endFrame()
	if _, err := r.Peek(1); err != nil { // which may take as long as it likes
		return nil, err
	}
	if r.Buffered() < 4 {
		r.begun()
	}
	h, err := r.Peek(4)
	if err != nil {
		return nil, unexpected(err)
	}
	n := int64(binary.BigEndian.Uint32(h))
	if n > int64(limit) {
		return nil, fmt.Errorf("%w: a frame of %d bytes", ErrRefused, n)
	}
	_, _ = r.Discard(4)
	return r.body(int(n), buf)
}

// begun gives the frame its time.
func (r *frameReader) begun() {
	if r.limit != nil && !r.timed {
		r.timed = true
		_ = r.limit(time.Now().Add(frameTime))
	}
}

// endFrame takes the deadline away, if there can be one.
func (r *frameReader) endFrame() {
	if r.timed {
		r.timed = false
		_ = r.limit(time.Time{})
	}
}

// body reads the rest of a frame. Until all of it has arrived it is kept in pieces, which take frameStep, and at most as much again as
// has arrived: a frame that is never finished leaves no copies behind.
func (r *frameReader) body(size int, buf []byte) ([]byte, error) {
	if size > r.Buffered() {
		r.begun()
	}
	if size <= cap(buf) {
		_, err := io.ReadFull(r, buf[:size])
		return buf[:size], unexpected(err)
	}
	piece := make([]byte, min(size, frameStep))
	if _, err := io.ReadFull(r, piece); err != nil || len(piece) == size {
		return piece, unexpected(err)
	}
	pieces := [][]byte{piece}
	for have := len(piece); have < size; have += len(piece) {
		piece = make([]byte, min(have, size-have, framePiece))
		if err := r.hold(int64(have + len(piece))); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(r, piece); err != nil {
			return nil, unexpected(err)
		}
		pieces = append(pieces, piece)
	}
	return bytes.Join(pieces, nil), nil
}

// hold has the frame take n bytes of the common room.
func (r *frameReader) hold(n int64) error {
	if r.room == nil {
		return nil
	}
	if !r.room.take(n - r.held) {
		return errFrameRoom
	}
	r.held = n
	return nil
}

// release gives back the room of the newest frame. Whoever reads a stream calls it in the end.
func (r *frameReader) release() {
	if r.held > 0 {
		r.room.give(r.held)
		r.held = 0
	}
}

// unexpected is the error of a frame that was cut off.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// frameRoom bounds the bytes of large frames that arrive at the same time.
type frameRoom struct {
	max int64

	mu   sync.Mutex
	used int64
}

func (r *frameRoom) take(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used+n > r.max {
		return false
	}
	r.used += n
	return true
}

func (r *frameRoom) give(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used -= n
}

// inUse is how many bytes of it are taken.
func (r *frameRoom) inUse() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used
}
