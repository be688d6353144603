package recipes

import (
	"crypto/rand"
	"fmt"
	"math"
	"strings"
)

// lockName is what Curator's InterProcessMutex calls its nodes: it takes what
// follows the last "lock-" of a name as the sequence number.
const lockName = "lock-"

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
// Every child with a sequence number counts, whoever made it: to wait for a
// node that means nothing to us is safe, to overlook a holder is not.
func predecessor(children []string, own string) (name string, found bool) {
	ownSeq, _ := sequence(own)
	best := int64(-1)
	for _, c := range children {
		if c == own {
			found = true
			continue
		}
		if n, ok := sequence(c); ok && n < ownSeq && n > best {
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
