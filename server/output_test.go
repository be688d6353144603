package server

import (
	"bytes"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/simnet"
	"lockkeeper/wire"
)

// watchedListener reports to writes each write to the connections that it accepts.
type watchedListener struct {
	net.Listener
	writes *writes
}

// writes counts the bytes that are written to the sockets of clients, by goroutine.
type writes struct {
	mu       sync.Mutex
	byReader int
	byOther  int
}

type watchedConn struct {
	*simnet.Conn
	writes *writes
}

func (l watchedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &watchedConn{c.(*simnet.Conn), l.writes}, nil
}

func (w *writes) count() {
	stack := make([]byte, 16<<10)
	stack = stack[:runtime.Stack(stack, false)]
	w.mu.Lock()
	defer w.mu.Unlock()
	if bytes.Contains(stack, []byte(".readLoop(")) {
		w.byReader++
	} else {
		w.byOther++
	}
}

func (w *writes) take() (byReader, byOther int) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	byReader, byOther = w.byReader, w.byOther
	w.byReader, w.byOther = 0, 0
	return byReader, byOther
}

func (c *watchedConn) Write(b []byte) (int, error) {
	c.writes.count()
	return c.Conn.Write(b)
}

// watched has the writes to clients counted.
func watched(w *writes) func(*Config) {
	return func(cfg *Config) {
		listen := cfg.Machine.Listen
		cfg.Machine.Listen = func(network, addr string) (net.Listener, error) {
			l, err := listen(network, addr)
			return watchedListener{l, w}, err
		}
	}
}

// TestReadsAreAnsweredByTheirReader: the goroutine that has read requests writes their immediate
// answers, in one write for all that came together.
func TestReadsAreAnsweredByTheirReader(t *testing.T) {
	w := new(writes)
	inBubble(t, simnet.Config{}, watched(w), func(t *testing.T, s *Server, h *simnet.Host) {
		c := dialSim(t, h)
		c.connect(10 * time.Second)
		w.take()
		read := &wire.PathWatchRequest{Path: "/"}
		c.call(wire.OpGetData, read)
		if own, other := w.take(); own != 1 || other != 0 {
			t.Errorf("one read: %d writes by the reader, %d by others", own, other)
		}
		const many = 10 // less than the buffer for a connection that is mostly idle
		var b []byte
		for range many {
			b = append(b, c.request(wire.OpGetData, read)...)
		}
		// The last one comes in two parts, and waits for nobody but itself.
		c.put(b[:len(b)-1]...)
		for range many - 1 {
			c.reply()
		}
		if own, other := w.take(); own != 1 || other != 0 {
			t.Errorf("%d reads at once: %d writes by the reader, %d by others", many, own, other)
		}
		c.put(b[len(b)-1])
		if h, _ := c.reply(); h.Xid != c.xid {
			t.Errorf("got %+v", h)
		}
		w.take()
		c.call(wire.OpCreate, create("/n", nil, wire.ModePersistent))
		if own, other := w.take(); own != 0 || other != 1 {
			t.Errorf("one write: %d writes by the reader, %d by others", own, other)
		}
	})
}

// TestEventForMany: an event reaches each of many connections, and leaves no goroutine behind.
func TestEventForMany(t *testing.T) {
	w := new(writes)
	many := func(c *Config) {
		watched(w)(c)
		c.Client.MaxCnxnsPerAddr = Unlimited
	}
	inBubble(t, simnet.Config{}, many, func(t *testing.T, s *Server, h *simnet.Host) {
		const clients = 300
		var conns []*rawClient
		for range clients {
			c := dialSim(t, h)
			c.connect(30 * time.Second)
			c.call(wire.OpGetData, &wire.PathWatchRequest{Path: "/", Watch: true})
			conns = append(conns, c)
		}
		w.take()
		synctest.Wait()
		before := len(ourGoroutines())
		conns[0].put(conns[0].request(wire.OpSetData, &wire.SetDataRequest{Path: "/", Version: -1})...)
		for i, c := range conns {
			if h, _ := c.reply(); h.Xid != wire.XidNotification {
				t.Fatalf("client %d: %+v", i, h)
			}
		}
		if h, _ := conns[0].reply(); h.Err != wire.CodeOK {
			t.Errorf("%+v", h)
		}
		// The reader of the writing client's connection may send that one's event, its
		// reply, or both.
		if own, other := w.take(); own > 2 || own+other < clients || own+other > clients+1 {
			t.Errorf("%d writes by readers, %d by others", own, other)
		}
		synctest.Wait()
		if after := len(ourGoroutines()); after > before {
			t.Errorf("%d goroutines more than before", after-before)
		}
	})
}

// TestIdleConnectionHasOneGoroutine, whatever it has done before.
func TestIdleConnectionHasOneGoroutine(t *testing.T) {
	inBubble(t, simnet.Config{}, nil, func(t *testing.T, s *Server, h *simnet.Host) {
		const clients = 10
		synctest.Wait()
		before := len(ourGoroutines())
		var conns []*rawClient
		for range clients {
			c := dialSim(t, h)
			c.connect(30 * time.Second)
			c.call(wire.OpCreate, create("/n", nil, wire.ModeEphemeralSequential))
			c.call(wire.OpGetData, &wire.PathWatchRequest{Path: "/", Watch: true})
			conns = append(conns, c)
		}
		time.Sleep(15 * time.Second) // their leases are not confirmed any more when they ask again
		for _, c := range conns {
			c.call(wire.OpPing, wire.Empty{})
		}
		synctest.Wait()
		if n := len(ourGoroutines()) - before; n != clients {
			t.Errorf("%d goroutines for %d connections:\n%s", n, clients, strings.Join(ourGoroutines(), "\n\n"))
		}
	})
}

// TestConnectionRestsOnAFreshStack: a client that has been silent finds its connection in another
// goroutine when it has been answered, because the stack of the one before has grown with the
// answer. One that is busy does not.
func TestConnectionRestsOnAFreshStack(t *testing.T) {
	inBubble(t, simnet.Config{}, nil, func(t *testing.T, s *Server, h *simnet.Host) {
		c := dialSim(t, h)
		c.connect(10 * time.Second)
		reader := func() (id string) {
			synctest.Wait()
			for _, g := range ourGoroutines() {
				if strings.Contains(g, ".readLoop(") {
					id, _, _ = strings.Cut(g, " [")
				}
			}
			return id
		}
		before := reader()
		for range 3 {
			c.call(wire.OpPing, wire.Empty{})
		}
		if after := reader(); before == "" || after != before {
			t.Errorf("the reader of a busy connection was %q, and is %q", before, after)
		}
		for range 3 {
			time.Sleep(2 * restAfter)
			c.call(wire.OpPing, wire.Empty{})
			after := reader()
			if after == "" || after == before {
				t.Errorf("the reader of an idle connection was %q, and is %q", before, after)
			}
			before = after
		}
	})
}

// TestEndOfAClientThatDoesNotRead: the connection of a session that ends is closed soon, though its
// client takes no bytes.
func TestEndOfAClientThatDoesNotRead(t *testing.T) {
	inBubble(t, simnet.Config{BufferBytes: 4 << 10}, nil, func(t *testing.T, s *Server, h *simnet.Host) {
		deaf, other := dialSim(t, h), dialSim(t, h)
		deaf.connect(30 * time.Second)
		other.connect(30 * time.Second)
		other.call(wire.OpCreate, create("/big", bytes.Repeat([]byte("x"), 100<<10), wire.ModePersistent))
		deaf.put(deaf.request(wire.OpGetData, &wire.PathWatchRequest{Path: "/big"})...)
		time.Sleep(time.Second)
		waiting := 0
		for _, c := range s.port.list() {
			if c.session.Load().Stats().Unsent > 0 {
				waiting++
			}
		}
		if waiting != 1 {
			t.Errorf("%d connections wait for their clients", waiting)
		}
		taker := dialSim(t, h)
		taker.req.SessionID, taker.req.Password = deaf.id.SessionID, deaf.id.Password
		taker.connect(30 * time.Second)
		synctest.Wait()
		if n := s.port.count(); n != 2 {
			t.Errorf("%d connections are left", n)
		}
		taker.call(wire.OpPing, wire.Empty{})
		other.call(wire.OpPing, wire.Empty{})
	})
}

// While a lease is not confirmed, the member keeps the output that the client has not taken, also
// the rest of a begun answer.
func TestAnswerStopsWithTheLease(t *testing.T) {
	inBubble(t, simnet.Config{BufferBytes: 4 << 10}, nil, func(t *testing.T, s *Server, h *simnet.Host) {
		const timeout = 30 * time.Second
		c := dialSim(t, h)
		c.connect(timeout)
		c.call(wire.OpCreate, create("/big", bytes.Repeat([]byte("x"), 100<<10), wire.ModePersistent))
		c.put(c.request(wire.OpGetData, &wire.PathWatchRequest{Path: "/big"})...)
		time.Sleep(timeout/3 + time.Second) // it says nothing, so nothing is confirmed
		got := 0
		b := make([]byte, 1<<10)
		for {
			_ = c.SetReadDeadline(time.Now().Add(time.Second))
			n, err := c.Read(b)
			if got += n; err != nil {
				break
			}
		}
		if got < 1<<10 || got > 20<<10 {
			t.Errorf("%d bytes came after a third of the timeout without a confirmation", got)
		}
		c.put(c.request(wire.OpPing, wire.Empty{})...)
		_ = c.SetReadDeadline(time.Now().Add(time.Hour))
		for got < 100<<10 {
			n, err := c.Read(b)
			if got += n; err != nil {
				t.Fatalf("after %d bytes: %v", got, err)
			}
		}
	})
}
