package jepsen

import (
	"context"
	"io"
	"net"
	"testing"
	"time"
)

// Close closes the socket of a client that waits for the answer to its handshake, and until then
// there is no session.
func TestGoClientClosesItsSocket(t *testing.T) {
	ctx := testTimeout(t, time.Minute)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	begun, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.ReadFull(c, make([]byte, 4))
		close(begun)
		_, _ = io.Copy(io.Discard, c) // to the end of the connection
	}()
	c, _, err := OpenGoClient(GoClientConfig{Servers: []string{l.Addr().String()}, SessionTimeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-begun:
	case <-ctx.Done():
		t.Fatal("the client sends no handshake")
	}
	brief, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if err := c.AwaitSession(brief); err == nil {
		t.Error("a session without a handshake")
	}
	c.Close()
	select {
	case <-ended:
	case <-ctx.Done():
		t.Error("the socket is open after Close")
	}
}
