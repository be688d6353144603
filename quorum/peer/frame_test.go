package peer

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
)

// What all streams together hold for large frames is bounded, and given back.
func TestLargeFramesShareTheirRoom(t *testing.T) {
	room := &frameBudget{max: 1 << 20}
	frame := func(n int) *frameReader {
		b := append(binary.BigEndian.AppendUint32(nil, uint32(n)), make([]byte, n)...)
		return &frameReader{Reader: bufio.NewReader(bytes.NewReader(b)), budget: room}
	}
	first, second := frame(1<<20), frame(1<<19)
	if _, err := first.readFrame(MaxFrame, nil); err != nil || room.inUse() != 1<<20 {
		t.Fatalf("%v, %d bytes are in use", err, room.inUse())
	}
	if _, err := second.readFrame(MaxFrame, nil); !errors.Is(err, errFrameMemory) {
		t.Errorf("a frame for which there is no room: %v", err)
	}
	second.release()
	first.release()
	if room.inUse() != 0 {
		t.Errorf("%d bytes are in use in the end", room.inUse())
	}
	if _, err := frame(frameStep).readFrame(MaxFrame, nil); err != nil || room.inUse() != 0 {
		t.Errorf("a small frame: %v, %d bytes are in use", err, room.inUse())
	}
}

// FuzzPeerFrames reads frames off any bytes.
func FuzzPeerFrames(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 7, 0, 0, 0, 0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		room := &frameBudget{max: DefaultFrameBytes}
		r := &frameReader{Reader: bufio.NewReader(bytes.NewReader(b)), budget: room}
		for {
			body, err := r.readFrame(MaxFrame, nil)
			if len(body) > 2*len(b)+frameStep {
				t.Errorf("room for %d bytes of %d", len(body), len(b))
			}
			if err != nil {
				break
			}
		}
		r.release()
		if room.inUse() != 0 {
			t.Errorf("%d bytes are in use in the end", room.inUse())
		}
	})
}
