package server

import (
	"context"
	"net"
	"time"

	"lockkeeper/server/ops/metrics"
	"lockkeeper/server/secure"
	"lockkeeper/server/zoocfg"
	"lockkeeper/znode"
)

// serverTLS is the TLS of the ports for clients and HTTP.
type serverTLS struct{ *secure.Port }

// openTLS reads the certificates, if a port speaks TLS.
func (s *Server) openTLS() error {
	if !s.cfg.SpeaksTLS() {
		return nil
	}
	keeper, err := s.cfg.OpenTLS()
	if err == nil {
		s.tls = &serverTLS{secure.NewPort(keeper, secure.PortConfig{
			MaxHandshakes: s.cfg.MaxHandshakes, Reload: s.cfg.TLS.Reload, Logger: s.log})}
	}
	return err
}

func (t *serverTLS) stop() {
	if t != nil {
		t.Close()
	}
}

// metrics are about the clients of the ports that speak TLS.
func (t *serverTLS) metrics() metrics.List {
	return metrics.List{
		metrics.Gauge("outstanding_tls_handshake", "clients that are in their TLS handshake", t.Shaking()),
		metrics.Counter("tls_handshake_exceeded", "clients closed in their TLS handshake because too many newer ones were in theirs "+
			"(netty.server.outstandingHandshake.limit)", t.Exceeded.Load()),
		metrics.Counter("tls_handshakes", "TLS handshakes that succeeded", t.Handshakes.Load()),
		metrics.Counter("tls_handshakes_failed", "TLS handshakes that failed", t.Failed.Load()),
		metrics.Gauge("tls_certificate_seconds_left", "seconds until the certificate of this server expires",
			int64(time.Until(t.Keeper.Expires()).Seconds())),
		metrics.Counter("tls_reloads", "times that changed certificates were read", t.Keeper.Reloads.Load()),
		metrics.Counter("tls_reload_failures", "times that changed certificates could not be used", t.Keeper.ReloadFailures.Load()),
	}
}

// secureClient has a client's connection decide whether it speaks TLS, and shakes hands. All of it,
// and the first request, has the time of HandshakeTimeout. It returns false when the connection is
// to be closed.
func (s *Server) secureClient(ctx context.Context, c *conn) bool {
	sc, ok := c.Conn.(*secure.Conn)
	if !ok {
		return true
	}
	heard, err := s.tls.Begin(ctx, sc, s.cfg.TLSDetectTimeout, c.accepted.Add(s.cfg.HandshakeTimeout))
	if !heard {
		s.silent(c, err)
	}
	return err == nil
}

// certIdentities are the identities of the holder of the certificate that was shown on a
// connection.
func (s *Server) certIdentities(nc net.Conn) []znode.Identity {
	sc, ok := nc.(*secure.Conn)
	if !ok {
		return nil
	}
	cert := sc.Certificate()
	if cert == nil {
		return nil
	}
	id, err := s.cfg.X509Naming.ID(cert)
	if err != nil {
		s.tls.NamingFailed(id, err)
	}
	ids := []znode.Identity{{Scheme: "x509", ID: id}}
	if s.cfg.X509SuperUser != "" && id == s.cfg.X509SuperUser {
		ids = append(ids, znode.Identity{Scheme: "super"})
	}
	return ids
}

// clientTLS is a listener for clients in that mode; without TLS it is l itself.
func (s *Server) clientTLS(l net.Listener, mode zoocfg.TLSMode) net.Listener {
	if mode == zoocfg.TLSOff {
		return l
	}
	return s.tls.Clients(l, mode == zoocfg.TLSAlso)
}

// httpTLS is the listener of a port for HTTP.
func (s *Server) httpTLS(l net.Listener, mode zoocfg.TLSMode) net.Listener {
	if mode == zoocfg.TLSOff {
		return l
	}
	auth := secure.ClientAuthWant
	switch {
	case s.cfg.HTTPNeedCert:
		auth = secure.ClientAuthNeed
	case s.cfg.TLS.TrustStore.File == "":
		auth = secure.ClientAuthNone
	}
	return s.tls.HTTP(l, mode == zoocfg.TLSAlso, auth)
}

// usesTLS reports whether a connection speaks TLS.
func usesTLS(nc net.Conn) bool {
	sc, ok := nc.(*secure.Conn)
	return ok && sc.Speaks()
}
