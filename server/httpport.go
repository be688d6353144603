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

// httpTimeout bounds a request on the HTTP port, and how long one that is under way may take when the member stops.
const httpTimeout = 5 * time.Second

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
	s.http = &httpPort{listener: l, srv: &http.Server{
		Handler:           http.TimeoutHandler(mux, 2*httpTimeout, `{"error":"timed out"}`),
		ReadHeaderTimeout: httpTimeout, IdleTimeout: 30 * time.Second, MaxHeaderBytes: 16 << 10,
	}}
	s.http.done.Go(func() {
		if err := s.http.srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("HTTP port", "err", err)
		}
	})
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
