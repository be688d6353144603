package locknode

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Layouts: the names of the known locks' nodes, in front of the sequence number.
const (
	// LayoutLock is used by Curator's InterProcessMutex, go-zookeeper's Lock and package recipes.
	// The sequence number follows the last "lock-" of a name.
	LayoutLock = "lock-"
	// LayoutRead and LayoutWrite are used by Curator's InterProcessReadWriteLock.
	LayoutRead  = "__READ__"
	LayoutWrite = "__WRIT__"
	// LayoutLease is used by Curator's InterProcessSemaphoreV2.
	LayoutLease = "lease-"
	// LayoutLatch is used by Curator's LeaderLatch.
	LayoutLatch = "latch-"
	// LayoutKazooLock is used by kazoo's Lock, WriteLock and Election, LayoutKazooRead by its
	// ReadLock. LayoutKazooLease stands for the leases of its Semaphore, which have no number.
	LayoutKazooLock  = "__lock__"
	LayoutKazooRead  = "__rlock__"
	LayoutKazooLease = "kazoo lease"
	// LayoutSession is used by ZooKeeper's own recipes in Java and C: x-<session>-<number>.
	LayoutSession = "x-"
	// LayoutOffer is used by ZooKeeper's LeaderElectionSupport: n_<number>.
	LayoutOffer = "n_"
)

// Names of the queues that a semaphore consists of.
const (
	CuratorLeases   = "leases"
	CuratorLocks    = "locks"
	KazooLockSuffix = "-__lock__"
)

// Names of libraries, see [Contender.Library].
const (
	LibraryOwn       = "lockkeeper"
	LibraryCurator   = "curator"
	LibraryGo        = "go-zookeeper"
	LibraryKazoo     = "kazoo"
	LibraryZooKeeper = "zookeeper"
)

// Kind is the kind of lock that the owner of a node requests or holds.
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
		return fmt.Errorf("locknode: there is no kind of contender %q", text)
	}
	*k = Kind(i)
	return nil
}

// layouts are the names in front of the sequence number, by their ends.
var layouts = []struct {
	name string
	kind Kind
}{
	{LayoutRead, KindRead}, {LayoutKazooRead, KindRead},
	{LayoutWrite, KindWrite}, {LayoutKazooLock, KindWrite}, {LayoutLock, KindWrite},
	{LayoutLease, KindLease}, {LayoutLatch, KindLead},
}

// Layout returns the layout of a node, or "".
func Layout(name string) string {
	layout, _ := layoutOf(name)
	return layout
}

// KindOf returns the kind of lock that a node's name stands for.
func KindOf(name string) Kind {
	_, kind := layoutOf(name)
	return kind
}

func layoutOf(name string) (string, Kind) {
	if IsKazooLease(name) {
		return LayoutKazooLease, KindLease
	}
	if base := signedBase(name); base != "" {
		return layoutOfBase(base)
	}
	if _, ok := digits(name, SequenceDigits); !ok {
		return "", KindUnknown
	}
	return layoutOfBase(name[:len(name)-SequenceDigits])
}

// layoutOfBase is the layout of a name without its number.
func layoutOfBase(base string) (string, Kind) {
	for _, l := range layouts {
		if strings.HasSuffix(base, l.name) {
			return l.name, l.kind
		}
	}
	switch {
	case isSessionName(base):
		return LayoutSession, KindWrite
	case base == LayoutOffer:
		return LayoutOffer, KindLead
	}
	return "", KindUnknown
}

// Contends tells from the name of a node whether it is one of a queue, a contender for its parent,
// if it is ephemeral.
func Contends(name string) bool {
	_, numbered := Sequence(name)
	return numbered || IsKazooLease(name)
}

// families are the layouts that the locks of one library share, so that they know of
// each other, if the program takes those that belong together.
var families = map[string]string{LayoutRead: LayoutWrite, LayoutKazooRead: LayoutKazooLock}

// Family returns the name of a layout's family: the layout of its exclusive lock.
func Family(layout string) string {
	if f := families[layout]; f != "" {
		return f
	}
	return layout
}

// LockFamily returns the family of the layout of a lock's node, a reader's or a writer's; "" for
// other nodes.
func LockFamily(name string) string {
	if layout, kind := layoutOf(name); kind == KindRead || kind == KindWrite {
		return Family(layout)
	}
	return ""
}

// SequenceDigits is the width of the number that the server appends (%010d).
const SequenceDigits = 10

// MaxSequence is where the server's counter stops: every later node gets this
// number too, or, on ZooKeeper, a negative one. A node with it is exhausted: it
// has no place in the order of the numbers.
const MaxSequence = math.MaxInt32

// Sequence returns the number at the end of a node's name, and whether it has one. The part in
// front does not matter: Curator's "_c_<uuid>-lock-", go-zookeeper's "_c_<hex>-lock-", kazoo's
// "<hex>__lock__" and "<hex>__rlock__" all draw their numbers from the one counter of their parent.
//
// ZooKeeper's counter overflows while creates at its end are under way together:
// 2147483647 is followed by -2147483648. A number with a sign behind one of the
// known layouts is such a one, and MaxSequence is returned for it, for it comes
// after all others. ("-" may be the end of a layout that is not known.)
//
// A lease of kazoo's semaphore has no number: it is one UUID in a hundred that ends in ten decimal
// digits.
func Sequence(name string) (int64, bool) {
	if IsKazooLease(name) {
		return 0, false
	}
	if signedBase(name) != "" {
		return MaxSequence, true
	}
	return digits(name, SequenceDigits)
}

// signedBase returns the part in front of a negative number behind a known layout; "" if the name
// has none. It is written as %010d, so it has 11 characters from -1000000000 down, and else 10.
func signedBase(name string) string {
	for _, width := range []int{SequenceDigits, SequenceDigits - 1} {
		at := len(name) - width - 1 // of the sign
		if at < 0 || name[at] != '-' {
			continue
		}
		n, ok := digits(name, width)
		if !ok || n == 0 || width == SequenceDigits && (n < 1e9 || n > -math.MinInt32) {
			continue
		}
		if layout, _ := layoutOfBase(name[:at]); layout != "" {
			return name[:at]
		}
	}
	return ""
}

// digits returns the number that the last width characters of a name are.
func digits(name string, width int) (n int64, ok bool) {
	if len(name) < width {
		return 0, false
	}
	for _, c := range []byte(name[len(name)-width:]) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

const (
	uuidDigits = 32
	// ProtectedStart is the beginning of the names of protected creates.
	ProtectedStart = "_c_"
)

// IsKazooLease: kazoo's Semaphore calls its leases uuid4().hex, and no more.
func IsKazooLease(name string) bool { return len(name) == uuidDigits && hexPrefix(name) == uuidDigits }

// isSessionName: the Java recipe writes its session in decimal, that in C in hex.
func isSessionName(base string) bool {
	id, ok := strings.CutPrefix(base, LayoutSession)
	id, dash := strings.CutSuffix(id, "-")
	return ok && dash && id != "" && hexPrefix(id) == len(id)
}

// hexPrefix returns the number of hexadecimal digits at the beginning of s.
func hexPrefix(s string) int {
	n := 0
	for n < len(s) && ('0' <= s[n] && s[n] <= '9' || 'a' <= s[n] && s[n] <= 'f') {
		n++
	}
	return n
}

// Library guesses who made a node, from its name; "" if it has none of the names that are known.
// The names of package recipes are Curator's, so it is its metadata that tell the two apart: own
// says that there are some.
func Library(name string, own bool) string {
	rest, protected := strings.CutPrefix(name, ProtectedStart)
	hex := hexPrefix(rest)
	switch {
	case own:
		return LibraryOwn
	case protected && hex == uuidDigits:
		return LibraryGo
	case protected && hex == 8:
		return LibraryCurator
	case !protected && hex == uuidDigits && (len(name) == hex || Layout(name) != ""):
		return LibraryKazoo
	}
	switch Layout(name) {
	case LayoutSession, LayoutOffer:
		return LibraryZooKeeper
	}
	return ""
}

// WaitsForAll says whether the owner of a lock's node is known to wait for the nodes of all
// libraries: it is package recipes, which says so in the node's data, or go-zookeeper.
func WaitsForAll(name string, data []byte) bool {
	library := Library(name, bytes.HasPrefix(data, infoPrefix))
	return library == LibraryOwn || library == LibraryGo
}

// Split returns a node's parent and its name. The parent of a child of the root is "".
func Split(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", path
	}
	return path[:i], path[i+1:]
}

// LeasesPath is the path of the node that tells that there is a semaphore of Curator on a path.
func LeasesPath(path string) string { return path + "/" + CuratorLeases }

// Directories returns the directories of the contenders of the lock on a path, in the order that
// [Extract.Add] needs. semaphore says that the path has leases (LeasesPath).
func Directories(path string, semaphore bool) (dirs []string) {
	if path == "/" {
		return []string{path}
	}
	if semaphore {
		dirs = append(dirs, path+"/"+CuratorLocks)
	}
	dirs = append(dirs, path+KazooLockSuffix)
	if semaphore {
		dirs = append(dirs, LeasesPath(path))
	}
	return append(dirs, path)
}

// Named returns the locks that a path may stand for. A program may have the path of a lock, of a
// queue of its semaphore, or of a contender's node. A queue may be a lock of its own, too: the
// semaphore comes first.
func Named(path string, isNode bool, isSemaphore func(path string) bool) []string {
	if isNode {
		lock, _ := Place(path, isSemaphore)
		return []string{lock}
	}
	parent, part := Split(path)
	base, beside := strings.CutSuffix(path, KazooLockSuffix)
	switch {
	case beside && base != "" && base != "/":
		return []string{base, path}
	case parent != "" && (part == CuratorLeases || part == CuratorLocks) && isSemaphore(parent):
		return []string{parent, path}
	}
	return []string{path}
}

// Place says which lock an ephemeral node belongs to. plain is that the node has no queue: it is a
// lock by itself.
//
// The queues of semaphores are told by their names; but a directory "locks" may be a lock of its
// own, too. It is a semaphore's if there is a directory "leases" beside it, which isSemaphore
// answers, given the path of both.
func Place(path string, isSemaphore func(path string) bool) (lock string, plain bool) {
	dir, name := Split(path)
	if !Contends(name) {
		return path, true
	}
	parent, part := Split(dir)
	switch {
	case strings.HasSuffix(dir, KazooLockSuffix) && len(part) > len(KazooLockSuffix):
		return strings.TrimSuffix(dir, KazooLockSuffix), false
	case part == CuratorLeases && parent != "" && Layout(name) == LayoutLease,
		part == CuratorLocks && parent != "" && isSemaphore(parent):
		return parent, false
	case dir == "":
		return "/", false
	}
	return dir, false
}
