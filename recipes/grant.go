package recipes

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-zookeeper/zk"

	"lockkeeper/locknode"
)

// Grant is a lock that was acquired. It ends when Unlock is called or when the lock can no longer
// be relied on, whichever comes first, and does not come back. Its methods may be called from any
// goroutine.
//
// A grant that was lost still has to be unlocked: as long as its session lives its node is in the
// queue, so that nobody gets in before the program has wound up its work.
type Grant struct {
	node    *node
	leave   func() error // removes everything that the holder has made; see node.leave
	place   *place       // of the node in its queue; nil: it is in none
	path    string       // that is locked
	token   int64
	life    context.Context // ends with err as its cause
	end     context.CancelCauseFunc
	release chan struct{} // closed by Unlock
	work    chan func()   // for keep to do
	gone    chan struct{} // closed when the node is gone for certain, or given up
	once    sync.Once     // closes release

	// Guarded by the session's mu.
	kind     Kind
	err      error // why the grant ended; nil while it stands
	onLost   []func(err error)
	leaveErr error // why the node may not be gone; written before gone is closed
}

// newGrant is a grant of the path with the node of its holder. leave removes all that the holder
// has made.
func newGrant(n *node, path string, leave func() error) *Grant {
	life, end := context.WithCancelCause(context.Background())
	return &Grant{
		node:    n,
		leave:   leave,
		path:    path,
		token:   n.token,
		life:    life,
		end:     end,
		release: make(chan struct{}),
		work:    make(chan func()),
		gone:    make(chan struct{}),
	}
}

// Token returns the fencing token: a number that is larger than every earlier holder's, also when
// the path was deleted and made again in between. It is the zxid that created the lock's node, and
// so comparable with the tokens of holders that use other libraries (the node's czxid). A resource
// that remembers the largest token it has seen, and refuses smaller ones, cannot be harmed by a
// holder that does not know yet that it lost the lock.
func (g *Grant) Token() int64 { return g.token }

// Kind returns the kind of the lock: to write (every Mutex), to read, or a lease of a semaphore.
func (g *Grant) Kind() Kind {
	g.node.link.mu.Lock()
	defer g.node.link.mu.Unlock()
	return g.kind
}

// Resumed reports whether the previous process held the lock, by the same node: with
// [Config].SessionFile nobody else has had it in between, and the token is the same.
func (g *Grant) Resumed() bool { return g.node.resumed }

// record has the grant noted in the session file, if there is one.
func (g *Grant) record() {
	g.node.link.keeper.Hold(g.Session(), Held{Path: g.path, Node: g.node.path, Token: g.token})
}

// Session returns the session that owns the lock's node.
func (g *Grant) Session() int64 { return g.node.lease.id }

// Path returns the path that is locked.
func (g *Grant) Path() string { return g.path }

// Node returns the full path of the lock's node.
func (g *Grant) Node() string { return g.node.path }

// Lost returns a channel that is closed when the lock can no longer be relied on, for the reason
// that Err then gives. Unlock closes it too.
//
// A process that was stopped and woken up runs for a moment before anything in it can close a
// channel. Calling Lost looks at the clock first, as Held does: a select on a fresh g.Lost() is as
// good as a call of Held; a channel that was fetched before the stop is not.
func (g *Grant) Lost() <-chan struct{} {
	g.Err()
	return g.life.Done()
}

// Context returns a context for the work that the lock protects. It ends when parent does, or when
// the grant does; then context.Cause gives the error of Err: why the lock was lost, or ErrReleased.
// Nothing has to be cancelled.
//
// Like a channel that was fetched from Lost it says nothing before the process has run for a
// moment; Held does.
func (g *Grant) Context(parent context.Context) context.Context {
	g.Err()
	return during(parent, g.life)
}

// during returns a context that ends with parent or, with its cause, with life.
func during(parent, life context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	if life.Err() != nil {
		cancel(context.Cause(life))
		return ctx
	}
	stop := context.AfterFunc(life, func() { cancel(context.Cause(life)) })
	context.AfterFunc(ctx, func() { stop() }) // a long life may see many of them
	return ctx
}

// Held reports whether the lock may be relied on right now. It costs a clock reading and no
// request: it knows the cluster's last confirmation, and the time of the request for it.
//
// The answer is about the moment of the call. Only the Token can guard against later events, above
// all a pause of this process between Held and the use of the protected resource.
func (g *Grant) Held() bool { return g.Err() == nil }

// Err returns nil if the lock may be relied on right now, else why it may not: ErrSilent,
// ErrExpired, ErrDeleted, ErrClosed, or ErrReleased after Unlock. Once it is not nil it does not
// change.
func (g *Grant) Err() error {
	g.node.link.mu.Lock()
	defer g.node.link.mu.Unlock()
	g.node.link.observeLocked()
	g.node.lease.checkLocked()
	return g.err
}

// Unlock gives the lock back. When it returns nil, the grant stood until Unlock was called and its
// node is gone.
//
// If the grant had been lost, the error is the reason, and the node is gone nevertheless. If ctx
// ended before the cluster confirmed, it is ctx's error; the release then goes on in the background
// until it is certain, or the session ends. With any error, the grant no longer stands. Further
// calls wait for the same release, and return the same.
func (g *Grant) Unlock(ctx context.Context) error {
	if err := g.letGo(ctx); err != nil {
		return fmt.Errorf("recipes: unlock %s: %w", g.path, err)
	}
	return nil
}

// letGo is Unlock; its error does not say so.
func (g *Grant) letGo(ctx context.Context) error {
	g.giveUp()
	select {
	case <-g.gone:
	case <-ctx.Done():
		select {
		case <-g.gone:
		default:
			return fmt.Errorf("goes on in the background: %w", ctx.Err())
		}
	}
	g.node.link.mu.Lock()
	defer g.node.link.mu.Unlock()
	if g.err != ErrReleased {
		return g.err
	}
	return g.leaveErr
}

// giveUp ends the grant and has its node deleted.
func (g *Grant) giveUp() {
	g.lose(ErrReleased)
	g.once.Do(func() { close(g.release) })
}

func (g *Grant) lose(err error) {
	g.node.link.mu.Lock()
	defer g.node.link.mu.Unlock()
	// The clock comes first: the grant may have been lost before.
	g.node.link.observeLocked()
	g.node.lease.checkLocked()
	g.loseLocked(err)
}

func (g *Grant) loseLocked(err error) {
	if g.err != nil {
		return
	}
	g.err = err
	delete(g.node.lease.grants, g)
	g.end(err)
	for _, f := range g.onLost {
		f(err)
	}
}

// whenLost has f called, once, when the grant ends, with a session's mu held. It is called right
// away if that has happened.
func (g *Grant) whenLost(f func(err error)) {
	g.node.link.mu.Lock()
	defer g.node.link.mu.Unlock()
	if g.err != nil {
		f(g.err)
		return
	}
	g.onLost = append(g.onLost, f)
}

// keep watches the node until Unlock is called or the session is over, and then sees to it that the
// node goes. It is run by the goroutine that acquired.
func (g *Grant) keep() {
	for held := true; held; {
		select {
		case ev := <-g.node.own:
			// No deadline: without a connection Unlock could do nothing either.
			if err := g.node.changed(context.Background(), ev); err != nil {
				g.lose(err)
			}
		case f := <-g.work:
			f()
		case <-g.release:
			held = false
		case <-g.node.lease.ended:
			held = false
		}
	}
	err := g.leave()
	g.node.link.keeper.Release(g.node.path)
	g.node.link.mu.Lock()
	defer g.node.link.mu.Unlock()
	g.leaveErr = err
	close(g.gone)
}

// Guard does all of ops, or none, as *zk.Conn.Multi, but only if this grant still stands when the
// cluster gets to it: in the same transaction it checks that the lock's node is there. So nobody
// else can have been granted the lock by then, however long this process was stopped, and wherever
// the request was on its way meanwhile. It makes data that are in the cluster itself safe without a
// fencing token.
//
// The ops are *zk.CreateRequest, *zk.SetDataRequest, *zk.DeleteRequest and *zk.CheckVersionRequest;
// the results are in the order of the ops.
//
// If the grant has ended, the error is the reason, and nothing was done. If it is ErrUnknown, the
// connection broke or ctx ended, and all or nothing may have been done, or may be done yet; but
// nothing after the grant's end, and so nothing after the return of an Unlock with nil. Other
// errors come from the ops.
//
// The grants of a SimpleMutex have no guard: ErrNoGuard.
func (g *Grant) Guard(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return guard(ctx, []*Grant{g}, ops)
}

// guard is Guard for grants of one session.
func guard(ctx context.Context, grants []*Grant, ops []any) ([]zk.MultiResponse, error) {
	all := make([]any, 0, len(grants)+len(ops))
	for _, g := range grants {
		err := g.Err()
		if err == nil && g.node.fixed != nil {
			err = ErrNoGuard
		}
		if err != nil {
			return nil, fmt.Errorf("recipes: guard %s: %w", g.path, err)
		}
		node := g.node.path
		all = append(all, &zk.CheckVersionRequest{Path: node, Version: -1})
	}
	k := grants[0].node.link
	type answer struct {
		results []zk.MultiResponse
		err     error
	}
	done := make(chan answer, 1)
	if !k.spawn(func() {
		results, err := k.conn.Multi(append(all, ops...)...)
		done <- answer{results, err}
	}) {
		return nil, fmt.Errorf("recipes: guard %s: %w", grants[0].path, k.closed())
	}
	select {
	case a := <-done:
		return guarded(grants, a.results, a.err)
	case <-ctx.Done():
		return nil, fmt.Errorf("recipes: guard %s: %w: %w", grants[0].path, ErrUnknown, ctx.Err())
	}
}

// guarded returns the outcome of a guarded multi.
func guarded(grants []*Grant, results []zk.MultiResponse, err error) ([]zk.MultiResponse, error) {
	for i, g := range grants {
		if err != nil && i < len(results) && errors.Is(results[i].Error, zk.ErrNoNode) {
			g.lose(g.node.gone(zk.ErrNoNode))
			return nil, fmt.Errorf("recipes: guard %s: %w", g.path, g.Err())
		}
	}
	results = results[min(len(grants), len(results)):]
	switch {
	case err == nil:
		return results, nil
	case fateOf(err) == fateRefused:
		return results, fmt.Errorf("recipes: guard %s: %w", grants[0].path, err)
	}
	return nil, fmt.Errorf("recipes: guard %s: %w: %w", grants[0].path, ErrUnknown, err)
}

// Valid asks the cluster whether the grant stands, and returns nil if it does, else why it does
// not, as Err. Held knows as much, sooner and for less, unless something out of the ordinary has
// happened that its watch has not told yet: somebody has deleted the lock's node, or has put
// another in front of it (ErrOvertaken). A grant that is found to be gone is lost from then on.
//
// The question goes through the cluster's leader and a majority, so the answer is not older than
// the call. It is, as all such answers, about the past when it arrives. If ctx ends before it is
// known, the error is ctx's, and the grant is as it was.
func (g *Grant) Valid(ctx context.Context) error {
	if err := g.Err(); err != nil {
		return fmt.Errorf("recipes: valid %s: %w", g.path, err)
	}
	verdict, err := ask(ctx, g.node.link, g.examine)
	if err == nil && verdict != nil {
		g.lose(verdict)
	}
	if err == nil {
		err = g.Err()
	}
	if err != nil {
		return fmt.Errorf("recipes: valid %s: %w", g.path, err)
	}
	return nil
}

// examine looks at the lock's node and the queue. The verdict is the reason for the loss of the
// grant; with an error there is no verdict.
func (g *Grant) examine() (verdict, err error) {
	conn := g.node.link.conn
	if err := g.node.link.writeNothing(); err != nil {
		return nil, err
	}
	_, stat, err := conn.Get(g.node.path)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return g.node.gone(err), nil
	case err != nil:
		return nil, err
	case stat.Czxid != g.token:
		return ErrDeleted, nil // and made again, by somebody who copies names
	}
	if g.node.fixed != nil || g.place.turn != nil {
		return nil, nil // it has no order, or it counts when it is granted
	}
	names, _, err := conn.Children(g.node.dir)
	if err != nil {
		return nil, err
	}
	own, reads := g.node.name(), g.Kind() == KindRead
	passed := make(map[string]bool)
	for {
		front, found := locknode.Predecessor(names, own, reads, passed)
		switch {
		case !found:
			return g.node.gone(zk.ErrNoNode), nil
		case front == "":
			return nil, nil
		}
		data, stat, err := conn.Get(g.node.dir + "/" + front)
		switch {
		case err != nil && !errors.Is(err, zk.ErrNoNode):
			return nil, err
		case err == nil && blocks(front, data, stat, own, g.token, reads):
			return ErrOvertaken, nil
		}
		passed[front] = true
	}
}
