package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/quorum"
	"lockkeeper/server/ops/metrics"
	"lockkeeper/server/zoocfg"
	"lockkeeper/session"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

const (
	// httpTimeout bounds the work for a request on the HTTP port, and how long one that is under
	// way may take when the member stops.
	httpTimeout = 5 * time.Second
	// httpBodyBytes is how long the body of a request may be: that of an act of the console.
	httpBodyBytes = 4 << 10
)

// httpPort is the HTTP port. It exists only if the configuration asks for it.
type httpPort struct {
	srv   *http.Server
	slots *httpSlots
	done  sync.WaitGroup
}

func (s *Server) startHTTP(l net.Listener) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /fence", s.serveFence)
	mux.HandleFunc("POST /leader", s.serveLeader)
	mux.HandleFunc("GET /members", s.serveMembers)
	mux.HandleFunc("GET /live", s.serveLive)
	mux.HandleFunc("GET /ready", s.serveReady)
	mux.HandleFunc("GET /stoppable", s.serveStoppable)
	commands := s.newAdmin()
	commands.Register(mux)
	s.console.Register(mux)
	s.http = s.serveHTTP("HTTP port", s.httpTLS(l, s.cfg.HTTPTLS), mux, s.cfg.HTTPLogin, commands.IsRestore)
}

// serveHTTP serves HTTP at l, within the bounds of the HTTP port. The handler reads the bodies of
// requests with withBody itself; nil: there are none.
func (s *Server) serveHTTP(name string, l net.Listener, handler http.Handler, login bool,
	withBody func(*http.Request) bool,
) *httpPort {
	if !login && !zoocfg.IsLoopback(l.Addr().String()) {
		s.log.Warn(name+" lets everybody read what no ACL protects (admin.requireLogin)", "addr", l.Addr())
	}
	slots := &httpSlots{Listener: l, maxConns: s.cfg.HTTPConns, maxPerAddr: s.cfg.HTTPConnsPerAddr}
	p := &httpPort{slots: slots, srv: &http.Server{
		Handler:     s.door.guard(s.wholeRequests(s.pace.of(s, handler), withBody), login),
		ConnContext: withHTTPConn, ConnState: httpStateChanged,
		ReadTimeout: s.cfg.HTTPRequestTimeout, WriteTimeout: s.cfg.HTTPRequestTimeout + 2*httpTimeout,
		IdleTimeout: s.cfg.HTTPIdleTimeout, MaxHeaderBytes: 16 << 10, ErrorLog: s.errorLog(),
	}}
	p.done.Go(func() {
		if err := p.srv.Serve(slots); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error(name, "err", err)
		}
	})
	return p
}

// wholeRequests calls next for requests that have been received completely. From then on their
// connections count as being served. It leaves the body of a request with one to next: the
// connection of a super user counts as being served at once, and of others nothing is read.
func (s *Server) wholeRequests(next http.Handler, withBody func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(httpConnKey{}).(*httpConn)
		if withBody != nil && withBody(r) {
			if !(adminMember{Server: s}).IsSuper(r) {
				_ = http.NewResponseController(w).SetReadDeadline(time.Now())
				w.Header().Set("Connection", "close")
			} else if conn != nil && !conn.setState(httpServing) {
				return
			}
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, httpBodyBytes))
		if err != nil {
			if conn != nil {
				conn.setState(httpGivenUp)
			}
			_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // the rest is not read
			w.Header().Set("Connection", "close")
			writeError(w, http.StatusRequestEntityTooLarge,
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
			writeError(w, http.StatusServiceUnavailable, "the other connections are kept for probes (admin.maxCnxnsPerAddress)")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// stop stops the port after the requests that are under way.
func (p *httpPort) stop() {
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), httpTimeout)
	defer cancel()
	if p.srv.Shutdown(ctx) != nil {
		_ = p.srv.Close()
	}
	p.done.Wait()
}

// startMetrics opens the port for metrics.
func (s *Server) startMetrics(l net.Listener) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics.NewHandler(s.prometheusMetrics, !s.cfg.NoProcessMetrics))
	mode := zoocfg.TLSOff
	if s.cfg.MetricsTLS {
		mode = zoocfg.TLSOnly
	}
	s.metricsPort = s.serveHTTP("port for metrics", s.httpTLS(l, mode), mux, s.cfg.MetricsLogin, nil)
}

// MetricsAddr is where Prometheus finds the metrics, nil if it does not.
func (s *Server) MetricsAddr() net.Addr {
	if s.metricsPort == nil {
		return nil
	}
	return s.metricsPort.slots.Addr()
}

// HTTPAddr is where HTTP is served, nil if it is not.
func (s *Server) HTTPAddr() net.Addr {
	if s.http == nil {
		return nil
	}
	return s.http.slots.Addr()
}

// serveLive answers as long as the process does. What is wrong beyond that is not cured by another
// start of it.
func (s *Server) serveLive(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]bool{"live": true})
}

// readyAnswer is the answer to GET /ready.
type readyAnswer struct {
	Ready bool `json:"ready"`
	// Reason is why the member is not ready.
	Reason string `json:"reason,omitempty"`
}

// serveReady says whether this member counts: it serves clients, and another one may be stopped.
func (s *Server) serveReady(w http.ResponseWriter, _ *http.Request) {
	status := http.StatusOK
	ready, why := s.Ready()
	if !ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, readyAnswer{ready, why})
}

// Ready reports whether this member counts: it knows a leader, and has applied what it has been
// told to be committed, as of the last few seconds (quorum.Replica.Ready). If not, why says it.
func (s *Server) Ready() (ok bool, why string) {
	if s.leaving.Load() {
		return false, "it is about to stop"
	}
	return s.replica.Ready()
}

func writeError(w http.ResponseWriter, status int, reason string) {
	writeJSON(w, status, map[string]string{"error": reason})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(body) // the client has gone, or has its answer
}

// httpIdentities are the identities that the door has found a request to have.
func (s *Server) httpIdentities(r *http.Request) []znode.Identity {
	ids, _ := r.Context().Value(callerKey{}).([]znode.Identity)
	return ids
}

// provedBy are the identities of a request: its address, those of the certificate that was
// shown on its connection, and those of an Authorization header "digest user:password", as in the
// admin server of ZooKeeper.
func (s *Server) provedBy(r *http.Request) []znode.Identity {
	var ids []znode.Identity
	if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		ids = append(ids, session.AddrIdentity(at.Addr()))
	}
	if conn, ok := r.Context().Value(httpConnKey{}).(*httpConn); ok {
		ids = append(ids, s.certIdentities(conn.Conn)...)
	}
	return append(ids, s.authorization(r.Header.Get("Authorization"))...)
}

// authorization are the identities that an Authorization header proves.
func (s *Server) authorization(header string) []znode.Identity {
	if scheme, auth, ok := strings.Cut(header, " "); ok && scheme == "digest" {
		return s.sessions.DigestIdentities(auth)
	}
	return nil
}

type leaderAnswer struct {
	Leader int `json:"leader"` // the new leader
}

// serveLeader answers POST /leader?to=N: it transfers the leadership to member N, or without it to
// any other voter. It needs the permission that reconfig needs, WRITE on /zookeeper/config. It
// answers 200 when that has happened, 409 and the reason when it has not, 403 without the
// permission, 400 if N is no number, and 503 if there is no leader.
func (s *Server) serveLeader(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Standalone() {
		writeError(w, http.StatusConflict, "this member stands alone: there is nobody else")
		return
	}
	to := quorum.NoMember
	if text := r.URL.Query().Get("to"); text != "" {
		n, err := strconv.ParseUint(text, 10, 8)
		if to = quorum.MemberID(n); err != nil {
			writeError(w, http.StatusBadRequest, strconv.Quote(text)+" is not the number of a member")
			return
		}
	}
	if err := s.mayLead(s.httpIdentities(r)); err != nil {
		s.auditHTTP(r, auditTransfer, "", session.AuditFailure)
		writeError(w, http.StatusForbidden, err.Error())
		return
	}
	if !s.Serving() {
		writeError(w, http.StatusServiceUnavailable, "this member has no leader")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), httpTimeout)
	defer cancel()
	if err := s.replica.TransferLeadership(ctx, to, s.proveTransfer(r)); err != nil {
		s.auditHTTP(r, auditTransfer, "", session.AuditFailure)
		writeError(w, http.StatusConflict, err.Error())
		return
	}
	leader := int(s.replica.Leader())
	s.auditHTTP(r, auditTransfer, "", session.AuditSuccess)
	s.log.Info("leadership transferred, as asked over HTTP", "client", r.RemoteAddr, "leader", leader)
	writeJSON(w, http.StatusOK, leaderAnswer{Leader: leader})
}

var errMayNotLead = errors.New("WRITE on /zookeeper/config is needed, which the super user has: " +
	"Authorization: digest user:password")

// mayLead returns an error if these identities may not transfer the leadership.
func (s *Server) mayLead(ids []znode.Identity) error {
	if !s.cfg.SkipACL && !znode.Allowed(s.configACL(), ids, wire.PermWrite) {
		return errMayNotLead
	}
	return nil
}

// httpSlots is the listener of the HTTP port. It bounds how many connections there are, in total
// and from one address. A connection beyond a bound takes the place of the oldest one that is not
// being served: one that is idle after an answer, or whose request has not been received
// completely. So slow senders do not delay others. When all are being served, the new connection is
// closed.
type httpSlots struct {
	net.Listener
	maxConns, maxPerAddr int

	refused, displaced, late atomic.Int64 // see metrics

	mu    sync.Mutex
	conns []*httpConn // the oldest first
}

type httpConn struct {
	net.Conn
	slots *httpSlots
	host  string
	state httpState // guarded by slots.mu

	framing   framing
	ambiguous error // of framing; net/http reads in one goroutine at a time
}

type httpState int

const (
	httpWaiting   httpState = iota // for its first request
	httpServing                    // a request has been received, and is not answered yet
	httpIdle                       // answered, and kept for the next request
	httpGivenUp                    // its request did not come in time, or is too long
	httpDisplaced                  // closed in favour of another
)

// Accept implements net.Listener. It returns the next connection that is within the bounds.
func (l *httpSlots) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		hc := &httpConn{Conn: c, slots: l, host: c.RemoteAddr().String()}
		if host, _, err := net.SplitHostPort(hc.host); err == nil {
			hc.host = host
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
func (l *httpSlots) admit(c *httpConn) (victim *httpConn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var sameHost int
	var oldest, oldestOfHost *httpConn // of those that are not being served
	for _, other := range l.conns {
		free := other.state != httpServing
		if free && oldest == nil {
			oldest = other
		}
		if other.host == c.host {
			sameHost++
			if free && oldestOfHost == nil {
				oldestOfHost = other
			}
		}
	}
	switch {
	case sameHost >= l.maxPerAddr:
		victim = oldestOfHost
	case len(l.conns) >= l.maxConns:
		victim = oldest
	default:
		l.conns = append(l.conns, c)
		return nil, true
	}
	if victim == nil {
		l.refused.Add(1)
		return nil, false
	}
	l.displaced.Add(1)
	l.removeLocked(victim)
	victim.state = httpDisplaced
	l.conns = append(l.conns, c)
	return victim, true
}

func (l *httpSlots) removeLocked(c *httpConn) {
	l.conns = slices.DeleteFunc(l.conns, func(other *httpConn) bool { return other == c })
}

// Close implements net.Conn.
func (c *httpConn) Close() error {
	c.slots.mu.Lock()
	c.slots.removeLocked(c)
	c.slots.mu.Unlock()
	return c.Conn.Close()
}

// Read implements net.Conn. It counts the requests that do not arrive in time, and ends with
// errFraming if it is ambiguous where one ends.
func (c *httpConn) Read(b []byte) (int, error) {
	if c.ambiguous != nil {
		return 0, c.ambiguous
	}
	n, err := c.Conn.Read(b)
	if n, c.ambiguous = c.framing.take(b[:n]); c.ambiguous != nil {
		err = c.ambiguous
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.slots.mu.Lock()
		if c.state == httpWaiting {
			c.slots.late.Add(1)
			c.state = httpGivenUp
		}
		c.slots.mu.Unlock()
	}
	return n, err
}

// setState returns false when c has been closed in favour of another connection.
func (c *httpConn) setState(state httpState) bool {
	c.slots.mu.Lock()
	defer c.slots.mu.Unlock()
	if c.state == httpDisplaced {
		return false
	}
	c.state = state
	return true
}

// How many of all connections, and of those from one address, only probes are served on: half of
// few.
const (
	probeConns        = 4
	probeConnsPerAddr = 2
)

// serve is setState(httpServing). There is no room for a request other than a probe while all other
// connections are being served, so that streams never stop the probes from their address.
func (c *httpConn) serve(probe bool) (alive, room bool) {
	l := c.slots
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.state == httpDisplaced {
		return false, false
	}
	all, sameHost := 1, 1
	for _, other := range l.conns {
		if other != c && other.state == httpServing {
			all++
			if other.host == c.host {
				sameHost++
			}
		}
	}
	if !probe && (all > l.maxConns-min(probeConns, l.maxConns/2) ||
		sameHost > l.maxPerAddr-min(probeConnsPerAddr, l.maxPerAddr/2)) {
		l.refused.Add(1)
		return true, false
	}
	c.state = httpServing
	return true, true
}

// httpConnKey is the key of the connection in the context of a request.
type httpConnKey struct{}

func withHTTPConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, httpConnKey{}, c)
}

// httpStateChanged records that a request has been answered.
func httpStateChanged(c net.Conn, state http.ConnState) {
	if hc, ok := c.(*httpConn); ok && state == http.StateIdle {
		hc.setState(httpIdle)
	}
}
