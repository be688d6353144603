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

// The streams of the peer port carry frames, unless they carry a few bytes only: a 4-byte
// big-endian length, then that many bytes. On a raft stream the first of them is the kind.
const (
	// MaxFrame bounds a frame of the forward stream.
	MaxFrame = 64 << 20
	// DefaultFrameBytes is enough for the largest request of raft and a frame of the forward stream
	// at the same time (raftnet).
	DefaultFrameBytes = 144 << 20
	// frameStep is the memory of a frame before more of it has arrived.
	frameStep = 64 << 10
	// framePiece is the most that is allocated at once.
	framePiece = 1 << 20
	// frameTime is how long a frame that has begun may take. Its sender gives up on it earlier.
	frameTime = 10 * time.Second
)

// errFrameMemory says that too many large frames arrive at the same time.
var errFrameMemory = fmt.Errorf("%w: no memory for a large frame while others arrive", ErrRefused)

// BeginFrame appends the head of a frame, and EndFrame fills in the length of the frame that begins
// at b[start].
func BeginFrame(b []byte) []byte { return append(b, 0, 0, 0, 0) }

// EndFrame is the end of BeginFrame.
func EndFrame(b []byte, start int) []byte {
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	return b
}

// frameReader reads the frames of one stream. It allocates a frame's memory as the frame arrives,
// and a frame that has begun must end within frameTime.
type frameReader struct {
	*bufio.Reader
	// limit sets the deadline of reads; nil: a frame may take any time.
	limit func(time.Time) error
	// budget is the memory that all streams share for frames larger than frameStep; nil: there is
	// no bound.
	budget *frameBudget
	held   int64 // of budget, by the newest frame
	timed  bool  // the stream has a deadline for the frame
}

// readFrame reads one frame, into buf if it fits. Errors: ErrRefused, those of the stream.
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

// begun sets the deadline of the frame.
func (r *frameReader) begun() {
	if r.limit != nil && !r.timed {
		r.timed = true
		_ = r.limit(time.Now().Add(frameTime))
	}
}

// endFrame removes the deadline.
func (r *frameReader) endFrame() {
	if r.timed {
		r.timed = false
		_ = r.limit(time.Time{})
	}
}

// body reads the rest of a frame. Until all of it has arrived it is kept in pieces, which take
// frameStep, and at most as much again as has arrived: a frame that is never finished leaves no
// copies behind.
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

// hold has the frame take n bytes of the budget.
func (r *frameReader) hold(n int64) error {
	if r.budget == nil {
		return nil
	}
	if !r.budget.take(n - r.held) {
		return errFrameMemory
	}
	r.held = n
	return nil
}

// release gives back what the newest frame holds of the budget. It is called when the stream ends,
// too.
func (r *frameReader) release() {
	if r.held > 0 {
		r.budget.give(r.held)
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

// frameBudget bounds the bytes of large frames that arrive at the same time.
type frameBudget struct {
	max int64

	mu   sync.Mutex
	used int64
}

func (m *frameBudget) take(n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.used+n > m.max {
		return false
	}
	m.used += n
	return true
}

func (m *frameBudget) give(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
}

// inUse counts the taken bytes.
func (m *frameBudget) inUse() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}
