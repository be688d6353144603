package server

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"lockkeeper/session"
	"lockkeeper/znode"
)

const (
	// httpTimeout bounds a question on the HTTP port, and how long one that is under way may take when the member stops.
	httpTimeout = 5 * time.Second
	// httpConns is how many connections the port has at a time; more wait. They come out of the reserve of file
	// descriptors that clients cannot have, and must leave some of it to the peers.
	httpConns = reservedDescriptors / 2
)

// httpPort answers what is asked over HTTP. It is only there if the configuration asks for it.
type httpPort struct {
	srv      *http.Server
	listener net.Listener
	done     sync.WaitGroup
}

// startHTTP begins to serve HTTP on l.
func (s *Server) startHTTP(l net.Listener) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /fence", s.serveFence)
	mux.HandleFunc("POST /leader", s.serveLeader)
	s.http = &httpPort{listener: l, srv: &http.Server{
		Handler:     mux,
		ReadTimeout: httpTimeout, WriteTimeout: 2 * httpTimeout, IdleTimeout: httpTimeout, MaxHeaderBytes: 16 << 10,
	}}
	s.http.done.Go(func() {
		if err := s.http.srv.Serve(newLimitedListener(l, httpConns)); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("HTTP port", "err", err)
		}
	})
}

// limitedListener hands out a connection only when there is a slot for it.
type limitedListener struct {
	net.Listener
	slots  chan struct{}
	once   sync.Once
	closed chan struct{}
}

func newLimitedListener(l net.Listener, slots int) *limitedListener {
	return &limitedListener{Listener: l, slots: make(chan struct{}, slots), closed: make(chan struct{})}
}

// Accept waits for a slot with a connection in its hand, so there is one more than there are slots.
func (l *limitedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	select {
	case l.slots <- struct{}{}:
		return &slottedConn{Conn: c, slots: l.slots}, nil
	case <-l.closed:
		_ = c.Close()
		return nil, net.ErrClosed
	}
}

// Close ends Accept, too.
func (l *limitedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// slottedConn gives its slot back when it is closed.
type slottedConn struct {
	net.Conn
	slots chan struct{}
	once  sync.Once
}

func (c *slottedConn) Close() error {
	c.once.Do(func() { <-c.slots })
	return c.Conn.Close()
}

// stop ends it, after what is under way.
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

// HTTPAddr is where HTTP is served, nil if it is not.
func (s *Server) HTTPAddr() net.Addr {
	if s.http == nil {
		return nil
	}
	return s.http.listener.Addr()
}

// writeJSON answers a request.
func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(body) // the client has gone, or has its answer
}

// httpIdentities are who asks: an address, and what an Authorization header "digest user:password" shows, as in the
// admin server of ZooKeeper.
func (s *Server) httpIdentities(r *http.Request) []znode.Identity {
	var ids []znode.Identity
	if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		ids = append(ids, session.AddrIdentity(at.Addr()))
	}
	if scheme, auth, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && scheme == "digest" {
		ids = append(ids, s.sessions.DigestIdentities(auth)...)
	}
	return ids
}
