package znode

import (
	"slices"
	"strings"

	"lockkeeper/wire"
)

// Schemes of authentication that have a meaning here (docs/protocol/semantics.md section 7).
const (
	schemeWorld  = "world"  // in ACLs only, with the id "anyone"
	schemeAuth   = "auth"   // in requests only: the identities of the sender
	schemeSuper  = "super"  // as identity only: passes every check
	schemeDigest = "digest" // user:hash of the password
	schemeIP     = "ip"     // an address, in ACLs also a network
	schemeSASL   = "sasl"
	schemeX509   = "x509"
	schemeKey    = "key" // ZooKeeper's example of a scheme

	idAnyone = "anyone"
)

// maxACLEntries bounds the entries of a node's ACL, independently of the settings of the member
// that took the request: one entry of scheme auth is replaced by all identities of a connection.
// Applying a command depends on it, so it never changes.
const maxACLEntries = 1 << 16

// Allowed reports whether a connection with the identities ids, its "ip" among them, has at least
// one of the permissions want on a node with this ACL. An empty ACL allows everything.
func Allowed(acl []wire.ACL, ids []Identity, want wire.Perm) bool {
	return newACLList(acl).allows(ids, want)
}

// fixACL turns the ACL of a request into the stored ACL (docs/protocol/semantics.md section 7.3).
// It may change acl.
func fixACL(acl []wire.ACL, ids []Identity, flags Flags) ([]wire.ACL, wire.Code) {
	if len(acl) == 1 && acl[0] == wire.OpenACL[0] {
		return wire.OpenACL, wire.CodeOK // nearly all of them
	}
	if len(acl) == 0 {
		return nil, wire.CodeInvalidACL
	}
	acl, code := distinct(acl)
	if code != wire.CodeOK {
		return nil, code
	}
	fixed := make([]wire.ACL, 0, len(acl))
	for _, a := range acl {
		switch {
		case len(fixed) > maxACLEntries:
			return nil, wire.CodeInvalidACL
		case a.NullScheme:
			return nil, wire.CodeInvalidACL
		case a.Scheme == schemeWorld && a.ID.ID == idAnyone:
			fixed = append(fixed, a)
		case a.Scheme == schemeAuth:
			before := len(fixed)
			for _, id := range ids {
				if authenticated(id.Scheme, flags) {
					fixed = append(fixed, wire.ACL{Perms: a.Perms, ID: wire.ID{Scheme: id.Scheme, ID: id.ID}})
				}
			}
			if len(fixed) == before {
				return nil, wire.CodeInvalidACL
			}
		case a.NullID && (a.Scheme == schemeWorld || loaded(a.Scheme, flags)):
			return nil, wire.CodeMarshallingError
		case !loaded(a.Scheme, flags) || !validID(a.Scheme, a.ID.ID):
			return nil, wire.CodeInvalidACL
		default:
			fixed = append(fixed, a)
		}
	}
	if len(fixed) > maxACLEntries {
		return nil, wire.CodeInvalidACL
	}
	return fixed, wire.CodeOK
}

// ReplaceAuth returns acl with each entry of scheme auth replaced by those identities, as it is
// when a request is applied. It reports whether there is one. keyScheme is that there is a scheme
// key.
func ReplaceAuth(acl []wire.ACL, ids []Identity, keyScheme bool) (replaced []wire.ACL, found bool) {
	if !slices.ContainsFunc(acl, func(a wire.ACL) bool { return a.Scheme == schemeAuth }) {
		return acl, false
	}
	var flags Flags
	if keyScheme {
		flags = KeyScheme
	}
	for _, a := range acl {
		if a.Scheme != schemeAuth {
			replaced = append(replaced, a)
			continue
		}
		for _, id := range ids {
			if authenticated(id.Scheme, flags) {
				replaced = append(replaced, wire.ACL{Perms: a.Perms, ID: wire.ID{Scheme: id.Scheme, ID: id.ID}})
			}
		}
	}
	return replaced, true
}

// distinct returns acl without repeated entries. It does not change acl. ZooKeeper fails at an
// entry with a null when there is one before it to compare it with: of the same permissions and,
// for a null id, of the same scheme.
//
// It takes time in proportion to the entries: a request can have 80 000.
func distinct(acl []wire.ACL) ([]wire.ACL, wire.Code) {
	if len(acl) < 2 {
		return acl, wire.CodeOK
	}
	nulls := slices.ContainsFunc(acl, func(a wire.ACL) bool { return a.NullScheme || a.NullID })
	kept := make([]wire.ACL, 0, len(acl))
	seen := make(map[wire.ACL]bool, len(acl))
	for _, a := range acl {
		switch {
		case a.NullScheme && seen[samePerms(a)], !a.NullScheme && a.NullID && seen[sameScheme(a)]:
			return nil, wire.CodeMarshallingError
		case seen[a]:
			continue
		}
		kept = append(kept, a)
		seen[a] = true
		if nulls {
			seen[samePerms(a)] = true
			if !a.NullScheme {
				seen[sameScheme(a)] = true
			}
		}
	}
	return kept, wire.CodeOK
}

// samePerms and sameScheme are the keys under which distinct records an entry for the comparison
// with later ones that have a null. They cannot be entries themselves: distinct returns at such an
// entry when the key is there.
func samePerms(a wire.ACL) wire.ACL {
	return wire.ACL{Perms: a.Perms, ID: wire.ID{NullScheme: true, NullID: true}}
}

func sameScheme(a wire.ACL) wire.ACL {
	return wire.ACL{Perms: a.Perms, ID: wire.ID{Scheme: a.Scheme, NullID: true}}
}

// authenticated reports whether an identity of this scheme is one that the scheme "auth" in an ACL
// is replaced by: one that takes a proof to have.
func authenticated(scheme string, flags Flags) bool {
	return scheme == schemeDigest || scheme == schemeX509 || scheme == schemeSASL || scheme == schemeKey && flags&KeyScheme != 0
}

// loaded reports whether there is a provider for the scheme, so that an ACL may have it. The
// providers of sasl, x509 and key must be configured, as with ZooKeeper.
func loaded(scheme string, flags Flags) bool {
	switch scheme {
	case schemeDigest:
		return flags&NoDigest == 0
	case schemeIP:
		return true
	case schemeX509:
		return flags&X509 != 0
	case schemeSASL:
		return flags&SASL != 0
	case schemeKey:
		return flags&KeyScheme != 0
	}
	return false
}

// validID reports whether an ACL may name this identity.
func validID(scheme, id string) bool {
	switch scheme {
	case schemeDigest:
		// Java's split drops empty parts at the end, and two parts must remain.
		return strings.Count(strings.TrimRight(id, ":"), ":") == 1
	case schemeIP:
		return validIPExpr(id)
	case schemeX509:
		return validX500Name(id)
	case schemeSASL:
		return validPrincipal(id)
	case schemeKey:
		return true
	}
	return false
}

// maskACL returns acl without the hashes of passwords, as a connection without ADMIN may see it.
func maskACL(acl []wire.ACL) []wire.ACL {
	masked := acl
	for i, a := range acl {
		if a.Scheme != schemeDigest {
			continue
		}
		colon := strings.IndexByte(a.ID.ID, ':')
		if colon < 0 {
			continue
		}
		if &masked[0] == &acl[0] {
			masked = slices.Clone(acl)
		}
		masked[i].ID.ID = a.ID.ID[:colon] + ":x"
	}
	return masked
}
