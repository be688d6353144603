package recipes

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/locknode"
)

// Contender is somebody who holds a lock or waits for it, as others see it: one node, made by this
// package, Curator, kazoo or go-zookeeper.
type Contender = locknode.Contender

// Contenders lists who holds the lock on a path and who waits for it, holders first, then the
// others in the order in which it will be their turn. It knows the layouts of this package's
// recipes, of Curator's InterProcessMutex, InterProcessReadWriteLock and InterProcessSemaphoreV2,
// of kazoo's Lock, ReadLock, WriteLock and Semaphore, and of go-zookeeper's Lock. A path that does
// not exist has no contenders.
//
// It reads one node after the other, so the result is no state of the cluster at one moment: a node
// that goes meanwhile is left out.
func (s *Session) Contenders(ctx context.Context, path string) ([]Contender, error) {
	i := inspector{s: s}
	cs, err := ask(ctx, s.link, func() ([]Contender, error) {
		// Who asks after a change that it knows of shall see it.
		if err := s.link.confirm(); err != nil {
			return nil, err
		}
		return i.path(path)
	})
	if err != nil {
		return nil, fmt.Errorf("recipes: contenders of %s: %w", path, err)
	}
	return cs, nil
}

// Holders lists the [Session.Contenders] of a path that hold the lock, or may hold it.
func (s *Session) Holders(ctx context.Context, path string) ([]Contender, error) {
	cs, err := s.Contenders(ctx, path)
	return slices.DeleteFunc(cs, func(c Contender) bool { return !c.Held && !c.MayHold }), err
}

// Wait is the situation of a Lock that waits, see [MutexOptions].OnWait. It is made of the queue as
// the Lock reads it in any case, and of the nodes in front that are named here.
type Wait struct {
	// Path is the path of the lock, Node the path of the node that waits.
	Path, Node string
	// Began is when the Lock began, by the clock of this process.
	Began time.Time
	// Ahead is the number of contenders that have to be gone before it is our turn: holders,
	// and those that wait in front. Readers count for a reader, too.
	Ahead int
	// Holders hold the lock, as far as the names of their nodes tell; the first [WaitHolders] of
	// them. Since when they have held it, the queue does not tell: from Created on, or later.
	Holders []Contender
	// Next is the contender next before ours; the Lock waits for its end. It may be one of the
	// Holders. It is nil if the Lock waits for the end of any of them, as of a semaphore's leases.
	Next *Contender
	// Delay is the rest of the lock delay of a holder that has vanished; 0 if there is none.
	Delay time.Duration
	// Yielded is how often this Lock has let more urgent ones go first.
	Yielded int
}

// WaitHolders is the number of Holders that a Wait names, at most.
const WaitHolders = 8

// Time between two calls of OnWait without a change: it doubles from one to the next.
const (
	firstWaitPause = 10 * time.Second
	lastWaitPause  = 10 * time.Minute
)

// waitReport calls OnWait for a place. One goroutine at a time works on it. Its methods may be
// called on nil, and do nothing then.
type waitReport struct {
	path  string // of the lock
	call  func(Wait)
	began time.Time
	next  *string // the node that was next before ours at the last call; nil: none yet
	pause time.Duration
	at    time.Time // of the next call
}

func newWaitReport(path string, call func(Wait)) *waitReport {
	if call == nil {
		return nil
	}
	return &waitReport{path: path, call: call, began: time.Now()}
}

// due returns a channel that fires when there has been no call for long enough.
func (r *waitReport) due() <-chan time.Time {
	if r == nil {
		return nil
	}
	return time.After(time.Until(r.at))
}

// isNews reports whether there is to be a call, as another node is next before ours, or it is due.
func (r *waitReport) isNews(next string) bool {
	if r == nil || r.next != nil && *r.next == next && time.Now().Before(r.at) {
		return false
	}
	r.at = time.Now().Add(firstWaitPause) // in case that the call is not made
	return true
}

// tell calls OnWait, unless the caller has gone.
func (r *waitReport) tell(ctx context.Context, p *place, next string, w Wait) {
	if ctx.Err() != nil {
		return
	}
	if r.next == nil || *r.next != next {
		r.next, r.pause = &next, firstWaitPause
	}
	w.Path, w.Node, w.Began, w.Yielded = r.path, p.node.path, r.began, p.yielded
	if p.node.fixed != nil {
		w.Node = p.node.fixed.path
	}
	r.call(w)
	r.at = time.Now().Add(r.pause)
	r.pause = min(2*r.pause, lastWaitPause)
}

// queued tells of a place that waits for the node front of its queue, which v shows. names are
// the nodes of the queue; nil: they have to be read.
func (r *waitReport) queued(ctx context.Context, p *place, front string, v view, names []string) {
	if !r.isNews(front) {
		return
	}
	w, err := r.queue(p, front, v, names)
	if err == nil { // else the wait itself meets it, too
		r.tell(ctx, p, front, w)
	}
}

func (r *waitReport) queue(p *place, front string, v view, names []string) (w Wait, err error) {
	conn, dir := p.s.link.conn, p.node.dir
	if names == nil {
		if names, _, err = conn.Children(dir); err != nil {
			return w, err
		}
	}
	ahead := locknode.Ahead(names, p.node.name(), p.passed)
	next := dir + "/" + front // a semaphore's lease may be below it
	look := []string{next}
	if dir != r.path { // the gate of a semaphore
		leases := r.path + "/" + locknode.CuratorLeases
		names, _, err := conn.Children(leases)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return w, err
		}
		look = append(look, r.first(leases, names)...)
		if len(ahead) > 0 { // the last lease may be its
			look = append(look, dir+"/"+ahead[0])
		}
		w.Ahead = len(names)
	} else if len(ahead) > 0 {
		look = append(look, r.first(dir, locknode.AtFront(ahead))...)
	}
	if w.Ahead += len(ahead); w.Ahead == 0 {
		w.Ahead = 1 // the lease
	}
	return r.judge(p, w, look, v)
}

// first returns the paths of the first nodes, and of the last one.
func (r *waitReport) first(dir string, names []string) (paths []string) {
	locknode.SortNames(names)
	for i, name := range names {
		if i < WaitHolders || i == len(names)-1 {
			paths = append(paths, dir+"/"+name)
		}
	}
	return paths
}

// judge reads the nodes at the paths but for the first, which v shows and which is the next before
// the place, and finds out who of them holds the lock.
func (r *waitReport) judge(p *place, w Wait, paths []string, v view) (Wait, error) {
	var all []Contender
	slices.Sort(paths[1:])
	for _, path := range slices.Compact(paths[1:]) {
		if path == paths[0] {
			continue
		}
		dir, name := split(path)
		c, err := (inspector{s: p.s}).node(dir, name)
		if err != nil && !errors.Is(err, zk.ErrNoAuth) { // there may be nodes that we may not read
			return w, err
		}
		if c.Session != 0 {
			all = append(all, c)
		}
	}
	var merged int
	w.Holders, w.Next, merged = locknode.Explain(r.path, all, seen(paths[0], v), WaitHolders)
	w.Ahead -= merged
	return w, nil
}

// seen is the contender of a node that a view shows.
func seen(path string, v view) Contender {
	dir, name := split(path)
	return locknode.New(dir, name, v.stat.EphemeralOwner, time.UnixMilli(v.stat.Ctime), v.stat.Czxid, v.data)
}

// leased tells of a place at the front of a semaphore's gate, given the leases.
func (r *waitReport) leased(ctx context.Context, p *place, names []string) {
	if !r.isNews("") {
		return
	}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == p.node.name() })
	w := Wait{Ahead: len(names)}
	locknode.SortNames(names)
	for _, name := range names[:min(len(names), WaitHolders)] {
		c, err := (inspector{s: p.s}).node(p.node.dir, name)
		if err != nil {
			return
		}
		if c.Session != 0 {
			c.Held = true
			w.Holders = append(w.Holders, c)
		}
	}
	r.tell(ctx, p, "", w)
}

// plain tells of a place that waits for a lock that is one node, which v shows.
func (r *waitReport) plain(ctx context.Context, p *place, v view) {
	if !r.isNews(fmt.Sprint(v.stat.Czxid)) {
		return
	}
	one := locknode.Plain(seen(p.node.fixed.path, v))
	r.tell(ctx, p, fmt.Sprint(v.stat.Czxid), Wait{Ahead: 1, Holders: []Contender{one}, Next: &one})
}

// delayed tells of a place that is first, and waits for the delay of a holder that has vanished.
func (r *waitReport) delayed(ctx context.Context, p *place, left time.Duration) {
	if r.isNews("") {
		r.tell(ctx, p, "", Wait{Delay: left})
	}
}

// inspector reads queues.
type inspector struct{ s *Session }

func (i inspector) path(path string) ([]Contender, error) {
	names, _, err := i.s.link.conn.Children(path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		if one, err := i.simple(path); err != nil || len(one) > 0 {
			return one, err
		}
	}
	var all []Contender
	for _, dir := range locknode.Directories(path, slices.Contains(names, locknode.CuratorLeases)) {
		read := func() ([]Contender, error) { return i.children(dir) }
		if dir == path {
			read = func() ([]Contender, error) { return i.queue(path, names) }
		}
		queue, err := read()
		if err != nil {
			return nil, err
		}
		all = append(all, queue...)
	}
	return locknode.Resolve(locknode.Sorted(path, all)), nil
}

// simple reads a path that is a lock's node itself.
func (i inspector) simple(path string) ([]Contender, error) {
	dir, name := split(path)
	c, err := i.node(dir, name)
	if err != nil || c.Session == 0 || c.Info == nil {
		return nil, err
	}
	return []Contender{locknode.Plain(c)}, nil
}

func (i inspector) children(path string) ([]Contender, error) {
	names, _, err := i.s.link.conn.Children(path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return i.queue(path, names)
}

// inspectAtOnce is the number of nodes read at a time.
const inspectAtOnce = 16

// queue reads the nodes that contend, in any order.
func (i inspector) queue(path string, names []string) ([]Contender, error) {
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !locknode.Contends(n) })
	found, errs := make([]Contender, len(names)), make([]error, len(names))
	var wg sync.WaitGroup
	slots := make(chan struct{}, inspectAtOnce)
	for n, name := range names {
		slots <- struct{}{}
		wg.Go(func() {
			found[n], errs[n] = i.node(path, name)
			<-slots
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found, func(c Contender) bool { return c.Session == 0 }), nil
}

// node reads one node. One that has gone, or that is not ephemeral, has session 0.
func (i inspector) node(dir, name string) (Contender, error) {
	data, stat, err := i.s.link.conn.Get(dir + "/" + name)
	if errors.Is(err, zk.ErrNoNode) {
		return Contender{}, nil
	}
	if err != nil {
		return Contender{}, err
	}
	if !locknode.Ephemeral(stat.EphemeralOwner) {
		return Contender{}, nil
	}
	return locknode.New(dir, name, stat.EphemeralOwner, time.UnixMilli(stat.Ctime), stat.Czxid, data), nil
}

// pathsAtOnce is the number of nodes that LockPaths asks about at a time.
const pathsAtOnce = 64

// LockPaths finds, in order, the paths at and below root that [Session.Contenders] may have
// something to say about: those with children, and those that may be a lock's node themselves. The
// queues that a semaphore consists of are not listed beside it. Nodes that may not be read are left
// out; for root, that is an error; /zookeeper is never looked at.
//
// It asks about each node of the tree. A lockkeeper server answers [Session.Report] at once.
func (s *Session) LockPaths(ctx context.Context, root string) ([]string, error) {
	var found []string
	parts := map[string]bool{} // the queues of semaphores that have been seen
	todo, looked := []string{root}, 0
	for len(todo) > 0 {
		step := todo[max(0, len(todo)-pathsAtOnce):]
		names, errs := s.childrenOf(ctx, step)
		todo = todo[:len(todo)-len(step)]
		var more []string
		for i, at := range step {
			err := errs[i]
			if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNoAuth) && at != root {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("recipes: look for locks at %s, after %d other nodes: %w", at, looked, err)
			}
			looked++
			_, contender := locknode.Sequence(at)
			if at != "/" && !contender {
				found = append(found, at)
			}
			parts[at+locknode.KazooLockSuffix] = true
			if at != "/" && slices.Contains(names[i], locknode.CuratorLeases) &&
				slices.Contains(names[i], locknode.CuratorLocks) {
				parts[at+"/"+locknode.CuratorLeases], parts[at+"/"+locknode.CuratorLocks] = true, true
			}
			for _, name := range names[i] {
				_, contender := locknode.Sequence(name) // it has no locks below it
				if !contender && (at != "/" || name != "zookeeper") {
					more = append(more, strings.TrimSuffix(at, "/")+"/"+name)
				}
			}
		}
		todo = append(todo, more...)
	}
	found = slices.DeleteFunc(found, func(path string) bool { return parts[path] })
	slices.Sort(found)
	return found, nil
}

// Contention is a lock with its contenders, as [Session.Contenders] returns them.
type Contention = locknode.Lock

// Contentions lists, in the order of their paths, the locks at and below root that somebody holds
// or waits for. It asks about each node of the tree, as [Session.LockPaths].
func (s *Session) Contentions(ctx context.Context, root string) ([]Contention, error) {
	err := s.link.do(ctx, func(ctx context.Context) error { return s.link.again(ctx, nil, s.link.confirm) })
	if err != nil {
		return nil, fmt.Errorf("recipes: look for locks at %s: %w", root, err)
	}
	paths, err := s.LockPaths(ctx, root)
	if err != nil {
		return nil, err
	}
	var list []Contention
	for step := range slices.Chunk(paths, pathsAtOnce) {
		found, errs := make([]Contention, len(step)), make([]error, len(step))
		var wg sync.WaitGroup
		for n, path := range step {
			wg.Go(func() {
				found[n].Path = path
				found[n].Contenders, errs[n] = ask(ctx, s.link,
					func() ([]Contender, error) { return inspector{s: s}.path(path) })
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return nil, fmt.Errorf("recipes: contenders at and below %s: %w", root, err)
		}
		list = append(list, slices.DeleteFunc(found, func(c Contention) bool { return len(c.Contenders) == 0 })...)
	}
	return list, nil
}

// childrenOf lists the children of several nodes at once.
func (s *Session) childrenOf(ctx context.Context, paths []string) (names [][]string, errs []error) {
	names, errs = make([][]string, len(paths)), make([]error, len(paths))
	var wg sync.WaitGroup
	for i, at := range paths {
		wg.Go(func() {
			names[i], errs[i] = ask(ctx, s.link, func() ([]string, error) {
				names, _, err := s.link.conn.Children(at)
				return names, err
			})
		})
	}
	wg.Wait()
	return names, errs
}

// reportPath is below which a lockkeeper server answers getData with reports: docs/api.md.
const reportPath = "/zookeeper/api/v1/"

// ErrNoReport says that a server makes no reports, as ZooKeeper, or not this one, or not now. Its
// content can be read node by node.
var ErrNoReport = errors.New("recipes: the server makes no such report")

// Report reads a report on the locks that a lockkeeper server makes of its state: one of the GETs
// of docs/api.md that clients may read, such as queues, with its parameters. It is JSON, and shows
// the nodes that the session may read. It is made after all that the session has done.
func (s *Session) Report(ctx context.Context, name string, parameters url.Values) ([]byte, error) {
	data, err := ask(ctx, s.link, func() ([]byte, error) {
		if err := s.link.confirm(); err != nil { // as Contenders
			return nil, err
		}
		data, _, err := s.link.conn.Get(reportPath + name + "?" + parameters.Encode())
		return data, err
	})
	switch {
	case err == nil:
		return data, nil
	case errors.Is(err, zk.ErrNoAuth), ctx.Err() != nil, s.link.over(nil) != nil:
		return nil, fmt.Errorf("recipes: report %s: %w", name, err)
	}
	return nil, fmt.Errorf("%w: %w", ErrNoReport, err)
}
