package znode

import (
	"slices"
	"strings"

	"lockkeeper/wire"
)

// Schemes of authentication that have a meaning here (spec/semantics.md section 7).
const (
	schemeWorld  = "world"  // in ACLs only, with the id "anyone"
	schemeAuth   = "auth"   // in requests only: stands for whoever sends it
	schemeSuper  = "super"  // as identity only: passes every check
	schemeDigest = "digest" // user:hash of the password
	schemeIP     = "ip"     // an address, in ACLs also a network
	schemeSASL   = "sasl"
	schemeX509   = "x509"

	idAnyone = "anyone"
)

// Allowed reports whether a connection with the identities ids, its "ip" among them, has at least one of the
// permissions want on a node with this ACL. An empty ACL allows everything.
func Allowed(acl []wire.ACL, ids []Identity, want wire.Perm) bool {
	if AllowedToAll(acl, want) {
		return true
	}
	for i := range ids {
		if ids[i].Scheme == schemeSuper {
			return true
		}
	}
	for i := range acl {
		a := &acl[i]
		if a.Perms&want == 0 {
			continue
		}
		for _, id := range ids {
			if id.Scheme == a.Scheme && matches(id, a.ID.ID) {
				return true
			}
		}
	}
	return false
}

// AllowedToAll reports whether each connection, whoever it is, has at least one of the permissions want on a node with this ACL.
func AllowedToAll(acl []wire.ACL, want wire.Perm) bool {
	for i := range acl {
		a := &acl[i]
		if a.Perms&want != 0 && a.Scheme == schemeWorld && a.ID.ID == idAnyone {
			return true
		}
	}
	return len(acl) == 0
}

// matches reports whether the ACL id expr, of the same scheme as id, is about id.
func matches(id Identity, expr string) bool {
	if id.Scheme == schemeIP {
		return matchIP(id.ID, expr)
	}
	return id.ID == expr
}

// fixACL turns the ACL of a request into what is stored (spec/semantics.md section 7.3). It may change acl.
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
		case a.NullScheme:
			return nil, wire.CodeInvalidACL
		case a.Scheme == schemeWorld && a.ID.ID == idAnyone:
			fixed = append(fixed, a)
		case a.Scheme == schemeAuth:
			before := len(fixed)
			for _, id := range ids {
				if authenticated(id.Scheme) {
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
	return fixed, wire.CodeOK
}

// distinct returns acl, which it does not change, without what is in it already. ZooKeeper stumbles over an entry with a null
// when there is one before it to compare it with: of the same permissions and, for a null id, of the same scheme.
func distinct(acl []wire.ACL) ([]wire.ACL, wire.Code) {
	kept := make([]wire.ACL, 0, len(acl))
next:
	for _, a := range acl {
		for _, b := range kept {
			switch {
			case a.Perms != b.Perms:
			case a.NullScheme:
				return nil, wire.CodeMarshallingError
			case b.NullScheme || a.Scheme != b.Scheme:
			case a.NullID:
				return nil, wire.CodeMarshallingError
			case a == b:
				continue next
			}
		}
		kept = append(kept, a)
	}
	return kept, wire.CodeOK
}

// authenticated reports whether an identity of this scheme is one that somebody has proved to have: what "auth" stands for.
func authenticated(scheme string) bool {
	return scheme == schemeDigest || scheme == schemeX509 || scheme == schemeSASL
}

// loaded reports whether there is a provider for the scheme, so that an ACL may have it. Those of sasl and x509 must be
// configured, as with ZooKeeper.
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
	}
	return false
}

// maskACL returns acl as somebody may see it who cannot change it: without the hashes of passwords.
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

// aclList is an ACL that one or more nodes have. A program uses few different ones, so nodes share them.
type aclList struct {
	entries []wire.ACL // never modified
	key     string     // the encoding of entries
	refs    int        // nodes that have it
}

// aclTable holds every ACL that a node has, once.
//
// Invariant: refs of each list is the number of nodes that point to it, and is above 0.
type aclTable struct {
	byKey   map[string]*aclList
	scratch []byte
}

// intern returns the list with these entries, with one more reference. It may keep acl, which must not be modified
// any more.
func (t *aclTable) intern(acl []wire.ACL) *aclList {
	t.scratch = t.scratch[:0]
	for _, a := range acl {
		t.scratch = a.Append(t.scratch)
	}
	list := t.byKey[string(t.scratch)]
	if list == nil {
		list = &aclList{entries: acl, key: string(t.scratch)}
		t.byKey[list.key] = list
	}
	list.refs++
	return list
}

// retain adds a reference to a list that a node had when a multi began. The table may have dropped it since.
func (t *aclTable) retain(list *aclList) {
	list.refs++
	t.byKey[list.key] = list
}

func (t *aclTable) release(list *aclList) {
	list.refs--
	if list.refs == 0 {
		delete(t.byKey, list.key)
	}
}
