package simnet_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/simnet"
)

func TestPartitionHoldsAndHealDelivers(t *testing.T) {
	inBubble(t, simnet.Config{Latency: time.Millisecond}, func(t *testing.T, n *simnet.Network) {
		a, b, done := pair(t, n)
		defer done()
		send(t, a, "in flight,")
		n.Partition(hostA, hostB)
		send(t, a, "sent later")
		send(t, b, "back")
		a.(*simnet.Conn).CloseWrite()
		silent(t, b, time.Minute)
		silent(t, a, time.Minute)
		n.Heal(hostA, hostB)
		start := time.Now()
		expect(t, b, "in flight,sent later")
		if _, err := b.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the FIN was not held and delivered: %v", err)
		}
		expect(t, a, "back")
		if took := time.Since(start); took != time.Millisecond {
			t.Errorf("delivered %v after healing, want 1ms", took)
		}
	})
}

func TestCutIsOneWay(t *testing.T) {
	inBubble(t, simnet.Config{Latency: time.Millisecond}, func(t *testing.T, n *simnet.Network) {
		a, b, done := pair(t, n)
		defer done()
		n.Cut(hostA, hostB)
		send(t, b, "passes")
		expect(t, a, "passes")
		send(t, a, "does not")
		silent(t, b, time.Minute)
		n.Heal(hostB, hostA) // heals both directions
		expect(t, b, "does not")
	})
}

// A sender that gets no acknowledgements gets no room back, though its bytes arrive.
func TestCutHoldsAcks(t *testing.T) {
	inBubble(t, simnet.Config{BufferBytes: 4}, func(t *testing.T, n *simnet.Network) {
		a, b, done := pair(t, n)
		defer done()
		n.Cut(hostB, hostA)
		send(t, a, "1234")
		expect(t, b, "1234")
		a.SetWriteDeadline(time.Now().Add(time.Minute))
		if k, err := a.Write([]byte("5")); k != 0 || !isTimeout(err) {
			t.Fatalf("write without acknowledgements: %d, %v", k, err)
		}
		a.SetWriteDeadline(time.Time{})
		time.AfterFunc(time.Minute, n.HealAll)
		send(t, a, "5678")
		expect(t, b, "5678")
	})
}

// With a retransmission timeout, what was held arrives at the next attempt:
// 0.2 + 0.4 + 0.8 + ... seconds after it was first lost.
func TestHealAtRetransmission(t *testing.T) {
	inBubble(t, simnet.Config{RTO: 200 * time.Millisecond}, func(t *testing.T, n *simnet.Network) {
		a, b, done := pair(t, n)
		defer done()
		n.Partition(hostA, hostB)
		start := time.Now()
		send(t, a, "held")
		time.AfterFunc(4*time.Second, n.HealAll)
		expect(t, b, "held")
		if took := time.Since(start); took != 6200*time.Millisecond {
			t.Errorf("arrived after %v, want 6.2s", took)
		}
		start = time.Now()
		send(t, a, "not held")
		expect(t, b, "not held")
		if took := time.Since(start); took != 0 {
			t.Errorf("a healed connection is still slow: %v", took)
		}
	})
}

func TestGiveUp(t *testing.T) {
	inBubble(t, simnet.Config{GiveUp: time.Minute}, func(t *testing.T, n *simnet.Network) {
		a, b, done := pair(t, n)
		defer done()
		n.Partition(hostA, hostB)
		time.Sleep(time.Hour) // nothing is in transit: nobody notices
		start := time.Now()
		send(t, a, "x")
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, syscall.ETIMEDOUT) || time.Since(start) != time.Minute {
			t.Errorf("%v after %v, want a timeout after a minute", err, time.Since(start))
		}
		n.HealAll()
		silent(t, b, time.Minute) // the other end was not told, and got nothing
		send(t, b, "y")
		if _, err := b.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("sending to an end that gave up: %v", err)
		}
	})
}

// A short cut does not end a connection, however often it comes.
func TestGiveUpOnlyWithoutProgress(t *testing.T) {
	inBubble(t, simnet.Config{GiveUp: time.Minute}, func(t *testing.T, n *simnet.Network) {
		a, b, done := pair(t, n)
		defer done()
		for i := range 10 {
			n.Partition(hostA, hostB)
			send(t, a, fmt.Sprint(i))
			time.Sleep(50 * time.Second)
			n.HealAll()
			expect(t, b, fmt.Sprint(i))
		}
	})
}

func TestResetIsSilent(t *testing.T) {
	inBubble(t, simnet.Config{Latency: time.Millisecond}, func(t *testing.T, n *simnet.Network) {
		old := n.Host(hostB)
		a, b, done := pair(t, n)
		defer done()
		l := listen(t, n, hostB, server)
		send(t, b, "on its way")
		n.Reset(hostB)
		for what, err := range map[string]error{
			"read":   second(b.Read(make([]byte, 1))),
			"write":  second(b.Write([]byte("x"))),
			"accept": acceptError(l),
		} {
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s on a reset host: %v", what, err)
			}
		}
		if _, err := old.Listen("tcp", server); err == nil {
			t.Error("the dead incarnation listens")
		}
		if _, err := old.DialTimeout("tcp", "10.0.0.1:1", time.Second); err == nil || isTimeout(err) {
			t.Errorf("the dead incarnation dials: %v", err)
		}
		expect(t, a, "on its way")
		silent(t, a, time.Hour)
		if _, err := n.Host(hostA).DialTimeout("tcp", server, time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial to a rebooted host without programs: %v", err)
		}
		send(t, a, "anybody there?")
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("after sending to a rebooted host: %v", err)
		}
		again, peer, closeBoth := pair(t, n) // the new incarnation works
		send(t, again, "hello")
		expect(t, peer, "hello")
		closeBoth()
	})
}

// A writer that waits for room must not wait for ever when its peer vanishes.
func TestResetWakesWaitingWriter(t *testing.T) {
	inBubble(t, simnet.Config{Latency: time.Millisecond, BufferBytes: 4}, func(t *testing.T, n *simnet.Network) {
		a, _, done := pair(t, n)
		defer done()
		time.AfterFunc(time.Minute, func() { n.Reset(hostB) })
		if _, err := a.Write(bytes.Repeat([]byte("x"), 100)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("write to a host that was reset: %v", err)
		}
	})
}

// What a cut held back dies with the host that would have sent it again.
func TestResetLosesWhatWasHeld(t *testing.T) {
	inBubble(t, simnet.Config{}, func(t *testing.T, n *simnet.Network) {
		a, b, done := pair(t, n)
		defer done()
		n.Partition(hostA, hostB)
		send(t, b, "held")
		n.Reset(hostB)
		n.HealAll()
		silent(t, a, time.Minute)
	})
}

func TestKeepAlive(t *testing.T) {
	inBubble(t, simnet.Config{KeepAlive: 15 * time.Second}, func(t *testing.T, n *simnet.Network) {
		idle := func(c net.Conn, want error, after time.Duration) {
			t.Helper()
			start := time.Now()
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, want) || time.Since(start) != after {
				t.Errorf("%v after %v, want %v after %v", err, time.Since(start), want, after)
			}
		}
		a, b, done := pair(t, n)
		silent(t, a, time.Hour)
		n.Partition(hostA, hostB)
		silent(t, a, 2*time.Minute)
		n.HealAll()                         // in time
		silent(t, a, time.Hour+time.Second) // the last probe was a second ago
		n.Partition(hostA, hostB)
		send(t, b, "unacknowledged")
		idle(a, syscall.ETIMEDOUT, 149*time.Second)
		idle(b, syscall.ETIMEDOUT, 15*time.Minute-149*time.Second) // it has something in transit
		n.HealAll()
		done()

		a, _, done = pair(t, n)
		time.Sleep(7 * time.Second)
		n.Reset(hostB)
		idle(a, syscall.ECONNRESET, 8*time.Second)
		done()
	})
}

func TestKillClosesConnections(t *testing.T) {
	inBubble(t, simnet.Config{Latency: time.Millisecond}, func(t *testing.T, n *simnet.Network) {
		a, b, done := pair(t, n)
		defer done()
		l := listen(t, n, hostB, server)
		unread := dial(t, n, hostA, server)
		defer unread.Close()
		send(t, unread, "nobody has read this")
		send(t, b, "last words")
		time.Sleep(time.Second)
		n.Kill(hostB)
		if err := acceptError(l); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept on a killed host: %v", err)
		}
		expect(t, a, "last words")
		if _, err := a.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("read after the peer was killed: %v", err)
		}
		if _, err := unread.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read after a peer with unread data was killed: %v", err)
		}
	})
}

func TestNetworkClose(t *testing.T) {
	inBubble(t, simnet.Config{}, func(t *testing.T, n *simnet.Network) {
		a, _, _ := pair(t, n)
		n.Partition(hostA, hostB)
		n.Close()
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("read after the end of the network: %v", err)
		}
	})
}

func TestBreak(t *testing.T) {
	inBubble(t, simnet.Config{Latency: time.Millisecond}, func(t *testing.T, n *simnet.Network) {
		a, b, done := pair(t, n)
		defer done()
		n.Break(hostB, hostA)
		for _, c := range []net.Conn{a, b} {
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("read after Break: %v", err)
			}
		}
	})
}

func TestIsolate(t *testing.T) {
	inBubble(t, simnet.Config{}, func(t *testing.T, n *simnet.Network) {
		n.Host("10.0.0.3")
		l := listen(t, n, hostB, server)
		defer l.Close()
		n.Isolate(hostB)
		for _, from := range []string{hostA, "10.0.0.3"} {
			if _, err := n.Host(from).DialTimeout("tcp", server, time.Second); !isTimeout(err) {
				t.Errorf("dial from %s to an isolated host: %v", from, err)
			}
		}
		self := dial(t, n, hostB, server) // it still reaches itself
		self.Close()
		n.Reconnect(hostB)
		dial(t, n, hostA, server).Close()
	})
}

// The same seed gives the same arrival times, another one others.
func TestJitterIsSeeded(t *testing.T) {
	run := func(seed uint64) (arrivals string) {
		synctest.Test(t, func(t *testing.T) {
			n := simnet.New(simnet.Config{Seed: seed, Latency: time.Millisecond, Jitter: time.Millisecond})
			n.Host(hostA)
			n.Host(hostB)
			a, b, done := pair(t, n)
			defer done()
			start := time.Now()
			for range 20 {
				send(t, a, "x")
				expect(t, b, "x")
				arrivals += fmt.Sprintln(time.Since(start))
			}
		})
		return arrivals
	}
	first := run(1)
	if again := run(1); again != first {
		t.Errorf("seed 1 gave two schedules:\n%s\n%s", first, again)
	}
	if other := run(2); other == first {
		t.Error("seeds 1 and 2 gave the same schedule")
	}
}

func acceptError(l net.Listener) error {
	_, err := l.Accept()
	return err
}
