package simnet_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/simnet"
)

func TestDialRefused(t *testing.T) {
	inBubble(t, simnet.Config{Latency: time.Millisecond}, func(t *testing.T, n *simnet.Network) {
		start := time.Now()
		_, err := n.Host(hostA).Dial(context.Background(), "tcp", server)
		if !errors.Is(err, syscall.ECONNREFUSED) || time.Since(start) != 2*time.Millisecond {
			t.Errorf("dial where nobody listens: %v after %v", err, time.Since(start))
		}
		l := listen(t, n, hostB, server)
		l.Close()
		if _, err := n.Host(hostA).Dial(context.Background(), "tcp", server); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial to a closed listener: %v", err)
		}
	})
}

func TestDialErrors(t *testing.T) {
	inBubble(t, simnet.Config{}, func(t *testing.T, n *simnet.Network) {
		h := n.Host(hostA)
		canceled, cancel := context.WithCancel(context.Background())
		cancel()
		for _, c := range []struct {
			ctx           context.Context
			network, addr string
			ok            func(error) bool
		}{
			{nil, "udp", server, func(err error) bool { var e net.UnknownNetworkError; return errors.As(err, &e) }},
			{nil, "tcp", "10.9.9.9:1", func(err error) bool { return errors.Is(err, syscall.EHOSTUNREACH) }},
			{nil, "tcp", "nobody:1", func(err error) bool { var e *net.DNSError; return errors.As(err, &e) && e.IsNotFound }},
			{nil, "tcp", "10.0.0.2", func(err error) bool { var e *net.AddrError; return errors.As(err, &e) }},
			{nil, "tcp", "10.0.0.2:http2181", func(err error) bool { var e *net.AddrError; return errors.As(err, &e) }},
			{canceled, "tcp", server, func(err error) bool { return errors.Is(err, context.Canceled) }},
		} {
			ctx := c.ctx
			if ctx == nil {
				ctx = context.Background()
			}
			conn, err := h.Dial(ctx, c.network, c.addr)
			var op *net.OpError
			if conn != nil || !errors.As(err, &op) || op.Op != "dial" || !c.ok(err) {
				t.Errorf("dial %s %s: %v, %v", c.network, c.addr, conn, err)
			}
		}
	})
}

// A dial over a cut ends with its context, or with the system's patience.
func TestDialOverACut(t *testing.T) {
	for _, cut := range [][2]string{{hostA, hostB}, {hostB, hostA}} {
		inBubble(t, simnet.Config{DialTimeout: time.Minute}, func(t *testing.T, n *simnet.Network) {
			l := listen(t, n, hostB, server)
			n.Cut(cut[0], cut[1])
			start := time.Now()
			_, err := n.Host(hostA).DialTimeout("tcp", server, 5*time.Second)
			if !isTimeout(err) || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 5*time.Second {
				t.Errorf("deadline: %v after %v", err, time.Since(start))
			}
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(time.Second, cancel)
			if _, err := n.Host(hostA).Dial(ctx, "tcp", server); !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled: %v", err)
			}
			start = time.Now()
			_, err = n.Host(hostA).Dial(context.Background(), "tcp", server)
			if !errors.Is(err, syscall.ETIMEDOUT) || time.Since(start) != time.Minute {
				t.Errorf("no deadline: %v after %v", err, time.Since(start))
			}
			time.AfterFunc(10*time.Second, n.HealAll)
			c := dial(t, n, hostA, server)
			peer, _ := l.Accept()
			// The dials that were given up must not be accepted.
			if peer.RemoteAddr().String() != c.LocalAddr().String() {
				t.Errorf("accepted %v, but the dialer is %v", peer.RemoteAddr(), c.LocalAddr())
			}
			c.Close()
			peer.Close()
			l.Close()
		})
	}
}

func TestListenErrors(t *testing.T) {
	inBubble(t, simnet.Config{}, func(t *testing.T, n *simnet.Network) {
		h := n.Host(hostA)
		defer listen(t, n, hostA, "10.0.0.1:1000").Close()
		defer listen(t, n, hostA, ":2000").Close()
		for _, c := range []struct {
			addr string
			want error
		}{
			{"10.0.0.1:1000", syscall.EADDRINUSE},
			{":1000", syscall.EADDRINUSE},
			{"10.0.0.1:2000", syscall.EADDRINUSE},
			{"127.0.0.1:2000", syscall.EADDRINUSE},
			{"10.0.0.2:3000", syscall.EADDRNOTAVAIL},
		} {
			if _, err := h.Listen("tcp", c.addr); !errors.Is(err, c.want) {
				t.Errorf("listen at %s: %v, want %v", c.addr, err, c.want)
			}
		}
		defer listen(t, n, hostA, "127.0.0.1:1000").Close() // another address, same port
		if _, err := h.Listen("tcp", "1000"); err == nil {
			t.Error("listen at an address without port")
		}
		if _, err := h.Listen("unix", ":1"); err == nil {
			t.Error("listen on a network that is not TCP")
		}
	})
}

func TestListenPortZeroAndNames(t *testing.T) {
	inBubble(t, simnet.Config{}, func(t *testing.T, n *simnet.Network) {
		m := n.Host("m1")
		l := listen(t, n, "m1", "m1:0")
		defer l.Close()
		at := l.Addr().(*net.TCPAddr)
		if at.Port == 0 || at.IP.String() != m.Addr().String() {
			t.Errorf("listening at %v, host is %v", at, m.Addr())
		}
		for _, addr := range []string{l.Addr().String(), net.JoinHostPort("m1", portOf(l))} {
			c := dial(t, n, hostA, addr)
			s, _ := l.Accept()
			c.Close()
			s.Close()
		}
		lo := listen(t, n, "m1", "localhost:77")
		defer lo.Close()
		c := dial(t, n, "m1", "127.0.0.1:77")
		s, _ := lo.Accept()
		send(t, c, "me")
		expect(t, s, "me")
		c.Close()
		s.Close()
		if _, err := n.Host(hostA).Dial(context.Background(), "tcp", "m1:77"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a listener on loopback was reached from outside: %v", err)
		}
	})
}

func TestListenerClose(t *testing.T) {
	inBubble(t, simnet.Config{}, func(t *testing.T, n *simnet.Network) {
		l := listen(t, n, hostB, server)
		a := dial(t, n, hostA, server)
		accepted, _ := l.Accept()
		waiting := dial(t, n, hostA, server)
		errs := make(chan error)
		other := listen(t, n, hostB, ":1")
		go func() { _, err := other.Accept(); errs <- err }()
		synctest.Wait()
		other.Close()
		if err := <-errs; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept woken by Close: %v", err)
		}
		l.Close()
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept after Close: %v", err)
		}
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("second Close: %v", err)
		}
		send(t, a, "x") // what was accepted lives on
		expect(t, accepted, "x")
		if _, err := waiting.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a connection that nobody accepted: %v", err)
		}
		a.Close()
		accepted.Close()
		waiting.Close()
	})
}

func TestListenerBacklog(t *testing.T) {
	inBubble(t, simnet.Config{Backlog: 2}, func(t *testing.T, n *simnet.Network) {
		l := listen(t, n, hostB, server)
		defer l.Close()
		first, second := dial(t, n, hostA, server), dial(t, n, hostA, server)
		_, err := n.Host(hostA).DialTimeout("tcp", server, time.Minute)
		if !isTimeout(err) {
			t.Errorf("dial beyond the backlog: %v", err)
		}
		var accepted []net.Conn
		time.AfterFunc(2500*time.Millisecond, func() {
			c, _ := l.Accept()
			accepted = append(accepted, c)
		})
		start := time.Now()
		third := dial(t, n, hostA, server)
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("a dial waited %v for the backlog, want 3s", took)
		}
		synctest.Wait()
		for _, c := range append(accepted, first, second, third) {
			c.Close()
		}
	})
}

// The standard library's own users of net.Conn, in virtual time.
func TestHTTPOverSimnet(t *testing.T) {
	inBubble(t, simnet.Config{Latency: 20 * time.Millisecond, Jitter: time.Millisecond}, func(t *testing.T, n *simnet.Network) {
		l := listen(t, n, hostB, ":80")
		srv := &http.Server{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(time.Hour)
				body, _ := io.ReadAll(r.Body) // all of it: a server may not read once it writes
				w.Write(body)
			}),
		}
		go srv.Serve(l)
		transport := &http.Transport{DialContext: n.Host(hostA).Dial}
		client := http.Client{Transport: transport}
		body := make([]byte, 1<<20)
		resp, err := client.Post("http://10.0.0.2/", "text/plain", io.NopCloser(io.LimitReader(zeros{}, int64(len(body)))))
		if err != nil {
			t.Fatalf("post: %v", err)
		}
		got, err := io.ReadAll(resp.Body)
		if err != nil || len(got) != len(body) {
			t.Errorf("%d bytes came back, %v", len(got), err)
		}
		resp.Body.Close()
		transport.CloseIdleConnections()
		if err := srv.Shutdown(context.Background()); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

func portOf(l net.Listener) string {
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}
