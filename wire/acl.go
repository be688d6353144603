package wire

// Perm is a set of permissions on a node. A request may carry any bits; those beyond PermAll mean
// nothing.
type Perm int32

// The permissions.
const (
	PermRead   Perm = 1 << 0 // read data and list children
	PermWrite  Perm = 1 << 1 // set data
	PermCreate Perm = 1 << 2 // create children
	PermDelete Perm = 1 << 3 // delete children
	PermAdmin  Perm = 1 << 4 // set the ACL
	PermAll    Perm = 31
)

// ID is the identity that an ACL entry is about. Null and empty are different on the wire: kazoo
// sends a null id for scheme "auth". A null field has its flag set and an empty string.
type ID struct {
	Scheme, ID         string
	NullScheme, NullID bool
}

// ACL is one entry of a node's access control list. ACLs compare with ==.
type ACL struct {
	Perms Perm
	ID
}

// OpenACL is the list that grants everything to all connections. It must not be modified.
var OpenACL = []ACL{{Perms: PermAll, ID: ID{Scheme: "world", ID: "anyone"}}}

// aclMinLen is the number of bytes of the shortest encoded ACL entry: permissions and two string
// lengths.
const aclMinLen = 12

// Append encodes a.
func (a ACL) Append(b []byte) []byte {
	b = appendInt32(b, int32(a.Perms))
	b = appendNullString(b, a.ID.Scheme, a.NullScheme)
	return appendNullString(b, a.ID.ID, a.NullID)
}

// Decode reads a from d.
func (a *ACL) Decode(d *Decoder) {
	a.Perms = Perm(d.Int32())
	a.ID.Scheme, a.NullScheme = d.aclString()
	a.ID.ID, a.NullID = d.aclString()
}

// aclString is NullString without an allocation for the two strings of nearly every ACL.
func (d *Decoder) aclString() (s string, null bool) {
	ahead := *d
	switch v := ahead.Buffer(); string(v) {
	case "world":
		*d = ahead
		return "world", false
	case "anyone":
		*d = ahead
		return "anyone", false
	}
	return d.NullString()
}

func appendACLs(b []byte, v []ACL) []byte {
	return appendVector(b, v, func(b []byte, a ACL) []byte { return a.Append(b) })
}

// ACLs reads a vector of ACL entries, nil for null.
func (d *Decoder) ACLs() []ACL {
	return vector(d, aclMinLen, func(d *Decoder) (a ACL) {
		a.Decode(d)
		return a
	})
}
