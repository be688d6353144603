package console

import (
	"cmp"
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

type sessionRow struct {
	Session string `json:"session"`
	named
	TimeoutMs   int32  `json:"timeoutMs"`
	Generation  uint64 `json:"generation"`
	Ephemerals  *int   `json:"ephemerals"` // nil: v may not see all nodes
	Here        bool   `json:"here"`
	*connection        // null fields if it is elsewhere
	LeftMs      *int64 `json:"leftMs"`
	id          wire.SessionID
}

type connection struct {
	ConnectedAt  stamp   `json:"connectedAt"`
	LastHeardMs  int64   `json:"lastHeardMs"`
	Received     int64   `json:"received"`
	Sent         int64   `json:"sent"`
	Queued       int     `json:"queued"`
	UnsentBytes  int     `json:"unsentBytes"`
	Watches      *int    `json:"watches"` // nil as ephemerals
	AvgLatencyMs float64 `json:"avgLatencyMs"`
	MaxLatencyMs int64   `json:"maxLatencyMs"`
	LastOp       string  `json:"lastOp"`
}

type sessionsAnswer struct {
	head
	Total    int          `json:"total"`
	Matched  int          `json:"matched"`
	Here     int          `json:"here"`
	Offset   int          `json:"offset"`
	Limit    int          `json:"limit"`
	Sessions []sessionRow `json:"sessions"`
}

// sessionStep is the number of sessions that are read under one lock of the state.
const sessionStep = 2000

// sessions answers with a page of the sessions that match.
func (c *Console) sessions(q url.Values, v *viewer, now time.Time) (any, error) {
	a := sessionsAnswer{}
	var err error
	if a.Offset, a.Limit, err = page(q, 50, 200); err != nil {
		return nil, err
	}
	order, err := sessionOrder(q)
	if err != nil {
		return nil, err
	}
	only, err := oneOf(q, "only", "here")
	if err != nil {
		return nil, err
	}
	search := strings.ToLower(q.Get("search"))
	all := c.seesAllNodes(v)
	here := c.connections(now, all)
	left := c.left(now)
	var list []sessionRow
	for at := 0; at >= 0; {
		var infos []znode.SessionInfo
		c.View(func(store *znode.Store) {
			infos, at = store.Sessions().From(at, sessionStep)
			a.Total = store.Counts().Sessions
		})
		for i := range infos {
			r := v.sessionRow(&infos[i], here, left, all)
			if r.Here {
				a.Here++
			}
			if only == "here" && !r.Here || search != "" && !strings.Contains(r.Session, search) &&
				!strings.HasPrefix(r.Address, search) {
				continue
			}
			a.Matched++
			list = append(list, r)
		}
		if len(list) > 2*(a.Offset+a.Limit)+sessionStep {
			slices.SortFunc(list, order)
			list = list[:min(len(list), a.Offset+a.Limit)]
		}
	}
	slices.SortFunc(list, order)
	from := min(a.Offset, len(list))
	a.Sessions = append([]sessionRow{}, list[from:min(len(list), from+a.Limit)]...)
	c.nameSessions(a.Sessions, v)
	a.head = c.head(now)
	return a, nil
}

// nameSessions fills in the names of the sessions. If the locks do not fit into the index, that is
// their address alone.
func (c *Console) nameSessions(rows []sessionRow, v *viewer) {
	_ = c.index.with(func() {
		for i := range rows {
			c.View(func(store *znode.Store) { rows[i].named = c.index.nameOf(store, v, int64(rows[i].id)) })
		}
	})
}

func sessionOrder(q url.Values) (func(a, b sessionRow) int, error) {
	by, err := oneOf(q, "sort", "session", "ephemerals", "watches", "received", "left")
	if err != nil {
		return nil, err
	}
	order, err := oneOf(q, "order", "asc", "desc")
	if err != nil {
		return nil, err
	}
	by = cmp.Or(by, "ephemerals")
	number := func(r *sessionRow) int64 {
		switch {
		case by == "ephemerals" && r.Ephemerals != nil:
			return int64(*r.Ephemerals)
		case by == "watches" && r.connection != nil && r.Watches != nil:
			return int64(*r.Watches)
		case by == "received" && r.connection != nil:
			return r.Received
		case by == "left" && r.LeftMs != nil:
			return *r.LeftMs
		}
		return -1
	}
	desc := order == "desc" || order == "" && by != "session" && by != "left"
	return func(a, b sessionRow) int {
		n := cmp.Compare(number(&a), number(&b))
		id := cmp.Compare(uint64(a.id), uint64(b.id))
		if by == "session" {
			n = id
		}
		if desc {
			n = -n
		}
		return cmp.Or(n, id)
	}, nil
}

// seesAllNodes reports whether v may know of every node, so that totals tell it nothing that an ACL
// hides.
func (c *Console) seesAllNodes(v *viewer) (all bool) {
	c.View(func(store *znode.Store) { all = v.super || store.AllReadable() })
	return all
}

// total is n for those who may know it.
func total(n int, all bool) *int {
	if !all {
		return nil
	}
	return &n
}

// connections are the connections to this member, by session; all is seesAllNodes.
func (c *Console) connections(now time.Time, all bool) map[wire.SessionID]*connection {
	here := map[wire.SessionID]*connection{}
	for _, s := range c.Sessions().Connections() {
		here[s.Session] = &connection{
			ConnectedAt: stamp(s.Established), LastHeardMs: max(0, now.Sub(s.LastHeard).Milliseconds()),
			Received: s.Received,
			Sent:     s.Sent, Queued: s.Queued, UnsentBytes: s.Unsent, Watches: total(s.Watches, all),
			AvgLatencyMs: s.Latency.AvgMs(), MaxLatencyMs: s.Latency.MaxMs, LastOp: s.LastOp.String(),
		}
	}
	return here
}

// left is how long each session has until it expires, if this member leads.
func (c *Console) left(now time.Time) map[wire.SessionID]int64 {
	deadlines, leads := c.Sessions().Deadlines()
	if !leads {
		return nil
	}
	left := make(map[wire.SessionID]int64, len(deadlines))
	for _, d := range deadlines {
		left[d.Session] = max(0, d.At.Sub(now).Milliseconds())
	}
	return left
}

func (v *viewer) sessionRow(info *znode.SessionInfo, here map[wire.SessionID]*connection, left map[wire.SessionID]int64,
	all bool,
) sessionRow {
	r := sessionRow{Session: ops.Hex(info.ID), named: named{Address: v.withPort(info.ID, info.Addr)},
		TimeoutMs: info.TimeoutMs, Generation: info.Generation,
		Ephemerals: total(info.Ephemerals, all), id: info.ID}
	r.connection = here[info.ID]
	r.Here = r.connection != nil
	if ms, ok := left[info.ID]; ok {
		r.LeftMs = &ms
	}
	return r
}

type pathList struct {
	Total int      `json:"total"`
	Paths []string `json:"paths"`
}

type sessionAnswer struct {
	head
	Session    sessionRow `json:"session"`
	Identities []string   `json:"identities"`
	Ephemerals pathList   `json:"ephemerals"`
	Watches    *pathList  `json:"watches"`
	Holds      []string   `json:"holds"`
	Waits      []string   `json:"waits"`
	// WaitsFor has for whom it waits, at each of Waits.
	WaitsFor []sessionLock `json:"waitsFor"`
}

// session answers with one session.
func (c *Console) session(q url.Values, v *viewer, now time.Time) (any, error) {
	offset, limit, err := page(q, 100, 500)
	if err != nil {
		return nil, err
	}
	n, ok := sessionID(q.Get("id"))
	if !ok {
		return nil, failf(http.StatusBadRequest, "id is %q, and should be a session like 0x100004a2b3c0001",
			q.Get("id"))
	}
	id := wire.SessionID(n)
	var info znode.SessionInfo
	var paths []string
	c.View(func(store *znode.Store) {
		if info, ok = store.Sessions().Get(id); ok {
			paths = store.Ephemerals(id)
		}
	})
	if !ok {
		return nil, failf(http.StatusNotFound, "there is no session %s", q.Get("id"))
	}
	all := c.seesAllNodes(v)
	a := sessionAnswer{Session: v.sessionRow(&info, c.connections(now, all), c.left(now), all), Identities: []string{}}
	if v.super {
		a.Identities = identityTexts(append([]znode.Identity{{Scheme: "ip", ID: info.Addr}}, info.Identities...))
	}
	a.Ephemerals = c.visible(paths, v, offset, limit)
	if a.Session.Here {
		w := c.visible(c.Sessions().WatchedBy(id), v, offset, limit)
		a.Watches = &w
	}
	if err = c.contends(&a, n, v); err != nil {
		return nil, err
	}
	rows := []sessionRow{a.Session}
	c.nameSessions(rows, v)
	a.Session = rows[0]
	a.head = c.head(now)
	return a, nil
}

// visible is a page of those paths that v may see, which alone count.
func (c *Console) visible(paths []string, v *viewer, offset, limit int) pathList {
	seen := paths
	if !v.super {
		seen = nil
		for part := range slices.Chunk(paths, walkStep) {
			c.View(func(store *znode.Store) {
				for _, path := range part {
					if v.sees(store, path) {
						seen = append(seen, path)
					}
				}
			})
		}
	}
	from := min(offset, len(seen))
	return pathList{Total: len(seen), Paths: append([]string{}, seen[from:min(len(seen), from+limit)]...)}
}

// contends fills in the locks that a session holds, and those that it waits for, of those that its
// nodes belong to.
func (c *Console) contends(a *sessionAnswer, session int64, v *viewer) error {
	a.Holds, a.Waits, a.WaitsFor = []string{}, []string{}, []sessionLock{}
	return c.index.with(func() {
		for _, path := range a.Ephemerals.Paths {
			l := c.index.where[path]
			if l == nil || slices.Contains(a.Holds, l.path) || slices.Contains(a.Waits, l.path) {
				continue
			}
			if slices.ContainsFunc(l.queue, func(o locknode.Contender) bool { return o.Session == session && o.Held }) {
				a.Holds = append(a.Holds, l.path)
				continue
			}
			a.Waits = append(a.Waits, l.path)
			c.View(func(store *znode.Store) { a.WaitsFor = append(a.WaitsFor, c.index.behind(store, v, l, session)) })
		}
	})
}
