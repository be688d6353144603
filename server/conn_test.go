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
// connection gets larger buffers. It gives them back when its client rests.
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
		// The first frames are as short as pings.
		if c.in.took(4 + len(got)); i < 3 && c.in.size() != idleBufferBytes {
			t.Errorf("a buffer of %d bytes for a client that only pings", c.in.size())
		}
		if n := c.in.size(); i == single-1 && n != usualBufferBytes {
			t.Errorf("frame %d: a buffer of %d bytes for a client that sends one request at a time", i, n)
		}
	}
	if n := c.in.size(); n != readBufferBytes {
		t.Errorf("a buffer of %d bytes for a client that sends many requests at once", n)
	}
	if c.in.rest(); c.in.size() != idleBufferBytes {
		t.Errorf("a buffer of %d bytes for a client that rests", c.in.size())
	}
}
