package recipes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
)

// Mutex is a fair lock on a path: contenders get it in the order in which the
// cluster has put their nodes, whatever program, language or machine they are
// in. It waits for every known lock on the same path, and for semaphores. Curator's
// InterProcessMutex and go-zookeeper's Lock wait for it in turn; kazoo's Lock does not
// unless it is made to (see the package comment).
//
// A Mutex is a name for the path and has no state: every Lock is a contender of
// its own, so two goroutines that use one Mutex, or two of the same path,
// exclude each other; and a holder that locks again waits for itself.
type Mutex struct {
	s    *Session
	path string
	opts MutexOptions
}

// MutexOptions are the settings of a Mutex, and of the other locks. The zero
// value is good.
type MutexOptions struct {
	// Note says why the lock is wanted. It becomes part of the [Info] in the
	// lock's node, where people and programs can read who holds the lock or waits
	// for it: [Session.Contenders].
	Note string

	// Data is stored in the lock's node instead of the Info, if it is not nil.
	Data []byte

	// ACL is for the nodes that are made: the lock's, and those of the path
	// that do not exist. Without CREATE and DELETE on the path nobody can lock.
	// Nil stands for [Config].ACL.
	ACL []zk.ACL

	// LockDelay is how long the lock is kept from the next one if this holder
	// vanishes: if its session expires before it has unlocked. It is for
	// resources that cannot check a fencing token: what the vanished holder has
	// sent them may arrive in that time. At most MaxLockDelay; 0 stands for none,
	// and does not respect those of others.
	//
	// A holder leaves a note beside the path, in the node _lockdelay_NAME, which
	// goes in the same moment as the lock's node when it unlocks. Who finds the
	// note of somebody who is gone waits for the time that it says, counted from
	// when the loss was first noticed by a contender with a LockDelay. So the
	// next holder gets the lock that long after the session's end, or later; and a
	// contender that gives up while it waits does not make the others start
	// again. A lock with this takes a round trip more to acquire, and CREATE and
	// DELETE on the path's parent.
	//
	// What it is not: it does not hold up contenders that do not know of it,
	// Curator's and kazoo's, and Mutexes without it. Closing a Session, or
	// deleting the lock's node, is no release: the delay applies. Readers of an
	// RWMutex respect it, and leave no note, as theirs is no loss to anybody.
	LockDelay time.Duration
}

// NewMutex returns the lock on a path. The nodes of the path are made when they
// are needed, as containers, which the cluster removes some time after they have
// become empty. path must be below "/".
func NewMutex(s *Session, path string, opts MutexOptions) *Mutex {
	return &Mutex{s: s, path: path, opts: opts}
}

// Path returns the path of the lock.
func (m *Mutex) Path() string { return m.path }

// Lock waits until the lock is held, or ctx or the session ends.
//
// When it returns an error, the lock is not held and no node stays behind:
// whatever is left to be done for that goes on in the background, through
// disconnects, until it is certain or the Session is closed.
//
// While there is no connection, Lock waits for one. It keeps its place in the
// queue over disconnects, but not over the expiry of the session: then it returns
// ErrExpired, for the caller to decide whether to queue up again at the end.
func (m *Mutex) Lock(ctx context.Context) (*Grant, error) { return m.acquire(ctx, true) }

// TryLock acquires the lock if nobody holds it or waits for it, and else returns
// ErrLocked, after its node has gone. It does not wait for other contenders; it
// does wait for the cluster, for as long as ctx lets it.
//
// The answer is about the present, never about a past that a server which lags
// behind still sees: a holder that has unlocked before TryLock is called is not
// in its way.
func (m *Mutex) TryLock(ctx context.Context) (*Grant, error) { return m.acquire(ctx, false) }

func (m *Mutex) acquire(ctx context.Context, wait bool) (*Grant, error) {
	return acquireQueued(ctx, m.s, m.path, lockName, KindWrite, m.opts, wait)
}

// acquireQueued acquires a lock that has one queue, the children of path.
func acquireQueued(ctx context.Context, s *Session, path, base string, kind Kind, o MutexOptions, wait bool,
) (*Grant, error) {
	p := newPlace(s, path, base, kind, o)
	err := p.setDelay(o.LockDelay)
	var g *Grant
	if err == nil {
		g, err = acquire(ctx, p, path, wait)
	}
	if err != nil {
		return nil, fmt.Errorf("recipes: lock %s: %w", path, err)
	}
	return g, nil
}

// acquire gets to the front with p. The work is done by a goroutine, which lives
// for as long as the place: the calls of a ZooKeeper client cannot be
// interrupted, and the caller shall not have to wait for them when ctx ends.
func acquire(ctx context.Context, p *place, path string, wait bool) (*Grant, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// Unbuffered: either the caller has got the result, or the goroutine knows
	// that nobody will.
	granted, failed := make(chan *Grant), make(chan error)
	if !p.s.spawn(func() { p.run(ctx, path, wait, granted, failed) }) {
		return nil, p.s.closed()
	}
	select {
	case g := <-granted:
		return g, nil
	case err := <-failed:
		return nil, err
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w", *p.doing.Load(), ctx.Err())
	}
}

// run is the life of a place.
func (p *place) run(ctx context.Context, path string, wait bool, granted chan<- *Grant, failed chan<- error) {
	g, err := p.contend(ctx, path, wait)
	if errors.Is(err, ErrLocked) {
		// Off the path first: the next TryLock of anybody shall not trip over
		// the node of this one.
		if lerr := p.quit(); lerr != nil && !errors.Is(lerr, ErrDeleted) {
			err = lerr
		}
		p.fail(ctx, failed, err)
		return
	}
	if err != nil {
		p.fail(ctx, failed, err)
		p.quit()
		return
	}
	select {
	case granted <- g:
	case <-ctx.Done():
		g.giveUp()
	}
	g.keep()
}

func (p *place) fail(ctx context.Context, failed chan<- error, err error) {
	select {
	case failed <- err:
	case <-ctx.Done():
	}
}

// contend joins the queue and waits until it is the place's turn and the lease is
// fresh.
func (p *place) contend(ctx context.Context, path string, wait bool) (*Grant, error) {
	if gate := p.gate; gate != nil {
		if err := gate.enter(ctx, wait); err != nil {
			return nil, err
		}
		err := gate.await(ctx, wait)
		gate.want(false)
		if err != nil {
			return nil, err
		}
		p.lease = gate.lease
	}
	if err := p.enter(ctx, wait); err != nil {
		return nil, err
	}
	defer p.want(false)
	if err := p.awaitTurn(ctx, wait); err != nil {
		return nil, err
	}
	if p.gate != nil {
		// Before we return: a TryLock that comes after shall not trip over it.
		p.setDoing("making way for the next one")
		if err := p.gate.leave(); err != nil && !errors.Is(err, ErrDeleted) {
			return nil, err
		}
		p.gate = nil
	}
	p.setDoing("waiting for the cluster to confirm the session")
	g := newGrant(p, path)
	if err := p.lease.admit(ctx, g); err != nil {
		return nil, err
	}
	select {
	case ev := <-p.own: // something happened to the node while we waited
		if err := p.ownEvent(ctx, ev); err != nil {
			g.lose(err)
			return nil, err
		}
	default:
	}
	return g, nil
}

// awaitTurn waits until the lock is free for us.
func (p *place) awaitTurn(ctx context.Context, wait bool) error {
	switch {
	case p.single:
		return nil // who has made the node has the lock
	case p.turn != nil:
		return p.turn(ctx, wait)
	}
	if err := p.await(ctx, wait); err != nil || p.delay == nil {
		return err
	}
	return p.sitOut(ctx, wait)
}
