package recipes

import (
	"crypto/rand"
	"fmt"

	"lockkeeper/locknode"
)

// Names of the nodes that this package makes: they are Curator's.
const (
	lockName  = locknode.LayoutLock
	readName  = locknode.LayoutRead
	writeName = locknode.LayoutWrite
	leaseName = locknode.LayoutLease
	latchName = locknode.LayoutLatch
)

// Kind is what the owner of a node wants, or has.
type Kind = locknode.Kind

const (
	// KindUnknown: no name that this package knows. Such a node is taken for a
	// writer's, for that is safe.
	KindUnknown = locknode.KindUnknown
	// KindWrite: a lock that nobody shares, be it a mutex or a writer's.
	KindWrite = locknode.KindWrite
	// KindRead: a lock that readers share.
	KindRead = locknode.KindRead
	// KindLease: one of the leases of a semaphore.
	KindLease = locknode.KindLease
	// KindLead: the leadership of an election, which nobody shares.
	KindLead = locknode.KindLead
)

// NodeKind tells from the name of a node below a lock's path whether it is a
// contender's, and what its owner wants.
func NodeKind(name string) (kind Kind, contends bool) {
	return locknode.KindOf(name), locknode.Contends(name)
}

// protect returns the name for a protected create, as Curator makes it:
//
//	_c_xxxxxxxx-xxxx-4xxx-xxxx-xxxxxxxxxxxx-lock-
//
// The UUID makes the node findable when the reply to its creation, with the
// sequence number that the server appends, was lost.
func protect(name string) string {
	var u [16]byte
	rand.Read(u[:])         // never fails
	u[6] = u[6]&0x0f | 0x40 // version 4
	u[8] = u[8]&0x3f | 0x80 // RFC 9562 variant
	return fmt.Sprintf("_c_%x-%x-%x-%x-%x-%s", u[:4], u[4:6], u[6:8], u[8:10], u[10:], name)
}

// predecessor finds, among the children of a lock's path, the node that comes
// next before own: the one with the largest sequence number up to own's. It is
// "" when own is the first. found tells whether own itself is there.
//
// Every child with a sequence number counts, of any library, unless skip says
// that it need not be waited for: to wait for a node that means nothing to us is
// safe, to overlook a holder is not. A nil skip skips none. A node with own's number,
// which only somebody by hand makes, is in front if its czxid is smaller: see twinBehind.
func predecessor(children []string, own string, skip func(name string) bool) (name string, found bool) {
	ownSeq, _ := locknode.Sequence(own)
	best := int64(-1)
	for _, c := range children {
		if c == own {
			found = true
			continue
		}
		if n, ok := locknode.Sequence(c); ok && n <= ownSeq && n > best && (skip == nil || !skip(c)) {
			best, name = n, c
		}
	}
	return name, found
}

// twinBehind says whether a node that predecessor has returned was made after own, which has the
// same number then: so it is behind own, as locknode.Order has it.
func twinBehind(name, own string, czxid, token int64) bool {
	n, _ := locknode.Sequence(name)
	ownSeq, _ := locknode.Sequence(own)
	return n == ownSeq && czxid > token
}

// split returns a node's parent and its name.
func split(path string) (dir, name string) { return locknode.Split(path) }
