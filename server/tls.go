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

// serverTLS is the TLS of the ports for clients and HTTP. nil has no port that speaks TLS.
type serverTLS struct {
	*secure.Port
	cfg *Config
}

// openTLS reads the certificates; nil if no port speaks TLS.
func openTLS(cfg *Config) (*serverTLS, error) {
	if !cfg.SpeaksTLS() {
		return nil, nil
	}
	keeper, err := cfg.OpenTLS()
	if err != nil {
		return nil, err
	}
	return &serverTLS{secure.NewPort(keeper, secure.PortConfig{
		MaxHandshakes: cfg.TLS.MaxHandshakes, Reload: cfg.TLS.Clients.Reload, Logger: cfg.Logger}), cfg}, nil
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
		metrics.Counter("tls_handshake_exceeded", "clients closed in their TLS handshake because too many newer ones "+
			"were in theirs "+
			"(netty.server.outstandingHandshake.limit)", t.Exceeded.Load()),
		metrics.Counter("tls_handshakes", "TLS handshakes that succeeded", t.Handshakes.Load()),
		metrics.Counter("tls_handshakes_failed", "TLS handshakes that failed", t.Failed.Load()),
		metrics.Gauge("tls_certificate_seconds_left", "seconds until the certificate of this server expires",
			int64(time.Until(t.Keeper.Expires()).Seconds())),
		metrics.Counter("tls_reloads", "times that changed certificates were read", t.Keeper.Reloads.Load()),
		metrics.Counter("tls_reload_failures", "times that changed certificates could not be used",
			t.Keeper.ReloadFailures.Load()),
	}
}

// secureClient has a client's connection decide whether it speaks TLS, and shakes hands. All of it,
// and the first request, has the time of HandshakeTimeout. It returns false when the connection is
// to be closed.
func (p *clientPort) secureClient(ctx context.Context, c *conn) bool {
	sc, ok := c.Conn.(*secure.Conn)
	if !ok {
		return true
	}
	heard, err := p.tls.Begin(ctx, sc, p.cfg.TLS.DetectTimeout, c.accepted.Add(p.cfg.Client.HandshakeTimeout))
	if !heard {
		p.silent(c, err)
	}
	return err == nil
}

// certIdentities are the identities of the holder of the certificate that was shown on a
// connection.
func (t *serverTLS) certIdentities(nc net.Conn) []znode.Identity {
	sc, ok := nc.(*secure.Conn)
	if !ok {
		return nil
	}
	cert := sc.Certificate()
	if cert == nil {
		return nil
	}
	id, err := t.cfg.Auth.X509Naming.ID(cert)
	if err != nil {
		t.NamingFailed(id, err)
	}
	ids := []znode.Identity{{Scheme: "x509", ID: id}}
	if t.cfg.Auth.X509SuperUser != "" && id == t.cfg.Auth.X509SuperUser {
		ids = append(ids, znode.Identity{Scheme: "super"})
	}
	return ids
}

// clientListener is a listener for clients in that mode; without TLS it is l itself.
func (t *serverTLS) clientListener(l net.Listener, mode zoocfg.TLSMode) net.Listener {
	if mode == zoocfg.TLSOff {
		return l
	}
	return t.Clients(l, mode == zoocfg.TLSAlso)
}

// httpListener is the listener of a port for HTTP.
func (t *serverTLS) httpListener(l net.Listener, mode zoocfg.TLSMode) net.Listener {
	if mode == zoocfg.TLSOff {
		return l
	}
	auth := secure.ClientAuthWant
	switch {
	case t.cfg.HTTP.NeedCert:
		auth = secure.ClientAuthNeed
	case t.cfg.TLS.Clients.TrustStore.File == "":
		auth = secure.ClientAuthNone
	}
	return t.HTTP(l, mode == zoocfg.TLSAlso, auth)
}

// usesTLS reports whether a connection speaks TLS.
func usesTLS(nc net.Conn) bool {
	sc, ok := nc.(*secure.Conn)
	return ok && sc.Speaks()
}
