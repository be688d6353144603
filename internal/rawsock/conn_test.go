//go:build unix

package rawsock

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long anything may take that is certain to happen.
const patience = 30 * time.Second

// result is what a Read or a Write has returned.
type result struct {
	n   int
	err error
}

// pair returns both ends of a connection over TCP.
func pair(t *testing.T) (here, there *Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	for _, c := range []net.Conn{a, b} {
		_ = c.SetDeadline(time.Now().Add(patience))
	}
	return Wrap(a).(*Conn), Wrap(b).(*Conn)
}

// TestWrapOther: what is no connection of package net over TCP stays what it is.
func TestWrapOther(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if Wrap(a) != a {
		t.Fatal("a pipe was wrapped")
	}
	here, _ := pair(t)
	if Wrap(here) != net.Conn(here) {
		t.Fatal("what is wrapped was wrapped again")
	}
}

// TestRead: there is what has come, at most so much as was asked for, and then the end.
func TestRead(t *testing.T) {
	here, there := pair(t)
	if n, err := there.Write([]byte("lockkeeper")); n != 10 || err != nil {
		t.Fatalf("wrote %d bytes, %v", n, err)
	}
	_ = there.Close()
	if n, err := here.Read(nil); n != 0 || err != nil {
		t.Fatalf("read of nothing: %d, %v", n, err)
	}
	b := make([]byte, 4)
	if n, err := here.Read(b); n != 4 || err != nil || string(b) != "lock" {
		t.Fatalf("%d, %v, %q", n, err, b)
	}
	if rest, err := io.ReadAll(here); err != nil || string(rest) != "keeper" {
		t.Fatalf("%q, %v", rest, err)
	}
	if n, err := here.Read(b); n != 0 || err != io.EOF {
		t.Fatalf("behind the end: %d, %v", n, err)
	}
}

// TestReadWaits: a Read that waits ends with what comes, with its deadline, or with Close.
func TestReadWaits(t *testing.T) {
	here, there := pair(t)
	ended := make(chan result)
	read := func() {
		n, err := here.Read(make([]byte, 8))
		ended <- result{n, err}
	}
	go read()
	if _, err := there.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if r := <-ended; r.n != 1 || r.err != nil {
		t.Fatalf("%d, %v", r.n, r.err)
	}
	go read()
	_ = here.SetReadDeadline(time.Now())
	r := <-ended
	if r.n != 0 || !errors.Is(r.err, os.ErrDeadlineExceeded) || !strings.HasPrefix(r.err.Error(), "read tcp ") {
		t.Fatalf("%d, %v", r.n, r.err)
	}
	_ = here.SetReadDeadline(time.Time{})
	go read()
	_ = here.Close()
	if r := <-ended; r.n != 0 || !errors.Is(r.err, net.ErrClosed) {
		t.Fatalf("%d, %v", r.n, r.err)
	}
}

// TestWrite: what is more than the socket takes arrives whole, and what several write at the same time is not mixed.
func TestWrite(t *testing.T) {
	here, there := pair(t)
	const writers, size = 4, 8 << 20
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			if n, err := there.Write(bytes.Repeat([]byte{byte(i)}, size)); n != size || err != nil {
				t.Errorf("writer %d: %d bytes, %v", i, n, err)
			}
		})
	}
	seen := map[byte]bool{}
	got := make([]byte, size)
	for range writers {
		if _, err := io.ReadFull(here, got); err != nil {
			t.Fatal(err)
		}
		if seen[got[0]] || !bytes.Equal(got, bytes.Repeat(got[:1], size)) {
			t.Fatalf("what writer %d has written came twice, or not in one piece", got[0])
		}
		seen[got[0]] = true
	}
	wg.Wait()
}

// TestWriteWaits: a Write that waits ends with its deadline, and says how much was taken.
func TestWriteWaits(t *testing.T) {
	here, there := pair(t)
	ended := make(chan result)
	const size = 64 << 20
	go func() {
		n, err := there.Write(make([]byte, size))
		ended <- result{n, err}
	}()
	if _, err := here.Read(make([]byte, 1)); err != nil { // it has begun
		t.Fatal(err)
	}
	_ = there.SetWriteDeadline(time.Now())
	r := <-ended
	if r.n <= 0 || r.n >= size || !errors.Is(r.err, os.ErrDeadlineExceeded) || !strings.HasPrefix(r.err.Error(), "write tcp ") {
		t.Fatalf("%d, %v", r.n, r.err)
	}
}

// TestReset: what the system says is in the error.
func TestReset(t *testing.T) {
	here, there := pair(t)
	_ = there.SetLinger(0)
	_ = there.Close()
	if n, err := here.Read(make([]byte, 8)); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("read: %d, %v", n, err)
	}
	if n, err := here.Write([]byte("x")); n != 0 || !errors.Is(err, syscall.EPIPE) {
		t.Fatalf("write: %d, %v", n, err)
	}
}

// TestTryWrite: a socket is given what it takes, and is not waited for.
func TestTryWrite(t *testing.T) {
	here, there := pair(t)
	large := bytes.Repeat([]byte("0123456789abcdef"), 4<<20)
	sent, err := there.TryWrite(large)
	if err != nil || sent <= 0 || sent >= len(large) {
		t.Fatalf("%d of %d bytes, %v", sent, len(large), err)
	}
	if n, err := there.TryWrite([]byte("x")); n != 0 || err != nil {
		t.Fatalf("a socket that is full took %d bytes, %v", n, err)
	}
	got := make([]byte, sent)
	if _, err := io.ReadFull(here, got); err != nil || !bytes.Equal(got, large[:sent]) {
		t.Fatalf("what came is not what was sent: %v", err)
	}
	if _, err := there.Write([]byte("x")); err != nil { // waits for room
		t.Fatal(err)
	}
	_ = there.Close()
	if n, err := there.TryWrite([]byte("x")); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Fatalf("after Close: %d, %v", n, err)
	}
}

// TestOrder: who reads what another has written knows, for the race detector too, what that one has done before.
func TestOrder(t *testing.T) {
	here, there := pair(t)
	done := 0
	go func() {
		done = 1
		_, _ = there.Write([]byte("x"))
	}()
	if _, err := here.Read(make([]byte, 1)); err != nil || done != 1 {
		t.Fatalf("%d, %v", done, err)
	}
}

// TestAllocs: neither reading nor writing takes memory.
func TestAllocs(t *testing.T) {
	most := 0.0
	if raceDetector {
		most = 3 // sync.Pool forgets one thing in four then
	}
	here, there := pair(t)
	b := make([]byte, 16)
	if n := testing.AllocsPerRun(1000, func() {
		_, _ = there.Write(b)
		_, _ = here.Read(b)
		_, _ = there.TryWrite(b)
		_, _ = here.Read(b)
	}); n > most {
		t.Fatalf("%v allocations", n)
	}
}
