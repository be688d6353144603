package recipes

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

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

// Info says who a contender is: the metadata that this package writes into a
// lock's node when [MutexOptions].Data is not given.
type Info = locknode.Info

// process is what Info says of this process.
var process = sync.OnceValue(func() Info {
	host, _ := os.Hostname() // unknown is not worth a failure
	return Info{By: locknode.InfoBy, Host: host, PID: os.Getpid(), Program: filepath.Base(os.Args[0]),
		Within: within(os.Getenv(WithinVariable))}
})

// WithinVariable names the environment variable by which a program that holds a
// lock while another program runs tells it so: a comma-separated list, see
// [Info].Within.
const WithinVariable = "LOCKKEEPER_WITHIN"

// maxWithin is how many levels of programs within programs are told of: the
// innermost.
const maxWithin = 32

// within reads the variable. What is not a session is left out.
func within(text string) []string {
	var sessions []string
	for s := range strings.SplitSeq(text, ",") {
		digits, ok := strings.CutPrefix(s, "0x")
		if _, err := strconv.ParseUint(digits, 16, 64); ok && err == nil {
			sessions = append(sessions, s)
		}
	}
	return sessions[max(0, len(sessions)-maxWithin):]
}

// newInfo describes this process as of now.
func newInfo(note string) Info {
	i := process()
	i.Note, i.Since = note, time.Now().UTC().Truncate(time.Millisecond)
	return i
}

// Describe returns the metadata of this process, for recipes that take data of the
// program's own, as an Election does.
func Describe(note string) []byte { return encodeInfo(newInfo(note)) }

func encodeInfo(i Info) []byte {
	data, err := json.Marshal(i)
	if err != nil { // a year beyond 9999, at most
		panic(err)
	}
	return data
}

// downgraded tells from a writer's data that it only reads by now.
func downgraded(data []byte) bool {
	i := locknode.ParseInfo(data)
	return i != nil && i.Downgraded
}

// newUUID returns a random UUID (version 4) as 32 hexadecimal digits: kazoo's
// uuid4().hex.
func newUUID() string {
	var u [16]byte
	rand.Read(u[:])         // never fails
	u[6] = u[6]&0x0f | 0x40 // version 4
	u[8] = u[8]&0x3f | 0x80 // RFC 9562 variant
	return hex.EncodeToString(u[:])
}

// foreignLayouts are the layouts that neither this package nor Curator's mutex has, of
// locks that do not wait for them.
var foreignLayouts = []string{locknode.LayoutKazooLock, locknode.LayoutKazooRead, locknode.LayoutSession,
	locknode.LayoutKazooLease}

// mostWarned is how many paths a Session warns of.
const mostWarned = 100

// warnOfStrangers logs, once for each path, that there are contenders whose libraries
// may not wait for ours. That of Curator's two locks, which do not wait for each other
// either, is not among them: our own nodes have their names, and do.
func (s *Session) warnOfStrangers(path string, names []string) {
	i := slices.IndexFunc(names, func(n string) bool { return slices.Contains(foreignLayouts, locknode.Layout(n)) })
	if i < 0 {
		return
	}
	s.mu.Lock()
	warned := s.warned[path] || len(s.warned) >= mostWarned
	if !warned {
		if s.warned == nil {
			s.warned = make(map[string]bool)
		}
		s.warned[path] = true
	}
	s.mu.Unlock()
	if !warned {
		s.log.Warn("a contender of another library may not wait for this one, and hold the lock beside it: "+
			"see docs/guarantees.md, who excludes whom",
			"path", path, "node", names[i], "library", locknode.Library(names[i], false))
	}
}
