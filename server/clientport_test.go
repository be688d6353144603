package server

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/simnet"
	"lockkeeper/server/zoocfg"
	"lockkeeper/wire"
)

// TestFirstBytes: bytes that are neither a word nor a handshake close the connection without an
// answer, and disturb nobody else.
//
// Defends: C9.
func TestFirstBytes(t *testing.T) {
	checkGoroutines(t)
	s := startReal(t, nil)
	bystander := dialReal(t, s)
	bystander.connect(10 * time.Second)
	short := wire.AppendFrame(nil, wire.ConnectRequest{})
	short = short[:len(short)-9]
	short[3] -= 9
	for name, b := range map[string]string{
		"upper case":          "RUOK",
		"unknown word":        "icfg",
		"HTTP":                "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"TLS":                 "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"telnet interrupt":    "\xff\xf4\xff\xfd",
		"length -1":           "\xff\xff\xff\xff",
		"length 0":            "\x00\x00\x00\x00",
		"one byte too long":   "\x00\x10\x00\x00",
		"length 2^31-1":       "\x7f\xff\xff\xff" + strings.Repeat("x", 100),
		"short handshake":     string(short),
		"password too long":   "\x00\x00\x00\x1c" + strings.Repeat("\x00", 24) + "\x7f\xff\xff\xff",
		"request, no session": "\x00\x00\x00\x08\x00\x00\x00\x01\x00\x00\x00\x0b",
	} {
		t.Run(name, func(t *testing.T) {
			c := dialReal(t, s)
			c.put([]byte(b)...)
			c.expectClosed()
		})
	}
	bystander.call(wire.OpPing, wire.Empty{})
}

// TestBufferLimit: a frame of exactly jute.maxbuffer bytes is taken, one more closes this
// connection only.
func TestBufferLimit(t *testing.T) {
	for _, limit := range []int{100, 2000} { // one of ZooKeeper's own tests uses 100
		t.Run(fmt.Sprint(limit), func(t *testing.T) { testBufferLimit(t, limit) })
	}
}

func testBufferLimit(t *testing.T, limit int) {
	file := filepath.Join(t.TempDir(), "zoo.cfg")
	limit = mustLoad(t, file, "clientPort=2181\ndataDir=%s\njute.maxbuffer=%d\n", t.TempDir(), limit).Client.MaxBuffer
	s := startReal(t, func(c *Config) { c.Client.MaxBuffer = limit })
	c := dialReal(t, s)
	c.connect(10 * time.Second)
	fill := func(frameBytes int) *wire.CreateRequest {
		r := create("/n", nil, wire.ModePersistentSequential)
		overhead := len(wire.AppendRequest(nil, 1, wire.OpCreate, r)) - 4
		r.Data = bytes.Repeat([]byte("x"), frameBytes-overhead)
		return r
	}
	c.call(wire.OpCreate, fill(limit))
	c.put(c.request(wire.OpGetData, wire.PathWatchRequest{Path: "/"})...)
	c.put(c.request(wire.OpCreate, fill(limit+1))...)
	for _, want := range []wire.Code{wire.CodeOK, wire.CodeBadArguments} {
		if h, _ := c.reply(); h.Err != want {
			t.Errorf("answer %v, want %v", h.Err, want)
		}
	}
	c.expectClosed()
	if got := s.port.counters.badLengths.Load(); got != 1 {
		t.Errorf("%d frames of a wrong length were counted", got)
	}

	// A length alone is no request.
	length := dialReal(t, s)
	length.connect(10 * time.Second)
	length.put(binary.BigEndian.AppendUint32(nil, uint32(limit)+1)...)
	length.expectClosed()

	// The session lives on.
	again := dialReal(t, s)
	again.req.SessionID, again.req.Password = c.id.SessionID, c.id.Password
	again.connect(10 * time.Second)
	if again.id.SessionID != c.id.SessionID || again.id.TimeoutMs == 0 {
		t.Errorf("attach: %+v", again.id)
	}
}

func TestHandshakeTimeout(t *testing.T) {
	checkGoroutines(t)
	whole := wire.AppendFrame(nil, wire.ConnectRequest{TimeoutMs: 10000})
	for name, b := range map[string][]byte{
		"nothing":          {},
		"three bytes":      []byte("srv"),
		"half a handshake": whole[:len(whole)/2],
		"all but one":      whole[:len(whole)-1],
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, simnet.Config{}, nil, func(t *testing.T, s *Server, h *simnet.Host) {
				c := dialSim(t, h)
				start := time.Now()
				c.put(b...)
				c.expectClosed()
				if took := time.Since(start); took != 10*time.Second {
					t.Errorf("closed after %v", took)
				}
				if got := s.port.counters.sessionlessExpired.Load(); got != 1 {
					t.Errorf("%d expired connections were counted", got)
				}
			})
		})
	}
}

// TestHalfFrame: a client that stops in the middle of a frame holds up nobody, and loses its
// connection with its session.
func TestHalfFrame(t *testing.T) {
	inBubble(t, simnet.Config{}, nil, func(t *testing.T, s *Server, h *simnet.Host) {
		slow, other := dialSim(t, h), dialSim(t, h)
		slow.connect(6 * time.Second)
		other.connect(time.Minute)
		frame := slow.request(wire.OpCreate, create("/never", nil, wire.ModePersistent))
		start := time.Now()
		slow.put(frame[:len(frame)-1]...)
		other.call(wire.OpCreate, create("/a", nil, wire.ModePersistent))
		slow.expectClosed()
		if took := time.Since(start); took < 6*time.Second || took > 10*time.Second {
			t.Errorf("closed after %v; its session had 6 s, and a tick has 3", took)
		}
		other.put(other.request(wire.OpExists, &wire.PathWatchRequest{Path: "/never"})...)
		if h, _ := other.reply(); h.Err != wire.CodeNoNode {
			t.Errorf("the half request had an effect: %v", h.Err)
		}
	})
}

func TestMaxClientCnxns(t *testing.T) {
	checkGoroutines(t)
	s := startReal(t, func(c *Config) { c.Client.MaxCnxnsPerAddr = 2 })
	first, second := dialReal(t, s), dialReal(t, s)
	first.connect(10 * time.Second)
	second.put(0) // counts although it has said nothing yet
	await(t, "two connections", func() bool { return s.port.count() == 2 })
	third := dialReal(t, s)
	third.expectClosed()
	if got := s.port.counters.rejected.Load(); got != 1 {
		t.Errorf("%d rejected connections were counted", got)
	}
	first.call(wire.OpPing, wire.Empty{})
	_ = second.Close()
	await(t, "one connection", func() bool { return s.port.count() == 1 })
	if got := dialReal(t, s).word("srvr"); !strings.Contains(got, "Connections: 2\n") {
		t.Errorf("srvr: %s", got)
	}
}

// TestMaxClientCnxnsIsPerAddress, which loopback alone cannot show.
func TestMaxClientCnxnsIsPerAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(simnet.Config{})
		var served, refused int
		cfg := Config{Client: zoocfg.Client{MaxCnxnsPerAddr: 2, MaxCnxns: 5}}.WithDefaults()
		cfg.Logger = testLogger()
		l, err := n.Host("server").Listen("tcp", ":2181")
		if err != nil {
			t.Fatal(err)
		}
		p := newClientPort(listeners{clients: l}, &cfg, nil, nil, nil)
		p.start(t.Context())
		for _, host := range []string{"a", "a", "a", "b", "b", "b", "c", "c"} {
			c := dialSim(t, n.Host(host))
			synctest.Wait()
			for _, c := range p.list() {
				p.heard(c) // or a newer one would take its place
			}
			_ = c.SetReadDeadline(time.Now().Add(time.Second))
			if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
				served++
			} else {
				refused++
			}
		}
		// Two of a, two of b, and one of c, because of maxCnxns.
		if served != 5 || refused != 3 || p.counters.rejected.Load() != 3 {
			t.Errorf("%d served, %d refused, %d counted", served, refused, p.counters.rejected.Load())
		}
		p.stopAccepting()
		p.cut()
		p.wait()
		if p.count() != 0 || p.silentCount() != 0 {
			t.Errorf("counts are left: %d, %d", p.count(), p.silentCount())
		}
	})
}

// TestSilentConnectionsMakeRoom: connections that send no request, or half of one, keep nobody out,
// neither by their own number nor when they are all that there may be.
//
// Defends: C9.
func TestSilentConnectionsMakeRoom(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"maxSessionlessCnxns": func(c *Config) { c.Client.MaxSilentCnxns = 3 },
		"maxCnxns":            func(c *Config) { c.Client.MaxCnxns = 4 },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, simnet.Config{}, change, func(t *testing.T, s *Server, h *simnet.Host) {
				served := dialSim(t, h)
				served.connect(time.Minute)
				var silent []*rawClient
				for range 10 {
					c := dialSim(t, h)
					c.put(0, 0, 0, 44, 0, 0)
					synctest.Wait()
					silent = append(silent, c)
				}
				late := dialSim(t, h)
				late.connect(time.Minute)
				late.call(wire.OpPing, wire.Empty{})
				served.call(wire.OpPing, wire.Empty{})
				if n, open := s.port.counters.displaced.Load(), s.port.silentCount(); n != 8 || open != 2 {
					t.Errorf("%d were displaced, %d are open", n, open)
				}
				silent[0].expectClosed()
				for _, c := range silent {
					_ = c.Close()
				}
				synctest.Wait()
				if n := s.port.silentCount(); n != 0 {
					t.Errorf("%d are counted when all have gone", n)
				}
			})
		})
	}
}

// TestFirstRequestIsShort: a client that has not logged in cannot have the member keep a megabyte
// by a first request of that length.
func TestFirstRequestIsShort(t *testing.T) {
	inBubble(t, simnet.Config{}, nil, func(t *testing.T, s *Server, h *simnet.Host) {
		c := dialSim(t, h)
		c.put(binary.BigEndian.AppendUint32(nil, handshakeBytes+1)...)
		c.expectClosed()
		if n := s.port.counters.badLengths.Load(); n != 1 {
			t.Errorf("%d are counted", n)
		}
	})
}

// TestClientThatDoesNotRead: its replies fill the socket, its own connection comes to a halt, and
// nobody else's. When it has taken nothing for as long as its session may be silent, its connection
// is closed.
func TestClientThatDoesNotRead(t *testing.T) {
	inBubble(t, simnet.Config{BufferBytes: 4 << 10}, nil, func(t *testing.T, s *Server, h *simnet.Host) {
		deaf, other := dialSim(t, h), dialSim(t, h)
		deaf.connect(6 * time.Second)
		other.connect(time.Minute)
		other.call(wire.OpCreate, create("/big", bytes.Repeat([]byte("x"), 100<<10), wire.ModePersistent))
		start := time.Now()
		deaf.put(deaf.request(wire.OpGetData, &wire.PathWatchRequest{Path: "/big"})...)
		ended := make(chan struct{})
		go func() { // it goes on asking, so that its session stays alive
			defer close(ended)
			for {
				if _, err := deaf.Write(deaf.request(wire.OpPing, wire.Empty{})); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}()
		for time.Since(start) < 5*time.Second {
			before := time.Now()
			other.call(wire.OpPing, wire.Empty{})
			if took := time.Since(before); took > 100*time.Millisecond {
				t.Errorf("a ping of another client took %v", took)
			}
			time.Sleep(500 * time.Millisecond)
		}
		<-ended
		if took := time.Since(start); took < 6*time.Second || took > 15*time.Second {
			t.Errorf("the deaf client was disconnected after %v", took)
		}
		other.call(wire.OpPing, wire.Empty{})
	})
}

// TestSlowClient: a client that takes little at a time is served for as long as it goes on taking.
func TestSlowClient(t *testing.T) {
	inBubble(t, simnet.Config{BufferBytes: 1 << 10}, nil, func(t *testing.T, s *Server, h *simnet.Host) {
		c := dialSim(t, h)
		c.connect(6 * time.Second)
		data := bytes.Repeat([]byte("0123456789"), 2000)
		c.call(wire.OpCreate, create("/big", data, wire.ModePersistent))
		c.put(c.request(wire.OpGetData, &wire.PathWatchRequest{Path: "/big"})...)
		var got []byte
		for piece := make([]byte, 500); len(got) < len(data); {
			n, err := c.Read(piece)
			if err != nil {
				t.Fatalf("after %d bytes: %v", len(got), err)
			}
			got = append(got, piece[:n]...)
			time.Sleep(time.Second)
			c.put(c.request(wire.OpPing, wire.Empty{})...)
		}
		if !bytes.Contains(got, data[:10000]) {
			t.Error("what came is not what was stored")
		}
	})
}

// TestSlowClientsHoldUpNobody: clients that take none of their replies to writes, more of them than
// goroutines that connections share, keep no event from another client.
func TestSlowClientsHoldUpNobody(t *testing.T) {
	inBubble(t, simnet.Config{BufferBytes: 1 << 10}, nil, func(t *testing.T, s *Server, h *simnet.Host) {
		other := dialSim(t, h)
		other.connect(30 * time.Second)
		other.call(wire.OpCreate, create("/a", nil, wire.ModePersistent))
		for range runtime.GOMAXPROCS(0) + 20 {
			deaf := dialSim(t, h)
			deaf.connect(30 * time.Second)
			deaf.call(wire.OpGetData, &wire.PathWatchRequest{Path: "/a", Watch: true})
			for range 30 {
				deaf.put(deaf.request(wire.OpSetData, wire.SetDataRequest{Path: "/", Version: -1})...)
			}
		}
		time.Sleep(time.Second) // virtual: their buffers are full
		other.call(wire.OpGetData, &wire.PathWatchRequest{Path: "/a", Watch: true})
		began := time.Now()
		other.put(other.request(wire.OpSetData, wire.SetDataRequest{Path: "/a", Version: -1})...)
		if e, _ := other.reply(); e.Xid != wire.XidNotification || time.Since(began) > 100*time.Millisecond {
			t.Errorf("after %v: %+v, want an event", time.Since(began), e)
		}
		if r, _ := other.reply(); r.Xid != other.xid {
			t.Errorf("%+v, want the reply", r)
		}
	})
}

// TestRefusedHandshake: the answer "expired" arrives whole although the client has sent more behind
// its request, and the connection ends without a reset.
func TestRefusedHandshake(t *testing.T) {
	s := startReal(t, nil)
	for _, readOnly := range []bool{false, true} {
		c := dialReal(t, s)
		c.req = wire.ConnectRequest{TimeoutMs: 10000, SessionID: 0x1234, Password: make([]byte, 16), HasReadOnly: readOnly}
		b := wire.AppendFrame(nil, c.req)
		b = append(b, c.request(wire.OpPing, wire.Empty{})...)
		b = append(b, bytes.Repeat([]byte("x"), 100_000)...)
		c.put(b...)
		_ = c.Conn.(interface{ CloseWrite() error }).CloseWrite()
		answer, err := io.ReadAll(c)
		want := wire.AppendFrame(nil, wire.ConnectResponse{Password: make([]byte, 16), HasReadOnly: readOnly})
		if err != nil || !bytes.Equal(answer, want) {
			t.Errorf("readOnly %v: got %x, %v, want %x", readOnly, answer, err, want)
		}
	}
}

// TestPipelinedBehindHandshake: requests in the same segment as the connect request are answered
// after it, in order.
func TestPipelinedBehindHandshake(t *testing.T) {
	s := startReal(t, nil)
	c := dialReal(t, s)
	b := wire.AppendFrame(nil, wire.ConnectRequest{TimeoutMs: 10000})
	b = append(b, c.request(wire.OpCreate, create("/p", nil, wire.ModePersistent))...)
	b = append(b, c.request(wire.OpExists, &wire.PathWatchRequest{Path: "/p"})...)
	b = append(b, c.request(wire.OpCloseSession, wire.Empty{})...)
	b = append(b, c.request(wire.OpCreate, create("/late", nil, wire.ModePersistent))...)
	c.put(b...)
	c.response()
	for want := wire.Xid(1); want <= 3; want++ {
		if h, _ := c.reply(); h.Xid != want || h.Err != wire.CodeOK {
			t.Errorf("got %+v, want the reply to %d", h, want)
		}
	}
	c.expectEnd()
	d := dialReal(t, s)
	d.connect(10 * time.Second)
	d.put(d.request(wire.OpExists, &wire.PathWatchRequest{Path: "/late"})...)
	if h, _ := d.reply(); h.Err != wire.CodeNoNode {
		t.Errorf("a request behind closeSession had an effect: %v", h.Err)
	}
}

// TestMalformedRequest closes the connection that sent it.
//
// Defends: C9.
func TestMalformedRequest(t *testing.T) {
	s := startReal(t, nil)
	c := dialReal(t, s)
	c.connect(10 * time.Second)
	c.put(0, 0, 0, 7, 1, 2, 3, 4, 5, 6, 7)
	c.expectClosed()
}

// TestUnknownOperation: the answer comes before the end.
func TestUnknownOperation(t *testing.T) {
	s := startReal(t, nil)
	c := dialReal(t, s)
	c.connect(10 * time.Second)
	c.put(c.request(wire.Op(4711), wire.Empty{})...)
	if h, _ := c.reply(); h.Err != wire.CodeUnimplemented {
		t.Errorf("got %+v", h)
	}
	c.expectEnd()
}

// TestAcceptFailures: a listener that fails for a while, as it does when the process is out of file
// descriptors, is tried again with growing pauses.
func TestAcceptFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(simnet.Config{})
		l, err := n.Host("server").Listen("tcp", ":2181")
		if err != nil {
			t.Fatal(err)
		}
		broken := &brokenListener{Listener: l, failures: 20}
		cfg := Config{Logger: testLogger()}.WithDefaults()
		p := newClientPort(listeners{clients: broken}, &cfg, nil, nil, nil)
		start := time.Now()
		p.start(t.Context())
		dialSim(t, n.Host("client"))
		for p.count() == 0 {
			time.Sleep(time.Millisecond) // of virtual time
		}
		if took := time.Since(start); took < 10*time.Second || took > 20*time.Second {
			t.Errorf("20 failures took %v", took)
		}
		p.stopAccepting()
		p.cut()
		p.wait()
	})
}

// TestClientPortMoves: when the members agree upon another client port, the one before is closed,
// and connections to it stay.
func TestClientPortMoves(t *testing.T) {
	s := startReal(t, nil)
	before := s.ClientAddr().String()
	c := dialRaw(t, before)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	after := l.Addr().String()
	_ = l.Close()
	s.moveClientPort(after)
	if got := s.ClientAddr().String(); got != after {
		t.Fatalf("it listens at %s, not at %s", got, after)
	}
	if nc, err := net.Dial("tcp", before); err == nil {
		_ = nc.Close()
		t.Error("the port before is open still")
	}
	for _, at := range []net.Conn{c, dialRaw(t, after)} {
		if _, err := io.WriteString(at, "srvr"); err != nil {
			t.Error(err)
		}
		if answer, err := io.ReadAll(at); err != nil || !strings.HasPrefix(string(answer), "Zookeeper version") {
			t.Errorf("%q, %v", answer, err)
		}
	}
}

func dialRaw(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

type brokenListener struct {
	net.Listener
	failures int
}

func (l *brokenListener) Accept() (net.Conn, error) {
	if l.failures > 0 {
		l.failures--
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

// No port takes the descriptors that the log needs, whatever is configured; and a limit that is too
// low for that is told at the start.
func TestDescriptorsAreKeptForTheLog(t *testing.T) {
	three := []Member{{ID: 1}, {ID: 2}, {ID: 3}}
	for _, tt := range []struct {
		limit int64
		cfg   Config
		fault string // part of the warning or error
	}{
		{-1, Config{}, ""},
		{1024, Config{}, ""},
		{1024, Config{
			Cluster: zoocfg.Cluster{Members: three},
			HTTP:    zoocfg.HTTP{Addr: "x", Conns: zoocfg.DefaultHTTPConns},
			Client:  zoocfg.Client{MaxCnxnsPerAddr: 60},
		}, ""},
		{256, Config{
			Cluster: zoocfg.Cluster{Members: three},
			HTTP:    zoocfg.HTTP{Addr: "x", Conns: zoocfg.DefaultHTTPConns},
			Client:  zoocfg.Client{MaxCnxnsPerAddr: 10},
		}, ""},
		{100, Config{}, "needs at least 144"},
		{1024, Config{Cluster: zoocfg.Cluster{Members: three, MaxPeerCnxns: 1000}}, "needs at least"},
		{1024, Config{Client: zoocfg.Client{MaxCnxns: 5000}}, "maxCnxns=5000 cannot be reached"},
		{1024, Config{Client: zoocfg.Client{MaxCnxnsPerAddr: 5000}}, "maxClientCnxns=5000 cannot be reached"},
	} {
		p := shareDescriptors(tt.limit, &tt.cfg)
		warning, err := p.check(&tt.cfg)
		if err != nil {
			warning = err.Error()
		}
		if tt.fault == "" && warning != "" || !strings.Contains(warning, tt.fault) {
			t.Errorf("%d descriptors, %+v: %q", tt.limit, p, warning)
		}
		if err == nil && tt.limit > 0 && int64(p.clients+p.peers+p.opened+p.http+fileDescriptorsForFiles) > tt.limit {
			t.Errorf("%d descriptors are shared as %+v", tt.limit, p)
		}
	}
}
