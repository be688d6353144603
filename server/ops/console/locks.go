package console

import (
	"cmp"
	"container/heap"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"lockkeeper/locknode"
	"lockkeeper/server/ops"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

type locksAnswer struct {
	head
	Total   int            `json:"total"`
	Matched int            `json:"matched"`
	Offset  int            `json:"offset"`
	Limit   int            `json:"limit"`
	Kinds   map[string]int `json:"kinds"`
	Waiting int            `json:"waiting"`
	Locks   []lockRow      `json:"locks"`
}

// locks answers with a page of the locks that match.
func (c *Console) locks(q url.Values, v *viewer, now time.Time) (any, error) {
	a := locksAnswer{Kinds: map[string]int{}, Locks: []lockRow{}}
	var err error
	if a.Offset, a.Limit, err = page(q, 50, 200); err != nil {
		return nil, err
	}
	match, err := newLockFilter(q)
	if err != nil {
		return nil, err
	}
	less, err := lockOrder(q)
	if err != nil {
		return nil, err
	}
	var kinds [6]int // by allKinds
	if err := c.index.with(func() {
		x := c.index
		x.showDeadlocks(v)
		seen := x.seenBy(v)
		a.Total = len(seen)
		top := topLocks{less: less, most: a.Offset + a.Limit}
		for _, l := range seen {
			kinds[l.kindIndex]++
			a.Waiting += l.waiting
			if match.matches(x, l, v) {
				a.Matched++
				top.add(l)
			}
		}
		a.fill(c, v, top.sorted(), now)
	}); err != nil {
		return nil, err
	}
	for kind, n := range kinds {
		a.Kinds[allKinds[kind]] = n
	}
	a.head = c.head(now)
	return a, nil
}

// seenBy returns the locks that v may see. Nothing else of the others may reach an answer, a count
// or a search. The index's mu is held.
func (x *index) seenBy(v *viewer) []*lock {
	all := make([]*lock, 0, len(x.locks))
	for _, l := range x.locks {
		all = append(all, l)
	}
	if v.super {
		return all
	}
	var seen []*lock
	for part := range slices.Chunk(all, walkStep) {
		x.view(func(store *znode.Store) {
			for _, l := range part {
				if v.seesLock(store, l) {
					seen = append(seen, l)
				}
			}
		})
	}
	return seen
}

func (v *viewer) seesLock(store *znode.Store, l *lock) bool {
	return len(l.queue) > 0 && v.sees(store, l.queue[0].Path+"/"+l.queue[0].Node)
}

func (a *locksAnswer) fill(c *Console, v *viewer, list []*lock, now time.Time) {
	c.View(func(store *znode.Store) {
		for _, l := range list[min(a.Offset, len(list)):] {
			a.Locks = append(a.Locks, c.index.row(l, store, v, now))
		}
	})
}

// lockFilter says which locks a table shows.
type lockFilter struct {
	search, kind, only, under string
	session                   int64
	bySession                 bool
}

func newLockFilter(q url.Values) (f lockFilter, err error) {
	f.search, f.under = strings.ToLower(q.Get("search")), strings.TrimSuffix(q.Get("under"), "/")
	f.session, f.bySession = sessionID(f.search)
	if f.kind, err = oneOf(q, "kind", allKinds...); err == nil {
		f.only, err = oneOf(q, "only", "waiting", "held", "trouble")
	}
	return f, err
}

// matches reports whether a lock that v may see matches, by the parts that v may read.
func (f *lockFilter) matches(x *index, l *lock, v *viewer) bool {
	switch {
	case f.kind != "" && l.kind != f.kind,
		f.only == "waiting" && l.waiting == 0,
		f.only == "held" && l.held == 0,
		f.only == "trouble" && len(x.troubleOf(l, v)) == 0,
		f.under != "" && l.path != f.under && !strings.HasPrefix(l.path, f.under+"/"):
		return false
	}
	if f.search == "" || strings.Contains(strings.ToLower(l.path), f.search) {
		return true
	}
	for i := range l.queue[:min(len(l.queue), searchMost)] {
		c := &l.queue[i]
		if f.bySession && c.Session == f.session || c.Library == f.search ||
			strings.HasPrefix(v.address(l.access[c.Path+"/"+c.Node], c.Session, l.addrs[c.Path+"/"+c.Node]), f.search) {
			return true
		}
		if v.may(l.access[c.Path+"/"+c.Node]) {
			note, who := says(c)
			if strings.Contains(strings.ToLower(note), f.search) || strings.Contains(strings.ToLower(who), f.search) {
				return true
			}
		}
	}
	return false
}

// searchMost bounds the contenders of a queue that are searched.
const searchMost = 100

// lockOrder returns the order of a table.
func lockOrder(q url.Values) (func(a, b *lock) int, error) {
	by, err := oneOf(q, "sort", "path", "waiting", "wait", "since")
	if err != nil {
		return nil, err
	}
	order, err := oneOf(q, "order", "asc", "desc")
	if err != nil {
		return nil, err
	}
	by = cmp.Or(by, "waiting")
	desc := order == "desc" || order == "" && by == "waiting" || order == "" && by == "wait"
	key := func(a, b *lock) int {
		switch by {
		case "waiting":
			return cmp.Compare(a.waiting, b.waiting)
		case "wait":
			return -compareTimes(a.oldest, b.oldest)
		case "since":
			return compareTimes(a.since, b.since)
		}
		return 0
	}
	return func(a, b *lock) int {
		n := key(a, b)
		if by == "path" {
			n = strings.Compare(a.path, b.path)
		}
		if desc {
			n = -n
		}
		return cmp.Or(n, strings.Compare(a.path, b.path))
	}, nil
}

// compareTimes orders times; none is later than all.
func compareTimes(a, b time.Time) int {
	switch {
	case a.IsZero() != b.IsZero():
		if a.IsZero() {
			return 1
		}
		return -1
	}
	return a.Compare(b)
}

// topLocks keeps the first locks of an order: it is a heap, the last of them at its top.
type topLocks struct {
	list []*lock
	less func(a, b *lock) int
	most int
}

func (t *topLocks) Len() int           { return len(t.list) }
func (t *topLocks) Less(i, j int) bool { return t.less(t.list[i], t.list[j]) > 0 }
func (t *topLocks) Swap(i, j int)      { t.list[i], t.list[j] = t.list[j], t.list[i] }

// Push implements heap.Interface.
func (t *topLocks) Push(l any) { t.list = append(t.list, l.(*lock)) }

// Pop implements heap.Interface.
func (t *topLocks) Pop() any {
	last := t.list[len(t.list)-1]
	t.list = t.list[:len(t.list)-1]
	return last
}

func (t *topLocks) add(l *lock) {
	switch {
	case len(t.list) < t.most:
		heap.Push(t, l)
	case t.most > 0 && t.less(l, t.list[0]) < 0:
		t.list[0] = l
		heap.Fix(t, 0)
	}
}

func (t *topLocks) sorted() []*lock {
	slices.SortFunc(t.list, t.less)
	return t.list
}

// row is a lock in a table. The index's mu is held.
func (x *index) row(l *lock, store *znode.Store, v *viewer, now time.Time) lockRow {
	r := lockRow{Path: l.path, Kind: l.kind, Held: l.held, Waiting: l.waiting, SinceAt: stamp(l.since),
		Holders: []holderRow{}, Trouble: orEmpty(x.troubleOf(l, v)), Libraries: []string{}}
	if !l.since.IsZero() {
		r.HeldMs = max(0, now.Sub(l.since).Milliseconds())
	}
	if !l.oldest.IsZero() {
		r.LongestWaitMs = max(0, now.Sub(l.oldest).Milliseconds())
	}
	if l.kind == kindSemaphore {
		r.Leases = leasesOf(store, l.path, v)
	}
	for i := range l.queue[:min(len(l.queue), searchMost)] {
		c := &l.queue[i]
		if c.Library != "" && !slices.Contains(r.Libraries, c.Library) {
			r.Libraries = append(r.Libraries, c.Library)
		}
		if !c.Held || len(r.Holders) == 3 {
			continue
		}
		h := holderRow{Node: c.Node, Session: ops.Hex(c.Session), Mode: modeOf(l, c), Token: c.Token,
			SinceAt: stamp(l.heads[keyOf(c)].at), SinceExact: l.heads[keyOf(c)].exact,
			Address: v.address(l.access[c.Path+"/"+c.Node], c.Session,
				store.Sessions().Addr(wire.SessionID(c.Session)))}
		if v.may(l.access[c.Path+"/"+c.Node]) {
			h.Note, h.Who = says(c)
		}
		if len(r.Holders) == 0 {
			r.Token = c.Token
		}
		r.Holders = append(r.Holders, h)
	}
	return r
}

// modeOf is the mode of a contender, as the API has it.
func modeOf(l *lock, c *locknode.Contender) string {
	if l.plain && c.Info == nil {
		return locknode.KindUnknown.String()
	}
	return c.Kind.String()
}

// leasesOf is the number of a semaphore's leases, if its library has written that down: kazoo and
// package recipes write the number as the data of a node.
func leasesOf(store *znode.Store, path string, v *viewer) *int {
	data, _, code := store.Get(path, v.readers())
	if code != wire.CodeOK || len(data) == 0 || len(data) > 9 {
		return nil
	}
	n := 0
	for _, b := range data {
		if b < '0' || b > '9' {
			return nil
		}
		n = n*10 + int(b-'0')
	}
	return &n
}

// superOnly are identities that may read everything.
var superOnly = []znode.Identity{{Scheme: "super"}}

// readers are the identities to read with.
func (v *viewer) readers() []znode.Identity {
	if v.super {
		return superOnly
	}
	return v.ids
}

type lockAnswer struct {
	head
	Lock     lockRow        `json:"lock"`
	Watches  int            `json:"watches"`
	Offset   int            `json:"offset"`
	Limit    int            `json:"limit"`
	Queue    []contenderRow `json:"queue"`
	Warnings []string       `json:"warnings"`
}

// lock answers with one lock and a page of its queue.
func (c *Console) lock(q url.Values, v *viewer, now time.Time) (any, error) {
	a := lockAnswer{Queue: []contenderRow{}}
	var err error
	if a.Offset, a.Limit, err = page(q, 100, 500); err != nil {
		return nil, err
	}
	path := q.Get("path")
	here := map[wire.SessionID]bool{}
	for _, s := range c.Sessions().Connections() {
		here[s.Session] = true
	}
	err = failf(http.StatusNotFound, "there is no lock %s", path)
	if full := c.index.with(func() {
		l := c.index.locks[path]
		if l == nil || len(l.queue) == 0 {
			return
		}
		c.index.showDeadlocks(v)
		c.View(func(store *znode.Store) {
			if !v.sees(store, l.queue[0].Path+"/"+l.queue[0].Node) {
				return
			}
			err = nil
			a.Lock = c.index.row(l, store, v, now)
			from := min(a.Offset, len(l.queue))
			for i := from; i < min(from+a.Limit, len(l.queue)); i++ {
				a.Queue = append(a.Queue, c.index.contenderRow(l, &l.queue[i], store, v, here, now))
			}
		})
		a.Warnings = warnings(l.queue)
	}); full != nil {
		err = full
	}
	if err != nil {
		return nil, err
	}
	a.Watches = c.Sessions().Watches().Watchers(path)
	a.head = c.head(now)
	return a, nil
}

func (x *index) contenderRow(l *lock, c *locknode.Contender, store *znode.Store, v *viewer,
	here map[wire.SessionID]bool, now time.Time,
) contenderRow {
	r := contenderRow{
		ownerRow: ownerRow{Path: c.Path, Node: c.Node, Session: ops.Hex(c.Session)}, Held: c.Held, MayHold: c.MayHold,
		Mode: modeOf(l, c), Token: c.Token, Layout: c.Layout, Library: c.Library, CreatedAt: stamp(c.Created),
		QueuedAt: stamp(c.Queued), Priority: c.Priority, Yielded: c.Yielded,
		Orphan: c.Orphan, MayIgnore: orEmpty(c.MayIgnore), Within: []string{},
		Deadlock: slices.Contains(v.deadlocked[l], c.Token),
	}
	if info, ok := store.Sessions().Get(wire.SessionID(c.Session)); ok {
		r.Address, r.TimeoutMs = v.address(l.access[c.Path+"/"+c.Node], c.Session, info.Addr), info.TimeoutMs
	}
	if here[wire.SessionID(c.Session)] {
		yes := true
		r.Connected = &yes
	}
	if c.Held {
		r.SinceAt, r.SinceExact = stamp(l.heads[keyOf(c)].at), l.heads[keyOf(c)].exact
	} else {
		r.WaitMs = max(0, now.Sub(c.Queued).Milliseconds())
	}
	if v.may(l.access[c.Path+"/"+c.Node]) {
		r.Note, r.Who = says(c)
		r.Data = newBlob(c.Data, dataMax)
		for _, s := range c.Info.WithinSessions() {
			r.Within = append(r.Within, ops.Hex(s))
		}
	}
	return r
}
