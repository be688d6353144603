package recipes

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

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

// Kind is the kind of lock that the owner of a node wants, or has.
type Kind = locknode.Kind

const (
	// KindUnknown: no name that this package knows. Such a node is taken for a writer's, for that
	// is safe.
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

// NodeKind tells from the name of a node below a lock's path whether it is a contender's, and of
// which kind.
func NodeKind(name string) (kind Kind, contends bool) {
	return locknode.KindOf(name), locknode.Contends(name)
}

// protect returns the name for a protected create, as Curator makes it:
//
//	_c_xxxxxxxx-xxxx-4xxx-xxxx-xxxxxxxxxxxx-lock-
//
// protectPrefix begins the names of our numbered nodes, and of Curator's.
const protectPrefix = "_c_"

// The UUID makes the node findable when the reply to its creation, with the sequence number that
// the server appends, was lost.
func protect(name string) string {
	u := newUUID()
	return fmt.Sprintf(protectPrefix+"%s-%s-%s-%s-%s-%s", u[:8], u[8:12], u[12:16], u[16:20], u[20:], name)
}

// blocks reports whether own, with this token, has to wait for the node that locknode.Predecessor
// has returned.
func blocks(front string, data []byte, stat *zk.Stat, own string, token int64, reads bool) bool {
	c := locknode.New("", front, stat.EphemeralOwner, time.Time{}, stat.Czxid, data)
	return c.Blocks(own, token, reads)
}

// A semaphore's leases are no part of a lock's queue: kazoo's, which are children of the path, have
// no sequence numbers, and Curator's, in the child leases, have the numbers of another node. So a
// lock on the path of a semaphore compares czxids: it waits for the leases that were made before
// its own node was. Our semaphore does the same with the locks on its path, so that the two never
// wait for each other. kazoo's semaphore counts a lock's node as a lease, Curator's does not see
// it.

// leasesAt lists, relative to dir, the leases of semaphores; names are dir's children. In a path
// without semaphores, that costs nothing.
func leasesAt(conn Conn, dir string, names []string) ([]string, error) {
	var leases []string
	for _, n := range names {
		if locknode.IsKazooLease(n) {
			leases = append(leases, n)
		}
	}
	if !slices.Contains(names, locknode.CuratorLeases) {
		return leases, nil
	}
	children, _, err := conn.Children(dir + "/" + locknode.CuratorLeases)
	if errors.Is(err, zk.ErrNoNode) {
		return leases, nil
	}
	for _, n := range children {
		if locknode.KindOf(n) == KindLease {
			leases = append(leases, locknode.CuratorLeases+"/"+n)
		}
	}
	return leases, err
}

// split returns a node's parent and its name.
func split(path string) (dir, name string) { return locknode.Split(path) }

// Info says who a contender is: the metadata that this package writes into a lock's node when
// [MutexOptions].Data is not given.
type Info = locknode.Info

// process is the Info of this process.
var process = sync.OnceValue(func() Info {
	host, _ := os.Hostname() // unknown is not worth a failure
	return Info{By: locknode.InfoBy, Host: host, PID: os.Getpid(), Program: filepath.Base(os.Args[0]),
		Within: within(os.Getenv(WithinVariable))}
})

// WithinVariable names the environment variable by which a program that holds a lock while another
// program runs tells it so: a comma-separated list, see [Info].Within.
const WithinVariable = "LOCKKEEPER_WITHIN"

// maxWithin is the number of levels of programs within programs in an Info: the innermost.
const maxWithin = 32

// within reads the variable. It leaves out words that are no session.
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

// Describe returns the metadata of this process, for recipes that take data of the program's own,
// as an Election does.
func Describe(note string) []byte { return encodeInfo(newInfo(note)) }

func encodeInfo(i Info) []byte {
	data, err := json.Marshal(i)
	if err != nil { // a year beyond 9999, at most
		panic(err)
	}
	return data
}

// newUUID returns a random UUID (version 4) as 32 hexadecimal digits: kazoo's uuid4().hex.
func newUUID() string {
	var u [16]byte
	rand.Read(u[:])         // never fails
	u[6] = u[6]&0x0f | 0x40 // version 4
	u[8] = u[8]&0x3f | 0x80 // RFC 9562 variant
	return hex.EncodeToString(u[:])
}

// foreignLayouts are the layouts that neither this package nor Curator's mutex has, of locks that
// do not wait for them.
var foreignLayouts = []string{locknode.LayoutKazooLock, locknode.LayoutKazooRead, locknode.LayoutSession,
	locknode.LayoutKazooLease}

// mostWarned is the number of paths that a Session warns of, at most.
const mostWarned = 100

// warned are the paths of which a Session has logged that others may not wait for it.
type warned struct {
	mu    sync.Mutex
	paths map[string]bool
}

// first notes a path, and reports whether it is to be warned of.
func (w *warned) first(path string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.paths[path] || len(w.paths) >= mostWarned {
		return false
	}
	if w.paths == nil {
		w.paths = make(map[string]bool)
	}
	w.paths[path] = true
	return true
}

// ofStrangers logs, once for each path, that there are contenders of libraries that may not wait
// for ours. Curator's two locks, which do not wait for each other either, are not among them: our
// own nodes have their names, and wait for both.
func (w *warned) ofStrangers(log *slog.Logger, path string, names []string) {
	i := slices.IndexFunc(names, func(n string) bool { return slices.Contains(foreignLayouts, locknode.Layout(n)) })
	if i >= 0 && w.first(path) {
		log.Warn("a contender of another library may not wait for this one, and hold the lock beside it: "+
			"see docs/guarantees.md, who excludes whom",
			"path", path, "node", names[i], "library", locknode.Library(names[i], false))
	}
}
