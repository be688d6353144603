package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
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
	// httpBodyBytes is how long the body of a request may be. No request needs one.
	httpBodyBytes = 4 << 10
)

// httpPort answers what is asked over HTTP. It is only there if the configuration asks for it.
type httpPort struct {
	srv   *http.Server
	slots *httpSlots
	done  sync.WaitGroup
}

// startHTTP begins to serve HTTP on l.
func (s *Server) startHTTP(l net.Listener) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /fence", s.serveFence)
	mux.HandleFunc("POST /leader", s.serveLeader)
	mux.HandleFunc("GET /members", s.serveMembers)
	s.http = &httpPort{slots: &httpSlots{Listener: l, maxConns: s.cfg.HTTPConns, maxPerAddr: s.cfg.HTTPConnsPerAddr}, srv: &http.Server{
		Handler:     wholeRequests(mux),
		ConnContext: withHTTPConn, ConnState: httpStateChanged,
		ReadTimeout: s.cfg.HTTPRequestTimeout, WriteTimeout: s.cfg.HTTPRequestTimeout + 2*httpTimeout, IdleTimeout: httpTimeout, MaxHeaderBytes: 16 << 10,
	}}
	s.http.done.Go(func() {
		if err := s.http.srv.Serve(s.http.slots); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("HTTP port", "err", err)
		}
	})
}

// wholeRequests is next for requests that have come as a whole. From then on their connections are being served.
func wholeRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(httpConnKey{}).(*httpConn)
		if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, httpBodyBytes)); err != nil {
			if conn != nil {
				conn.setState(httpGivenUp)
			}
			_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // the rest is not waited for
			w.Header().Set("Connection", "close")
			writeJSON(w, http.StatusRequestEntityTooLarge, map[string]string{"error": "the body of the request is too long, or did not come in time; none is needed"})
			return
		}
		// The answer may take longer than the request. net/http would take the end of its deadline for a client that has gone.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		if conn == nil || conn.setState(httpServing) {
			next.ServeHTTP(w, r)
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
	return s.http.slots.Addr()
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
	return append(ids, s.authorization(r.Header.Get("Authorization"))...)
}

// authorization are the identities that an Authorization header shows.
func (s *Server) authorization(header string) []znode.Identity {
	if scheme, auth, ok := strings.Cut(header, " "); ok && scheme == "digest" {
		return s.sessions.DigestIdentities(auth)
	}
	return nil
}
