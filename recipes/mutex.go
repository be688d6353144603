package recipes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/locknode"
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

// SimpleMutex is the lock that everybody writes first: one ephemeral node. Who
// manages to create it has the lock; all others watch it, and try again when it
// goes. It is here for comparison, and for paths that programs lock in that way
// already; [Mutex] is better:
//
//   - It has a herd: with n that wait, each release costs n notifications and n
//     creates, n-1 of them in vain. Handing the lock once to each of n contenders
//     costs the cluster in the order of n² requests; a Mutex needs about 7n.
//   - It is not fair: the quickest contender gets it, and a contender that is far from
//     the leader may never.
//   - The lock's node has the same name for everybody. So its grants cannot Guard
//     anything, and there is a narrow gap that a Mutex does not have: if the
//     connection breaks in the moment in which Unlock hands its request to the
//     client library, and comes back only after the session has expired and
//     another has the lock, the library may send the request in its next session,
//     and delete the other's node. (The other's grant is then lost, and says so.)
//
// What it has in common with Mutex: the token, Lost, Valid, that nothing is left
// behind, and that lost replies are found out.
type SimpleMutex struct {
	s    *Session
	path string
	opts MutexOptions
}

// NewSimpleMutex returns the lock whose node is path. Of the options, Data and
// LockDelay do not apply: the node's data are the [Info], which tell the contenders
// of one session apart.
func NewSimpleMutex(s *Session, path string, opts MutexOptions) *SimpleMutex {
	return &SimpleMutex{s: s, path: path, opts: opts}
}

// Path returns the path of the lock, which is its node.
func (m *SimpleMutex) Path() string { return m.path }

// Lock waits until the lock is held; see [Mutex.Lock].
func (m *SimpleMutex) Lock(ctx context.Context) (*Grant, error) { return m.acquire(ctx, true) }

// TryLock acquires the lock if nobody holds it; see [Mutex.TryLock].
func (m *SimpleMutex) TryLock(ctx context.Context) (*Grant, error) { return m.acquire(ctx, false) }

func (m *SimpleMutex) acquire(ctx context.Context, wait bool) (*Grant, error) {
	p := newPlace(m.s, m.path, "simple", KindWrite, m.opts)
	p.single = true
	info := newInfo(m.opts.Note)
	info.ID = p.prefix
	p.data = encodeInfo(info)
	g, err := acquire(ctx, p, m.path, wait)
	if err != nil {
		return nil, fmt.Errorf("recipes: lock %s: %w", m.path, err)
	}
	return g, nil
}

// awaitFree waits until the node that is in our way has gone.
func (p *place) awaitFree(ctx context.Context, wait bool) error {
	if !wait {
		return ErrLocked
	}
	p.setDoing("waiting for %s to go", p.dir)
	for attempt := 1; ; {
		changed := p.s.news()
		v, err := p.s.lookUntilGone(p.dir)
		switch {
		case fateOf(err) == fateUnknown:
			if err := p.s.pause(ctx, attempt); err != nil {
				return err
			}
			attempt++
			continue
		case err != nil:
			return err
		case !v.exists:
			return nil
		}
		select {
		case <-v.watch.fired:
			return p.over()
		case <-p.s.recheck(v.watch, changed):
			attempt = 1
		case <-changed:
			attempt = 1
		case <-p.lease.ended:
			return p.over()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// findSingle is find for a node without a number: the one that is there, if it
// is ours.
func (p *place) findSingle() ([]string, error) {
	data, stat, err := p.s.conn.Get(p.dir)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// The owner may be a later session than the lease's, if the create was carried
	// over into it. If it is not the one in force, the node is gone by now.
	i := locknode.ParseInfo(data)
	ours := i != nil && i.ID == p.prefix && stat.EphemeralOwner == p.s.conn.SessionID()
	if !ours {
		return nil, nil
	}
	return []string{p.dir}, nil
}

// ErrNotHeld: Unlock was called on a handle more often than Lock.
var ErrNotHeld = errors.New("recipes: unlocked more often than locked")

// Handle makes a lock re-entrant: a caller that has the handle and holds the lock may
// lock it again, gets the same Grant again, and has to unlock as often. Go has no
// threads to tell who that is, as Curator's locks do; here it is whom the
// program passes the handle to. Its methods may be called from any goroutine; while
// one waits for the lock, the others that have the handle wait for it to succeed.
//
// Unlock by the handle, not by the Grant: Grant.Unlock ends it for all. When the
// grant is lost, Lock fails with the reason until all that held it have unlocked:
// who got in later must not hold what the ones outside have lost.
type Handle struct {
	acquire func(ctx context.Context, kind Kind, wait bool) (*Grant, error)
	path    string
	turn    chan struct{} // who has put something in may use what follows
	grant   *Grant
	holds   int
}

// RWHandle is a [Handle] of an [RWMutex]. Who holds the lock for writing may lock it
// for reading too, which counts as one hold more of the same grant. Who holds it
// for reading and wants to write gets ErrUpgrade.
type RWHandle struct{ Handle }

// Handle returns a new handle, which holds nothing yet.
func (m *Mutex) Handle() *Handle {
	acquire := func(ctx context.Context, _ Kind, wait bool) (*Grant, error) { return m.acquire(ctx, wait) }
	return &Handle{path: m.path, turn: make(chan struct{}, 1), acquire: acquire}
}

// Handle returns a new handle, which holds nothing yet.
func (m *RWMutex) Handle() *RWHandle {
	acquire := func(ctx context.Context, kind Kind, wait bool) (*Grant, error) {
		base := writeName
		if kind == KindRead {
			base = readName
		}
		return acquireQueued(ctx, m.s, m.path, base, kind, m.opts, wait)
	}
	return &RWHandle{Handle{path: m.path, turn: make(chan struct{}, 1), acquire: acquire}}
}

// Path returns the path of the lock.
func (h *Handle) Path() string { return h.path }

// Lock waits until the lock is held, or returns at once if the handle holds it.
func (h *Handle) Lock(ctx context.Context) (*Grant, error) { return h.lock(ctx, KindWrite, true) }

// TryLock is Lock, but returns ErrLocked if it would have to wait for others.
func (h *Handle) TryLock(ctx context.Context) (*Grant, error) { return h.lock(ctx, KindWrite, false) }

// RLock waits until the lock is held for reading, or returns at once if the handle
// holds it, be it for writing.
func (h *RWHandle) RLock(ctx context.Context) (*Grant, error) { return h.lock(ctx, KindRead, true) }

// TryRLock is RLock, but returns ErrLocked if it would have to wait for others.
func (h *RWHandle) TryRLock(ctx context.Context) (*Grant, error) {
	return h.lock(ctx, KindRead, false)
}

func (h *Handle) lock(ctx context.Context, kind Kind, wait bool) (*Grant, error) {
	if err := h.take(ctx, wait); err != nil {
		return nil, fmt.Errorf("recipes: lock %s: %w", h.path, err)
	}
	defer h.put()
	if h.holds > 0 {
		err := h.grant.Err()
		if err == nil && kind == KindWrite && h.grant.Kind() == KindRead {
			err = ErrUpgrade
		}
		if err != nil {
			return nil, fmt.Errorf("recipes: lock %s again: %w", h.path, err)
		}
		h.holds++
		return h.grant, nil
	}
	g, err := h.acquire(ctx, kind, wait)
	if err == nil {
		h.grant, h.holds = g, 1
	}
	return g, err
}

// Unlock takes one hold back. The last one unlocks; see [Grant.Unlock] for what it
// returns. ErrNotHeld if there is none.
func (h *Handle) Unlock(ctx context.Context) error {
	if err := h.take(ctx, true); err != nil {
		return fmt.Errorf("recipes: unlock %s: %w", h.path, err)
	}
	defer h.put()
	if h.holds == 0 {
		return fmt.Errorf("recipes: unlock %s: %w", h.path, ErrNotHeld)
	}
	if h.holds--; h.holds > 0 {
		return nil
	}
	g := h.grant
	h.grant = nil
	return g.Unlock(ctx)
}

func (h *Handle) take(ctx context.Context, wait bool) error {
	select {
	case h.turn <- struct{}{}:
		return nil
	default:
	}
	if !wait {
		return ErrLocked
	}
	select {
	case h.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *Handle) put() { <-h.turn }
