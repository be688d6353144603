package console

import (
	"cmp"
	"net/url"
	"slices"
	"time"

	"lockkeeper/locknode"
	"lockkeeper/server/ops"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// From when on something is trouble.
const (
	longMs         = 300_000 // a lock is held for so long while others wait
	longAloneTimes = 10      // and this many times as long without
	herdWatches    = 100
	hotWaiters     = 10
	expiringPart   = 1.0 / 3 // of its timeout is left of a session
	reconnectsMany = 5
	reconnectsMs   = 300_000
)

type troubleLimits struct {
	LongMs             int64   `json:"longMs"`
	HerdWatches        int     `json:"herdWatches"`
	HotWaiters         int     `json:"hotWaiters"`
	ExpiringPart       float64 `json:"expiringPart"`
	Reconnects         int     `json:"reconnects"`
	ReconnectsWithinMs int64   `json:"reconnectsWithinMs"`
}

type edgeRow struct {
	Waiter string `json:"waiter"`
	Holder string `json:"holder"`
	Path   string `json:"path"`
	Cycle  bool   `json:"cycle"`
	Why    string `json:"why"`
}

type deadlockRow struct {
	Sessions []string         `json:"sessions"`
	Edges    []edgeRow        `json:"edges"`
	Names    map[string]named `json:"names"` // of all sessions in Edges
}

type orphanRow struct {
	Path     string   `json:"path"`
	Nodes    []string `json:"nodes"`
	Session  string   `json:"session"`
	OldestAt stamp    `json:"oldestAt"`
	named
}

type longRow struct {
	Path       string `json:"path"`
	Node       string `json:"node"`
	Session    string `json:"session"`
	SinceAt    stamp  `json:"sinceAt"`
	SinceExact bool   `json:"sinceExact"`
	HeldMs     int64  `json:"heldMs"`
	Waiting    int    `json:"waiting"`
	named
}

type hotRow struct {
	Path          string `json:"path"`
	Waiting       int    `json:"waiting"`
	LongestWaitMs int64  `json:"longestWaitMs"`
	Holder        string `json:"holder"`
	named                // of the holder
}

type expiringRow struct {
	Session    string `json:"session"`
	TimeoutMs  int32  `json:"timeoutMs"`
	LeftMs     int64  `json:"leftMs"`
	Ephemerals *int   `json:"ephemerals"` // nil as in sessions
	named
	id wire.SessionID
}

type reconnectRow struct {
	Session    string `json:"session"`
	Reconnects int    `json:"reconnects"`
	SinceAt    stamp  `json:"sinceAt"`
	named
	id wire.SessionID
}

type twoHoldersRow struct {
	Path    string `json:"path"`
	Warning string `json:"warning"`
}

type troubleAnswer struct {
	head
	Counts        map[string]int  `json:"counts"`
	Limits        troubleLimits   `json:"limits"`
	Deadlocks     []deadlockRow   `json:"deadlocks"`
	Orphans       []orphanRow     `json:"orphans"`
	Long          []longRow       `json:"long"`
	Herds         []herdRow       `json:"herds"`
	Hot           []hotRow        `json:"hot"`
	Expiring      []expiringRow   `json:"expiring"`
	ExpiringKnown bool            `json:"expiringKnown"`
	Reconnecting  []reconnectRow  `json:"reconnecting"`
	TwoHolders    []twoHoldersRow `json:"twoHolders"`
}

// trouble answers with all that is wrong.
func (c *Console) trouble(q url.Values, v *viewer, now time.Time) (any, error) {
	limit, err := number(q, "limit", 50, 200)
	if err != nil {
		return nil, err
	}
	a := troubleAnswer{
		Counts:    map[string]int{},
		Limits:    troubleLimits{longMs, herdWatches, hotWaiters, expiringPart, reconnectsMany, reconnectsMs},
		Deadlocks: []deadlockRow{}, Orphans: []orphanRow{}, Long: []longRow{}, Hot: []hotRow{},
		Expiring: []expiringRow{}, Reconnecting: []reconnectRow{}, TwoHolders: []twoHoldersRow{},
	}
	if err := c.index.with(func() { a.ofLocks(c.index, v, limit, now) }); err != nil {
		return nil, err
	}
	herds := c.herds(v)
	a.Counts["herd"] = len(herds)
	a.Herds = append([]herdRow{}, herds[:min(len(herds), limit)]...)
	a.ofSessions(c, v, limit)
	a.head = c.head(now)
	return a, nil
}

// herdRow is a node with many watches.
type herdRow struct {
	Path    string `json:"path"`
	Watches int    `json:"watches"`
}

// herds are the nodes with many watches that v may see.
func (c *Console) herds(v *viewer) (seen []herdRow) {
	var all []herdRow
	paths, watches := c.Sessions().Watches().Herds()
	for i, path := range paths {
		all = append(all, herdRow{path, watches[i]})
	}
	for part := range slices.Chunk(all, walkStep) {
		c.View(func(store *znode.Store) {
			for _, h := range part {
				if v.sees(store, h.Path) {
					seen = append(seen, h)
				}
			}
		})
	}
	return seen
}

// troubleOf are the kinds of trouble that a lock is in, apart from kinds that depend on the time,
// as far as v may know. showDeadlocks has been called.
func (x *index) troubleOf(l *lock, v *viewer) (list []string) {
	if len(v.deadlocked[l]) > 0 {
		list = append(list, "deadlock")
	}
	if l.orphans {
		list = append(list, "orphan")
	}
	if l.isLong(x.used) {
		list = append(list, "long")
	}
	if l.waiting >= hotWaiters {
		list = append(list, "hot")
	}
	if l.two {
		list = append(list, "twoHolders")
	}
	return list
}

func (l *lock) isLong(now time.Time) bool {
	if l.plain && l.kind == kindEphemeral || l.kind == kindElection || l.since.IsZero() {
		return false // they are meant to last
	}
	held := now.Sub(l.since).Milliseconds()
	return l.waiting > 0 && held >= longMs || held >= longAloneTimes*longMs
}

// ofLocks fills in the trouble of locks. The index's mu is held.
func (a *troubleAnswer) ofLocks(x *index, v *viewer, limit int, now time.Time) {
	a.deadlocks(x, v, limit)
	var long, hot, orphans, two []*lock
	for _, l := range x.seenBy(v) {
		for _, kind := range x.troubleOf(l, v) {
			switch kind {
			case "orphan":
				orphans = append(orphans, l)
			case "long":
				long = append(long, l)
			case "hot":
				hot = append(hot, l)
			case "twoHolders":
				two = append(two, l)
			}
		}
	}
	some := func(kind string, list []*lock, order func(a, b *lock) int, f func(*znode.Store, *lock)) {
		a.Counts[kind] = len(list)
		slices.SortFunc(list, func(a, b *lock) int { return cmp.Or(order(a, b), cmp.Compare(a.path, b.path)) })
		x.view(func(store *znode.Store) {
			for _, l := range list[:min(len(list), limit)] {
				f(store, l)
			}
		})
	}
	byWaiting := func(a, b *lock) int { return cmp.Compare(b.waiting, a.waiting) }
	bySince := func(a, b *lock) int { return compareTimes(a.since, b.since) }
	some("long", long, bySince, func(store *znode.Store, l *lock) {
		h := x.row(l, store, v, now).Holders[0]
		a.Long = append(a.Long, longRow{Path: l.path, Node: h.Node, Session: h.Session, SinceAt: h.SinceAt,
			SinceExact: h.SinceExact, HeldMs: now.Sub(l.since).Milliseconds(), Waiting: l.waiting,
			named: named{Address: h.Address, Who: h.Who, Note: h.Note}})
	})
	some("hot", hot, byWaiting, func(store *znode.Store, l *lock) {
		row := hotRow{Path: l.path, Waiting: l.waiting, LongestWaitMs: now.Sub(l.oldest).Milliseconds()}
		if l.held > 0 {
			row.Holder, row.named = ops.Hex(l.queue[0].Session), x.nameOf(store, v, l.queue[0].Session)
		}
		a.Hot = append(a.Hot, row)
	})
	some("orphan", orphans, bySince, func(store *znode.Store, l *lock) {
		a.Orphans = append(a.Orphans, x.orphanRows(store, v, l)...)
	})
	some("twoHolders", two, byWaiting, func(_ *znode.Store, l *lock) {
		for _, w := range warnings(l.queue) {
			a.TwoHolders = append(a.TwoHolders, twoHoldersRow{l.path, w})
		}
	})
}

// orphanRows lists the sessions that have several nodes in the queue of a lock.
func (x *index) orphanRows(store *znode.Store, v *viewer, l *lock) (list []orphanRow) {
	at := map[int64]int{}
	for i := range l.queue {
		c := &l.queue[i]
		if !c.Orphan {
			continue
		}
		k, ok := at[c.Session]
		if !ok {
			k = len(list)
			at[c.Session] = k
			list = append(list, orphanRow{Path: l.path, Session: ops.Hex(c.Session), OldestAt: stamp(c.Created),
				named: x.nameOf(store, v, c.Session)})
		}
		if len(list[k].Nodes) < 20 {
			list[k].Nodes = append(list[k].Nodes, c.Node)
		}
		if c.Created.Before(time.Time(list[k].OldestAt)) {
			list[k].OldestAt = stamp(c.Created)
		}
	}
	return list[:min(len(list), 20)]
}

// showDeadlocks returns the deadlocks of which v may see each lock, and notes their contenders in
// v. The index's mu is held.
func (x *index) showDeadlocks(v *viewer) (seen []foundDeadlock) {
	v.deadlocked = places{}
	for _, d := range x.findDeadlocksLocked() {
		if !x.seesAll(v, d.Edges) {
			continue
		}
		seen = append(seen, d)
		for l, tokens := range d.waiting {
			v.deadlocked[l] = append(v.deadlocked[l], tokens...)
		}
	}
	return seen
}

// seesAll reports whether v may see the locks of all edges.
func (x *index) seesAll(v *viewer, edges []locknode.Edge) bool {
	if v.super {
		return true
	}
	all := true
	for part := range slices.Chunk(edges, walkStep) {
		x.view(func(store *znode.Store) {
			for _, e := range part {
				l := x.locks[e.Path]
				all = all && l != nil && v.seesLock(store, l)
			}
		})
	}
	return all
}

const edgesAround = 20 // of those that wait for a deadlock, but are no part of it

func (a *troubleAnswer) deadlocks(x *index, v *viewer, limit int) {
	found := x.showDeadlocks(v)
	a.Counts["deadlock"] = len(found)
	for _, d := range found[:min(len(found), limit)] {
		row := deadlockRow{}
		in := map[int64]bool{}
		for _, s := range d.Sessions {
			in[s] = true
			row.Sessions = append(row.Sessions, ops.Hex(s))
		}
		paths := map[string]bool{}
		for _, e := range d.Edges[:min(len(d.Edges), 1000)] {
			why := "queue"
			if e.Within {
				why = "within"
			}
			paths[e.Path] = true
			row.Edges = append(row.Edges, edgeRow{ops.Hex(e.Waiter), ops.Hex(e.Holder), e.Path, true, why})
		}
		around := 0
		for path := range paths {
			l := x.locks[path]
			for i := range l.queue {
				if c := &l.queue[i]; !c.Held && !in[c.Session] && in[l.queue[0].Session] && around < edgesAround {
					around++
					row.Edges = append(row.Edges, edgeRow{ops.Hex(c.Session), ops.Hex(l.queue[0].Session), path, false,
						"queue"})
				}
			}
		}
		row.Names = x.namesOf(v, row.Edges)
		if len(row.Edges) > 0 {
			a.Deadlocks = append(a.Deadlocks, row)
		}
	}
}

func (a *troubleAnswer) ofSessions(c *Console, v *viewer, limit int) {
	all := c.seesAllNodes(v)
	now := time.Now() // that a session is about to expire is news
	deadlines, leads := c.Sessions().Deadlines()
	a.ExpiringKnown = leads
	c.View(func(store *znode.Store) {
		for _, d := range deadlines[:min(len(deadlines), 10*limit)] { // the earliest come first
			info, ok := store.Sessions().Get(d.Session)
			left := d.At.Sub(now).Milliseconds()
			if !ok || float64(left) > expiringPart*float64(info.TimeoutMs) {
				continue
			}
			a.Counts["expiring"]++
			if len(a.Expiring) < limit {
				a.Expiring = append(a.Expiring, expiringRow{Session: ops.Hex(d.Session), TimeoutMs: info.TimeoutMs,
					LeftMs: max(0, left), Ephemerals: total(info.Ephemerals, all), id: d.Session})
			}
		}
	})
	a.Counts["expiring"] += 0
	rows := c.reconnecting(now)
	a.Counts["reconnecting"] = len(rows)
	a.Reconnecting = append(a.Reconnecting, rows[:min(len(rows), limit)]...)
	_ = c.index.with(func() { // it has just been used: if it does not fit, there are no names
		for i := range a.Expiring {
			c.View(func(store *znode.Store) { a.Expiring[i].named = c.index.nameOf(store, v, int64(a.Expiring[i].id)) })
		}
		for i := range a.Reconnecting {
			c.View(func(store *znode.Store) {
				a.Reconnecting[i].named = c.index.nameOf(store, v, int64(a.Reconnecting[i].id))
			})
		}
	})
}

// reconnects is how often a session has had a new connection.
type reconnects struct {
	generation uint64
	at         time.Time // of that generation
	now        uint64
	id         wire.SessionID
	seen       time.Time
}

// reconnecting samples the generations of the sessions with a connection here, and returns those
// that have grown much within the time.
func (c *Console) reconnecting(now time.Time) (rows []reconnectRow) {
	var ids []wire.SessionID
	for _, s := range c.Sessions().Connections() {
		ids = append(ids, s.Session)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for part := range slices.Chunk(ids, walkStep) {
		c.View(func(store *znode.Store) {
			for _, id := range part {
				info, ok := store.Sessions().Get(id)
				if !ok {
					continue
				}
				key := ops.Hex(id)
				r := c.reconnects[key]
				if r == nil || now.Sub(r.at).Milliseconds() > reconnectsMs {
					r = &reconnects{generation: info.Generation, at: now}
					c.reconnects[key] = r
				}
				r.now, r.id, r.seen = info.Generation, id, now
			}
		})
	}
	for key, r := range c.reconnects {
		if now.Sub(r.seen).Milliseconds() > reconnectsMs {
			delete(c.reconnects, key)
		} else if n := int(r.now - r.generation); n >= reconnectsMany {
			rows = append(rows, reconnectRow{Session: key, Reconnects: n, SinceAt: stamp(r.at), id: r.id})
		}
	}
	slices.SortFunc(rows, func(a, b reconnectRow) int {
		return cmp.Or(cmp.Compare(b.Reconnects, a.Reconnects), cmp.Compare(a.Session, b.Session))
	})
	return rows
}
