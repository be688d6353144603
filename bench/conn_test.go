package bench

import (
	"context"
	"net"
	"testing"
	"time"

	"lockkeeper/wire"
)

// A server that has just been started closes connections before it gives sessions.
func TestDialTriesAgainWhenTurnedAway(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const refusals = 3
	came := make(chan int, 1)
	go func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if n == refusals {
				came <- n
				_, _ = wire.ReadFrame(c, nil, maxReplyBytes)
				_, _ = c.Write(wire.AppendFrame(nil, wire.ConnectResponse{TimeoutMs: 4000, Password: make([]byte, wire.PasswordLen), HasReadOnly: true}))
			}
			_ = c.Close()
		}
	}()
	r := &run{Config: Config{Servers: []string{l.Addr().String()}, Session: 4 * time.Second}}
	c, err := r.dial(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n := <-came; n != refusals || c.timeout != 4*time.Second {
		t.Errorf("session at the %d. try, timeout %v", n+1, c.timeout)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.dial(over, 0); err == nil {
		t.Error("a session although the run is over")
	}
}
