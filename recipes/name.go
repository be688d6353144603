package recipes

import (
	"crypto/rand"
	"fmt"
	"math"
	"slices"
	"strings"
)

// lockName is what Curator's InterProcessMutex calls its nodes: it takes what
// follows the last "lock-" of a name as the sequence number.
const lockName = "lock-"

// Names of other recipes' nodes. readName and writeName are those of Curator's
// InterProcessReadWriteLock, leaseName is that of its InterProcessSemaphoreV2;
// kazoo's Lock and WriteLock have the one name, its ReadLock has the other.
const (
	readName       = "__READ__"
	writeName      = "__WRIT__"
	leaseName      = "lease-"
	kazooLockName  = "__lock__"
	kazooReadName  = "__rlock__"
	uuidDigits     = 32
	protectedStart = "_c_"
)

// Kind is what the owner of a node wants, or has.
type Kind int

const (
	// KindUnknown: no name that this package knows. Such a node is taken for a
	// writer's, for that is safe.
	KindUnknown Kind = iota
	// KindWrite: a lock that nobody shares, be it a mutex or a writer's.
	KindWrite
	// KindRead: a lock that readers share.
	KindRead
	// KindLease: one of the leases of a semaphore.
	KindLease
	// KindLead: the leadership of an election, which nobody shares.
	KindLead
)

var kindNames = [...]string{"unknown", "write", "read", "lease", "lead"}

func (k Kind) String() string { return kindNames[k] }

// MarshalText makes the kind a word in JSON.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText is the reverse of MarshalText.
func (k *Kind) UnmarshalText(text []byte) error {
	i := slices.Index(kindNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("recipes: there is no kind of contender %q", text)
	}
	*k = Kind(i)
	return nil
}

// kindOf tells from a node's name what its owner wants.
func kindOf(name string) Kind {
	layout := layoutOf(name)
	for _, l := range layouts {
		if l.name == layout {
			return l.kind
		}
	}
	return KindUnknown
}

// Names of libraries, see [Contender.Library].
const (
	libraryOwn   = "lockkeeper"
	libraryGo    = "go-zookeeper"
	libraryKazoo = "kazoo"
)

// NodeKind tells from the name of a node below a lock's path whether it is a
// contender's, and what its owner wants.
func NodeKind(name string) (kind Kind, contends bool) {
	if isKazooLease(name) {
		return KindLease, true
	}
	_, contends = sequence(name)
	return kindOf(name), contends
}

// libraryOf guesses who made a node, from its name; "" if it has none of the
// names that are known. This package's names are Curator's, so it is its
// metadata that tell the two apart.
func libraryOf(name string, info *Info) string {
	rest, protected := strings.CutPrefix(name, protectedStart)
	hex := 0
	for hex < len(rest) && isHex(rest[hex]) {
		hex++
	}
	switch {
	case info != nil:
		return libraryOwn
	case protected && hex == uuidDigits:
		return libraryGo
	case protected && hex == 8:
		return "curator"
	case !protected && hex == uuidDigits && (len(name) == hex || layoutOf(name) != ""):
		return libraryKazoo
	case layoutOf(name) == layoutSession:
		return "zookeeper"
	}
	return ""
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' }

// isKazooLease: kazoo's Semaphore calls its leases uuid4().hex, and no more.
func isKazooLease(name string) bool {
	if len(name) != uuidDigits {
		return false
	}
	for i := range uuidDigits {
		if !isHex(name[i]) {
			return false
		}
	}
	return true
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

// sequenceDigits is the width of the number that the server appends (%010d).
const sequenceDigits = 10

// maxSequence is where the server's counter stops: every later node gets this
// number too.
const maxSequence = math.MaxInt32

// sequence returns the number at the end of a node's name, and whether it has
// one. What is in front does not matter: Curator's "_c_<uuid>-lock-",
// go-zookeeper's "_c_<hex>-lock-", kazoo's "<hex>__lock__" and "<hex>__rlock__"
// all draw their numbers from the one counter of their parent.
func sequence(name string) (int64, bool) {
	if len(name) < sequenceDigits {
		return 0, false
	}
	var n int64
	for _, c := range []byte(name[len(name)-sequenceDigits:]) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// predecessor finds, among the children of a lock's path, the node that comes
// next before own: the one with the largest sequence number below own's. It is
// "" when own is the first. found tells whether own itself is there.
//
// Every child with a sequence number counts, of any library, unless skip says
// that it need not be waited for: to wait for a node that means nothing to us is
// safe, to overlook a holder is not. A nil skip skips none.
func predecessor(children []string, own string, skip func(name string) bool) (name string, found bool) {
	ownSeq, _ := sequence(own)
	best := int64(-1)
	for _, c := range children {
		if c == own {
			found = true
			continue
		}
		if n, ok := sequence(c); ok && n < ownSeq && n > best && (skip == nil || !skip(c)) {
			best, name = n, c
		}
	}
	return name, found
}

// split returns a node's parent and its name.
func split(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", path
	}
	return path[:i], path[i+1:]
}
