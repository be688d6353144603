package session

import (
	"crypto/subtle"
	"encoding/base64"
	"hash"
	"io"
	"net/netip"
	"slices"
	"strings"

	"lockkeeper/session/sasl"
	"lockkeeper/znode"
)

// Auth says how clients prove who they are, and which of them are super users.
type Auth struct {
	// SuperDigest is "user:base64(sha1(user:password))" of the super user of scheme digest; empty:
	// there is none.
	SuperDigest string
	SkipACL     bool // every client passes every access check
	// DigestHash is the hash of scheme digest; nil means SHA-1. NoDigest switches the scheme off.
	DigestHash func() hash.Hash
	NoDigest   bool
	// SASLUsers are the users who may log in with SASL; nil: this member has no SASL. SuperUsers
	// are the super users among them. With SASLOptional a client that fails to log in goes on
	// without an identity, unless RequiredSchemes has sasl.
	SASLUsers    sasl.Users
	SuperUsers   []string
	SASLOptional bool
	// AnySASLUser is a name that all users of SASL have in the ACLs of nodes, beside their own;
	// empty: there is none.
	AnySASLUser string
	// Ensembles are the names that a client may have for this cluster (scheme ensemble); the
	// connection of a client with another name is closed. nil: there is no such scheme; empty: any
	// name will do.
	Ensembles []string
	KeyScheme bool // there is the scheme key
	// RequiredSchemes: a connection must prove an identity of one of these schemes before any other
	// request; nil means none.
	RequiredSchemes []string
}

var superIdentity = znode.Identity{Scheme: "super", ID: ""}

// ownIdentities returns ids without the name that all users of SASL share. A connection logs in
// with SASL once, so if there are two names of that scheme, one is the user's.
func (a *Auth) ownIdentities(ids []znode.Identity) []znode.Identity {
	if a.AnySASLUser == "" {
		return ids
	}
	shared := znode.Identity{Scheme: "sasl", ID: a.AnySASLUser}
	named := func(id znode.Identity) bool { return id.Scheme == shared.Scheme && id != shared }
	if !slices.ContainsFunc(ids, named) {
		return ids
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id znode.Identity) bool { return id == shared })
}

// digestIdentities returns the identities that "user:password" proves: the digest identity, and the
// super user's, if this is its password. None if the scheme is switched off.
func (a *Auth) digestIdentities(auth string) []znode.Identity {
	if a.NoDigest {
		return nil
	}
	ids := []znode.Identity{{Scheme: "digest", ID: DigestID(a.DigestHash, auth)}}
	if subtle.ConstantTimeCompare([]byte(ids[0].ID), []byte(a.SuperDigest)) == 1 {
		ids = append(ids, superIdentity)
	}
	return ids
}

// claimsSuper reports whether "user:password" has the name of the super user of scheme digest, and
// another password.
func (a *Auth) claimsSuper(auth string) bool {
	user, _, _ := strings.Cut(auth, ":")
	super, _, _ := strings.Cut(a.SuperDigest, ":")
	return super != "" && user == super && !a.NoDigest && !slices.Contains(a.digestIdentities(auth), superIdentity)
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
