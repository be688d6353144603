package console

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/locknode"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// index knows all locks: the ephemeral nodes of all sessions, by the lock that they belong to. It
// is built when it is first asked, follows the Recorder, and is dropped when it is not used.
type index struct {
	view     func(func(*znode.Store))
	rec      *Recorder
	maxBytes int

	refused atomic.Int64 // how often it did not fit

	mu        sync.Mutex
	notBefore time.Time // it did not fit, and is not built before
	content
}

// content is the content of an index, and the position of the Recorder that it is from. The index's
// mu guards it.
type content struct {
	built      bool
	used       time.Time
	bytes      int  // its memory, at the most
	full       bool // it takes more than it may
	at         cursor
	zxid       wire.Zxid
	locks      map[string]*lock
	where      map[string]*lock // by the path of a node
	semaphores map[string]bool  // paths that have Curator's leases below them
	dirty      map[string]*lock
	beginMs    int64  // begin of the recording
	changes    uint64 // grows with each change
	nodes      map[wire.SessionID]sessionNodes
	shared     int // sessions that have more than one node
	within     int // nodes that name sessions around them

	deadlocks   []foundDeadlock
	deadlocksAt uint64    // changes when they were found
	deadlocksIn time.Time // before which they are not searched for again
}

// lock is one lock of the index. Its fields are guarded by the index's mu.
type lock struct {
	path  string
	plain bool
	all   []locknode.Contender // in the order in which they came
	heads map[headKey]since    // since when each holder has held
	ends  []ended              // of contenders, since heads was made

	queue     []locknode.Contender // as locknode.Resolve returns it
	held      int
	waiting   int
	oldest    time.Time // of those that wait
	since     time.Time // of the first holder
	kind      string
	kindIndex int                      // of kind, in allKinds
	orphans   bool                     // a session has several nodes in the queue
	two       bool                     // there may be two holders
	access    map[string]*znode.Access // by node
	addrs     map[string]string        // by node, of its client
}

// headKey names a holder. The node of a plain lock is made again under its name for the next one.
type headKey struct {
	node  string
	token int64
}

func keyOf(c *locknode.Contender) headKey { return headKey{c.Node, c.Token} }

// sessionNodes are the nodes of a session: their number, and the ones that name it, in the order in
// which they came.
type sessionNodes struct {
	n     int
	named []string
}

// forget removes a node from named. Most often it is the first.
func (s *sessionNodes) forget(path string) {
	switch i := slices.Index(s.named, path); {
	case i == 0:
		s.named = s.named[1:]
	case i > 0:
		s.named = slices.Delete(s.named, i, i+1)
	}
}

// since is when a contender became a holder; exact if that was seen.
type since struct {
	at    time.Time
	exact bool
}

// ended is the end of a contender, for others behind it. A writer that is content with reading ends
// for readers.
type ended struct {
	token int64
	class locknode.Class
	at    time.Time
}

func newIndex(view func(func(*znode.Store)), rec *Recorder, maxBytes int) *index {
	return &index{view: view, rec: rec, maxBytes: maxBytes}
}

// Upper bounds of the bytes of an index (TestIndexBytes): for a contender, with the names in the
// maps and the copy in its queue; for a lock; for the fields in the data of a contender; and for a
// text there.
const (
	contenderBytes = 700
	lockBytes      = 1600
	infoBytes      = 400
	textBytesLeast = 16
)

// errIndexMemory says that there are more locks than the console has memory for.
var errIndexMemory = failf(http.StatusServiceUnavailable,
	"the locks of this cluster do not fit into the memory that the console has for them (console.indexBytes)")

// countLocked adds n to the bytes of the index.
func (x *index) countLocked(n int) {
	x.bytes += n
	x.full = x.full || x.bytes > x.maxBytes
}

// bytesOf returns the bytes of a contender besides its place.
func bytesOf(c *locknode.Contender) int {
	n := contenderBytes + len(c.Path) + len(c.Node)
	if info := c.Info; info != nil {
		n += infoBytes + len(info.Host) + len(info.Program) + len(info.Note) + len(info.ID) + len(info.Data) +
			textBytesLeast*cap(info.Within)
		for _, s := range info.Within {
			n += textBytesLeast + len(s)
		}
	}
	return n
}

// indexKept is for how long the index follows the state without being used.
const indexKept = 30 * time.Second

// dropUnused drops the index if it has not been used for a while, and reports whether there is
// none.
func (x *index) dropUnused(now time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.built && now.Sub(x.used) > indexKept {
		x.dropLocked()
	}
	return !x.built
}

func (x *index) dropLocked() {
	x.rec.look(false)
	x.content = content{changes: x.changes + 1}
}

// indexRetry is after what time an index that did not fit is built again.
const indexRetry = 10 * time.Second

// with calls f while the index is up to date and does not change. The error is errIndexMemory.
func (x *index) with(f func()) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	if now.Before(x.notBefore) {
		return errIndexMemory
	}
	x.updateLocked()
	if x.full {
		x.dropLocked()
		x.notBefore = now.Add(indexRetry)
		x.refused.Add(1)
		return errIndexMemory
	}
	f()
	return nil
}

// updateLocked brings the index up to date, unless it gets full.
func (x *index) updateLocked() {
	x.used = time.Now()
	if x.built {
		x.followLocked()
	}
	if !x.built {
		x.buildLocked()
	}
	if x.full {
		return
	}
	for path, l := range x.dirty {
		if l.resolve(x.beginMs); len(l.all) == 0 {
			delete(x.locks, path)
			x.countLocked(-lockBytes - len(path))
		}
	}
	clear(x.dirty)
}

// buildLocked visits all ephemeral nodes. The ring has the events meanwhile.
func (x *index) buildLocked() {
	x.rec.look(true)
	x.at = x.rec.end()
	x.built = true
	x.locks, x.where, x.dirty = map[string]*lock{}, map[string]*lock{}, map[string]*lock{}
	x.semaphores, x.nodes = map[string]bool{}, map[wire.SessionID]sessionNodes{}
	x.shared, x.within = 0, 0
	x.deadlocks = nil
	x.changes++
	var step []znode.Ephemeral
	var walk *znode.EphemeralWalk
	for done, lost := false, false; !done && !x.full; {
		step = step[:0]
		x.view(func(store *znode.Store) {
			if walk == nil {
				walk = store.WalkEphemerals()
			}
			if done, lost = walk.Step(store, walkStep, func(e znode.Ephemeral) { step = append(step, e) }); lost {
				return
			}
			x.zxid = store.Zxid()
		})
		if lost {
			x.dropLocked()
			x.buildLocked()
			return
		}
		for i := range step {
			e := &step[i]
			x.addLocked(e.Path, e.Owner, e.CtimeMs, e.Czxid, e.Data, e.Access, "")
		}
	}
	if !x.full {
		x.followLocked()
	}
	if !x.built || x.full {
		return
	}
	// Since when holders hold, as far as it is recorded.
	events, begin := x.rec.all()
	x.beginMs = begin.TimeMs
	for _, part := range events {
		for i := range part {
			if e := &part[i]; e.kind == deleted {
				path, plain := locknode.Place(e.path, x.isSemaphore)
				if l := x.locks[path]; l != nil && !plain {
					dir, name := locknode.Split(e.path)
					gone := locknode.New(dir, name, int64(e.owner), instant(e.ctimeMs), int64(e.czxid), nil)
					l.ends = append(l.ends, ended{gone.Token, gone.Class(), instant(e.timeMs)})
				}
			}
		}
	}
}

// followLocked applies the events since the last call; it drops the index if the ring has lost
// some.
func (x *index) followLocked() {
	events, to, lost := x.rec.since(x.at)
	if lost {
		x.dropLocked()
		x.used = time.Now()
		return
	}
	x.at = to
	for _, part := range events {
		for i := range part {
			e := &part[i]
			x.zxid = max(x.zxid, e.zxid)
			switch e.kind {
			case created:
				x.addLocked(e.path, e.owner, e.ctimeMs, e.czxid, e.data, e.access, e.addr)
			case changed:
				x.changeLocked(e)
			case deleted:
				x.removeLocked(e)
			}
		}
	}
}

// isSemaphore reports whether path has Curator's leases below it.
func (x *index) isSemaphore(path string) bool {
	if is, known := x.semaphores[path]; known && is {
		return true
	}
	is := false
	x.view(func(store *znode.Store) { _, is = store.Node(locknode.LeasesPath(path)) })
	x.semaphores[path] = is
	return is
}

func (x *index) addLocked(path string, owner wire.SessionID, ctimeMs int64, czxid wire.Zxid, data []byte,
	access *znode.Access, addr string,
) {
	if l := x.where[path]; l != nil {
		if i := l.find(path); i >= 0 && l.all[i].Token == int64(czxid) {
			return // it was visited, and is in the ring too
		}
		x.forgetLocked(l, path)
	}
	at, plain := locknode.Place(path, x.isSemaphore)
	if !plain && strings.HasPrefix(path, locknode.LeasesPath(at)+"/") {
		x.becomeSemaphoreLocked(at)
	}
	l := x.locks[at]
	if l == nil {
		l = &lock{path: at, plain: plain, access: map[string]*znode.Access{}}
		x.locks[at] = l
		x.countLocked(lockBytes + len(at))
	}
	dir, name := locknode.Split(path)
	c := locknode.New(dir, name, int64(owner), time.UnixMilli(ctimeMs).UTC(), int64(czxid), data)
	l.all = append(l.all, c)
	x.countLocked(bytesOf(&c))
	l.access[path] = access
	if addr != "" {
		if l.addrs == nil {
			l.addrs = map[string]string{}
		}
		l.addrs[path] = addr
	}
	x.where[path] = l
	own := x.nodes[owner]
	if own.n++; own.n == 2 {
		x.shared++
	}
	if note, who := says(&c); note != "" || who != "" {
		own.named = append(own.named, path)
	}
	x.nodes[owner] = own
	if c.Info != nil && len(c.Info.Within) > 0 {
		x.within++
	}
	x.touchLocked(l)
}

// becomeSemaphoreLocked is called when Curator's leases are found at path: those that wait for one
// were taken for contenders of a lock of its own.
func (x *index) becomeSemaphoreLocked(path string) {
	if x.semaphores[path] {
		return
	}
	x.semaphores[path] = true
	old := x.locks[path+"/"+locknode.CuratorLocks]
	if old == nil || old.plain {
		return
	}
	for _, c := range slices.Clone(old.all) {
		at := c.Path + "/" + c.Node
		access, addr := old.access[at], old.addrs[at]
		x.forgetLocked(old, at)
		x.addLocked(at, wire.SessionID(c.Session), c.Created.UnixMilli(), wire.Zxid(c.Token), c.Data, access, addr)
	}
}

func (x *index) touchLocked(l *lock) {
	x.dirty[l.path] = l
	x.changes++
}

func (x *index) changeLocked(e *event) {
	l := x.where[e.path]
	if l == nil {
		return
	}
	if i := l.find(e.path); i >= 0 {
		c := &l.all[i]
		x.countLocked(-bytesOf(c))
		was := *c
		l.all[i] = locknode.New(c.Path, c.Node, c.Session, c.Created, c.Token, e.data)
		if was.Exclusive() && !c.Exclusive() {
			l.ends = append(l.ends, ended{was.Token, was.Class(), instant(e.timeMs)})
		}
		x.countLocked(bytesOf(c))
		own := x.nodes[wire.SessionID(c.Session)]
		own.forget(e.path)
		if note, who := says(c); note != "" || who != "" {
			own.named = append(own.named, e.path)
		}
		x.nodes[wire.SessionID(c.Session)] = own
		x.touchLocked(l)
	}
}

func (x *index) removeLocked(e *event) {
	l := x.where[e.path]
	if l == nil {
		return
	}
	i := l.find(e.path)
	if i < 0 || l.all[i].Token > int64(e.czxid) {
		return // it has been visited after it was made again
	}
	l.ends = append(l.ends, ended{l.all[i].Token, l.all[i].Class(), instant(e.timeMs)})
	x.forgetLocked(l, e.path)
}

func (x *index) forgetLocked(l *lock, path string) {
	if i := l.find(path); i >= 0 {
		c := &l.all[i]
		owner := wire.SessionID(c.Session)
		own := x.nodes[owner]
		own.n--
		own.forget(path)
		switch x.nodes[owner] = own; own.n {
		case 0:
			delete(x.nodes, owner)
		case 1:
			x.shared--
		}
		if c.Info != nil && len(c.Info.Within) > 0 {
			x.within--
		}
		x.countLocked(-bytesOf(c))
		if i == 0 {
			l.all = l.all[1:]
		} else {
			l.all = slices.Delete(l.all, i, i+1)
		}
	}
	delete(x.where, path)
	delete(l.access, path)
	delete(l.addrs, path)
	x.touchLocked(l)
}

// find returns the index in all of the node at path, -1 if it is not there. Nodes come in the order
// of their czxids, and the oldest go first.
func (l *lock) find(path string) int {
	dir, name := locknode.Split(path)
	is := func(c locknode.Contender) bool { return c.Node == name && c.Path == dir }
	if len(l.all) > 0 && is(l.all[0]) {
		return 0
	}
	if n, ok := locknode.Sequence(name); ok && len(l.all) > 16 { // most often they are in order
		i, _ := slices.BinarySearchFunc(l.all, n, func(c locknode.Contender, n int64) int {
			m, _ := locknode.Sequence(c.Node)
			return cmp.Compare(m, n)
		})
		if i < len(l.all) && is(l.all[i]) {
			return i
		}
	}
	return slices.IndexFunc(l.all, is)
}

// resolve finds out who holds. beginMs is the begin of the recording.
func (l *lock) resolve(beginMs int64) {
	if l.plain {
		l.queue = l.queue[:0]
		for _, c := range l.all {
			l.queue = append(l.queue, locknode.Plain(c))
		}
	} else {
		l.queue = locknode.Resolve(locknode.Sorted(l.path, l.all))
	}
	l.held, l.waiting, l.oldest, l.since = 0, 0, time.Time{}, time.Time{}
	l.orphans, l.two = false, false
	heads := map[headKey]since{}
	for i := range l.queue {
		c := &l.queue[i]
		l.orphans = l.orphans || c.Orphan
		l.two = l.two || len(c.MayIgnore) > 0
		if !c.Held {
			l.waiting++
			if l.oldest.IsZero() || c.Queued.Before(l.oldest) {
				l.oldest = c.Queued
			}
			continue
		}
		l.held++
		s, known := l.heads[keyOf(c)]
		if !known {
			s = l.heldSince(c, beginMs)
		}
		heads[keyOf(c)] = s
		if l.since.IsZero() || s.at.Before(l.since) {
			l.since = s.at
		}
	}
	l.heads, l.ends = heads, nil
	l.kind = kindOf(l)
	l.kindIndex = slices.Index(allKinds, l.kind)
	// The sessions of a semaphore have a lease and a place in the queue.
	l.orphans = l.orphans && l.kind != kindSemaphore
}

// heldSince is when c became a holder: when the last contender that it had to wait for went, or
// when it came.
func (l *lock) heldSince(c *locknode.Contender, beginMs int64) since {
	s := since{at: c.Created, exact: c.Kind == locknode.KindLease || l.plain || c.Created.UnixMilli() >= beginMs}
	for _, e := range l.ends {
		if e.token < c.Token && c.Behind(e.class) && !e.at.Before(s.at) {
			s = since{e.at, true}
		}
	}
	return s
}

// Kinds of locks.
const (
	kindMutex     = "mutex"
	kindReadWrite = "readwrite"
	kindSemaphore = "semaphore"
	kindElection  = "election"
	kindEphemeral = "ephemeral"
	kindUnknown   = "unknown"
)

var allKinds = []string{kindMutex, kindReadWrite, kindSemaphore, kindElection, kindEphemeral, kindUnknown}

func kindOf(l *lock) string {
	if l.plain {
		if len(l.all) > 0 && l.all[0].Info != nil {
			return kindMutex // package recipes says that it is one
		}
		return kindEphemeral
	}
	kind := kindUnknown
	for i := range l.all {
		switch c := &l.all[i]; {
		case c.Kind == locknode.KindLease:
			return kindSemaphore
		case c.Kind == locknode.KindLead:
			kind = kindElection
		case c.Kind == locknode.KindRead, c.Layout == locknode.LayoutWrite:
			kind = kindReadWrite
		case c.Kind == locknode.KindWrite && kind == kindUnknown:
			kind = kindMutex
		}
	}
	return kind
}

const (
	// deadlocksCheap is for how long deadlocks may be searched for as often as something changes. A
	// search among many locks that takes longer is followed by a rest.
	deadlocksCheap = 5 * time.Millisecond
	// restAfter is the ratio of a rest to the work before it: so the work takes a fiftieth of one
	// core at the most.
	restAfter = 50
)

// foundDeadlock is a deadlock, with the places of those who wait in it.
type foundDeadlock struct {
	locknode.Deadlock
	waiting places
}

// places are contenders: their tokens, by lock.
type places map[*lock][]int64

// findDeadlocksLocked finds the deadlocks, unless nothing has changed since it did.
func (x *index) findDeadlocksLocked() []foundDeadlock {
	begin := time.Now()
	if x.deadlocksAt == x.changes || begin.Before(x.deadlocksIn) {
		return x.deadlocks
	}
	defer func() {
		if took := time.Since(begin); took > deadlocksCheap {
			x.deadlocksIn = time.Now().Add(restAfter * took)
		}
	}()
	x.deadlocksAt = x.changes
	x.deadlocks = nil
	if x.shared == 0 && x.within == 0 {
		return nil // each session is in one queue
	}
	var locks []locknode.Lock
	var sources []*lock
	for path, l := range x.locks {
		if l.waiting > 0 {
			locks = append(locks, locknode.Lock{Path: path, Contenders: l.queue})
			sources = append(sources, l)
		}
	}
	// A session that only holds elsewhere is part of no edge there, but makes it one that is in
	// two.
	for _, d := range locknode.Deadlocks(locks) {
		found := foundDeadlock{d, places{}}
		for _, r := range d.Waiting {
			l := sources[r.Lock]
			found.waiting[l] = append(found.waiting[l], l.queue[r.Contender].Token)
		}
		x.deadlocks = append(x.deadlocks, found)
	}
	return x.deadlocks
}
