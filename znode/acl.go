package znode

import (
	"net/netip"
	"slices"
	"strings"

	"lockkeeper/wire"
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

// aclList is an ACL that one or more nodes have. A program uses few different ones, so nodes share
// them. It is checked often and made rarely, so it has an index: a check takes about as long with
// thousands of entries as with one.
type aclList struct {
	entries []wire.ACL // never modified
	key     string     // the encoding of entries
	refs    int        // nodes that have it

	// The permissions that the entries grant, by connection. Never modified.
	anyone     wire.Perm                  // to all connections
	identities map[Identity]wire.Perm     // to connections with the identity, except for scheme ip
	networks   map[netip.Prefix]wire.Perm // to connections from there; an address is /32 or /128
	bits       []int                      // the lengths of the prefixes in networks, each once
}

// newACLList returns a list with these entries, which it keeps, and no key.
func newACLList(acl []wire.ACL) *aclList {
	l := &aclList{entries: acl}
	for i := range acl {
		a := &acl[i]
		switch {
		case a.Scheme == schemeWorld && a.ID.ID == idAnyone:
			l.anyone |= a.Perms
		case a.Scheme == schemeIP:
			if addr, bits, ok := parseIPExpr(a.ID.ID); ok {
				l.grantNetwork(addr, bits, a.Perms)
			}
		default:
			if l.identities == nil {
				l.identities = map[Identity]wire.Perm{}
			}
			l.identities[Identity{a.Scheme, a.ID.ID}] |= a.Perms
		}
	}
	if len(acl) == 0 {
		l.anyone = wire.PermAll
	}
	return l
}

func (l *aclList) grantNetwork(addr netip.Addr, bits int, perms wire.Perm) {
	network, err := addr.Prefix(bits)
	if err != nil {
		return // parseIPExpr lets no such length pass
	}
	if l.networks == nil {
		l.networks = map[netip.Prefix]wire.Perm{}
	}
	l.networks[network] |= perms
	if !slices.Contains(l.bits, bits) { // there are 129 at the most
		l.bits = append(l.bits, bits)
	}
}

// granted returns the permissions of a connection with the identities ids, its "ip" among them.
func (l *aclList) granted(ids []Identity) wire.Perm {
	perms := l.anyone
	for i := range ids {
		switch id := &ids[i]; id.Scheme {
		case schemeSuper:
			return ^wire.Perm(0)
		case schemeIP:
			perms |= l.grantedAt(id.ID)
		default:
			perms |= l.identities[*id]
		}
	}
	return perms
}

// grantedAt returns the permissions that the networks give to an address, in the form that Java
// prints.
func (l *aclList) grantedAt(text string) (perms wire.Perm) {
	if len(l.networks) == 0 {
		return 0
	}
	addr, ok := parseIP(text)
	if !ok {
		return 0
	}
	for _, bits := range l.bits {
		// an IPv4 address is in no network of 33 bits or more
		if network, err := addr.Prefix(bits); err == nil {
			perms |= l.networks[network]
		}
	}
	return perms
}

// allows reports whether a connection with these identities has at least one of the permissions
// want.
func (l *aclList) allows(ids []Identity, want wire.Perm) bool {
	return l.anyone&want != 0 || l.granted(ids)&want != 0
}

// open reports whether everybody may read the nodes with this ACL.
func (l *aclList) open() bool { return l.anyone&wire.PermRead != 0 }

// isClosed is 1 if not everybody may read them, else 0.
func (l *aclList) isClosed() int {
	if l.open() {
		return 0
	}
	return 1
}

// lookups returns the number of lookups that allows makes.
func (l *aclList) lookups(ids []Identity, want wire.Perm) int {
	if l.anyone&want != 0 {
		return 0
	}
	return len(l.bits) + len(ids)
}

// Access is the ACL of a node, to be checked later, against any identities, without the Store's
// lock. Nodes with equal ACLs share one.
type Access aclList

// Allows says whether a connection with the identities ids, its "ip" among them, has one of the
// permissions. A nil Access allows everything.
func (a *Access) Allows(ids []Identity, want wire.Perm) bool {
	return a == nil || (*aclList)(a).allows(ids, want)
}

// aclTable holds every ACL that a node has, once.
//
// Invariant: refs of each list is the number of nodes that point to it, and is above 0.
type aclTable struct {
	byKey     map[string]*aclList
	sizeBytes int64 // sum of their sizeBytes
	closed    int   // the lists that are not open
	scratch   []byte
}

// sizeBytes returns the memory that a list counts for.
func (l *aclList) sizeBytes() int64 { return aclMemory(len(l.entries), len(l.key)) }

// aclMemory estimates the memory of an ACL from the number of its entries and the length of its
// encoding: the encoding is stored twice, and each entry is in an index.
func aclMemory(entries, bytes int) int64 { return 200 + 150*int64(entries) + 2*int64(bytes) }

// intern returns the list with these entries, with one more reference. It may keep acl, which must
// not be modified any more.
func (t *aclTable) intern(acl []wire.ACL) *aclList {
	t.scratch = t.scratch[:0]
	for _, a := range acl {
		t.scratch = a.Append(t.scratch)
	}
	list := t.byKey[string(t.scratch)]
	if list == nil {
		list = newACLList(acl)
		list.key = string(t.scratch)
		t.byKey[list.key] = list
		t.sizeBytes += list.sizeBytes()
		t.closed += list.isClosed()
	}
	list.refs++
	return list
}

// retain adds a reference to a list that a node had when a multi began. The table may have dropped
// it since.
func (t *aclTable) retain(list *aclList) {
	if list.refs++; list.refs == 1 {
		t.byKey[list.key] = list
		t.sizeBytes += list.sizeBytes()
		t.closed += list.isClosed()
	}
}

func (t *aclTable) release(list *aclList) {
	list.refs--
	if list.refs == 0 {
		delete(t.byKey, list.key)
		t.sizeBytes -= list.sizeBytes()
		t.closed -= list.isClosed()
	}
}
