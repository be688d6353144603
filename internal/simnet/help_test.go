package simnet_test

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/simnet"
)

// inBubble runs f in virtual time, on a network with the hosts 10.0.0.1 and
// 10.0.0.2. When f has returned, every connection must have been closed.
func inBubble(t *testing.T, cfg simnet.Config, f func(t *testing.T, n *simnet.Network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(cfg)
		n.Host("10.0.0.1")
		n.Host("10.0.0.2")
		f(t, n)
		synctest.Wait()
		if open := n.Conns(); open != 0 {
			t.Errorf("%d connection ends left open", open)
		}
	})
}

const (
	hostA  = "10.0.0.1"
	hostB  = "10.0.0.2"
	server = "10.0.0.2:2181"
)

func listen(t *testing.T, n *simnet.Network, host, addr string) net.Listener {
	t.Helper()
	l, err := n.Host(host).Listen("tcp", addr)
	if err != nil {
		t.Fatalf("listen on %s at %s: %v", host, addr, err)
	}
	return l
}

func dial(t *testing.T, n *simnet.Network, host, addr string) net.Conn {
	t.Helper()
	c, err := n.Host(host).Dial(context.Background(), "tcp", addr)
	if err != nil {
		t.Fatalf("dial from %s to %s: %v", host, addr, err)
	}
	return c
}

// pair returns both ends of a connection from host A to host B, and a function that closes them.
func pair(t *testing.T, n *simnet.Network) (a, b net.Conn, done func()) {
	t.Helper()
	l := listen(t, n, hostB, server)
	defer l.Close()
	a = dial(t, n, hostA, server)
	b, err := l.Accept()
	if err != nil {
		t.Fatalf("accept: %v", err)
	}
	return a, b, func() { a.Close(); b.Close() }
}

func send(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if k, err := io.WriteString(c, s); k != len(s) || err != nil {
		t.Fatalf("write %q: %d, %v", s, k, err)
	}
}

// expect reads exactly want, within a virtual hour.
func expect(t *testing.T, c net.Conn, want string) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(time.Hour))
	defer c.SetReadDeadline(time.Time{})
	b := make([]byte, len(want))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != want {
		t.Fatalf("read %q, %v; want %q", b, err, want)
	}
}

// silent checks that nothing arrives for d.
func silent(t *testing.T, c net.Conn, d time.Duration) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(d))
	defer c.SetReadDeadline(time.Time{})
	if k, err := c.Read(make([]byte, 1)); k != 0 || !isTimeout(err) {
		t.Fatalf("read %d, %v in what should be silence", k, err)
	}
}

func isTimeout(err error) bool {
	ne, ok := err.(net.Error)
	return ok && ne.Timeout()
}
