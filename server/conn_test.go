package server

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"testing"

	"lockkeeper/server/zoocfg"
)

// Frames are read one after the other, whether they come one by one or many at once, for which the
// connection gets a larger buffer.
func TestFramesAreReadWhileTheBufferGrows(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	frame := func(i int) []byte { return fmt.Appendf(nil, "%05d %s", i, bytes.Repeat([]byte("x"), i%300)) }
	const single, all = 100, 2000
	go func() {
		var many []byte
		for i := range all {
			b := append(binary.BigEndian.AppendUint32(nil, uint32(len(frame(i)))), frame(i)...)
			if i < single {
				_, _ = client.Write(b)
			} else {
				many = append(many, b...)
			}
		}
		_, _ = client.Write(many)
	}()
	s := &clientPort{cfg: &Config{Client: zoocfg.Client{MaxBuffer: 1 << 10}}}
	c := newConn(server)
	for i := range all {
		got, err := s.readFrame(c, s.cfg.Client.MaxBuffer, nil)
		if err != nil || !bytes.Equal(got, frame(i)) {
			t.Fatalf("frame %d: %q, %v", i, got, err)
		}
		if i == single-1 && c.r.Size() != idleBufferBytes {
			t.Errorf("a buffer of %d bytes for a client that sends one request at a time", c.r.Size())
		}
	}
	if c.r.Size() != readBufferBytes {
		t.Errorf("a buffer of %d bytes for a client that sends many requests at once", c.r.Size())
	}
}
