package bench

import (
	"context"
	"net"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/zkconn"
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
				_, _ = wire.ReadFrame(c, nil, zkconn.MaxFrameBytes)
				_, _ = c.Write(wire.AppendFrame(nil, wire.ConnectResponse{TimeoutMs: 4000,
					Password: make([]byte, wire.PasswordLen), HasReadOnly: true}))
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

// A client that never gets in before the run is over counts as an error.
func TestClientsThatNeverGetIn(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
			if n == 3 {
				cancel()
			}
		}
	}()
	r := &run{Config: Config{Servers: []string{l.Addr().String()}, Session: 4 * time.Second}}
	if err := r.again(ctx, 0, nil, nil); err != nil {
		t.Error(err)
	}
	if n := r.errors["connection lost"]; n != 1 || len(r.errors) != 1 {
		t.Errorf("errors: %v", r.errors)
	}
}

// A server that is starting may take a connection and forget it: a client that waits for the server
// tries again soon.
func TestAwaitDoesNotWaitForAConnectionThatIsForgotten(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if n < 2 {
				defer c.Close()
				continue // and says nothing
			}
			_, _ = wire.ReadFrame(c, nil, zkconn.MaxFrameBytes)
			_, _ = c.Write(wire.AppendFrame(nil, wire.ConnectResponse{TimeoutMs: 4000,
				Password: make([]byte, wire.PasswordLen), HasReadOnly: true}))
			_ = c.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience/2)
	defer cancel()
	p := &server{done: make(chan struct{})}
	called := 0
	err = p.await(ctx, route{}, l.Addr().String(), func(*conn) error {
		called++
		return nil
	})
	if err != nil || called != 1 {
		t.Errorf("called %d times: %v", called, err)
	}
}

// A client that only listens pings, however many events it hears.
func TestEventPingsAlthoughEventsCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 9 * time.Second
		ours, theirs := net.Pipe()
		c := &conn{Conn: zkconn.New(ours), timeout: timeout, sent: time.Now()}
		var server sync.WaitGroup
		server.Go(func() {
			event := wire.AppendReply(nil, wire.ReplyHeader{Xid: wire.XidNotification}, &wire.WatcherEvent{Path: "/n"})
			for err := error(nil); err == nil; _, err = theirs.Write(event) {
				time.Sleep(time.Second)
			}
		})
		pings := 0
		server.Go(func() {
			for {
				frame, err := wire.ReadFrame(theirs, nil, zkconn.MaxFrameBytes)
				if err != nil {
					return
				}
				if req, err := wire.DecodeRequest(frame); err == nil && req.Op == wire.OpPing {
					pings++
				}
			}
		})
		for range 20 {
			if _, err := c.event(t.Context()); err != nil {
				t.Error(err)
			}
		}
		_, _ = ours.Close(), theirs.Close()
		server.Wait()
		if pings < 6 {
			t.Errorf("%d pings in 20 s, with a session timeout of %v", pings, timeout)
		}
	})
}

// An idle session pings when a third of its timeout has passed, and not before.
func TestIdleSessionsPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 9 * time.Second
		ours, theirs := net.Pipe()
		c := &conn{Conn: zkconn.New(ours), timeout: timeout}
		start := time.Now()
		var at []time.Duration
		var server sync.WaitGroup
		server.Go(func() {
			for {
				if _, err := wire.ReadFrame(theirs, nil, zkconn.MaxFrameBytes); err != nil {
					return
				}
				at = append(at, time.Since(start))
				_, _ = theirs.Write(wire.AppendReply(nil, wire.ReplyHeader{Xid: wire.XidPing}, nil))
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), timeout-time.Second)
		defer cancel()
		if err := (&run{}).keepAlive(ctx, []*conn{c}); err != nil {
			t.Error(err)
		}
		_, _ = ours.Close(), theirs.Close()
		server.Wait()
		if want := []time.Duration{timeout / 3, 2 * timeout / 3}; !slices.Equal(at, want) {
			t.Errorf("pings after %v, want %v", at, want)
		}
	})
}

func TestGone(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Skip("no command sleep:", err)
	}
	defer cmd.Wait()
	if gone(cmd.Process.Pid) {
		t.Error("a process that runs is gone")
	}
	// Nobody has waited for it yet: a zombie counts as gone.
	if err := killProcess(cmd.Process.Pid); err != nil {
		t.Error(err)
	}
	if !gone(cmd.Process.Pid) {
		t.Error("not gone")
	}
}
