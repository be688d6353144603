package session

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"lockkeeper/session/admission"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// watchMode is a set of the ways in which one connection watches one path in one table.
type watchMode uint8

const (
	standard   watchMode = 1 << iota // fires once
	persistent                       // stays
	recursive                        // stays, and fires for what is below the path
)

// pathWatches are the watches of all connections in one of the tables.
type pathWatches struct {
	at      map[string]map[*Session]watchMode // by path
	entries int                               // of all maps in at
}

// watchTable holds the watches of all connections of this member (docs/protocol/watches.md 1). It
// knows nothing of sessions that live elsewhere, and nothing of it survives the connection.
type watchTable struct {
	mu       sync.Mutex
	data     pathWatches
	child    pathWatches
	watching int // connections that watch anything
	bytes    int // what the watches of all connections count for, see watchBytes
	maxBytes int // how much that may be
	// recursive is how many entries of data have recursive among their modes, by the length of
	// their path: ancestors of other lengths need not be looked up.
	recursive map[int]int
	// herds are the paths that herdSize connections or more watch, in one table. Some of them may
	// have become fewer.
	herds  map[string]struct{}
	fanout fanout
	usedUp []usedUp // not settled yet

	stats  *stats
	memory *admission.Memory
}

// watchBytes returns the bytes that a connection's watches of one path count for: those of the
// path, and an estimate of what the tables take for them.
func watchBytes(path string) int { return len(path) + 400 }

// maxShare is the part of maxBytes that the watches of one connection may have.
const maxShare = 4

func (t *watchTable) init(maxBytes int, s *stats, m *admission.Memory) {
	t.maxBytes, t.stats, t.memory = maxBytes, s, m
	t.data.at = map[string]map[*Session]watchMode{}
	t.child.at = map[string]map[*Session]watchMode{}
	t.recursive = map[int]int{}
	t.herds = map[string]struct{}{}
	t.fanout.init()
}

// add adds modes to the watches of s on path, in the data table and in the child table; false if
// there are too many.
func (t *watchTable) add(s *Session, path string, data, child watchMode) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.addLocked(&t.data, s, path, data) && t.addLocked(&t.child, s, path, child)
}

// admitLocked reports whether s may watch one more path. Each connection has its fair part
// in any case.
func (t *watchTable) admitLocked(s *Session, path string) bool {
	n := watchBytes(path)
	own := s.watchBytes + n
	if own <= t.memory.Fair(int64(t.maxBytes/maxShare)) || own <= t.maxBytes/maxShare && t.bytes+n <= t.maxBytes {
		return s.m.gate.AdmitWatch(&s.account, *s.ids.Load(), path)
	}
	t.stats.inc(&t.stats.WatchesRefused)
	return false
}

// held is what all watches count for.
func (t *watchTable) held() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int64(t.bytes)
}

func (t *watchTable) addLocked(table *pathWatches, s *Session, path string, mode watchMode) bool {
	if mode == 0 || s.unwatched {
		return true // the connection may have ended while it read
	}
	_, watched := s.watched[path]
	if !watched && !t.admitLocked(s, path) {
		return false
	}
	at := table.at[path]
	if at == nil {
		at = map[*Session]watchMode{}
		table.at[path] = at
	}
	if at[s] == 0 {
		table.entries++
	}
	if mode&recursive != 0 && at[s]&recursive == 0 {
		t.recursive[len(path)]++
	}
	at[s] |= mode
	if len(at) == herdSize {
		t.herds[path] = struct{}{}
	}
	if s.watched == nil {
		s.watched = map[string]struct{}{}
		t.watching++
	}
	if !watched {
		s.watched[path] = struct{}{}
		s.watchBytes += watchBytes(path)
		t.bytes += watchBytes(path)
	}
	return true
}

// dropLocked takes modes away from one entry and reports whether there were any of them.
func (t *watchTable) dropLocked(table *pathWatches, s *Session, path string, modes watchMode) bool {
	at := table.at[path]
	had := at[s]
	if had&modes == 0 {
		return false
	}
	if had&modes&recursive != 0 {
		if t.recursive[len(path)]--; t.recursive[len(path)] == 0 {
			delete(t.recursive, len(path))
		}
	}
	if left := had &^ modes; left != 0 {
		at[s] = left
		return true
	}
	delete(at, s)
	table.entries--
	if len(at) == 0 {
		delete(table.at, path)
		delete(t.herds, path)
	}
	if t.data.at[path][s]|t.child.at[path][s] == 0 {
		t.unwatchLocked(s, path)
	}
	return true
}

// unwatchLocked records that s does not watch path any more, in neither table.
func (t *watchTable) unwatchLocked(s *Session, path string) {
	if _, ok := s.watched[path]; !ok {
		return
	}
	s.watchBytes -= watchBytes(path)
	t.bytes -= watchBytes(path)
	s.m.gate.ForgetWatch(&s.account, path)
	if delete(s.watched, path); len(s.watched) == 0 {
		s.watched = nil
		t.watching--
	}
}

const anyMode = standard | persistent | recursive

// removeSome removes up to n of the watched paths of a connection that has ended, and prevents that
// it gets more. It reports whether none are left.
func (t *watchTable) removeSome(s *Session, n int) (done bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.unwatched = true
	for path := range s.watched {
		if n == 0 {
			return false
		}
		n--
		t.dropLocked(&t.data, s, path, anyMode)
		t.dropLocked(&t.child, s, path, anyMode)
		t.unwatchLocked(s, path) // if its watches have fired and are not settled
	}
	return true
}

// removeStep is how many watched paths are removed under one lock, for which events wait.
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

func (t *watchTable) has(s *Session, path string, data, child watchMode) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.data.at[path][s]&data != 0 || t.child.at[path][s]&child != 0
}

func (t *watchTable) remove(s *Session, path string, data, child watchMode) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	inData := t.dropLocked(&t.data, s, path, data)
	inChild := t.dropLocked(&t.child, s, path, child)
	return inData || inChild
}

func (t *watchTable) counts() WatchCounts {
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
// not their product: the events are grouped by the watched path that they reach, each connection
// gets references to the groups of its paths (backlog), and its frames are made when they are sent.
//
// It is guarded by watchTable.mu, and keeps its buffers from one command to the next.
type fanout struct {
	events  []znode.Event // of the command; the caller's
	shared  *burst        // a copy of events for backlogs; nil until there is one
	groups  []*group
	at      map[groupKey]*group
	known   map[string]*group // by path: the nearest group of recursive watches at it or above
	reached []reached
	usedUp  int   // one-shot watches that the command has used up
	due     []due // a buffer of few
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
	at   map[*Session]watchMode // whoever watches; not to be changed
	up   *group                 // of below: that of the nearest watched ancestor
	all  part                   // for watches that stay
	once part                   // for those that fire once: the first event
	// hidden says that not everybody may know the names of all its events.
	hidden bool
}

// part is what a group has for a connection.
type part struct {
	events []int32 // positions in the command's events, ascending
	bytes  int     // of their frames
	base   int     // see due
}

// due is an event that a connection is to be sent, if it may be.
type due struct {
	event int32 // its position in the command's events
	// base is the length of the path that the connection watches recursively, of the deepest if
	// there are several: the connection knows that path, and must not learn names below it that
	// are hidden from it. It is atPath if the connection watches the event's own path.
	base int
}

// atPath is greater than the length of any path.
const atPath = math.MaxInt

// visible reports whether a connection with the identities ids may be sent an event. In ZooKeeper
// it is sent the names of nodes below those that it may not read (docs/protocol/watches.md 6).
func visible(e *znode.Event, ids []znode.Identity, base int) bool {
	return e.ReadableBy(ids) && (base == atPath || !e.Guarded() || e.NamedTo(ids, base))
}

// reached is a connection that watches something of what has happened.
type reached struct {
	s     *Session
	first *part
	more  []*part
}

const (
	// inlineEvents is up to how many events of one command are encoded while the state is locked.
	inlineEvents = 4
	// inlineParts is up to how many parts, and events in them, are merged to find that out.
	inlineParts = 16
	// keptGroups bounds the buffers that are kept for the next command.
	keptGroups = 256
)

// fire sends the notifications that the events of one command cause, in the order of
// docs/protocol/watches.md 3.1. A watch that fires once is used up even if its client may not see
// the event. It reports whether settleSome has something to do.
func (t *watchTable) fire(events []znode.Event) (unsettled bool) {
	if len(events) == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watching == 0 {
		return false
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
	return len(t.usedUp) > 0
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
func (t *watchTable) matchLocked(i int32) {
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
func (f *fanout) group(key groupKey, at map[*Session]watchMode) *group {
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
// any, and so by its field up those of all ancestors; nil if there are none. Each ancestor is
// looked up once for a command: a multi can have hundreds of events below a thousand ancestors.
func (t *watchTable) aboveLocked(path string) (g *group) {
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
func watchesBelow(at map[*Session]watchMode) bool {
	for _, mode := range at {
		if mode&recursive != 0 {
			return true
		}
	}
	return false
}

// reachLocked gives the connections that a group reaches its events, and removes the watches that
// this uses up.
func (t *watchTable) reachLocked(g *group) {
	f := &t.fanout
	g.once = part{g.all.events[:1], noticeBytes + len(f.events[g.all.events[0]].Path), g.all.base}
	modes := watchMode(0)
	for s, mode := range g.at {
		modes |= mode
		switch {
		case g.key.watch == below:
			if mode&recursive != 0 && !g.covered(s) {
				f.reach(s, &g.all)
			}
		case mode == standard:
			f.reach(s, &g.once)
		default:
			f.reach(s, &g.all)
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

// covered reports whether s has a recursive watch farther up, by which it is sent the same events.
func (g *group) covered(s *Session) bool {
	for up := g.up; up != nil; up = up.up {
		if up.at[s]&recursive != 0 && !up.hidden {
			return true
		}
	}
	return false
}

// reach adds a part to those of s.
func (f *fanout) reach(s *Session, p *part) {
	if i := s.reachedAt; i > 0 {
		r := &f.reached[i-1]
		r.more = append(r.more, p)
		return
	}
	f.reached = append(f.reached, reached{s: s, first: p})
	s.reachedAt = len(f.reached)
}

// useUpLocked removes the one-shot watches of a group, all at once: it leaves the entries as they
// are, and makes new ones of the rest. The connections learn that they watch the path no longer at
// once if they are few, else from sweepLoop.
func (t *watchTable) useUpLocked(table *pathWatches, g *group, modes watchMode) {
	path := g.key.path
	delete(table.at, path)
	delete(t.herds, path)
	table.entries -= len(g.at)
	if modes != standard {
		left := map[*Session]watchMode{}
		for s, mode := range g.at {
			if mode &^= standard; mode != 0 {
				left[s] = mode
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

// usedUp are the connections of which one-shot watches of a path have fired.
type usedUp struct {
	path string
	by   map[*Session]watchMode
}

// settleLocked records for the connections that do not watch the path any more that it is so.
func (t *watchTable) settleLocked(u usedUp) {
	data, child := t.data.at[u.path], t.child.at[u.path]
	for s := range u.by {
		if data[s]|child[s] == 0 {
			t.unwatchLocked(s, u.path)
		}
	}
}

// settleSome settles what has been used up, about n entries of it, and reports whether nothing is
// left.
func (t *watchTable) settleSome(n int) (done bool) {
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

// lookupsLocked is up to how many lookups in an ACL are made for one event while the state is
// locked.
const lookupsLocked = 4

// deliver queues the notifications for one connection: those of a few events at once, others as a
// backlog.
func (f *fanout) deliver(r *reached) {
	r.s.reachedAt = 0
	ids := *r.s.ids.Load()
	slow := func(d due) bool {
		e := &f.events[d.event]
		return e.Lookups(ids) > lookupsLocked || e.Guarded() && d.base != atPath
	}
	events, few := f.few(r)
	if !few || slices.ContainsFunc(events, slow) {
		r.s.notifyLater(f.backlog(r, ids))
		return
	}
	for _, d := range events {
		if e := &f.events[d.event]; visible(e, ids, d.base) {
			r.s.notify(e.Zxid, e.Type, e.Path)
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

// merged appends the events of some parts, ascending, each once and with its deepest base.
func merged(list []due, first *part, more []*part) []due {
	list = first.appendDue(list)
	if len(more) == 0 {
		return list
	}
	for _, p := range more {
		list = p.appendDue(list)
	}
	slices.SortFunc(list, func(a, b due) int {
		return cmp.Or(cmp.Compare(a.event, b.event), cmp.Compare(b.base, a.base))
	})
	return slices.CompactFunc(list, func(a, b due) bool { return a.event == b.event })
}

func (p *part) appendDue(list []due) []due {
	for _, i := range p.events {
		list = append(list, due{i, p.base})
	}
	return list
}

// backlog returns what one connection is to be sent later.
func (f *fanout) backlog(r *reached, ids []znode.Identity) *backlog {
	if f.shared == nil {
		f.shared = newBurst(f.events, r.s.out.queue.memory)
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

// burst is the events of one command, shared by the connections that are to be sent some of them.
// It counts once for the memory of all connections, until the last of them has been sent its part.
type burst struct {
	events []znode.Event
	bytes  int
	refs   atomic.Int32
	memory *admission.Memory
}

// eventBytes is what an event counts for besides its path: its part of a burst, and of the groups
// that it may be in.
const eventBytes = 160

// newBurst copies the events, without the data of their nodes. Its caller holds a reference.
func newBurst(events []znode.Event, m *admission.Memory) *burst {
	b := &burst{events: slices.Clone(events), memory: m}
	for i := range b.events {
		b.events[i].Data = nil
		b.bytes += eventBytes + len(b.events[i].Path)
	}
	b.refs.Store(1)
	m.AddShared(b.bytes)
	return b
}

// release takes a reference back.
func (b *burst) release() {
	if b.refs.Add(-1) == 0 {
		b.memory.AddShared(-b.bytes)
	}
}

// backlog is the part of a burst that one connection is to be sent.
type backlog struct {
	of    *burst
	first *part
	more  []*part          // until the first frame is made
	ids   []znode.Identity // of the connection, when it happened
	bytes int              // of all frames, at the most
	own   int              // what it counts for besides its burst

	due  []due // of several parts, when the first frame has been made
	done int   // position behind what has been sent or skipped, in due or in first.events
}

// Of what a backlog counts for besides its burst: itself, each of several parts, and each event
// while these are merged. The frames of a chunk come on top.
const (
	backlogBytes = 256
	partBytes    = 16
	dueBytes     = 16
)

// zxid is that of the command.
func (b *backlog) zxid() wire.Zxid { return b.of.events[0].Zxid }

// next returns the next event that is to be sent, if it may be; false if there is none.
func (b *backlog) next() (d due, ok bool) {
	if b.more != nil {
		b.due, b.more = merged(nil, b.first, b.more), nil
	}
	switch {
	case b.due == nil && b.done < len(b.first.events):
		d = due{b.first.events[b.done], b.first.base}
	case b.done < len(b.due):
		d = b.due[b.done]
	default:
		return due{}, false
	}
	b.done++
	return d, true
}

// appendFrames appends about a chunk of frames, and returns their number. Nothing of the backlog is
// left when it appends none.
func (b *backlog) appendFrames(buf []byte) (frames []byte, n int) {
	for len(buf) < writeChunkBytes {
		d, ok := b.next()
		if !ok {
			break
		}
		if e := &b.of.events[d.event]; visible(e, b.ids, d.base) {
			buf = appendNotice(buf, e.Zxid, e.Type, e.Path)
			n++
		}
	}
	return buf, n
}

// writeChunkBytes is how much is written at a time. A client that receives none of it for the
// length of its session timeout is disconnected; one that is only slow is not.
const writeChunkBytes = 64 << 10

// noticeBytes is at least what a notification counts for besides its path.
const noticeBytes = 64

// appendNotice appends the frame of a notification.
func appendNotice(buf []byte, zxid wire.Zxid, t wire.EventType, path string) []byte {
	return wire.AppendReply(buf, wire.ReplyHeader{Xid: wire.XidNotification, Zxid: zxid},
		wire.WatcherEvent{Type: t, State: wire.StateSyncConnected, Path: path})
}

// herdSize is how many connections have to watch a node for it to be among the Herds.
const herdSize = 100
