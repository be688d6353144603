package server

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"lockkeeper/internal/loglimit"
	"lockkeeper/quorum/peer"
	"lockkeeper/server/ops/metrics"
	"lockkeeper/server/secure"
)

// peerAuth is how this member and the others prove to each other who they are.
type peerAuth struct {
	secret *secure.SecretFile // nil: there is none
	certs  *peerCerts         // nil: there is no TLS between members
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
	if path := cfg.PeerSecretFile; path != "" {
		if a.secret, err = secure.OpenSecretFile(path, cfg.Logger); err != nil {
			f := cfg.Fault("peer.secretFile", "%s: %v", path, err)
			f.Err = err
			return a, f
		}
		a.auth.Secrets, a.auth.SecretOptional = a.secret.Current, cfg.PeerSecretOptional
	}
	if cfg.PeersSpeakTLS() {
		keeper, err := cfg.OpenPeerTLS()
		if err != nil {
			return a, err
		}
		a.certs = &peerCerts{keeper: keeper, reload: cfg.PeerTLS.Reload, out: cfg.Logger, log: loglimit.New(cfg.Logger),
			end: expiry{whom: "other members"}, looked: time.Now()}
		a.certs.end.look(cfg.Logger, keeper.Expires())
		a.auth.TLS = &peer.TLS{
			Client: a.certs.client, Server: a.certs.server,
			Certificates: cfg.PeerTLS.ClientAuth == secure.ClientAuthNeed,
			VerifyHost:   !cfg.PeerTLS.AnyHost,
			PlainDial:    !cfg.PeerTLSOn, Plain: cfg.PeerTLSAlso,
		}
	}
	a.exposed = !a.auth.Proves() && !isLoopback(peers.Addr())
	if a.exposed {
		cfg.Logger.Warn("THE PEER PORT IS OPEN: whoever reaches it from another host can read all data, change it, and stop the cluster; "+
			"set sslQuorum=true or peer.secretFile on all members (docs/security.md), or close the port with a firewall", "address", peers.Addr())
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

// metrics are about what this member proves with.
func (a *peerAuth) metrics() (ms metrics.List) {
	open := 0
	if a.exposed {
		open = 1
	}
	ms = append(ms, metrics.Gauge("peer_port_open",
		"1 if other hosts reach the peer port and need not prove who they are, with TLS or a secret; 0 if not", open))
	if a.secret != nil {
		ms = append(ms, metrics.Counter("peer_secret_failures", "changes of peer.secretFile that could not be used", a.secret.Failures.Load()))
	}
	if a.certs != nil {
		k := a.certs.keeper
		ms = append(ms,
			metrics.Gauge("peer_tls_certificate_seconds_left", "seconds until the certificate for other members expires",
				int64(time.Until(k.Expires()).Seconds())),
			metrics.Counter("peer_tls_reloads", "times that changed certificates for other members were read", k.Reloads.Load()),
			metrics.Counter("peer_tls_reload_failures", "times that changed certificates for other members could not be used",
				k.ReloadFailures.Load()))
	}
	return ms
}

// peerCerts are the certificates for connections between members. Their files are looked at when a
// connection is opened or accepted: the ones before it keep what they have.
type peerCerts struct {
	keeper *secure.Keeper
	reload bool
	out    *slog.Logger
	log    *loglimit.Limiter

	mu     sync.Mutex
	looked time.Time
	end    expiry
}

// peerCertsLook is how often the files are looked at, at most.
const peerCertsLook = time.Second

func (c *peerCerts) refresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end.look(c.out, c.keeper.Expires())
	if !c.reload || time.Since(c.looked) < peerCertsLook {
		return
	}
	c.looked = time.Now()
	switch changed, err := c.keeper.Reload(); {
	case err != nil:
		c.log.Error("reload", "the new certificates for other members cannot be used: those before stay in use", "err", err)
	case changed:
		c.log.Warn(c.keeper.Expires().String(), "certificates for other members read again", "expires", c.keeper.Expires())
	}
}

func (c *peerCerts) client(host string) *tls.Config {
	c.refresh()
	return c.keeper.Client(host)
}

func (c *peerCerts) server() *tls.Config {
	c.refresh()
	return c.keeper.Server()
}

// isLoopback reports whether only this host reaches an address.
func isLoopback(addr net.Addr) bool {
	at, err := netip.ParseAddrPort(addr.String())
	return err == nil && at.Addr().Unmap().IsLoopback()
}
