package locknode

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// Contender is somebody who holds a lock or waits for it, as others see it: one
// node, made by package recipes, Curator, kazoo or go-zookeeper.
type Contender struct {
	// Path is the parent of the node: the lock's path, or a child of it where
	// the recipe has several queues.
	Path string `json:"path"`
	// Node is the node's name.
	Node string `json:"node"`
	// Session owns the node.
	Session int64 `json:"session"`
	// Created is when the node was made, by the clock of the cluster. A holder may have
	// waited from then on.
	Created time.Time `json:"created"`
	// Queued is since when the contender has been in the queue: Created, or earlier for the
	// next to get a lease of a semaphore, who has a node in its queue beside the lease.
	Queued time.Time `json:"queued"`
	// Token is the node's czxid: the fencing token, see Grant.Token.
	Token int64 `json:"token"`
	// Kind is the kind of the request: read, write or lease.
	Kind Kind `json:"kind"`
	// Priority is the priority that a contender of package recipes has asked for; see [Rank].
	Priority int `json:"priority,omitempty"`
	// Yielded: it has let a more urgent one go first, and came into the queue before Created.
	Yielded bool `json:"yielded,omitempty"`
	// Held: the lock is its. Otherwise it waits, unless MayHold.
	Held bool `json:"held"`
	// MayHold: it is not the first in the queue, but its library does not wait for
	// those in front, unless the program has told it to, which cannot be seen from
	// outside. It may hold the lock beside another. So may one of another library that
	// has its number from the end of the path's counter, and a reader behind a writer that
	// is content with reading, if its library may be Curator or package recipes.
	MayHold bool `json:"mayHold,omitempty"`
	// Layout is the node's name in front of its sequence number: lock-, __WRIT__ and __READ__
	// (Curator's and ours), __lock__ and __rlock__ (kazoo's), x- and n_ (ZooKeeper's recipes),
	// lease-, latch-, "kazoo lease" (which has no number), or "".
	Layout string `json:"layout,omitempty"`
	// MayIgnore are layouts of other contenders of this path, of other libraries,
	// that this one's library does not wait for unless it is told to. Where there are
	// any, the lock may have two holders: see docs/guarantees.md, who excludes whom.
	MayIgnore []string `json:"mayIgnore,omitempty"`
	// Orphan: its session has another node in the same queue. Either several
	// contenders share a session, as goroutines do, or one of the nodes was left
	// behind by a client that never got the reply to its creation. Such a node
	// blocks the queue for as long as the session lives. The nodes of both are
	// marked, for which one is unknown to its owner cannot be seen from outside.
	Orphan bool `json:"orphan,omitempty"`
	// Library is who made the node, as far as its name tells: lockkeeper,
	// curator, kazoo, go-zookeeper, zookeeper (its own recipes), or "".
	Library string `json:"library,omitempty"`
	// Info is the contender's own description; nil if Data are no metadata of package recipes.
	Info *Info `json:"info,omitempty"`
	// Data are the node's data: Curator's default is the client's IP address,
	// kazoo's is the identifier that the program has given.
	Data []byte `json:"data,omitempty"`
}

// New returns the contender that an ephemeral node is, as far as the node itself tells. owner is
// its session, created its ctime, czxid its czxid.
func New(dir, name string, owner int64, created time.Time, czxid int64, data []byte) Contender {
	info := ParseInfo(data)
	layout, kind := layoutOf(name)
	rank, _ := RankOf(name)
	number, _ := Sequence(name)
	return Contender{
		Path: dir, Node: name, Session: owner, Created: created, Queued: created, Token: czxid,
		Priority: rank.Priority, Yielded: rank.Number != number,
		Kind: kind, Layout: layout, Library: Library(name, info != nil), Info: info, Data: data,
	}
}

// Predecessor finds, among the children of a lock's path, the node that comes next before own: the
// one with the largest sequence number up to own's. It is "" when own is the first. found tells
// whether own itself is there.
//
// Every child with a sequence number counts, of any library, but those in passed and, if reads is
// set, readers: to wait for a node of an unknown kind is safe, to overlook a holder is not. Only
// people make a node with own's number by hand; see Blocks.
func Predecessor(children []string, own string, reads bool, passed map[string]bool) (name string, found bool) {
	ownSeq, _ := Sequence(own)
	best := int64(-1)
	for _, c := range children {
		if c == own {
			found = true
			continue
		}
		if n, ok := Sequence(c); ok && n <= ownSeq && n > best && !passed[c] && !(reads && KindOf(c) == KindRead) {
			best, name = n, c
		}
	}
	return name, found
}

// Blocks reports whether own, with this token, has to wait for c, which Predecessor has returned: c
// belongs to a session, and is not a writer that has been downgraded if own reads. If both have the
// same number, the one with the smaller czxid is in front, as in Order.
func (c *Contender) Blocks(own string, token int64, reads bool) bool {
	n, _ := Sequence(c.Node)
	ownSeq, _ := Sequence(own)
	behind := n == ownSeq && c.Token > token
	return Ephemeral(c.Session) && !behind && !(reads && c.Info != nil && c.Info.Downgraded)
}

// Ephemeral reports whether a node with this owner belongs to a session, and so may be a contender.
// A lock's path below a lock's path may end in ten digits, too. The smallest number is the one that
// servers store as the owner of a container.
func Ephemeral(owner int64) bool { return owner != 0 && owner != math.MinInt64 }

// Order is the order of a queue: by sequence number, or by creation if the nodes have none.
func Order(a, b *Contender) int {
	an, aok := Sequence(a.Node)
	bn, bok := Sequence(b.Node)
	if aok && bok && an != bn {
		return cmp.Compare(an, bn)
	}
	return cmp.Or(cmp.Compare(a.Token, b.Token), strings.Compare(a.Node, b.Node))
}

// Sort puts the contenders of one queue in order, and marks the orphans.
func Sort(queue []Contender) {
	slices.SortFunc(queue, func(a, b Contender) int { return Order(&a, &b) })
	nodes := make(map[int64]int, len(queue))
	for i := range queue {
		nodes[queue[i].Session]++
	}
	for i := range queue {
		queue[i].Orphan = nodes[queue[i].Session] > 1
	}
}

// Queues are the contenders of one lock, by the queue that they are in.
type Queues struct {
	Lock          []Contender // of the path itself
	CuratorLeases []Contender // below it, in leases
	CuratorLocks  []Contender // below it, in locks
	KazooLeases   []Contender // of the path itself
	KazooLock     []Contender // beside it, in PATH-__lock__
}

// Sorted divides the contenders of the lock on a path into its queues, and sorts these. It leaves
// out nodes of the same directories that belong to another lock: see [Place].
func Sorted(lock string, all []Contender) *Queues {
	q := &Queues{}
	for _, c := range all {
		to := &q.Lock
		switch {
		case c.Path == lock+KazooLockSuffix:
			to = &q.KazooLock
		case c.Path == lock+"/"+CuratorLeases && c.Layout != LayoutLease, isLeaseAbove(lock, &c):
			continue
		case c.Path == lock+"/"+CuratorLeases:
			to = &q.CuratorLeases
		case c.Path == lock+"/"+CuratorLocks:
			to = &q.CuratorLocks
		case c.Layout == LayoutKazooLease:
			to = &q.KazooLeases
		}
		*to = append(*to, c)
	}
	for _, queue := range [][]Contender{q.Lock, q.CuratorLeases, q.CuratorLocks, q.KazooLeases, q.KazooLock} {
		Sort(queue)
	}
	return q
}

// isLeaseAbove reports whether a contender in the directory of a lock is a lease of the semaphore
// on its parent.
func isLeaseAbove(lock string, c *Contender) bool {
	parent, part := Split(lock)
	return c.Path == lock && part == CuratorLeases && parent != "" && c.Layout == LayoutLease
}

// Resolve finds out who holds a lock, given its queues in order. It returns holders first, then
// the others in the order in which it will be their turn, each once: a node that only keeps the
// place of the next to get a lease is left out. Its time is linear in their number.
func Resolve(q *Queues) []Contender {
	leases := semaphore(q.CuratorLeases, q.CuratorLocks)
	leases = append(leases, semaphore(q.KazooLeases, q.KazooLock)...)
	return judge(leases, q.Lock)
}

// Plain returns the one holder of a lock that is a node by itself.
func Plain(c Contender) Contender {
	c.Held, c.Kind = true, KindWrite
	return c
}

// semaphore judges the leases and the queue of those who wait for one.
//
// The first in the queue has made its lease before it knows whether it may have it. It keeps its
// place in the queue until it does. So a lease is held unless it is the newest of the session that
// is the first of the queue, and that session got there before it made the lease. Such a lease and
// the place in the queue are one contender, who waits.
func semaphore(leases, waiting []Contender) []Contender {
	pending := -1
	for n := range leases {
		c := &leases[n]
		c.Kind, c.Held = KindLease, true
		if isPending(c, waiting) && (pending < 0 || isNewer(c, &leases[pending])) {
			pending = n
		}
	}
	if pending >= 0 {
		c, first := leases[pending], waiting[0]
		c.Held = false
		c.Queued = first.Created
		leases = append(slices.Delete(leases, pending, pending+1), c)
		waiting = waiting[1:]
	}
	for n := range waiting {
		waiting[n].Kind = KindLease
	}
	return append(leases, waiting...)
}

// isPending reports whether a lease may belong to the first waiting contender.
func isPending(lease *Contender, waiting []Contender) bool {
	return len(waiting) > 0 && waiting[0].Session == lease.Session && waiting[0].Token <= lease.Token
}

// isNewer reports whether a node was made after another one; one command can make several.
func isNewer(a, b *Contender) bool {
	return cmp.Or(cmp.Compare(a.Token, b.Token), strings.Compare(a.Node, b.Node)) > 0
}

// Class has the properties of a contender that decide whether others wait for it.
type Class struct {
	kind      Kind
	layout    string // see role
	exclusive bool
	exhausted bool
}

// Class is the contender's class.
func (c *Contender) Class() Class { return Class{c.Kind, c.role(), c.Exclusive(), c.exhausted()} }

// role is the layout that tells which libraries wait for the contender, and which it waits for. A
// contender in the queue of a semaphore is called like one of a lock, and stands for a lease.
func (c *Contender) role() string {
	switch {
	case c.Kind == KindLease && c.Layout == LayoutLock:
		return LayoutLease
	case c.Kind == KindLease && c.Layout == LayoutKazooLock:
		return LayoutKazooLease
	}
	return c.Layout
}

// exhausted says that the node's number is the last one of the counter, or from behind its end.
func (c *Contender) exhausted() bool {
	n, ok := Sequence(c.Node)
	return ok && n == MaxSequence
}

// Exclusive says whether others have to wait for the contender, whatever they want.
func (c *Contender) Exclusive() bool {
	return c.Kind != KindRead && (c.Info == nil || !c.Info.Downgraded)
}

// judge finds out who of a path holds: of the leases of its semaphore, of which it is
// known, and of the queue of its lock. It returns holders first.
func judge(leases, queue []Contender) []Contender {
	tokens := map[Class]int64{} // of held leases, the smallest
	for i := range leases {
		if c := &leases[i]; c.Held {
			if t, ok := tokens[c.Class()]; !ok || c.Token < t {
				tokens[c.Class()] = c.Token
			}
		}
	}
	var front []Class // of the queue, each once
	for i := range queue {
		c := &queue[i]
		c.Held, c.MayHold = true, true
		own := c.Class()
		behind := func(other Class, ignores bool) {
			if shares(c, other) {
				return
			}
			c.Held = false
			c.MayHold = c.MayHold && ignores
		}
		for lease, token := range tokens {
			if token < c.Token {
				behind(lease, mayIgnore(c, lease))
			}
		}
		for _, other := range front {
			behind(other, mayIgnore(c, other) || mayOvertake(c, other) || mayShare(c, other))
		}
		c.MayHold = c.MayHold && !c.Held
		if !slices.Contains(front, own) {
			front = append(front, own)
		}
	}
	all := append(leases, queue...)
	strangers(all)
	slices.SortStableFunc(all, func(a, b Contender) int { return b.rank() - a.rank() })
	return all
}

// Behind reports whether c has to wait for a contender of a class that is in front of it in the
// same queue. Readers hold beside readers.
func (c *Contender) Behind(front Class) bool { return !shares(c, front) }

// shares says whether c holds the lock beside other. Only package recipes reads a note that says
// that a writer is content with reading by now: other readers wait for the writer's name.
func shares(c *Contender, other Class) bool {
	return !c.Exclusive() && (other.kind == KindRead || !other.exclusive && c.Library == LibraryOwn)
}

// mayShare says whether c may hold the lock beside other, a writer that is content with reading: a
// reader of package recipes does. It looks like Curator's if its program has set the node's data.
func mayShare(c *Contender, other Class) bool {
	return c.Layout == LayoutRead && c.Library == LibraryCurator && !other.exclusive
}

// mayOvertake says whether c may hold the lock although other is in front of it, because it has a
// number from the end of the counter. Curator, kazoo and go-zookeeper take a negative number, as
// ZooKeeper's counter makes them there, for a smaller one than all others. Of two nodes with the
// last number, as lockkeeper's makes them, either may be taken for the first.
func mayOvertake(c *Contender, other Class) bool {
	return c.Library != LibraryOwn && (signedBase(c.Node) != "" || c.exhausted() && other.exhausted)
}

// rank is larger for those who hold.
func (c *Contender) rank() int {
	switch {
	case c.Held:
		return 2
	case c.MayHold:
		return 1
	}
	return 0
}

// awaited are the layouts that the maker of a node of a layout waits for in any case,
// as its library comes.
var awaited = map[string][]string{
	LayoutLock:  {LayoutLock},
	LayoutWrite: {LayoutWrite, LayoutRead},
	LayoutRead:  {LayoutWrite},
	// WriteLock waits for readers, but Lock's nodes have the same name
	LayoutKazooLock: {LayoutKazooLock},
	LayoutKazooRead: {LayoutKazooLock},
	LayoutSession:   {LayoutSession, LayoutLock},
	LayoutOffer:     {LayoutOffer},
	LayoutLease:     {LayoutLease},
	LayoutLatch:     {LayoutLatch},
	LayoutKazooLease: {LayoutLock, LayoutWrite, LayoutRead, LayoutKazooLock, LayoutKazooRead,
		LayoutKazooLease},
}

// Awaits reports whether the maker of a node of one layout always waits for nodes of another one,
// with its library unmodified. A test compares it with the table of docs/guarantees.md.
func Awaits(layout, other string) bool { return slices.Contains(awaited[layout], other) }

// mayIgnore says whether c may hold the lock although other is in front of it, because
// its library, as far as the name tells, does not take other for a contender.
func mayIgnore(c *Contender, other Class) bool {
	switch c.Library {
	case LibraryOwn, LibraryGo:
		return false
	}
	if c.role() == LayoutKazooLease {
		return false // kazoo's Semaphore counts every child of its path
	}
	if c.Library == LibraryKazoo && c.role() == LayoutLock {
		return other.kind == KindLease // a lock as docs/locks.md makes it
	}
	if c.role() == "" && other.layout == "" {
		return false // there is no reason to think that they are not of one program
	}
	return !Awaits(c.role(), other.layout)
}

// strangers notes, for each contender, which others it may ignore.
func strangers(all []Contender) {
	var classes []Class
	for i := range all {
		if k := all[i].Class(); !slices.Contains(classes, k) {
			classes = append(classes, k)
		}
	}
	for i := range all {
		c := &all[i]
		c.MayIgnore = nil
		for _, other := range classes {
			if c.Kind == other.kind && (c.Kind == KindLease || c.Kind == KindRead) {
				continue // of one semaphore or its queue, or both read
			}
			if Family(c.role()) != Family(other.layout) && mayIgnore(c, other) &&
				!slices.Contains(c.MayIgnore, other.layout) {
				c.MayIgnore = append(c.MayIgnore, other.layout)
			}
		}
		slices.Sort(c.MayIgnore)
	}
}
