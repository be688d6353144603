//go:build unix

package server

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// TestTryWrite: a socket is given what it takes, and is not waited for.
func TestTryWrite(t *testing.T) {
	here, there := tcpPair(t)
	c := newConn(there)
	large := bytes.Repeat([]byte("0123456789abcdef"), 4<<20)
	sent, err := c.sock.TryWrite(large)
	if err != nil || sent <= 0 || sent >= len(large) {
		t.Fatalf("%d of %d bytes, %v", sent, len(large), err)
	}
	_ = here.SetDeadline(time.Now().Add(patience))
	got := make([]byte, sent)
	if _, err := io.ReadFull(here, got); err != nil || !bytes.Equal(got, large[:sent]) {
		t.Fatalf("what came is not what was sent: %v", err)
	}
	await(t, "room", func() bool {
		n, err := c.sock.TryWrite([]byte("x"))
		return n == 1 && err == nil
	})
	_ = there.Close()
	if n, err := c.sock.TryWrite([]byte("x")); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Fatalf("after Close: %d, %v", n, err)
	}
}
