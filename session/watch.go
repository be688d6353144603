package session

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"lockkeeper/session/admission"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// watchMode is a set of the ways in which one connection watches one path in one table.
type watchMode uint8

const (
	standard   watchMode = 1 << iota // fires once
	persistent                       // stays
	recursive                        // stays, and fires for nodes below the path, too
)

// pathWatches are the watches of all connections in one of the tables.
type pathWatches struct {
	at      map[string]map[*connection]watchMode // by path
	entries int                                  // of all maps in at
}

// WatchTable holds the watches of all connections of this member (docs/protocol/watches.md 1). A
// watch ends with its connection.
type WatchTable struct {
	mu       sync.Mutex
	data     pathWatches
	child    pathWatches
	watching int // connections that watch anything
	bytes    int // of the watches of all connections, see watchBytes
	maxBytes int // bounds bytes
	// recursive is the number of entries of data with the mode recursive, by the length of their
	// path: ancestors of other lengths need not be looked up.
	recursive map[int]int
	// herds are the paths that herdSize connections or more watch, in one table. Some of them may
	// have become fewer.
	herds  map[string]struct{}
	fanout fanout
	usedUp []usedUp // not settled yet
	// abandoned are connections that have ended, while the table has watches of them.
	abandoned []*connection

	gate     *admission.Gate
	stats    *stats
	sweepNow signal // usedUp or abandoned has become longer
}

// watchBytes returns the size of a connection's watches of one path: the path, and an estimate of
// their share of the tables.
func watchBytes(path string) int { return len(path) + 400 }

// maxShare is the part of maxBytes, as a divisor, that the watches of one connection may have.
const maxShare = 4

func (t *WatchTable) init(g *admission.Gate, s *stats) {
	t.gate, t.maxBytes, t.stats, t.sweepNow = g, g.Limits().WatchBytes, s, newSignal()
	t.data.at = map[string]map[*connection]watchMode{}
	t.child.at = map[string]map[*connection]watchMode{}
	t.recursive = map[int]int{}
	t.herds = map[string]struct{}{}
	t.fanout.memory = &g.Memory
	t.fanout.init()
}

// add adds modes to the watches of c on path, in the data table and in the child table; false if
// there are too many.
func (t *WatchTable) add(c *connection, path string, data, child watchMode) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.addLocked(&t.data, c, path, data) && t.addLocked(&t.child, c, path, child)
}

// admitLocked reports whether c may watch one more path. Each connection has its fair part
// in any case.
func (t *WatchTable) admitLocked(c *connection, path string) bool {
	n := watchBytes(path)
	own := c.watchBytes + n
	if own <= t.gate.Memory.Fair(int64(t.maxBytes/maxShare)) || own <= t.maxBytes/maxShare && t.bytes+n <= t.maxBytes {
		return t.gate.AdmitWatch(&c.account, *c.ids.Load(), path)
	}
	t.stats.inc(&t.stats.WatchesRefused)
	return false
}

// held is the size of all watches.
func (t *WatchTable) held() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int64(t.bytes)
}

func (t *WatchTable) addLocked(table *pathWatches, c *connection, path string, mode watchMode) bool {
	if mode == 0 || c.unwatched {
		return true // the connection may have ended while it read
	}
	_, watched := c.watched[path]
	if !watched && !t.admitLocked(c, path) {
		return false
	}
	at := table.at[path]
	if at == nil {
		at = map[*connection]watchMode{}
		table.at[path] = at
	}
	if at[c] == 0 {
		table.entries++
	}
	if mode&recursive != 0 && at[c]&recursive == 0 {
		t.recursive[len(path)]++
	}
	at[c] |= mode
	if len(at) == herdSize {
		t.herds[path] = struct{}{}
	}
	if c.watched == nil {
		c.watched = map[string]struct{}{}
		t.watching++
	}
	if !watched {
		c.watched[path] = struct{}{}
		c.watchBytes += watchBytes(path)
		t.bytes += watchBytes(path)
	}
	return true
}

// dropLocked takes modes away from one entry and reports whether there were any of them.
func (t *WatchTable) dropLocked(table *pathWatches, c *connection, path string, modes watchMode) bool {
	at := table.at[path]
	had := at[c]
	if had&modes == 0 {
		return false
	}
	if had&modes&recursive != 0 {
		if t.recursive[len(path)]--; t.recursive[len(path)] == 0 {
			delete(t.recursive, len(path))
		}
	}
	if left := had &^ modes; left != 0 {
		at[c] = left
		return true
	}
	delete(at, c)
	table.entries--
	if len(at) == 0 {
		delete(table.at, path)
		delete(t.herds, path)
	}
	if t.data.at[path][c]|t.child.at[path][c] == 0 {
		t.unwatchLocked(c, path)
	}
	return true
}

// unwatchLocked records that c does not watch path any more, in neither table.
func (t *WatchTable) unwatchLocked(c *connection, path string) {
	if _, ok := c.watched[path]; !ok {
		return
	}
	c.watchBytes -= watchBytes(path)
	t.bytes -= watchBytes(path)
	t.gate.ForgetWatch(&c.account, path)
	if delete(c.watched, path); len(c.watched) == 0 {
		c.watched = nil
		t.watching--
	}
}

const anyMode = standard | persistent | recursive

// abandon removes the watches of a connection that has ended: the first at once, the others in
// sweep.
func (t *WatchTable) abandon(c *connection) {
	if t.removeSome(c, removeStep) {
		return
	}
	t.mu.Lock()
	t.abandoned = append(t.abandoned, c)
	t.mu.Unlock()
	t.sweepNow.set()
}

// sweep removes the watches of abandoned connections, and settles used-up watches, in steps, until
// ctx ends.
func (t *WatchTable) sweep(ctx context.Context) {
	for received(ctx, t.sweepNow) {
		t.mu.Lock()
		list := t.abandoned
		t.abandoned = nil
		t.mu.Unlock()
		for _, c := range list {
			for !t.removeSome(c, removeStep) {
			}
		}
		for !t.settleSome(removeStep) {
		}
	}
}

// removeSome removes up to n of the watched paths of a connection that has ended, and prevents new
// ones. It reports whether none are left.
func (t *WatchTable) removeSome(c *connection, n int) (done bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.unwatched = true
	for path := range c.watched {
		if n == 0 {
			return false
		}
		n--
		t.dropLocked(&t.data, c, path, anyMode)
		t.dropLocked(&t.child, c, path, anyMode)
		t.unwatchLocked(c, path) // if its watches have fired and are not settled
	}
	return true
}

// removeStep bounds the watched paths that are removed under one lock: events wait for it.
const removeStep = 1000

// watchKind translates the type of checkWatches and removeWatches (docs/protocol/watches.md 8).
func watchKind(watchType int32) (data, child watchMode, ok bool) {
	switch watchType {
	case wire.WatchTypeChildren:
		return 0, standard, true
	case wire.WatchTypeData:
		return standard, 0, true
	case wire.WatchTypeAny:
		return anyMode, anyMode, true
	case wire.WatchTypePersistent:
		return persistent, persistent, true
	case wire.WatchTypePersistentRecursive:
		return recursive, recursive, true
	}
	return 0, 0, false
}

func (t *WatchTable) has(c *connection, path string, data, child watchMode) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.data.at[path][c]&data != 0 || t.child.at[path][c]&child != 0
}

func (t *WatchTable) remove(c *connection, path string, data, child watchMode) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	inData := t.dropLocked(&t.data, c, path, data)
	inChild := t.dropLocked(&t.child, c, path, child)
	return inData || inChild
}

func (t *WatchTable) counts() WatchCounts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return WatchCounts{
		Connections: t.watching,
		Paths:       len(t.data.at),
		DataWatches: t.data.entries,
		Watches:     t.data.entries + t.child.entries,
	}
}

// fanout matches the events of one command with the watches of all connections.
//
// A command can have thousands of events, as the end of a session has, and hundreds of connections
// can watch each of them. The state is locked meanwhile, so the work is the sum of both numbers and
// not their product: fanout groups the events by the watched path that they reach, and each
// connection gets references to the groups of its paths (backlog). Flush encodes the frames.
//
// It is guarded by WatchTable.mu, and keeps its buffers from one command to the next.
type fanout struct {
	events  []znode.Event // of the command; the caller's
	shared  *burst        // a copy of events for backlogs; nil until there is one
	groups  []*group
	at      map[groupKey]*group
	known   map[string]*group // by path: the nearest group of recursive watches at it or above
	reached []reached
	usedUp  int   // one-shot watches that the command has used up
	due     []due // a buffer of few
	memory  *admission.Memory
}

// groupKey identifies a group.
type groupKey struct {
	watch groupWatch
	path  string
}

// groupWatch says which watches a group of events reaches.
type groupWatch uint8

const (
	dataAt  groupWatch = iota // entries of the data table at the path
	childAt                   // entries of the child table at the path
	below                     // recursive watches at the path, by events below it
)

// group is the events of one command that reach the same watches.
type group struct {
	key  groupKey
	at   map[*connection]watchMode // the connections that watch; never modified
	up   *group                    // of below: the group of the nearest watched ancestor
	all  part                      // for watches that stay
	once part                      // for those that fire once: the first event
	// hidden says that not everybody may know the names of all its events.
	hidden bool
}

// reached is a connection that watches some of the events.
type reached struct {
	c     *connection
	first *part
	more  []*part
}

const (
	// inlineEvents bounds the events of one command that are encoded while the state is locked.
	inlineEvents = 4
	// inlineParts bounds the parts, and the events in them, that are merged to count the events.
	inlineParts = 16
	// keptGroups bounds the buffers that are kept for the next command.
	keptGroups = 256
)

// fire sends the notifications that the events of one command cause, in the order of
// docs/protocol/watches.md 3.1. A watch that fires once is used up even if its client may not see
// the event.
func (t *WatchTable) fire(events []znode.Event) {
	if len(events) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watching == 0 {
		return
	}
	f := &t.fanout
	f.events = events
	for i := range events {
		t.matchLocked(int32(i))
	}
	for _, g := range f.groups {
		t.reachLocked(g)
	}
	for i := range f.reached {
		f.deliver(&f.reached[i])
	}
	f.reset()
	if len(t.usedUp) > 0 {
		t.sweepNow.set()
	}
}

func (f *fanout) init() {
	f.groups, f.at, f.known = nil, map[groupKey]*group{}, map[string]*group{}
}

// reset forgets the command.
func (f *fanout) reset() {
	if f.shared != nil {
		f.shared.release()
	}
	f.events, f.shared, f.usedUp = nil, nil, 0
	if len(f.groups) > keptGroups || len(f.known) > keptGroups {
		f.init()
	}
	clear(f.groups)
	clear(f.at)
	clear(f.known)
	f.groups = f.groups[:0]
	if len(f.reached) > keptGroups {
		f.reached = nil
	}
	clear(f.reached)
	f.reached = f.reached[:0]
}

// matchLocked adds event i to the groups of the watches that it reaches.
func (t *WatchTable) matchLocked(i int32) {
	f := &t.fanout
	e := &f.events[i]
	if e.Type != wire.EventNodeChildrenChanged {
		f.add(f.group(groupKey{dataAt, e.Path}, t.data.at[e.Path]), i)
		if len(t.recursive) > 0 {
			for g := t.aboveLocked(e.Path); g != nil; g = g.up {
				f.add(g, i)
			}
		}
	}
	if e.Type == wire.EventNodeChildrenChanged || e.Type == wire.EventNodeDeleted {
		f.add(f.group(groupKey{childAt, e.Path}, t.child.at[e.Path]), i)
	}
}

// group returns the group of a key, a new one if there is none; nil if nobody watches there.
func (f *fanout) group(key groupKey, at map[*connection]watchMode) *group {
	if len(at) == 0 {
		return nil
	}
	g := f.at[key]
	if g == nil {
		g = &group{key: key, at: at, all: part{base: atPath}}
		if key.watch == below {
			g.all.base = len(key.path)
		}
		f.at[key] = g
		f.groups = append(f.groups, g)
	}
	return g
}

// add adds event i to a group, which may be nil.
func (f *fanout) add(g *group, i int32) {
	if g != nil {
		g.all.events = append(g.all.events, i)
		g.all.bytes += noticeBytes + len(f.events[i].Path)
		g.hidden = g.hidden || f.events[i].Guarded()
	}
}

// aboveLocked returns the group of the recursive watches at the nearest ancestor of path that has
// any, and by its field up the groups of all ancestors; nil if there are none. Each ancestor is
// looked up once for a command: a multi can have hundreds of events below a thousand ancestors.
func (t *WatchTable) aboveLocked(path string) (g *group) {
	f := &t.fanout
	var unknown []string // ancestors, the longest first
	for path != "/" {
		path = path[:max(1, strings.LastIndexByte(path, '/'))]
		if t.recursive[len(path)] == 0 {
			continue
		}
		var ok bool
		if g, ok = f.known[path]; ok {
			break
		}
		unknown = append(unknown, path)
	}
	for _, path := range slices.Backward(unknown) {
		if at := t.data.at[path]; watchesBelow(at) {
			up := g
			g = f.group(groupKey{below, path}, at)
			g.up = up
		}
		f.known[path] = g
	}
	return g
}

// watchesBelow reports whether one of these watches is recursive.
func watchesBelow(at map[*connection]watchMode) bool {
	for _, mode := range at {
		if mode&recursive != 0 {
			return true
		}
	}
	return false
}

// reachLocked gives the events of a group to the connections that it reaches, and removes the
// one-shot watches that this uses up.
func (t *WatchTable) reachLocked(g *group) {
	f := &t.fanout
	g.once = part{g.all.events[:1], noticeBytes + len(f.events[g.all.events[0]].Path), g.all.base}
	modes := watchMode(0)
	for c, mode := range g.at {
		modes |= mode
		switch {
		case g.key.watch == below:
			if mode&recursive != 0 && !g.covered(c) {
				f.reach(c, &g.all)
			}
		case mode == standard:
			f.reach(c, &g.once)
		default:
			f.reach(c, &g.all)
		}
	}
	switch {
	case modes&standard == 0 || g.key.watch == below:
	case g.key.watch == childAt:
		t.useUpLocked(&t.child, g, modes)
	default:
		t.useUpLocked(&t.data, g, modes)
	}
}

// covered reports whether c has a recursive watch farther up that reaches the same events.
func (g *group) covered(c *connection) bool {
	for up := g.up; up != nil; up = up.up {
		if up.at[c]&recursive != 0 && !up.hidden {
			return true
		}
	}
	return false
}

// reach adds a part to the parts of c.
func (f *fanout) reach(c *connection, p *part) {
	if i := c.reachedAt; i > 0 {
		r := &f.reached[i-1]
		r.more = append(r.more, p)
		return
	}
	f.reached = append(f.reached, reached{c: c, first: p})
	c.reachedAt = int32(len(f.reached))
}

// useUpLocked removes the one-shot watches of a group, all at once: it leaves the map as it is, and
// makes a new one of the other watches. The connections are settled at once if they are few, else
// in sweep.
func (t *WatchTable) useUpLocked(table *pathWatches, g *group, modes watchMode) {
	path := g.key.path
	delete(table.at, path)
	delete(t.herds, path)
	table.entries -= len(g.at)
	if modes != standard {
		left := map[*connection]watchMode{}
		for c, mode := range g.at {
			if mode &^= standard; mode != 0 {
				left[c] = mode
			}
		}
		if table.entries += len(left); len(left) > 0 {
			table.at[path] = left
		}
	}
	used := usedUp{path, g.at}
	if t.fanout.usedUp += len(g.at); t.fanout.usedUp > removeStep {
		t.usedUp = append(t.usedUp, used)
		return
	}
	t.settleLocked(used)
}

// usedUp are connections with one-shot watches of a path that have fired.
type usedUp struct {
	path string
	by   map[*connection]watchMode
}

// settleLocked takes the path off the connections that do not watch it any more.
func (t *WatchTable) settleLocked(u usedUp) {
	data, child := t.data.at[u.path], t.child.at[u.path]
	for c := range u.by {
		if data[c]|child[c] == 0 {
			t.unwatchLocked(c, u.path)
		}
	}
}

// settleSome settles about n entries of usedUp, and reports whether none are left.
func (t *WatchTable) settleSome(n int) (done bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n > 0 && len(t.usedUp) > 0 {
		u := t.usedUp[0]
		t.usedUp[0], t.usedUp = usedUp{}, t.usedUp[1:]
		t.settleLocked(u)
		n -= len(u.by)
	}
	return len(t.usedUp) == 0
}

// lookupsLocked bounds the lookups in an ACL for one event while the state is locked.
const lookupsLocked = 4

// deliver queues the notifications for one connection: a few events at once, more as a backlog.
func (f *fanout) deliver(r *reached) {
	r.c.reachedAt = 0
	ids := *r.c.ids.Load()
	slow := func(d due) bool {
		e := &f.events[d.event]
		return e.Lookups(ids) > lookupsLocked || e.Guarded() && d.base != atPath
	}
	events, few := f.few(r)
	if !few || slices.ContainsFunc(events, slow) {
		r.c.notifyLater(f.backlog(r, ids))
		return
	}
	for _, d := range events {
		if e := &f.events[d.event]; visible(e, ids, d.base) {
			r.c.notify(e.Zxid, e.Type, e.Path)
		}
	}
}

// few returns the events of a connection, until it is called again, if they are few.
func (f *fanout) few(r *reached) (events []due, ok bool) {
	n := len(r.first.events)
	for _, p := range r.more[:min(len(r.more), inlineParts)] {
		n += len(p.events)
	}
	if len(r.more) > inlineParts || n > inlineParts {
		return nil, false
	}
	f.due = merged(f.due[:0], r.first, r.more)
	return f.due, len(f.due) <= inlineEvents
}

// backlog returns the events of one connection.
func (f *fanout) backlog(r *reached, ids []znode.Identity) *backlog {
	if f.shared == nil {
		f.shared = newBurst(f.events, f.memory)
	}
	f.shared.refs.Add(1)
	b := &backlog{of: f.shared, first: r.first, more: r.more, ids: ids, bytes: r.first.bytes}
	events := len(r.first.events)
	for _, p := range r.more {
		b.bytes += p.bytes
		events += len(p.events)
	}
	if len(r.more) > 0 {
		b.own = partBytes*len(r.more) + dueBytes*events
	}
	b.own += backlogBytes + min(b.bytes, writeChunkBytes)
	return b
}

// herdSize is the least number of connections that watch a node of Herds.
const herdSize = 100

// Watch is one entry of the data table: a session and a path that it watches.
type Watch struct {
	Session wire.SessionID
	Path    string
}

// Data lists the data table, in which exists, getData and addWatch register, sorted by session and
// path (the four-letter words wchc and wchp).
func (t *WatchTable) Data() []Watch {
	t.mu.Lock()
	var list []Watch
	for path, at := range t.data.at {
		for c := range at {
			list = append(list, Watch{Session: c.id(), Path: path})
		}
	}
	t.mu.Unlock()
	slices.SortFunc(list, func(a, b Watch) int {
		return cmp.Or(cmp.Compare(uint64(a.Session), uint64(b.Session)), cmp.Compare(a.Path, b.Path))
	})
	return list
}

// Watchers returns the number of connections that watch a node, in the table in which there are
// more.
func (t *WatchTable) Watchers(path string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.watchersLocked(path)
}

func (t *WatchTable) watchersLocked(path string) int {
	return max(len(t.data.at[path]), len(t.child.at[path]))
}

// Herds returns the nodes that at least herdSize connections watch, and the number of these, the
// most watched node first.
func (t *WatchTable) Herds() (paths []string, watchers []int) {
	t.mu.Lock()
	size := map[string]int{}
	for path := range t.herds {
		if n := t.watchersLocked(path); n >= herdSize {
			size[path] = n
			paths = append(paths, path)
		} else {
			delete(t.herds, path)
		}
	}
	t.mu.Unlock()
	slices.SortFunc(paths, func(a, b string) int { return cmp.Or(cmp.Compare(size[b], size[a]), cmp.Compare(a, b)) })
	for _, path := range paths {
		watchers = append(watchers, size[path])
	}
	return paths, watchers
}

// by returns the paths that a connection watches, sorted.
func (t *WatchTable) by(c *connection) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(c.watched))
}
