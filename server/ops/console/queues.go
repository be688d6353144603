package console

import (
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"lockkeeper/locknode"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// queueRow is a lock with a part of its queue.
type queueRow struct {
	Lock     lockRow        `json:"lock"`
	Offset   int            `json:"offset"` // in the queue, of the first in Queue
	Queue    []contenderRow `json:"queue"`
	Warnings []string       `json:"warnings"`
}

// queuePlace is where an answer begins: in the queue of a lock.
type queuePlace struct {
	From   string `json:"from"`
	Offset int    `json:"offset"`
}

type queuesAnswer struct {
	head
	Locks []queueRow  `json:"locks"`
	Next  *queuePlace `json:"next"` // where the next answer goes on; nil: this is the last one
}

const (
	// queueStep is the number of contenders that are looked up under one lock of the state.
	queueStep = 100
	// queuesBytes is about the largest size of an answer: clients refuse more than 1 MB.
	queuesBytes = 256 << 10
)

// queues answers with all locks at and below a path, in the order of their paths, and their queues,
// from a place on: as much as fits into an answer. Ephemeral nodes that are no lock of a known
// library, such as those by which members of a service are found, are left out.
func (c *Console) queues(q url.Values, v *viewer, now time.Time) (any, error) {
	under := strings.TrimSuffix(q.Get("under"), "/")
	at := queuePlace{From: q.Get("from")}
	var err error
	if at.Offset, err = number(q, "offset", 0, 1<<30); err != nil {
		return nil, err
	}
	limit, err := number(q, "limit", 500, 1000)
	if err != nil {
		return nil, err
	}
	hidden := false
	c.View(func(store *znode.Store) {
		// Of a node below one that may not be read nobody is told whether it is there.
		if under != "" && v.sees(store, under) {
			_, code := store.Exists(under, v.readers())
			hidden = code == wire.CodeNoAuth
		}
	})
	if hidden {
		return nil, failf(http.StatusForbidden, "%s may not be read", under)
	}
	here := map[wire.SessionID]bool{}
	for _, s := range c.Sessions().Connections() {
		here[s.Session] = true
	}
	a := queuesAnswer{Locks: []queueRow{}}
	if err := c.index.with(func() {
		c.index.showDeadlocks(v)
		list := c.index.after(under, at.From, limit+1)
		f := queueFill{a: &a, x: c.index, v: v, here: here, now: now, left: limit}
		for i, l := range list {
			if i == limit || !f.add(l, at) {
				a.Next = &f.next
				if i == limit {
					a.Next = &queuePlace{From: l.path}
				}
				break
			}
		}
	}); err != nil {
		return nil, err
	}
	a.head = c.head(now)
	return a, nil
}

// after returns the first n locks at and below a path, from another path on, in the order of their
// paths. The index's mu is held.
func (x *index) after(under, from string, n int) []*lock {
	top := topLocks{less: func(a, b *lock) int { return strings.Compare(a.path, b.path) }, most: n}
	for _, l := range x.locks {
		if l.kind != kindEphemeral && len(l.queue) > 0 && l.path >= from && l.isAt(under) {
			top.add(l)
		}
	}
	return top.sorted()
}

// isAt reports whether a lock is at or below a path, or the path names one of its queues or nodes.
func (l *lock) isAt(path string) bool {
	if isUnder(l.path, path) {
		return true
	}
	return strings.HasPrefix(path, l.path) && slices.ContainsFunc(l.queue, func(c locknode.Contender) bool {
		return isUnder(c.Path+"/"+c.Node, path)
	})
}

func isUnder(path, under string) bool {
	return under == "" || path == under || strings.HasPrefix(path, under+"/")
}

// queueFill fills an answer with queues.
type queueFill struct {
	a    *queuesAnswer
	x    *index
	v    *viewer
	here map[wire.SessionID]bool
	now  time.Time
	left int // contenders that fit
	size int // bytes of those that are there, about
	next queuePlace
}

// add adds a lock, if v may see it; false if not all of its queue fits, and next is the place of
// the first that does not.
func (f *queueFill) add(l *lock, at queuePlace) (whole bool) {
	row := queueRow{Queue: []contenderRow{}}
	if at.From == l.path {
		row.Offset = min(at.Offset, len(l.queue))
	}
	seen := false
	f.x.view(func(store *znode.Store) {
		if seen = f.v.seesLock(store, l); seen {
			row.Lock = f.x.row(l, store, f.v, f.now)
		}
	})
	if !seen {
		return true
	}
	row.Warnings = warnings(l.queue)
	i := row.Offset
	for full := false; i < len(l.queue) && !full; {
		f.x.view(func(store *znode.Store) {
			for to := min(i+queueStep, len(l.queue)); i < to; i++ {
				if full = f.left == 0 || f.size > queuesBytes; full {
					return
				}
				c := f.x.contenderRow(l, &l.queue[i], store, f.v, f.here, f.now)
				row.Queue = append(row.Queue, c)
				f.left--
				f.size += jsonBytes(reflect.ValueOf(c))
			}
		})
	}
	if len(row.Queue) > 0 || i == len(l.queue) {
		f.a.Locks = append(f.a.Locks, row)
	}
	f.next = queuePlace{From: l.path, Offset: i}
	return i == len(l.queue)
}
