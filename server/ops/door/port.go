package door

import (
	"bytes"
	"context"
	"errors"
	"io"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/internal/connlimit"
	"lockkeeper/server/zoocfg"
	"lockkeeper/session"
	"lockkeeper/znode"
)

const (
	// Timeout bounds the work for a request, and how long one that is under way may take when the
	// member stops.
	Timeout = 5 * time.Second
	// BodyBytes limits the body of a request: an act of the console is shorter.
	BodyBytes = 4 << 10
)

// Port is a port that serves HTTP.
type Port struct {
	name  string
	log   *slog.Logger
	srv   *http.Server
	slots *slots
	done  sync.WaitGroup
}

// Open returns a port that serves HTTP at l between Start and Stop. name is for the log; with login
// readers need one. The handler reads the bodies of requests with withBody itself; nil: there are
// none.
func (d *Door) Open(name string, l net.Listener, handler http.Handler, login bool,
	withBody func(*http.Request) bool) *Port {
	cfg := d.cfg.Settings
	if !login && !zoocfg.IsLoopback(l.Addr().String()) {
		d.cfg.Log.Warn(name+" lets everybody read what no ACL protects (admin.requireLogin)", "addr", l.Addr())
	}
	slots := newSlots(l, cfg.HTTP.Conns, cfg.HTTP.ConnsPerAddr)
	p := &Port{name: name, log: d.cfg.Log, slots: slots, srv: &http.Server{
		Handler:     d.guard(d.wholeRequests(d.inTurn(handler), withBody), login),
		ConnContext: withConn, ConnState: stateChanged,
		ReadTimeout: cfg.HTTP.RequestTimeout, WriteTimeout: cfg.HTTP.RequestTimeout + 2*Timeout,
		IdleTimeout: cfg.HTTP.IdleTimeout, MaxHeaderBytes: 16 << 10, ErrorLog: d.errorLog(),
	}}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ports = append(d.ports, p)
	return p
}

// Start begins to accept.
func (p *Port) Start() {
	p.done.Go(func() {
		if err := p.srv.Serve(p.slots); !errors.Is(err, http.ErrServerClosed) {
			p.log.Error(p.name, "err", err)
		}
	})
}

// wholeRequests calls next for requests that have been received completely. From then on their
// connections count as being served. It leaves the body of a request with one to next: the
// connection of a super user counts as being served at once, and of others nothing is read.
func (d *Door) wholeRequests(next http.Handler, withBody func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(connKey{}).(*conn)
		if withBody != nil && withBody(r) {
			if !CallerOf(r).IsSuper() {
				_ = http.NewResponseController(w).SetReadDeadline(time.Now())
				w.Header().Set("Connection", "close")
			} else if conn != nil && !conn.setState(isServing) {
				return
			}
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, BodyBytes))
		if err != nil {
			if conn != nil {
				conn.setState(isGivenUp)
			}
			_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // the rest is not read
			w.Header().Set("Connection", "close")
			WriteError(w, http.StatusRequestEntityTooLarge,
				"the body of the request is too long, or did not come in time")
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		// The answer may take longer than the request. net/http would take the end of its deadline
		// for a client that has disconnected.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		if conn == nil {
			next.ServeHTTP(w, r)
			return
		}
		switch alive, room := conn.serve(isProbe(r)); {
		case !alive:
		case !room:
			w.Header().Set("Connection", "close")
			w.Header().Set("Retry-After", "1")
			WriteError(w, http.StatusServiceUnavailable, "the other connections are kept for probes "+
				"(admin.maxCnxnsPerAddress)")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// Stop stops the port after the requests that are under way.
func (p *Port) Stop() {
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	if p.srv.Shutdown(ctx) != nil {
		_ = p.srv.Close()
	}
	p.done.Wait()
}

// Addr is where the port is; nil if there is no port.
func (p *Port) Addr() net.Addr {
	if p == nil {
		return nil
	}
	return p.slots.Addr()
}

// provedBy are the identities of a request: its address, the holder of the certificate that was
// shown on its connection, and the user of an Authorization header "digest user:password", as in
// the admin server of ZooKeeper.
func (d *Door) provedBy(r *http.Request) []znode.Identity {
	var ids []znode.Identity
	if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		ids = append(ids, session.AddrIdentity(at.Addr()))
	}
	if conn, ok := r.Context().Value(connKey{}).(*conn); ok {
		ids = append(ids, d.cfg.Holder(conn.Conn)...)
	}
	return append(ids, d.Authorization(r.Header.Get("Authorization"))...)
}

// Authorization are the identities that an Authorization header proves.
func (d *Door) Authorization(header string) []znode.Identity {
	if scheme, auth, ok := strings.Cut(header, " "); ok && scheme == "digest" {
		return d.cfg.Sessions.DigestIdentities(auth)
	}
	return nil
}

// slots is the listener of the HTTP port. It bounds the connections, in total and from one address.
// A connection beyond a bound takes the place of the oldest one that is not being served: one that
// is idle after an answer, or has not sent a complete request. So slow senders do not delay others.
// When all are being served, the new connection is closed.
type slots struct {
	net.Listener
	maxConns, maxPerAddr int

	refused, displaced, late atomic.Int64 // see metrics

	mu    sync.Mutex
	conns *connlimit.Table[*conn] // spare if they are not being served
}

func newSlots(l net.Listener, maxConns, maxPerAddr int) *slots {
	return &slots{Listener: l, maxConns: maxConns, maxPerAddr: maxPerAddr,
		conns: connlimit.New[*conn](maxConns, maxPerAddr)}
}

type conn struct {
	net.Conn
	slots *slots
	host  netip.Addr
	state connState // guarded by slots.mu, as place is
	place connlimit.Place[*conn]

	framing   framing
	ambiguous error // of framing; net/http reads in one goroutine at a time
}

// TablePlace implements connlimit.Conn.
func (c *conn) TablePlace() *connlimit.Place[*conn] { return &c.place }

type connState int

const (
	isWaiting   connState = iota // for its first request
	isServing                    // a request has been received, and is not answered yet
	isIdle                       // answered, and kept for the next request
	isGivenUp                    // its request did not come in time, or is too long
	isDisplaced                  // closed in favour of another
)

// Accept implements net.Listener. It returns the next connection that is within the bounds.
func (l *slots) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		hc := &conn{Conn: c, slots: l}
		if at, err := netip.ParseAddrPort(c.RemoteAddr().String()); err == nil {
			hc.host = at.Addr().Unmap()
		}
		victim, ok := l.admit(hc)
		if victim != nil {
			_ = victim.Conn.Close()
		}
		if ok {
			return hc, nil
		}
		_ = c.Close()
	}
}

// admit adds c, in place of victim if a bound is reached; false if there is no place. The caller
// closes the victim.
func (l *slots) admit(c *conn) (victim *conn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	free, full := true, true
	switch {
	case l.conns.HostFull(c.host):
		victim, free = l.conns.OldestOf(c.host)
	case l.conns.Full():
		victim, free = l.conns.Oldest()
	default:
		full = false
	}
	switch {
	case !free:
		l.refused.Add(1)
		return nil, false
	case full:
		l.displaced.Add(1)
		l.conns.Remove(victim)
		victim.state = isDisplaced
	}
	l.conns.Add(c, c.host)
	return victim, true
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.slots.mu.Lock()
	c.slots.conns.Remove(c)
	c.slots.mu.Unlock()
	return c.Conn.Close()
}

// Read implements net.Conn. It counts the requests that do not arrive in time, and ends with
// errFraming if it is ambiguous where one ends.
func (c *conn) Read(b []byte) (int, error) {
	if c.ambiguous != nil {
		return 0, c.ambiguous
	}
	n, err := c.Conn.Read(b)
	if n, c.ambiguous = c.framing.take(b[:n]); c.ambiguous != nil {
		err = c.ambiguous
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.slots.mu.Lock()
		if c.state == isWaiting {
			c.slots.late.Add(1)
			c.state = isGivenUp
		}
		c.slots.mu.Unlock()
	}
	return n, err
}

// setState returns false when c has been closed in favour of another connection.
func (c *conn) setState(state connState) bool {
	c.slots.mu.Lock()
	defer c.slots.mu.Unlock()
	if c.state == isDisplaced {
		return false
	}
	c.setLocked(state)
	return true
}

// setLocked is setState of a connection that is not displaced.
func (c *conn) setLocked(state connState) {
	if c.state = state; state == isServing {
		c.slots.conns.Keep(c)
	} else {
		c.slots.conns.Spare(c)
	}
}

// Numbers of connections, of all and from one address, that only serve probes: half of few.
const (
	ProbeConns        = 4
	ProbeConnsPerAddr = 2
)

// serve is setState(isServing). There is no room for a request other than a probe while all other
// connections are being served, so that streams never stop the probes from their address.
func (c *conn) serve(probe bool) (alive, room bool) {
	l := c.slots
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.state == isDisplaced {
		return false, false
	}
	if c.state == isServing {
		return true, true
	}
	all, sameHost := 1+l.conns.Len()-l.conns.LenSpare(), 1+l.conns.KeptOf(c.host)
	if !probe && (all > l.maxConns-min(ProbeConns, l.maxConns/2) ||
		sameHost > l.maxPerAddr-min(ProbeConnsPerAddr, l.maxPerAddr/2)) {
		l.refused.Add(1)
		return true, false
	}
	c.setLocked(isServing)
	return true, true
}

// HangUp ends the connection of a request at once. The bytes that the client has not received are
// dropped, so that it does not read them later.
func HangUp(r *http.Request) {
	c, ok := r.Context().Value(connKey{}).(*conn)
	if !ok {
		return
	}
	if tcp, ok := c.tcp(); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Conn.Close()
}

// KeepAlive has the system end the connection of a request when the client's machine has
// acknowledged nothing for that time, whether or not there is anything to send.
func KeepAlive(r *http.Request, within time.Duration) {
	c, ok := r.Context().Value(connKey{}).(*conn)
	if !ok {
		return
	}
	if tcp, ok := c.tcp(); ok {
		const probes = 3
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: within / 2, Interval: within / (2 * probes),
			Count: probes})
		setUserTimeout(tcp, within)
	}
}

// tcp is the connection below TLS; false in a simulation.
func (c *conn) tcp() (*net.TCPConn, bool) {
	nc := c.Conn
	if over, ok := nc.(interface{ NetConn() net.Conn }); ok {
		nc = over.NetConn()
	}
	tcp, ok := nc.(*net.TCPConn)
	return tcp, ok
}

// connKey is the key of the connection in the context of a request.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// stateChanged records that a request has been answered.
func stateChanged(c net.Conn, state http.ConnState) {
	if hc, ok := c.(*conn); ok && state == http.StateIdle {
		hc.setState(isIdle)
	}
}

// httpErrors writes the messages of net/http to a member's log. By default it writes to standard
// error, where nothing bounds the lines, and its messages vary with the client.
type httpErrors struct{ log *slog.Logger }

// maxHTTPError limits the bytes of a message in the log: one about a panic has the whole stack.
const maxHTTPError = 4 << 10

// Write implements io.Writer.
func (e httpErrors) Write(b []byte) (int, error) {
	e.log.Warn("HTTP server", "text", string(bytes.TrimSpace(b[:min(len(b), maxHTTPError)])))
	return len(b), nil
}

// errorLog is the log of an http.Server.
func (d *Door) errorLog() *stdlog.Logger { return stdlog.New(httpErrors{d.cfg.Log}, "", 0) }
