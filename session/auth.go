package session

import (
	"encoding/base64"
	"hash"
	"io"
	"net/netip"
	"slices"
	"strings"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

var superIdentity = znode.Identity{Scheme: "super", ID: ""}

// authenticate adds the identities that an auth packet proves. Requests that were received before
// keep the identities they had.
func (s *Session) authenticate(p *wire.AuthPacket) wire.Code {
	switch p.Scheme {
	case "ip":
		return wire.CodeOK // every connection has its address from the start
	case "digest":
		if p.Auth == nil || s.m.cfg.NoDigest {
			return wire.CodeAuthFailed
		}
		// The ids in ACLs have been decoded in the same way.
		for _, id := range s.m.DigestIdentities(wire.DecodeUTF8(p.Auth)) {
			if !s.identify(id) {
				s.m.stats.inc(&s.m.stats.IdentitiesRefused)
				s.m.log.Warn("authentication refused: the connection has authenticated with too many identities "+
					"(maxIdentities, maxIdentityBytes)",
					"session", s.id, "client", s.addr)
				return wire.CodeAuthFailed
			}
		}
		return wire.CodeOK
	}
	s.m.log.Info("authentication refused", "session", s.id, "client", s.addr, "scheme", p.Scheme)
	return wire.CodeAuthFailed
}

// identify adds an identity to the connection; false if it would have too many. Only Submit's
// goroutine calls it.
func (s *Session) identify(id znode.Identity) bool {
	ids := *s.ids.Load()
	if slices.Contains(ids, id) {
		return true
	}
	bytes := len(id.Scheme) + len(id.ID)
	for _, other := range ids[1:] { // the address is not the client's choice
		bytes += len(other.Scheme) + len(other.ID)
	}
	if len(ids) > s.m.cfg.Limits.Identities || bytes > s.m.cfg.Limits.IdentityBytes {
		return false
	}
	ids = append(slices.Clone(ids), id)
	s.ids.Store(&ids)
	return true
}

// DigestIdentities returns the identities that "user:password" proves: the digest identity, and
// that of the super user if this is its password. None if the scheme is switched off.
func (m *Manager) DigestIdentities(auth string) []znode.Identity {
	if m.cfg.NoDigest {
		return nil
	}
	ids := []znode.Identity{{Scheme: "digest", ID: DigestID(m.cfg.DigestHash, auth)}}
	if ids[0].ID == m.cfg.SuperDigest {
		ids = append(ids, superIdentity)
	}
	return ids
}

// AddrIdentity is the identity of a connection from an address.
func AddrIdentity(a netip.Addr) znode.Identity {
	return znode.Identity{Scheme: "ip", ID: znode.AddrText(a)}
}

// DigestID is the id of scheme digest for "user:password" (docs/protocol/semantics.md 7.4). SHA-1
// is the protocol's choice unless the operator has made another; ACLs with such ids exist and must
// go on matching.
func DigestID(newHash func() hash.Hash, auth string) string {
	user, _, _ := strings.Cut(auth, ":")
	h := newHash()
	_, _ = io.WriteString(h, auth) // a hash takes everything
	return user + ":" + base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// lacksRequired reports whether the connection has to authenticate before it may send op.
func (s *Session) lacksRequired(op wire.Op) bool {
	required := s.m.cfg.RequiredSchemes
	return required != nil && op != wire.OpAuth && op != wire.OpSASL &&
		!slices.ContainsFunc(*s.ids.Load(), func(id znode.Identity) bool { return slices.Contains(required, id.Scheme) })
}
