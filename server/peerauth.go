package server

import (
	"net"
	"net/netip"

	"lockkeeper/quorum/peer"
)

// peerAuth is how this member and the others prove to each other who they are.
type peerAuth struct {
	secret *secretFile // nil: there is none
	auth   peer.Auth
	// exposed says that other hosts can reach the peer port, and need not prove who they are.
	exposed bool
}

// openPeerAuth reads the secret that the configuration names, and finds out whether strangers at
// the port of peers are kept out. Errors: a zoocfg.Fault.
func (s *Server) openPeerAuth(peers net.Listener) (a peerAuth, err error) {
	if s.cfg.Standalone() {
		return a, nil
	}
	if path := s.cfg.PeerSecretFile; path != "" {
		if a.secret, err = openSecretFile(path, s.log); err != nil {
			f := s.cfg.Fault("peer.secretFile", "%s: %v", path, err)
			f.Err = err
			return a, f
		}
		a.auth.Secrets, a.auth.SecretOptional = a.secret.current, s.cfg.PeerSecretOptional
	}
	a.exposed = !a.auth.Proves() && !isLoopback(peers.Addr())
	if a.exposed {
		s.log.Warn("THE PEER PORT IS OPEN: whoever reaches it from another host can read all data, change it, and stop the cluster; "+
			"set sslQuorum=true or peer.secretFile on all members (docs/security.md), or close the port with a firewall", "address", peers.Addr())
	}
	return a, nil
}

// kind says, for people and programs, how members prove who they are.
func (a *peerAuth) kind() string {
	switch {
	case a.exposed:
		return "open"
	case !a.auth.Proves():
		return "loopback"
	}
	return "secret"
}

// failures is how often the file of the secret could not be read after a change.
func (a *peerAuth) failures() int64 {
	if a.secret == nil {
		return 0
	}
	return a.secret.failures.Load()
}

// isLoopback reports whether only this host reaches an address.
func isLoopback(addr net.Addr) bool {
	at, err := netip.ParseAddrPort(addr.String())
	return err == nil && at.Addr().Unmap().IsLoopback()
}
