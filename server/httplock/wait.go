package httplock

import (
	"context"
	"errors"
	"slices"
	"time"

	"lockkeeper/locknode"
	"lockkeeper/server/ops"
	"lockkeeper/wire"
)

// holdersMost is the number of holders that a situation names, at most.
const holdersMost = 8

// situation says who is in front of a contender that waits, as far as the queue and the nodes in
// front tell, and as OnWait of package recipes does.
type situation struct {
	// Ahead is the number of contenders that have to be gone before it is the contender's turn.
	Ahead   int     `json:"ahead"`
	Holders []other `json:"holders"`
	// Next is the contender next before it, which may hold the lock; nil if it waits for any of the
	// holders.
	Next *other `json:"next"`
	// HasYielded is how often the contender has let more urgent ones go first.
	HasYielded int `json:"hasYielded,omitempty"`
}

// other is another contender. Its fields have the names of the console's.
type other struct {
	Node     string `json:"node"`
	Session  string `json:"session"`
	Held     bool   `json:"held"`
	MayHold  bool   `json:"mayHold,omitempty"`
	Mode     string `json:"mode"`
	Token    int64  `json:"token"`
	Priority int    `json:"priority,omitempty"`
	Yielded  bool   `json:"yielded,omitempty"`
	Library  string `json:"library,omitempty"`
	QueuedAt string `json:"queuedAt"`
	Note     string `json:"note,omitempty"`
	Who      string `json:"who,omitempty"`
}

// instant is the layout of a time in an answer, as in the console's API.
const instant = "2006-01-02T15:04:05.000Z07:00"

func newOther(c *locknode.Contender) *other {
	if c == nil {
		return nil
	}
	o := &other{Node: c.Node, Session: ops.Hex(c.Session), Held: c.Held, MayHold: c.MayHold, Mode: c.Kind.String(),
		Token: c.Token, Priority: c.Priority, Yielded: c.Yielded, Library: c.Library,
		QueuedAt: c.Queued.UTC().Format(instant)}
	if c.Info == nil {
		o.Who = c.Identifier()
	} else {
		o.Note, o.Who = c.Info.Note, c.Info.Who()
	}
	return o
}

// Time between two lines without a change: it doubles from one to the next, as with OnWait.
const (
	firstPause = 10 * time.Second
	lastPause  = 10 * time.Minute
)

// report tells the user of a lock about the wait, if send is not nil.
type report struct {
	send   func(node string, s *situation) error
	began  bool
	next   string // the node that was next before the contender's at the last line, if one began
	pause  time.Duration
	at     time.Time // of the next line, without a change
	yields int       // so far
}

// yielded counts a yield.
func (r *report) yielded() {
	if r != nil {
		r.yields++
	}
}

// errDue says that it is time for a line.
var errDue = errors.New("httplock: a line about the wait is due")

// tell sends a line if there is news. node is the contender's, and next the one that it waits for.
func (r *report) tell(ctx context.Context, node, next string, explain func(context.Context) (*situation, error)) error {
	if r == nil || r.send == nil || r.began && r.next == next && time.Now().Before(r.at) {
		return nil
	}
	s, err := explain(ctx)
	if err != nil {
		return err
	}
	if !r.began || r.next != next {
		r.began, r.next, r.pause = true, next, firstPause
	}
	s.HasYielded = r.yields
	if err := r.send(node, s); err != nil {
		return err
	}
	r.at = time.Now().Add(r.pause)
	r.pause = min(2*r.pause, lastPause)
	return nil
}

// untilDue is ctx until the next line is due; its cause is errDue then.
func (r *report) untilDue(ctx context.Context) (context.Context, context.CancelFunc) {
	if r == nil || r.send == nil {
		return ctx, func() {}
	}
	return context.WithDeadlineCause(ctx, r.at, errDue)
}

// awaitEvent waits for a change of a watched node. The contender waits for the node next, and
// explain says who is in front.
func (k *contender) awaitEvent(ctx context.Context, next string, explain func(context.Context) (*situation, error),
) error {
	if err := k.report.tell(ctx, k.name(), next, explain); err != nil {
		return err
	}
	due, over := k.report.untilDue(ctx)
	defer over()
	for len(k.events) == 0 {
		switch err := k.step(due); {
		case errors.Is(err, errDue):
			return nil
		case errors.Is(err, errWaited):
			return k.over(ctx, next, explain)
		case err != nil:
			return err
		}
	}
	return nil
}

// explainPatience bounds the time for the explanation of a refusal.
const explainPatience = time.Second

// over is the refusal after a wait.
func (k *contender) over(ctx context.Context, next string, explain func(context.Context) (*situation, error)) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), explainPatience)
	defer cancel()
	r := &refusal{status: locked, text: errWaited.Error(), behind: next}
	if s, err := explain(ctx); err == nil {
		s.HasYielded = k.report.yields
		r.situation = s
	}
	return r
}

// behind is the situation of a contender that waits for the node front of its queue, or for a lease
// on the path of its lock. st is front's.
func (k *contender) behind(ctx context.Context, front string, st *wire.Stat) (*situation, error) {
	s, paths, err := k.ahead(ctx)
	if err != nil {
		return nil, err
	}
	next := k.dir + "/" + front // a lease may be below it
	paths = slices.DeleteFunc(paths, func(path string) bool { return path == next })
	others, err := k.read(ctx, paths)
	if err != nil {
		return nil, err
	}
	last, err := k.read(ctx, []string{next})
	if err != nil {
		return nil, err
	}
	if len(last) == 0 { // it has gone, or it may not be read
		last = append(last, locknode.New(k.dir, front, int64(st.EphemeralOwner), time.UnixMilli(st.Ctime),
			int64(st.Czxid), nil))
	}
	holders, before, merged := locknode.Explain(k.lock, others, last[0], holdersMost)
	s.Ahead = max(1, s.Ahead-merged)
	for i := range holders {
		s.Holders = append(s.Holders, *newOther(&holders[i]))
	}
	s.Next = newOther(before)
	return s, nil
}

// ahead counts the contenders in front, and returns the paths of those that may hold the lock.
func (k *contender) ahead(ctx context.Context) (s *situation, paths []string, err error) {
	s = &situation{Holders: []other{}}
	isGate := k.dir != k.lock // of a semaphore
	err = k.list(ctx, k.dir, false, func(names []string) {
		queue := locknode.Ahead(names, k.name(), k.passed)
		if s.Ahead = len(queue); isGate {
			queue = queue[:min(len(queue), 1)] // the newest lease may be its
		}
		paths = someOf(k.dir, locknode.AtFront(queue))
	})
	if err != nil || !isGate {
		return s, paths, err
	}
	err = k.list(ctx, locknode.LeasesPath(k.lock), false, func(names []string) {
		s.Ahead += len(names)
		locknode.SortNames(names)
		paths = append(paths, someOf(locknode.LeasesPath(k.lock), names)...)
	})
	return s, paths, err
}

// someOf returns the paths of the first nodes, and of the last one.
func someOf(dir string, names []string) (paths []string) {
	for i, name := range names {
		if i < holdersMost || i == len(names)-1 {
			paths = append(paths, dir+"/"+name)
		}
	}
	return paths
}

// withoutLease is the situation of the first in the queue of a semaphore. It waits for any of the
// leases, or for a lock on the path of the semaphore, which is before.
func (k *contender) withoutLease(ctx context.Context, before string) (*situation, error) {
	s := &situation{Holders: []other{}}
	var paths []string
	err := k.list(ctx, k.dir, false, func(names []string) {
		names = slices.DeleteFunc(names, func(name string) bool { return name == k.name() })
		locknode.SortNames(names)
		s.Ahead = len(names)
		paths = someOf(k.dir, names[:min(len(names), holdersMost)])
	})
	if err == nil && before != "" {
		s.Ahead++
		paths = append([]string{k.lock + "/" + before}, paths...)
	}
	if err != nil {
		return nil, err
	}
	holders, err := k.read(ctx, paths)
	for i := range holders {
		holders[i].Held = true
		s.Holders = append(s.Holders, *newOther(&holders[i]))
	}
	return s, err
}

// read reads contenders, but for those that have gone or that may not be read.
func (k *contender) read(ctx context.Context, paths []string) (all []locknode.Contender, err error) {
	for _, path := range paths {
		got, err := k.call(ctx, wire.OpGetData, &wire.PathWatchRequest{Path: path})
		if err != nil {
			return nil, err
		}
		var r wire.GetDataResponse
		if got.code != wire.CodeOK || wire.Decode(got.body, &r) != nil ||
			!locknode.Ephemeral(int64(r.Stat.EphemeralOwner)) {
			continue
		}
		dir, name := locknode.Split(path)
		all = append(all, locknode.New(dir, name, int64(r.Stat.EphemeralOwner), time.UnixMilli(r.Stat.Ctime),
			int64(r.Stat.Czxid), r.Data))
	}
	return all, nil
}
