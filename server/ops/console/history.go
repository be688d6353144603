package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"time"

	"lockkeeper/locknode"
	"lockkeeper/server/ops"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Hold is that a contender held a lock for a while.
type Hold struct {
	Node      string `json:"node"`
	Session   string `json:"session"`
	Mode      string `json:"mode"`
	Token     int64  `json:"token"`
	QueuedAt  stamp  `json:"queuedAt"`
	FromAt    stamp  `json:"fromAt"`
	FromExact bool   `json:"fromExact"`
	ToAt      stamp  `json:"toAt"`
	End       *End   `json:"end"`
	EndedBy   string `json:"endedBy,omitempty"`
	EndZxid   string `json:"endZxid,omitempty"`
	WaitedMs  int64  `json:"waitedMs"`
	HeldMs    int64  `json:"heldMs"`
	Note      string `json:"note"`
	Who       string `json:"who"`
	Address   string `json:"address"`
}

// quitter is a contender that left before it held.
type quitter struct {
	Node     string `json:"node"`
	Session  string `json:"session"`
	Note     string `json:"note"`
	Who      string `json:"who"`
	Address  string `json:"address"`
	QueuedAt stamp  `json:"queuedAt"`
	ToAt     stamp  `json:"toAt"`
	End      End    `json:"end"`
	EndedBy  string `json:"endedBy"`
}

type historyAnswer struct {
	head
	Path       string `json:"path"`
	Kind       string `json:"kind"`
	Enabled    bool   `json:"enabled"`
	BeginsAt   stamp  `json:"beginsAt"`
	BeginsZxid string `json:"beginsZxid"`
	BeginsWhy  string `json:"beginsWhy"`
	Truncated  bool   `json:"truncated"`
	// Hidden: the lock is gone with its parent, so that no ACL says who may read its history.
	Hidden  bool       `json:"hidden"`
	Holds   []Hold     `json:"holds"`
	Quit    []quitter  `json:"quit"`
	Waiters [][2]int64 `json:"waiters"`
}

// replayWait is how long a history waits for the histories of others.
const replayWait = time.Second

// history answers who held a lock from when to when.
func (c *Console) history(q url.Values, v *viewer, now time.Time) (any, error) {
	limit, err := number(q, "limit", 200, 1000)
	if err != nil {
		return nil, err
	}
	var bounds [2]time.Time
	for i, name := range []string{"from", "to"} {
		if text := q.Get(name); text != "" {
			if bounds[i], err = time.Parse(time.RFC3339Nano, text); err != nil {
				return nil, failf(http.StatusBadRequest, "%s is %q, and should be an instant like 2026-11-21T14:00:00Z",
					name, text)
			}
		}
	}
	a := historyAnswer{Path: q.Get("path"), Enabled: c.Config().Console.HistoryBytes > 0}
	r := replay{path: a.Path, viewer: v, viewing: c.View}
	if a.Path == "" {
		return nil, failf(http.StatusBadRequest, "path is missing")
	}
	// One replay at a time has its copy of the events.
	turn := time.NewTimer(replayWait)
	defer turn.Stop()
	select {
	case c.replays <- struct{}{}:
		defer func() { <-c.replays }()
	case <-turn.C:
		return nil, failf(http.StatusServiceUnavailable, "the histories of other locks are being replayed; try again")
	case <-v.ctx.Done():
		return nil, v.ctx.Err()
	}
	if err := c.index.with(func() {
		r.start(c.index)
		if l := c.index.locks[a.Path]; l != nil {
			a.Kind = l.kind
		}
	}); err != nil {
		return nil, err
	}
	a.BeginsAt, a.BeginsZxid, a.BeginsWhy = stamp(instant(r.begin.TimeMs)), ops.Hex(r.begin.Zxid), r.begin.Why
	switch {
	case r.hidden && !r.gone:
		return nil, failf(http.StatusForbidden, "%s may not be read", a.Path)
	case r.hidden:
		a.Hidden = true
	default:
		if err := r.run(); err != nil {
			return nil, err
		}
	}
	if a.Kind == "" {
		a.Kind = cmp.Or(r.kind, kindUnknown)
	}
	a.fill(&r, limit, bounds, now)
	a.head = c.head(now)
	return a, nil
}

func (a *historyAnswer) fill(r *replay, limit int, bounds [2]time.Time, now time.Time) {
	a.Holds, a.Quit, a.Waiters = []Hold{}, []quitter{}, [][2]int64{}
	within := func(from, to stamp) bool {
		end := time.Time(to)
		return (bounds[1].IsZero() || !time.Time(from).After(bounds[1])) &&
			(bounds[0].IsZero() || end.IsZero() || !end.Before(bounds[0]))
	}
	for _, h := range r.holds {
		if within(h.FromAt, h.ToAt) {
			if end := time.Time(h.ToAt); end.IsZero() {
				h.HeldMs = max(0, now.Sub(time.Time(h.FromAt)).Milliseconds())
			}
			a.Holds = append(a.Holds, *h)
		}
	}
	for _, q := range r.quit {
		if within(q.QueuedAt, q.ToAt) {
			a.Quit = append(a.Quit, q)
		}
	}
	if over := len(a.Holds) - limit; over > 0 {
		a.Holds, a.Truncated = a.Holds[over:], true
	}
	if over := len(a.Quit) - limit; over > 0 {
		a.Quit, a.Truncated = a.Quit[over:], true
	}
	a.Waiters = thinOut(r.waiters, 1000)
}

// thinOut returns at most most points of a curve, each the maximum of those that it stands for.
func thinOut(points [][2]int64, most int) [][2]int64 {
	if len(points) <= most {
		return append([][2]int64{}, points...)
	}
	each := (len(points) + most - 1) / most
	var list [][2]int64
	for part := range slices.Chunk(points, each) {
		highest := slices.MaxFunc(part, func(a, b [2]int64) int { return cmp.Compare(a[1], b[1]) })
		list = append(list, [2]int64{part[0][0], highest[1]})
	}
	return list
}

// replay replays the events of one lock.
//
// The contenders that were there when the history begins are those that are there now and were
// made before, and those that went since and were made before: an event of a deletion says when its
// node was made. So the queue is complete from the beginning on; only since when its first holders
// had held is not known.
type replay struct {
	path    string
	viewer  *viewer
	viewing func(func(*znode.Store))
	begin   Begin
	hidden  bool
	gone    bool // the parent of path is not there, so that no ACL says who may read it
	kind    string

	events  []event // of the lock, in order
	present []locknode.Contender
	access  map[string]*znode.Access
	addrs   map[string]string

	all     []locknode.Contender // the queue, in the order of creation
	queued  map[string]bool      // the paths of all
	holding map[string]*Hold     // by node
	holds   []*Hold
	quit    []quitter
	waiters [][2]int64
}

// start collects the input of the replay. The index's mu is held.
func (r *replay) start(x *index) {
	events, begin := x.rec.all()
	r.begin = begin
	for _, part := range events {
		for i := range part {
			e := &part[i]
			if e.zxid > x.zxid && x.zxid != 0 || !r.mayBeOf(e.path) {
				continue
			}
			if at, _ := locknode.Place(e.path, x.isSemaphore); at == r.path {
				r.events = append(r.events, *e)
			}
		}
	}
	r.access, r.addrs = map[string]*znode.Access{}, map[string]string{}
	l := x.locks[r.path]
	if l != nil {
		r.present = slices.Clone(l.all)
		for path, a := range l.access {
			r.access[path] = a
		}
		for path, a := range l.addrs {
			r.addrs[path] = a
		}
	}
	x.view(func(store *znode.Store) {
		if begin.Why == "" { // nothing has happened since the start
			r.begin = Begin{TimeMs: store.TimeMs(), Zxid: store.Zxid(), Why: beganAtStart}
		}
		r.hidden = !r.viewer.sees(store, r.path) && !r.viewer.super
		dir, _ := locknode.Split(r.path)
		_, there := store.AccessOf(dir)
		r.gone = !there
		if a, ok := store.AccessOf(r.path); ok && !r.viewer.super && (l == nil || !l.plain) {
			r.hidden = !r.viewer.may(a)
		}
	})
}

// mayBeOf is a quick test for Place.
func (r *replay) mayBeOf(path string) bool {
	return len(path) >= len(r.path) && path[:len(r.path)] == r.path
}

// run plays the events. It rests as long as it works, and gives up when nobody waits for the
// answer.
func (r *replay) run() error {
	r.holding, r.queued = map[string]*Hold{}, map[string]bool{}
	made := map[string]bool{} // within the history, by path and token
	key := func(path string, czxid wire.Zxid) string { return path + ops.Hex(czxid) }
	for i := range r.events {
		if e := &r.events[i]; e.kind == created {
			made[key(e.path, e.czxid)] = true
		}
	}
	before := map[string]bool{}
	add := func(c locknode.Contender) {
		k := key(c.Path+"/"+c.Node, wire.Zxid(c.Token))
		if !made[k] && !before[k] {
			before[k] = true
			r.queued[c.Path+"/"+c.Node] = true
			r.all = append(r.all, c)
		}
	}
	for i := range r.events {
		if e := &r.events[i]; e.kind == deleted {
			dir, name := locknode.Split(e.path)
			add(locknode.New(dir, name, int64(e.owner), instant(e.ctimeMs), int64(e.czxid), nil))
		}
	}
	for _, c := range r.present {
		add(c)
	}
	slices.SortFunc(r.all, func(a, b locknode.Contender) int { return cmp.Compare(a.Token, b.Token) })
	r.judge(r.begin.TimeMs, false)
	began := time.Now()
	for i := range r.events {
		if worked := time.Since(began); worked > replaySlice {
			select {
			case <-r.viewer.ctx.Done():
				return r.viewer.ctx.Err()
			case <-time.After(worked):
			}
			began = time.Now()
		}
		r.play(&r.events[i])
	}
	return nil
}

// replaySlice is how long a replay works at a time.
const replaySlice = 5 * time.Millisecond

func (r *replay) play(e *event) {
	dir, name := locknode.Split(e.path)
	i := -1
	if r.queued[e.path] { // most often the first, or one of the last
		i = slices.IndexFunc(r.all, func(c locknode.Contender) bool { return c.Node == name && c.Path == dir })
	}
	switch e.kind {
	case created:
		r.access[e.path], r.addrs[e.path] = e.access, e.addr
		if i < 0 {
			r.queued[e.path] = true
			r.all = append(r.all, locknode.New(dir, name, int64(e.owner), instant(e.ctimeMs), int64(e.czxid), e.data))
		}
	case changed:
		if i >= 0 {
			c := r.all[i]
			r.all[i] = locknode.New(dir, name, c.Session, c.Created, c.Token, e.data)
		}
	case deleted:
		if i < 0 {
			return
		}
		r.ended(&r.all[i], e)
		delete(r.queued, e.path)
		if i == 0 {
			r.all = r.all[1:]
		} else {
			r.all = slices.Delete(r.all, i, i+1)
		}
	}
	r.judge(e.timeMs, true)
}

// ended notes the end of a contender.
func (r *replay) ended(c *locknode.Contender, e *event) {
	at := stamp(instant(e.timeMs))
	h := r.holding[c.Node]
	if h == nil {
		q := quitter{Node: c.Node, Session: ops.Hex(c.Session), QueuedAt: stamp(c.Created),
			ToAt: at, End: e.end, EndedBy: ops.Hex(e.by),
			Address: r.viewer.address(r.access[e.path], c.Session, r.addrs[e.path])}
		if r.viewer.may(r.access[e.path]) {
			q.Note, q.Who = says(c)
		}
		r.quit = append(r.quit, q)
		return
	}
	end := e.end
	h.ToAt, h.End, h.EndedBy, h.EndZxid = at, &end, ops.Hex(e.by), ops.Hex(e.zxid)
	h.HeldMs = max(0, time.Time(at).Sub(time.Time(h.FromAt)).Milliseconds())
	delete(r.holding, c.Node)
}

// judge notes who holds from now on, and the number of waiters. It looks at a few contenders at the
// head of the queue, for those behind them do not hold; at more of them if all of these do, or if
// they may be the leases of a semaphore.
func (r *replay) judge(atMs int64, exact bool) {
	queue, waiting := r.resolve(judgeFew)
	if r.kind == kindSemaphore || waiting > 0 &&
		!slices.ContainsFunc(queue, func(c locknode.Contender) bool { return !c.Held }) {
		queue, waiting = r.resolve(judgeMost)
	}
	for i := range queue {
		c := &queue[i]
		if !c.Held {
			waiting++
			continue
		}
		if r.holding[c.Node] != nil {
			continue
		}
		from := instant(atMs)
		path := c.Path + "/" + c.Node
		h := &Hold{Node: c.Node, Session: ops.Hex(c.Session), Mode: c.Kind.String(), Token: c.Token,
			QueuedAt: stamp(c.Created), FromAt: stamp(from), FromExact: exact,
			Address: r.viewer.address(r.access[path], c.Session, r.addrs[path])}
		if exact {
			h.WaitedMs = max(0, from.Sub(c.Created).Milliseconds())
		}
		if r.viewer.may(r.access[path]) {
			h.Note, h.Who = says(c)
		}
		r.holding[c.Node] = h
		r.holds = append(r.holds, h)
	}
	if n := len(r.waiters); n == 0 || r.waiters[n-1][1] != int64(waiting) {
		r.waiters = append(r.waiters, [2]int64{atMs, int64(waiting)})
	}
}

// Numbers of contenders at the head of a queue that are looked at for each event of a replay.
const (
	judgeFew  = 8
	judgeMost = 256
)

// resolve finds out who of the first contenders holds, and returns the number of the others.
func (r *replay) resolve(most int) (queue []locknode.Contender, others int) {
	queue = slices.Clone(r.all[:min(len(r.all), most)])
	others = len(r.all) - len(queue)
	if len(queue) == 0 {
		return queue, others
	}
	if !locknode.Contends(queue[0].Node) {
		r.kind = kindEphemeral
		for i := range queue {
			queue[i] = locknode.Plain(queue[i])
		}
		return queue, others
	}
	queue = locknode.Resolve(locknode.Sorted(r.path, queue))
	if r.kind != kindSemaphore {
		r.kind = kindOf(&lock{all: queue})
	}
	return queue, others
}
