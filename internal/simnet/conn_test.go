package simnet_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/simnet"
)

func TestConnCarriesBothWays(t *testing.T) {
	inBubble(t, simnet.Config{Latency: 3 * time.Millisecond}, func(t *testing.T, n *simnet.Network) {
		a, b, done := pair(t, n)
		defer done()
		start := time.Now()
		send(t, a, "ping")
		expect(t, b, "ping")
		send(t, b, "pong")
		expect(t, a, "pong")
		if took := time.Since(start); took != 6*time.Millisecond {
			t.Errorf("a round trip took %v, want 6ms", took)
		}
	})
}

func TestConnAddresses(t *testing.T) {
	inBubble(t, simnet.Config{}, func(t *testing.T, n *simnet.Network) {
		a, b, done := pair(t, n)
		defer done()
		if got := b.LocalAddr().(*net.TCPAddr).String(); got != server {
			t.Errorf("local address of the accepted end: %s", got)
		}
		if got := a.RemoteAddr().String(); got != server {
			t.Errorf("remote address of the dialer's end: %s", got)
		}
		if a.LocalAddr().String() != b.RemoteAddr().String() {
			t.Errorf("dialer is %v, but its peer sees %v", a.LocalAddr(), b.RemoteAddr())
		}
		if ip := b.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().String(); ip != hostA {
			t.Errorf("the peer sees a dialer at %s", ip)
		}
	})
}

// A transfer much larger than the buffer arrives whole and in order, whatever
// the sizes of the reads and writes, the jitter and the number of segments.
func TestConnLargeTransfer(t *testing.T) {
	cfg := simnet.Config{Seed: 7, Latency: time.Millisecond, Jitter: 10 * time.Millisecond, BufferBytes: 1000}
	inBubble(t, cfg, func(t *testing.T, n *simnet.Network) {
		a, b, done := pair(t, n)
		defer done()
		rng := rand.New(rand.NewPCG(1, 2))
		want := make([]byte, 300_000)
		for i := range want {
			want[i] = byte(rng.Uint32())
		}
		go func() {
			for rest := want; len(rest) > 0; {
				k := min(len(rest), rng.IntN(5000))
				if _, err := a.Write(rest[:k]); err != nil {
					t.Errorf("write: %v", err)
					return
				}
				rest = rest[k:]
			}
			a.(*simnet.Conn).CloseWrite()
		}()
		got, err := io.ReadAll(b)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("got %d bytes, %v; want the %d bytes sent", len(got), err, len(want))
		}
	})
}

// The writer's bytes are its own again when Write has returned.
func TestConnWriteCopies(t *testing.T) {
	inBubble(t, simnet.Config{Latency: time.Millisecond}, func(t *testing.T, n *simnet.Network) {
		a, b, done := pair(t, n)
		defer done()
		p := []byte("before")
		a.Write(p)
		copy(p, "after!")
		expect(t, b, "before")
	})
}

func TestConnBackPressure(t *testing.T) {
	inBubble(t, simnet.Config{BufferBytes: 10}, func(t *testing.T, n *simnet.Network) {
		a, b, done := pair(t, n)
		defer done()
		a.SetWriteDeadline(time.Now().Add(time.Minute))
		start := time.Now()
		k, err := a.Write([]byte("0123456789ABCDEF"))
		if k != 10 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Minute {
			t.Fatalf("write into a full buffer: %d, %v after %v", k, err, time.Since(start))
		}
		a.SetWriteDeadline(time.Time{})
		written := make(chan error)
		go func() {
			_, err := a.Write([]byte("ABCDEF"))
			written <- err
		}()
		synctest.Wait()
		select {
		case err := <-written:
			t.Fatalf("a write did not wait for room: %v", err)
		default:
		}
		expect(t, b, "0123456789ABCDEF")
		if err := <-written; err != nil {
			t.Errorf("a write that had waited: %v", err)
		}
	})
}

// Two large Writes at once must not mix, though each waits for room many times.
func TestConnWritesAreAtomic(t *testing.T) {
	inBubble(t, simnet.Config{BufferBytes: 7, Latency: time.Millisecond}, func(t *testing.T, n *simnet.Network) {
		a, b, done := pair(t, n)
		defer done()
		var writers sync.WaitGroup
		for _, letter := range "xyz" {
			writers.Go(func() { a.Write(bytes.Repeat([]byte{byte(letter)}, 100)) })
		}
		go func() {
			writers.Wait()
			a.Close()
		}()
		got, err := io.ReadAll(b)
		if err != nil || len(got) != 300 {
			t.Fatalf("read %d bytes, %v", len(got), err)
		}
		for i := 0; i < 300; i += 100 {
			if !bytes.Equal(got[i:i+100], bytes.Repeat(got[i:i+1], 100)) {
				t.Fatalf("writes are mixed: %s", got)
			}
		}
	})
}

func TestConnHalfClose(t *testing.T) {
	inBubble(t, simnet.Config{Latency: time.Millisecond}, func(t *testing.T, n *simnet.Network) {
		a, b, done := pair(t, n)
		defer done()
		send(t, a, "last words")
		if err := a.(*simnet.Conn).CloseWrite(); err != nil {
			t.Fatalf("CloseWrite: %v", err)
		}
		if _, err := a.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("write after CloseWrite: %v", err)
		}
		expect(t, b, "last words")
		if k, err := b.Read(make([]byte, 1)); k != 0 || err != io.EOF {
			t.Errorf("read after the peer's CloseWrite: %d, %v", k, err)
		}
		send(t, b, "still here")
		expect(t, a, "still here")
	})
}

// Close delivers what was written; a close with unread data resets instead.
func TestConnClose(t *testing.T) {
	inBubble(t, simnet.Config{Latency: time.Millisecond}, func(t *testing.T, n *simnet.Network) {
		a, b, done := pair(t, n)
		defer done()
		send(t, a, "bye")
		a.Close()
		for name, err := range map[string]error{
			"second Close":    a.Close(),
			"CloseWrite":      a.(*simnet.Conn).CloseWrite(),
			"SetReadDeadline": a.SetReadDeadline(time.Now()),
			"Read":            second(a.Read(make([]byte, 1))),
			"Write":           second(a.Write([]byte("x"))),
		} {
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s after Close: %v", name, err)
			}
		}
		expect(t, b, "bye")
		if _, err := b.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("read after the peer's Close: %v", err)
		}
	})
}

func TestConnCloseWithUnreadDataResets(t *testing.T) {
	inBubble(t, simnet.Config{Latency: time.Millisecond}, func(t *testing.T, n *simnet.Network) {
		a, b, done := pair(t, n)
		defer done()
		send(t, a, "nobody reads this")
		send(t, b, "reply")
		time.Sleep(time.Second) // both have arrived
		b.Close()
		time.Sleep(time.Second)
		expect(t, a, "reply")
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read after a reset: %v", err)
		}
		if _, err := a.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("write after a reset: %v", err)
		}
	})
}

// A write to a closed end succeeds once, and the next one fails.
func TestConnSendToClosedEnd(t *testing.T) {
	inBubble(t, simnet.Config{Latency: time.Millisecond}, func(t *testing.T, n *simnet.Network) {
		a, b, done := pair(t, n)
		defer done()
		b.Close()
		time.Sleep(time.Second)
		send(t, a, "into the void")
		time.Sleep(time.Second)
		if _, err := a.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("second write to a closed end: %v", err)
		}
	})
}

func TestConnCloseWakes(t *testing.T) {
	inBubble(t, simnet.Config{BufferBytes: 1}, func(t *testing.T, n *simnet.Network) {
		a, _, done := pair(t, n)
		defer done()
		errs := make(chan error, 3)
		go func() { errs <- second(a.Read(make([]byte, 1))) }()
		go func() { errs <- second(a.Write([]byte("does not fit"))) }()
		go func() { errs <- second(a.Write([]byte("nor does this"))) }()
		synctest.Wait()
		a.Close()
		for range 3 {
			if err := <-errs; !errors.Is(err, net.ErrClosed) {
				t.Errorf("woken by Close with %v", err)
			}
		}
	})
}

func TestConnDeadlines(t *testing.T) {
	inBubble(t, simnet.Config{}, func(t *testing.T, n *simnet.Network) {
		a, b, done := pair(t, n)
		defer done()
		read := func() (time.Duration, error) {
			start := time.Now()
			_, err := a.Read(make([]byte, 1))
			return time.Since(start), err
		}
		check := func(what string, want time.Duration) {
			t.Helper()
			took, err := read()
			if !errors.Is(err, os.ErrDeadlineExceeded) || !isTimeout(err) || took != want {
				t.Errorf("%s: %v after %v, want a timeout after %v", what, err, took, want)
			}
		}
		a.SetReadDeadline(time.Now().Add(5 * time.Second))
		check("future", 5*time.Second)
		check("past", 0)
		send(t, b, "x")
		check("past, with something to read", 0)
		a.SetReadDeadline(time.Time{})
		if took, err := read(); err != nil || took != 0 {
			t.Errorf("cleared: %v after %v", err, took)
		}
		a.SetDeadline(time.Now().Add(-time.Hour))
		check("SetDeadline in the past", 0)
		if _, err := a.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("write after SetDeadline in the past: %v", err)
		}

		// A deadline that is moved while a Read waits holds for that Read.
		a.SetReadDeadline(time.Now().Add(time.Second))
		time.AfterFunc(500*time.Millisecond, func() { a.SetReadDeadline(time.Now().Add(3 * time.Second)) })
		check("moved", 3500*time.Millisecond)
		a.SetReadDeadline(time.Time{})
		time.AfterFunc(time.Second, func() { a.SetReadDeadline(time.Unix(1, 0)) })
		check("set into the past under a waiting Read", time.Second)

		// Taken back in time: the Read goes on until there is data.
		a.SetReadDeadline(time.Now().Add(time.Second))
		time.AfterFunc(500*time.Millisecond, func() { a.SetReadDeadline(time.Time{}) })
		time.AfterFunc(10*time.Second, func() { b.Write([]byte("y")) })
		if took, err := read(); err != nil || took != 10*time.Second {
			t.Errorf("taken back: %v after %v", err, took)
		}
	})
}

func TestConnEmptyReadAndWrite(t *testing.T) {
	inBubble(t, simnet.Config{}, func(t *testing.T, n *simnet.Network) {
		a, _, done := pair(t, n)
		defer done()
		if k, err := a.Read(nil); k != 0 || err != nil {
			t.Errorf("Read(nil): %d, %v", k, err)
		}
		if k, err := a.Write(nil); k != 0 || err != nil {
			t.Errorf("Write(nil): %d, %v", k, err)
		}
	})
}

// All methods at once, for the race detector.
func TestConnConcurrentUse(t *testing.T) {
	inBubble(t, simnet.Config{Latency: time.Microsecond, BufferBytes: 100}, func(t *testing.T, n *simnet.Network) {
		a, b, done := pair(t, n)
		defer done()
		var all sync.WaitGroup
		stop := time.Now().Add(50 * time.Millisecond)
		use := func(f func()) {
			all.Go(func() {
				for time.Now().Before(stop) {
					f()
					time.Sleep(10 * time.Microsecond)
				}
			})
		}
		for _, c := range []net.Conn{a, b} {
			use(func() { c.Read(make([]byte, 33)) })
			use(func() { c.Read(make([]byte, 44)) })
			use(func() { c.Write(make([]byte, 77)) })
			use(func() { c.Write(make([]byte, 177)) })
			use(func() { c.SetDeadline(time.Now().Add(50 * time.Microsecond)) })
			use(func() { c.LocalAddr(); c.RemoteAddr(); n.Stats(); n.Conns() })
		}
		use(func() { n.Partition(hostA, hostB); n.Heal(hostA, hostB) })
		all.Wait()
	})
}

func second(_ int, err error) error { return err }
