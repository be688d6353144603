package server

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockkeeper/wire"
)

// count is how many connections doze.
func (d *dozer) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.dozing)
}

// readers is how many goroutines read from a client, or wait for one.
func readers() (n int) {
	for _, g := range ourGoroutines() {
		if strings.Contains(g, ".readLoop(") {
			n++
		}
	}
	return n
}

// TestSilentClientsDoze: a client that says nothing has no goroutine, is answered as ever when it does, and its end is seen.
func TestSilentClientsDoze(t *testing.T) {
	checkGoroutines(t)
	s := startReal(t, nil)
	const many = 20
	asleep := func(n int) {
		t.Helper()
		await(t, "silent clients without goroutines", func() bool { return s.port.dozer.count() == n && readers() == 0 })
	}
	clients := make([]*rawClient, many)
	for i := range clients {
		clients[i] = dialReal(t, s)
		clients[i].connect(10 * time.Second)
	}
	asleep(many)
	time.Sleep(2 * restAfter) // who speaks at once after that has been silent
	ask := func(c *rawClient) { c.call(wire.OpExists, &wire.PathWatchRequest{Path: "/zookeeper"}) }
	for _, c := range clients {
		ask(c)
	}
	asleep(many)
	await(t, "goroutines for those that are busy", func() bool {
		for _, c := range clients[1:] {
			ask(c)
		}
		return s.port.dozer.count() == 1
	})

	// A request that comes in two parts.
	time.Sleep(2 * restAfter)
	ping := clients[1].request(wire.OpPing, wire.Empty{})
	clients[1].put(ping[:6]...)
	await(t, "the reader of half a request", func() bool { return readers() == many-1 && s.port.dozer.count() == 1 })
	clients[1].put(ping[6:]...)
	clients[1].reply()

	for _, c := range clients {
		_ = c.Close()
	}
	await(t, "the ends of the connections", func() bool { return s.port.count() == 0 })
	asleep(0)
}

// TestPingsOfADozingClient: who only pings, however often, is answered, has no goroutine, and keeps its session; who does not loses it.
func TestPingsOfADozingClient(t *testing.T) {
	checkGoroutines(t)
	s := startReal(t, func(c *Config) { c.MinSessionTimeout = 200 * time.Millisecond })
	c, silent := dialReal(t, s), dialReal(t, s)
	c.connect(2 * time.Second)
	silent.connect(2 * time.Second)
	asleep := func() bool { return s.port.dozer.count() == 2 && readers() == 0 }
	await(t, "silent clients", asleep)
	before := s.counters.bytesReceived.Load()
	const many = 100
	for range many {
		c.call(wire.OpPing, nil)
		if !asleep() {
			t.Fatal("a ping has woken the connection")
		}
	}
	if got := s.counters.bytesReceived.Load() - before; got != int64(many*len(ping)) {
		t.Errorf("%d bytes are counted for %d pings", got, many)
	}
	await(t, "the end of the one that does not ping", func() bool {
		c.call(wire.OpPing, nil)
		return s.port.count() == 1
	})
	c.call(wire.OpExists, &wire.PathWatchRequest{Path: "/zookeeper"})
}

// TestPingAndMore: what a silent client sends with a ping is read as ever.
func TestPingAndMore(t *testing.T) {
	checkGoroutines(t)
	s := startReal(t, nil)
	clients := make([]*rawClient, len(ping)+2)
	for i := range clients {
		clients[i] = dialReal(t, s)
		clients[i].connect(10 * time.Second)
	}
	await(t, "silent clients", func() bool { return s.port.dozer.count() == len(clients) })
	for part, c := range clients {
		exists := c.request(wire.OpExists, &wire.PathWatchRequest{Path: "/zookeeper"})
		c.put(append(bytes.Clone(ping), exists[:part]...)...)
		if h, _ := c.reply(); h.Xid != wire.XidPing || h.Err != wire.CodeOK {
			t.Fatalf("%d bytes behind a ping: %+v", part, h)
		}
		c.put(exists[part:]...)
		if h, _ := c.reply(); h.Xid != c.xid || h.Err != wire.CodeOK {
			t.Fatalf("a request of which %d bytes came with a ping: %+v", part, h)
		}
	}
}

// TestDozerPings: a connection dozes on behind a ping, unless it has been closed meanwhile.
func TestDozerPings(t *testing.T) {
	client, accepted := tcpPair(t)
	woken, pinged := make(chan *conn), make(chan bool)
	closing := false
	d := newDozer(testLogger(), func(c *conn) { woken <- c }, func(c *conn) bool {
		taken := c.takePing()
		if closing {
			_ = c.Close()
		}
		pinged <- taken
		return taken
	})
	defer d.close()
	c := newConn(accepted)
	c.dozer = d
	send := func(b []byte) {
		if _, err := client.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	doze := func() {
		c.r = bufio.NewReader(c.Conn)
		if !d.doze(c) {
			t.Fatal("it does not doze")
		}
	}
	doze()
	for range 3 {
		send(ping)
		if !<-pinged {
			t.Fatal("a ping is not taken for one")
		}
	}
	if d.count() != 1 {
		t.Error("pings have woken it")
	}
	send(ping[:5])
	if <-pinged {
		t.Error("a part is taken for a ping")
	}
	if <-woken != c || d.count() != 0 {
		t.Error("something else is woken, or it still dozes")
	}
	rest := make([]byte, 5)
	if _, err := io.ReadFull(c.Conn, rest); err != nil || !bytes.Equal(rest, ping[:5]) {
		t.Errorf("it reads %x (%v), %x was sent", rest, err, ping[:5])
	}

	closing = true
	doze()
	send(ping)
	if !<-pinged {
		t.Error("a ping is not taken for one")
	}
	if <-woken != c || d.count() != 0 {
		t.Error("what was closed while it pinged still dozes")
	}
}

// TestRequestsBehindTheHandshake: a client that sends its first requests with the handshake is not silent, however many there are.
func TestRequestsBehindTheHandshake(t *testing.T) {
	checkGoroutines(t)
	s := startReal(t, nil)
	for many := range 40 {
		c := dialReal(t, s)
		c.req.TimeoutMs = 10_000
		b := wire.AppendFrame(nil, c.req)
		for range many {
			b = append(b, c.request(wire.OpExists, &wire.PathWatchRequest{Path: "/zookeeper"})...)
		}
		c.put(b...)
		c.response()
		for i := range many {
			if h, _ := c.reply(); h.Xid != wire.Xid(i+1) || h.Err != wire.CodeOK {
				t.Fatalf("reply %d of %d: %+v", i, many, h)
			}
		}
	}
}

// TestBurstOfASilentClient: a client that has been silent may send many requests at once, and the last of them in part.
func TestBurstOfASilentClient(t *testing.T) {
	checkGoroutines(t)
	s := startReal(t, nil)
	clients := make([]*rawClient, 40)
	for i := range clients {
		clients[i] = dialReal(t, s)
		clients[i].connect(10 * time.Second)
	}
	await(t, "silent clients", func() bool { return s.port.dozer.count() == len(clients) })
	for many, c := range clients {
		var b []byte
		for range many + 1 {
			b = append(b, c.request(wire.OpExists, &wire.PathWatchRequest{Path: "/zookeeper"})...)
		}
		part := len(b) - many%5
		c.put(b[:part]...)
		for i := range many + 1 {
			if i == many {
				c.put(b[part:]...)
			}
			if h, _ := c.reply(); h.Xid != wire.Xid(i+1) || h.Err != wire.CodeOK {
				t.Fatalf("reply %d of %d: %+v", i, many+1, h)
			}
		}
	}
}

// TestDozingConnectionsEnd: the server ends the connection of a client that is silent.
func TestDozingConnectionsEnd(t *testing.T) {
	checkGoroutines(t)
	s := startReal(t, func(c *Config) { c.MinSessionTimeout = 200 * time.Millisecond })
	for _, end := range []struct {
		name    string
		timeout time.Duration
		end     func(c *rawClient)
	}{
		{"its session has moved", 10 * time.Second, func(c *rawClient) {
			again := dialReal(t, s)
			again.req.SessionID, again.req.Password = c.id.SessionID, c.id.Password
			again.connect(10 * time.Second)
			defer again.Close()
		}},
		{"its session has expired", 2 * time.Second, func(*rawClient) {}},
		{"the port is cut", 10 * time.Second, func(*rawClient) { s.port.cut() }},
	} {
		c := dialReal(t, s)
		c.connect(end.timeout)
		await(t, "a silent client", func() bool { return s.port.dozer.count() == 1 })
		end.end(c)
		c.expectClosed()
		_ = c.Close()
		await(t, "the connection's end because "+end.name, func() bool { return s.port.count() == 0 && s.port.dozer.count() == 0 })
	}
	left := dialReal(t, s) // for the server to end with
	left.connect(10 * time.Second)
	await(t, "a silent client", func() bool { return s.port.dozer.count() == 1 })
}

// TestDozerGivesUp: when epoll_wait fails, who dozes is served as before.
func TestDozerGivesUp(t *testing.T) {
	checkGoroutines(t)
	s := startReal(t, nil)
	c := dialReal(t, s)
	c.connect(10 * time.Second)
	await(t, "a silent client without a goroutine", func() bool { return s.port.dozer.count() == 1 && readers() == 0 })
	s.port.dozer.giveUp(syscall.EINVAL)
	await(t, "its goroutine", func() bool { return s.port.dozer.count() == 0 && readers() == 1 })
	time.Sleep(2 * restAfter)
	c.call(wire.OpPing, wire.Empty{})
	if n := s.port.dozer.count(); n > 0 {
		t.Errorf("%d connections doze", n)
	}
}

// TestDozerNotices that epoll_wait fails, here because it is no such file.
func TestDozerNotices(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	d := newDozer(testLogger(), nil, nil)
	if d.poll, err = r.SyscallConn(); err != nil {
		t.Fatal(err)
	}
	d.run(d.poll)
	if d.poll != nil {
		t.Error("connections may still doze")
	}
}
