package session

import (
	"crypto/subtle"
	"encoding/base64"
	"hash"
	"io"
	"net/netip"
	"slices"
	"strings"

	"lockkeeper/znode"
)

var superIdentity = znode.Identity{Scheme: "super", ID: ""}

// ownIdentities returns ids without the name that all users of SASL share. A connection logs in
// with SASL once, so if there are two names of that scheme, one is the user's.
func (c *Config) ownIdentities(ids []znode.Identity) []znode.Identity {
	if c.AnySASLUser == "" {
		return ids
	}
	shared := znode.Identity{Scheme: "sasl", ID: c.AnySASLUser}
	named := func(id znode.Identity) bool { return id.Scheme == shared.Scheme && id != shared }
	if !slices.ContainsFunc(ids, named) {
		return ids
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id znode.Identity) bool { return id == shared })
}

// digestIdentities returns the identities that "user:password" proves: the digest identity, and
// that of the super user if this is its password. None if the scheme is switched off.
func (c *Config) digestIdentities(auth string) []znode.Identity {
	if c.NoDigest {
		return nil
	}
	ids := []znode.Identity{{Scheme: "digest", ID: DigestID(c.DigestHash, auth)}}
	if subtle.ConstantTimeCompare([]byte(ids[0].ID), []byte(c.SuperDigest)) == 1 {
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

// userName is the public part of an identity.
func userName(id znode.Identity) string {
	if id.Scheme == "digest" {
		user, _, _ := strings.Cut(id.ID, ":")
		return user
	}
	return id.ID
}

const configPath = "/zookeeper/config"
