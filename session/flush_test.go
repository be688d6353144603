package session

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/wire"
)

// slowConn is a connection with a client that takes bytes as the test says.
type slowConn struct {
	room             atomic.Int64 // bytes that the client takes before it is waited for
	begin            func()       // called before each write; may be nil
	got              []byte
	wakes, delegated atomic.Int32
}

func (c *slowConn) WriteUntil(b []byte, until time.Time) (int, error) {
	if c.begin != nil {
		c.begin()
	}
	if !time.Now().Before(until) {
		return 0, os.ErrDeadlineExceeded
	}
	n := int(min(c.room.Load(), int64(len(b))))
	c.room.Add(-int64(n))
	if c.got = append(c.got, b[:n]...); n == len(b) {
		return n, nil
	}
	time.Sleep(time.Until(until))
	return n, os.ErrDeadlineExceeded
}

func (c *slowConn) Wake()     { c.wakes.Add(1) }
func (c *slowConn) Delegate() { c.delegated.Add(1) }
func (c *slowConn) Abort()    {}

// openSlow opens a session of 9 s on a slowConn, which has room for the answer to the handshake
// only. ask submits a read.
func openSlow(t *testing.T) (m *Manager, s *Session, r *replica, c *slowConn, ask func()) {
	t.Helper()
	m, r = newMember(t, Config{})
	s, resp, err := m.Connect(t.Context(), &wire.ConnectRequest{TimeoutMs: 9000}, netip.MustParseAddr("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	answer := wire.AppendFrame(nil, resp)
	c = new(slowConn)
	c.room.Store(int64(len(answer)))
	s.Open(c, answer)
	if err := s.Flush(FlushReader); err != nil || !bytes.Equal(c.got, answer) {
		t.Fatalf("the answer to the handshake was not sent: %x, %v", c.got, err)
	}
	c.got = nil
	t.Cleanup(s.Detach)
	return m, s, r, c, func() {
		t.Helper()
		if err := s.Submit(wire.AppendRequest(nil, 1, wire.OpGetData, readRoot)[4:]); err != nil {
			t.Fatal(err)
		}
	}
}

// replyBytes is the length of an answer to ask.
const replyBytes = 4 + 16 + 4 + 68

// One at a time sends, and it sends the output that comes up meanwhile.
func TestOneSendsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s, _, c, ask := openSlow(t)
		c.room.Store(1 << 20)
		nested := 0
		c.begin = func() {
			if nested++; nested > 1 {
				return
			}
			ask()
			before := len(c.got)
			if err := s.Flush(FlushReader); err != nil || len(c.got) != before {
				t.Errorf("two send at a time: %v", err)
			}
		}
		ask()
		if err := s.Flush(FlushReader); err != nil || len(c.got) != 2*replyBytes || nested != 2 {
			t.Errorf("%d bytes in %d writes, %v", len(c.got), nested, err)
		}
		if c.wakes.Load() != 0 {
			t.Errorf("%d goroutines were wanted", c.wakes.Load())
		}
	})
}

// A reader waits for a client that takes nothing for readerPatience only, and leaves the rest to
// another goroutine. That one gives up when the client has taken nothing for the timeout of its
// session.
func TestFlushLeavesSlowClientsToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s, _, c, ask := openSlow(t)
		ask()
		c.room.Store(10)
		began := time.Now()
		if err := s.Flush(FlushReader); err != nil || time.Since(began) != readerPatience || c.delegated.Load() != 1 {
			t.Fatalf("after %v, delegated %d times: %v", time.Since(began), c.delegated.Load(), err)
		}
		c.room.Store(10)
		ended := make(chan struct{})
		defer close(ended)
		go func() { // keeps the lease confirmed
			for {
				select {
				case <-ended:
					return
				case <-time.After(time.Second):
					_ = s.Submit(wire.AppendRequest(nil, wire.XidPing, wire.OpPing, wire.Empty{})[4:])
				}
			}
		}()
		began = time.Now()
		err := s.Flush(FlushAlone)
		if waited := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || waited < 9*time.Second || waited > 13*time.Second {
			t.Errorf("given up after %v: %v", waited, err)
		}
		if len(c.got) != 20 {
			t.Errorf("%d bytes were written", len(c.got))
		}
	})
}

// TestSharedFlushIsShort: a goroutine that connections share leaves a client that takes nothing to
// another one after sharedPatience, and so it does with a client that takes much output, and with
// an answer that is still to be encoded.
func TestSharedFlushIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, _, c, ask := openSlow(t)
		flush := func(what string, want time.Duration) {
			t.Helper()
			before, began := c.delegated.Load(), time.Now()
			if err := s.Flush(FlushShared); err != nil || time.Since(began) != want || c.delegated.Load() != before+1 {
				t.Errorf("%s: after %v, delegated %d times: %v", what, time.Since(began), c.delegated.Load()-before, err)
			}
			if err := s.Flush(FlushAlone); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		ask()
		c.begin = func() { c.begin = nil; c.room.Store(0) }
		time.AfterFunc(2*sharedPatience, func() { c.room.Store(1 << 30) })
		flush("it takes nothing", sharedPatience)

		for range 3 * outputCollectBytes / replyBytes {
			ask()
		}
		c.room.Store(1 << 30)
		c.begin = func() { time.Sleep(sharedPatience) }
		flush("it takes a piece in a millisecond", sharedPatience)

		c.begin = nil
		mustConnect(t, m, 10*time.Second).send(wire.OpSetData,
			wire.SetDataRequest{Path: "/", Data: make([]byte, 2*outputCollectBytes), Version: -1})
		synctest.Wait()
		ask()
		flush("a long answer", 0)
	})
}

// A write that fails while Submit waits for the client ends that wait, and nothing is held for the
// connection any more.
func TestFailedWriteEndsSubmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{})
		other := mustConnect(t, m, 10*time.Second)
		other.send(wire.OpSetData, wire.SetDataRequest{Path: "/", Data: make([]byte, 200_000), Version: -1})
		c := connectSilent(t, m)
		ended := make(chan error, 1)
		go func() {
			frame := wire.AppendRequest(nil, 1, wire.OpGetData, wire.PathWatchRequest{Path: "/", Watch: true})[4:]
			for {
				if err := c.s.Submit(frame); err != nil {
					ended <- err
					return
				}
			}
		}()
		synctest.Wait()
		if m.Stats().Held <= outputPauseBytes {
			t.Fatalf("%d bytes are held", m.Stats().Held)
		}
		began := time.Now()
		close(c.done)
		if err := <-ended; !errors.Is(err, errEnded) || time.Since(began) > time.Second {
			t.Errorf("Submit returned %v after %v", err, time.Since(began))
		}
		c.writing.Wait()
		synctest.Wait()
		if n := m.Stats(); n.Held != 0 || n.Watches.Watches != 0 {
			t.Errorf("%d bytes and %d watches are held", n.Held, n.Watches.Watches)
		}
	})
}

// Promise C6: output that is being written when the lease is no longer confirmed stays unsent until
// it is again. That is so, too, when the process was stopped between taking its output and writing
// it.
func TestWritesEndWithTheLease(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			_, s, r, c, ask := openSlow(t)
			r.setCut(true)
			ask()
			if stopped {
				c.room.Store(1 << 20)
				c.begin = func() { time.Sleep(4 * time.Second) }
			}
			began := time.Now()
			if err := s.Flush(FlushAlone); err != nil || len(c.got) != 0 {
				t.Fatalf("%d bytes were written, %v", len(c.got), err)
			}
			if waited := time.Since(began); waited > 4*time.Second {
				t.Errorf("the write ended after %v", waited)
			}
			wakes := c.wakes.Load()
			c.begin = nil
			c.room.Store(1 << 20)
			for _, by := range []Flusher{FlushReader, FlushShared, FlushAlone} {
				if err := s.Flush(by); err != nil || len(c.got) != 0 {
					t.Errorf("flusher %d: %d bytes were written without a lease, %v", by, len(c.got), err)
				}
			}
			r.setCut(false)
			time.Sleep(time.Second)
			if c.wakes.Load() != wakes+1 {
				t.Errorf("%d goroutines were wanted when the lease was confirmed", c.wakes.Load()-wakes)
			}
			if err := s.Flush(FlushShared); err != nil || len(c.got) != replyBytes {
				t.Errorf("%d bytes were written, %v", len(c.got), err)
			}
		})
	}
}
