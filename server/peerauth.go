package server

import (
	"net"
	"net/netip"
	"time"

	"lockkeeper/quorum/peer"
	"lockkeeper/server/ops/metrics"
	"lockkeeper/server/secure"
)

// peerAuth is how this member and the others prove to each other who they are.
type peerAuth struct {
	secret *secure.SecretFile // nil: there is none
	certs  *secure.PeerCerts  // nil: there is no TLS between members
	auth   peer.Auth
	// exposed says that other hosts can reach the peer port, and need not prove who they are.
	exposed bool
}

// openPeerAuth reads the secret and the certificates that the configuration names, and finds out
// whether the peer port refuses programs that are no members. Errors: zoocfg.Faults.
func openPeerAuth(cfg *Config, peers net.Listener) (a peerAuth, err error) {
	if cfg.Standalone() {
		return a, nil
	}
	if path := cfg.Cluster.SecretFile; path != "" {
		if a.secret, err = secure.OpenSecretFile(path, cfg.Logger); err != nil {
			f := cfg.Fault("peer.secretFile", "%s: %v", path, err)
			f.Err = err
			return a, f
		}
		a.auth.Secrets, a.auth.SecretOptional = a.secret.Current, cfg.Cluster.SecretOptional
	}
	if cfg.PeersSpeakTLS() {
		keeper, err := cfg.OpenPeerTLS()
		if err != nil {
			return a, err
		}
		a.certs = secure.NewPeerCerts(keeper, cfg.TLS.Peers.Reload, cfg.Logger)
		a.auth.TLS = &peer.TLS{
			Client: a.certs.Client, Server: a.certs.Server,
			Certificates: cfg.TLS.Peers.ClientAuth == secure.ClientAuthNeed,
			VerifyHost:   !cfg.TLS.Peers.AnyHost,
			PlainDial:    !cfg.Cluster.TLS, Plain: cfg.Cluster.TLSAlso,
		}
	}
	a.exposed = !a.auth.Proves() && !isLoopback(peers.Addr())
	if a.exposed {
		cfg.Logger.Warn("THE PEER PORT IS OPEN: whoever reaches it from another host can read all data, change it, "+
			"and stop the cluster; "+
			"set sslQuorum=true or peer.secretFile on all members (docs/security.md), or close the port with "+
			"a firewall", "address", peers.Addr())
	}
	return a, nil
}

// kind says, for people and programs, how members prove who they are.
func (a *peerAuth) kind() string {
	var secret, certs peer.Auth
	secret.Secrets, secret.SecretOptional, certs.TLS = a.auth.Secrets, a.auth.SecretOptional, a.auth.TLS
	switch {
	case secret.Proves() && certs.Proves():
		return "tls+secret"
	case secret.Proves():
		return "secret"
	case certs.Proves():
		return "tls"
	case a.exposed:
		return "open"
	}
	return "loopback"
}

// metrics are about this member's certificates and secrets.
func (a *peerAuth) metrics() (ms metrics.List) {
	open := 0
	if a.exposed {
		open = 1
	}
	ms = append(ms, metrics.Gauge("peer_port_open",
		"1 if other hosts reach the peer port and need not prove who they are, with TLS or a secret; 0 if not", open))
	if a.secret != nil {
		ms = append(ms, metrics.Counter("peer_secret_failures", "changes of peer.secretFile that could not be used",
			a.secret.Failures.Load()))
	}
	if a.certs != nil {
		k := a.certs.Keeper
		ms = append(ms,
			metrics.Gauge("peer_tls_certificate_seconds_left", "seconds until the certificate for other "+
				"members expires",
				int64(time.Until(k.Expires()).Seconds())),
			metrics.Counter("peer_tls_reloads", "times that changed certificates for other members were read",
				k.Reloads.Load()),
			metrics.Counter("peer_tls_reload_failures", "times that changed certificates for other members could "+
				"not be used",
				k.ReloadFailures.Load()))
	}
	return ms
}

// isLoopback reports whether only this host reaches an address.
func isLoopback(addr net.Addr) bool {
	at, err := netip.ParseAddrPort(addr.String())
	return err == nil && at.Addr().Unmap().IsLoopback()
}
