//go:build unix

package server

import "testing"

// TestTryWrite: a client's connection over TCP is one to which can be written without waiting.
func TestTryWrite(t *testing.T) {
	_, accepted := tcpPair(t)
	if n, err := newConn(accepted).sock.TryWrite([]byte("x")); n != 1 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
}
