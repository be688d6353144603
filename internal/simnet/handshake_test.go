package simnet_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/simnet"
)

// Whatever happens at whatever moment of a handshake, the dialer learns of it,
// at the latest when it uses its connection, and neither end is left behind.
func TestHandshakeInterrupted(t *testing.T) {
	interruptions := map[string]struct {
		do   func(n *simnet.Network, stop context.CancelFunc)
		dial []error // what the dial may answer, nil for a connection
	}{
		"reset of the listener's host": {
			func(n *simnet.Network, _ context.CancelFunc) { n.Reset(hostB) },
			[]error{nil, syscall.ECONNREFUSED},
		},
		"kill of the listener's host": {
			func(n *simnet.Network, _ context.CancelFunc) { n.Kill(hostB) },
			[]error{nil, syscall.ECONNREFUSED},
		},
		"reset of the dialer's host": {
			func(n *simnet.Network, _ context.CancelFunc) { n.Reset(hostA) },
			[]error{nil, syscall.ENETDOWN},
		},
		"break": {
			func(n *simnet.Network, _ context.CancelFunc) { n.Break(hostA, hostB) },
			[]error{nil, syscall.ECONNREFUSED, syscall.ECONNRESET},
		},
		"end of the context": {
			func(_ *simnet.Network, stop context.CancelFunc) { stop() },
			[]error{nil, context.Canceled},
		},
	}
	for name, interruption := range interruptions {
		for at := range 8 {
			t.Run(fmt.Sprintf("%s at %d", name, at), func(t *testing.T) {
				inBubble(t, simnet.Config{Latency: 2 * time.Millisecond}, func(t *testing.T, n *simnet.Network) {
					l := listen(t, n, hostB, server)
					defer l.Close()
					ctx, stop := context.WithCancel(context.Background())
					defer stop()
					time.AfterFunc(time.Duration(at)*time.Millisecond, func() { interruption.do(n, stop) })
					c, err := n.Host(hostA).Dial(ctx, "tcp", server)
					if !oneOf(err, interruption.dial) {
						t.Errorf("dial: %v", err)
					}
					time.Sleep(time.Second)
					if err == nil {
						c.Write([]byte("x"))
						c.Close()
					}
				})
			})
		}
	}
}

// A listener that closes during a handshake resets the connection.
func TestHandshakeListenerCloses(t *testing.T) {
	for at := range 8 {
		inBubble(t, simnet.Config{Latency: 2 * time.Millisecond}, func(t *testing.T, n *simnet.Network) {
			l := listen(t, n, hostB, server)
			time.AfterFunc(time.Duration(at)*time.Millisecond, func() { l.Close() })
			c, err := n.Host(hostA).Dial(t.Context(), "tcp", server)
			if err != nil {
				if !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("closed after %d ms: dial: %v", at, err)
				}
				return
			}
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("closed after %d ms: read: %v", at, err)
			}
			c.Close()
		})
	}
}

func TestSetLatency(t *testing.T) {
	inBubble(t, simnet.Config{Latency: time.Millisecond}, func(t *testing.T, n *simnet.Network) {
		a, b, done := pair(t, n)
		defer done()
		n.SetLatency(hostA, hostB, time.Hour/2, 0)
		start := time.Now()
		send(t, a, "slow")
		expect(t, b, "slow")
		send(t, b, "fast")
		expect(t, a, "fast")
		if took := time.Since(start); took != time.Hour/2+time.Millisecond {
			t.Errorf("a round trip took %v", took)
		}
	})
}

// Hours of silence and of pings cost next to no real time.
func TestHoursPassInAMoment(t *testing.T) {
	started := time.Now()
	inBubble(t, simnet.Config{Latency: time.Millisecond}, func(t *testing.T, n *simnet.Network) {
		a, b, done := pair(t, n)
		defer done()
		for end := time.Now().Add(10 * time.Hour); time.Now().Before(end); {
			send(t, a, "ping")
			expect(t, b, "ping")
			synctest.Wait()
			time.Sleep(10 * time.Second)
		}
	})
	if took := time.Since(started); took > 10*time.Second {
		t.Errorf("ten virtual hours took %v", took)
	}
}

func oneOf(err error, allowed []error) bool {
	for _, want := range allowed {
		if err == want || want != nil && errors.Is(err, want) {
			return true
		}
	}
	return false
}
