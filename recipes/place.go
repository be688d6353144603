package recipes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"lockkeeper/locknode"
)

// place is one contender's place in the queue of a path: its node, and the way to the front. One
// goroutine at a time works on it.
type place struct {
	s    *Session
	node *node
	kind Kind

	// The differences between the recipes; all may be zero. the queue to come through first; nil
	// when there is none, or it was left
	gate *place
	// waits for the place's turn; nil: await does
	turn  func(ctx context.Context, wait bool) error
	delay *delay // of the lock; nil: none

	first chan look // the first look at the queue; nil once it was taken
	wants bool      // counted in lease.waiting

	// passed are nodes that the place need not wait for: those without a session, writers in front
	// of a reader that have been downgraded to readers, leases and nodes with our number that came
	// later.
	passed map[string]bool

	rank    locknode.Rank // its Number is known when the node is made
	yields  int           // how often it may yet yield
	yielded int           // how often it has

	doing  *progress   // shared with the gate
	report *waitReport // shared with the gate; nil: nobody listens
}

// progress is the present step of a place, for error messages; the caller of an acquire that ends
// reads it.
type progress struct{ text atomic.Pointer[string] }

func (p *progress) set(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	p.text.Store(&text)
}

func (p *progress) String() string { return *p.text.Load() }

// newPlace is a place in the queue of dir, for a node called base.
func newPlace(s *Session, dir, base string, kind Kind, o MutexOptions) *place {
	rank := locknode.Rank{Priority: o.Priority}
	n := &node{link: s.link, dir: dir, prefix: protect(rank.First() + base), data: o.Data, acl: s.aclOr(o.ACL)}
	if n.data == nil {
		n.data = encodeInfo(newInfo(o.Note))
	}
	p := &place{s: s, node: n, kind: kind, rank: rank, yields: cmp.Or(o.Yields, DefaultYields), doing: new(progress)}
	p.doing.set("starting")
	return p
}

// acquireQueued acquires a lock that has one queue, the children of path.
func acquireQueued(ctx context.Context, s *Session, path, base string, kind Kind, o MutexOptions, wait bool,
) (*Grant, error) {
	p := newPlace(s, path, base, kind, o)
	p.report = newWaitReport(path, o.OnWait)
	g, err := (*Grant)(nil), o.check()
	if err == nil {
		p.delay, err = newDelay(p, o.LockDelay)
	}
	if err == nil {
		g, err = acquire(ctx, p, path, wait)
	}
	if err != nil {
		return nil, fmt.Errorf("recipes: lock %s: %w", path, err)
	}
	return g, nil
}

// acquire gets to the front with p. The work is done by a goroutine, which lives as long as the
// place: the calls of a ZooKeeper client cannot be interrupted, and the caller shall not have to
// wait for them when ctx ends.
func acquire(ctx context.Context, p *place, path string, wait bool) (*Grant, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// Unbuffered: either the caller has got the result, or the goroutine knows that nobody will.
	granted, failed := make(chan *Grant), make(chan error)
	if !p.s.link.spawn(func() { p.run(ctx, path, wait, granted, failed) }) {
		return nil, p.s.link.closed()
	}
	select {
	case g := <-granted:
		return g, nil
	case err := <-failed:
		return nil, err
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w", p.doing, ctx.Err())
	}
}

// run is the life of a place.
func (p *place) run(ctx context.Context, path string, wait bool, granted chan<- *Grant, failed chan<- error) {
	g, err := p.contend(ctx, path, wait)
	if err == nil {
		select {
		case granted <- g:
		case <-ctx.Done():
			g.giveUp()
		}
		g.keep()
		return
	}
	locked := errors.Is(err, ErrLocked)
	if locked {
		// Off the path first: the next TryLock of anybody shall not trip over the node of this one.
		if lerr := p.leave(); lerr != nil && !errors.Is(lerr, ErrDeleted) {
			err = lerr
		}
	}
	select {
	case failed <- err:
	case <-ctx.Done():
	}
	if !locked {
		_ = p.leave()
	}
}

// contend joins the queue and waits until it is the place's turn and the lease is fresh.
func (p *place) contend(ctx context.Context, path string, wait bool) (*Grant, error) {
	if err := p.resumeLease(ctx); err != nil {
		return nil, err
	}
	if p.gate != nil {
		if err := p.gate.enter(ctx, wait); err != nil {
			return nil, err
		}
	}
	defer p.want(false)
	for {
		err := p.come(ctx, wait)
		if err == nil {
			break
		}
		if !errors.Is(err, errYields) {
			return nil, err
		}
		// The gate is to yield, and there may be nothing of ours behind it then.
		p.want(false)
		if err := p.node.leave(p.node.remove); err != nil && !errors.Is(err, ErrDeleted) {
			return nil, err
		}
		n := p.node
		p.node = &node{link: n.link, dir: n.dir, prefix: protect(locknode.Layout(n.name())), data: n.data, acl: n.acl}
	}
	if p.gate != nil {
		// Before we return: a TryLock that comes after shall not trip over it.
		p.doing.set("making way for the next one")
		if err := p.gate.leave(); err != nil && !errors.Is(err, ErrDeleted) {
			return nil, err
		}
		p.gate = nil
	}
	p.doing.set("waiting for the cluster to confirm the session")
	g := newGrant(p.node, path, p.leave)
	g.place, g.kind = p, p.kind
	if err := p.node.lease.admit(ctx, g); err != nil {
		return nil, err
	}
	select {
	case ev := <-p.node.own: // something happened to the node while we waited
		if err := p.node.changed(ctx, ev); err != nil {
			g.lose(err)
			return nil, err
		}
	default:
	}
	g.record()
	return g, nil
}

// resumeLease takes up a lease that the previous process held. The way to it, through the gate and
// to a turn, is behind that process: who is at the gate now waits for this lease.
//
// A lease of that process without a node at the gate, which it has not noted as held, is deleted:
// nobody knows whether it had its turn.
func (p *place) resumeLease(ctx context.Context) error {
	if p.gate == nil || p.s.link.keeper == nil {
		return nil
	}
	if err := p.connect(ctx); err != nil {
		return err
	}
	if err := p.node.takeUp(ctx, true); err != nil {
		return err
	}
	if p.node.path == "" {
		l := p.node.lease
		p.node.lease = nil // the gate's
		if slices.ContainsFunc(p.s.link.keeper.Left(l.id), p.gate.node.fits) {
			return nil
		}
		return p.s.giveBack(l, p.node.fits)
	}
	p.gate, p.turn = nil, func(context.Context, bool) error { return nil }
	return nil
}

// connect waits for a session, unless the place has one.
func (p *place) connect(ctx context.Context) error {
	if p.node.lease != nil { // the gate's
		return nil
	}
	p.doing.set("waiting for a connection")
	lease, err := p.s.link.ready(ctx)
	p.node.lease = lease
	return err
}

// come waits until it is the turn of the gate, if there is one, makes the node, and waits until it
// is the place's turn. The error is errYields if the gate's turn is another's by then.
func (p *place) come(ctx context.Context, wait bool) error {
	if gate := p.gate; gate != nil {
		err := gate.await(ctx, wait)
		gate.want(false)
		if err != nil {
			return err
		}
		p.node.lease = gate.node.lease
	}
	if err := p.enter(ctx, wait); err != nil {
		return err
	}
	return p.awaitTurn(ctx, wait)
}

// errYields: a place that waits behind its gate has to leave the gate to a more urgent one.
var errYields = errors.New("yields")

// enter makes the node and watches it.
func (p *place) enter(ctx context.Context, wait bool) error {
	if err := p.connect(ctx); err != nil {
		return err
	}
	p.doing.set("joining the queue")
	err := p.node.create(ctx)
	for p.node.fixed != nil && errors.Is(err, zk.ErrNodeExists) {
		if err = p.awaitFree(ctx, wait); err == nil {
			err = p.node.create(ctx)
		}
	}
	if err != nil {
		return err
	}
	if p.node.fixed != nil {
		return p.node.watchOwn(ctx)
	}
	if _, err := p.node.number(); err != nil {
		return err
	}
	// A node that was taken up from the previous process keeps its rank; a lock that was held, too.
	if p.rank, _ = locknode.RankOf(p.node.name()); p.node.resumed {
		p.yields = 0
	}
	// Both requests at once: an acquire takes as long as its round trips. The list may be older
	// than the watch; await looks again when the watch fires, and watchOwn fails if the node has
	// gone.
	if p.turn == nil {
		p.first = make(chan look, 1)
		if !p.s.link.spawn(func() { p.first <- p.look() }) {
			return p.s.link.closed()
		}
	}
	return p.node.watchOwn(ctx)
}

// awaitFree waits until another's node with our fixed path has gone. It returns ErrLocked if it is
// not to wait.
func (p *place) awaitFree(ctx context.Context, wait bool) error {
	if !wait {
		return ErrLocked
	}
	path := p.node.fixed.path
	p.doing.set("waiting for %s to go", path)
	for attempt := 1; ; {
		changed := p.s.link.news()
		v, err := p.s.watches.untilGone(path)
		switch {
		case fateOf(err) == fateUnknown:
			if err := p.s.link.pause(ctx, attempt); err != nil {
				return err
			}
			attempt++
			continue
		case err != nil:
			return err
		case !v.exists:
			return nil
		}
		attempt = 1
		p.report.plain(ctx, p, v)
		select {
		case <-v.watch.fired:
			return p.node.over()
		case <-p.s.watches.recheck(v.watch, changed):
		case <-p.report.due():
		case <-changed:
		case <-p.node.lease.ended:
			return p.node.over()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// awaitTurn waits until the lock is free for us.
func (p *place) awaitTurn(ctx context.Context, wait bool) error {
	switch {
	case p.node.fixed != nil:
		return nil // the maker of the node has the lock
	case p.turn != nil:
		return p.turn(ctx, wait)
	}
	if err := p.await(ctx, wait); err != nil || p.delay == nil {
		return err
	}
	p.want(false) // it may take long
	return p.delay.sitOut(ctx, wait)
}

// await returns nil when nobody is in front of us any more, or ErrLocked if somebody is and we are
// not to wait.
//
// It watches the node next before ours and no other, so that a release wakes one contender. When
// that node goes we look at the whole queue again, for it may have gone without having had the
// lock. We also look after a reconnect: go-zookeeper sets its watches again then, but does not say
// if that fails.
func (p *place) await(ctx context.Context, wait bool) error {
	waited, still := false, "" // still is the node in front, if that need not be found out again
	for attempt := 1; ; {
		changed := p.s.link.news()
		now := look{front: still}
		if still = ""; now.front == "" {
			// A grant needs a fresh proof. There is one if the node was just created; after a wait
			// it is fetched while the queue is read.
			p.want(waited)
			now = p.front()
		}
		front, err := now.front, now.err
		var v view
		if err == nil && front != "" {
			v, err = p.read(front, wait)
		}
		switch {
		case fateOf(err) == fateUnknown:
			if err := p.s.link.pause(ctx, attempt); err != nil {
				return err
			}
			attempt++
			continue
		case !wait && front != "" && errors.Is(err, zk.ErrNoAuth):
			return ErrLocked // by another that we may not read
		case err != nil:
			return err
		case front == "" && (now.better == "" || !wait):
			return nil
		case front == "":
			attempt, waited = 1, true
			if err := p.yield(ctx, now.better); err != nil {
				return err
			}
			continue
		case !v.exists:
			continue // gone already
		case !blocks(front, v.data, v.stat, p.node.name(), p.node.token, p.kind == KindRead):
			p.pass(front)
			continue
		case !wait:
			return ErrLocked
		}
		attempt, waited = 1, true
		p.want(false)
		p.doing.set("waiting behind %s", front)
		p.report.queued(ctx, p, front, v, now.names)
		select {
		case <-v.watch.fired:
		case <-p.s.watches.recheck(v.watch, changed):
			still = front
		case <-p.report.due():
			still = front
		case ev := <-p.node.own:
			if err := p.node.changed(ctx, ev); err != nil {
				return err
			}
		case <-changed:
		case <-p.node.lease.ended:
			return p.node.over()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// yield moves the node to the end of the queue, for the sake of the node better.
//
// To all others it looks as if our contender had given up, and another one had come. So nothing
// changes for them: the lock is granted in the order of the queue, and tokens grow in it.
func (p *place) yield(ctx context.Context, better string) error {
	p.want(false)
	p.doing.set("letting %s go first", better)
	name := p.node.name()
	done, err := p.node.moveBack(ctx, locknode.Protection(name)+p.rank.Yielded()+locknode.Layout(name))
	switch {
	case done:
		p.yields--
		p.yielded++
		if err == nil {
			_, err = p.node.number()
		}
	case fateOf(err) == fateRefused && p.node.over() == nil:
		p.s.link.log.Warn("lock node cannot move to the end of the queue, it keeps its place", "path", p.node.path,
			"err", err)
		p.yields, err = 0, nil
	}
	return err
}

// read reads a node of the queue, and watches it if we are to wait for it.
func (p *place) read(name string, watch bool) (v view, err error) {
	path := p.node.dir + "/" + name
	if watch {
		return p.s.watches.untilGone(path)
	}
	v.data, v.stat, err = p.s.link.conn.Get(path)
	if errors.Is(err, zk.ErrNoNode) {
		return view{}, nil
	}
	v.exists = true
	return v, err
}

// pass notes that the place need not wait for a node.
func (p *place) pass(name string) {
	if p.passed == nil {
		p.passed = make(map[string]bool)
	}
	p.passed[name] = true
}

// want registers, or no longer registers, the place as one that needs the lease to be proved.
func (p *place) want(on bool) {
	if on == p.wants {
		return
	}
	p.wants = on
	p.node.lease.want(on)
}

// look is a look at the queue: the node that we wait for, "" if it is our turn.
type look struct {
	front  string
	leases []string // of semaphores on the same path, see leasesAt
	better string   // if it is our turn, the node that we yield to; "" if there is none
	names  []string // all nodes of the path, if somebody listens; nil: not known
	err    error
}

func (p *place) look() look {
	n := p.node
	names, _, err := p.s.link.conn.Children(n.dir)
	if err != nil {
		return look{err: n.gone(err)}
	}
	front, found := locknode.Predecessor(names, n.name(), p.kind == KindRead, p.passed)
	if !found {
		return look{err: n.gone(zk.ErrNoNode)}
	}
	p.s.warned.ofStrangers(p.s.link.log, n.dir, names)
	leases, err := leasesAt(p.s.link.conn, n.dir, names)
	l := look{front: front, leases: leases, err: err}
	if front == "" && p.yields > 0 {
		l.better = locknode.YieldsTo(names, n.name())
	}
	if p.report != nil {
		l.names = names
	}
	return l
}

// front looks at the queue. The first look has been under way since enter.
func (p *place) front() look {
	var l look
	if p.first != nil {
		l = <-p.first
		p.first = nil
	} else {
		l = p.look()
	}
	if l.err == nil && l.front == "" {
		l.front, l.err = p.earlier(p.node.dir, l.leases)
	}
	return l
}

// earlier returns the first of dir's children called names that was made before our node and is
// ephemeral, "" if there is none. It does not look at the others again.
func (p *place) earlier(dir string, names []string) (string, error) {
	for _, name := range names {
		if p.passed[name] {
			continue
		}
		exists, stat, err := p.s.link.conn.Exists(dir + "/" + name)
		switch {
		case err != nil:
			return "", err
		case exists && locknode.Ephemeral(stat.EphemeralOwner) && stat.Czxid < p.node.token:
			return name, nil
		}
		p.pass(name)
	}
	return "", nil
}

// leave leaves all queues that the place is in; see node.leave.
func (p *place) leave() error {
	remove := p.node.remove
	if p.delay != nil {
		remove = p.delay.remove
	}
	err := p.node.leave(remove)
	if p.gate == nil {
		return err
	}
	gerr := p.gate.leave()
	if err == nil && !errors.Is(gerr, ErrDeleted) {
		err = gerr
	}
	return err
}
