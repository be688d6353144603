package recipes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/locknode"
)

// Mutex is a fair lock on a path: contenders get it in the order in which the cluster has put their
// nodes, whatever program, language or machine they are in. It waits for every known lock on the
// same path, and for semaphores. Curator's InterProcessMutex and go-zookeeper's Lock wait for it in
// turn; kazoo's Lock does not unless it is made to (see the package comment).
//
// A Mutex is a name for the path and has no state: every Lock is a contender of its own, so two
// goroutines that use one Mutex, or two of the same path, exclude each other; and a holder that
// locks again waits for itself.
type Mutex struct {
	s    *Session
	path string
	opts MutexOptions
}

// MutexOptions are the settings of a Mutex, and of the other locks. The zero value is good.
type MutexOptions struct {
	// Note says why the lock is wanted. It becomes part of the [Info] in the lock's node, where
	// people and programs can read who holds the lock or waits for it: [Session.Contenders].
	Note string

	// Data is stored in the lock's node instead of the Info, if it is not nil.
	Data []byte

	// Priority says how urgent it is: of contenders that wait, one with a larger number goes first.
	// 0 is the priority of most, and of the contenders of other libraries; it is within
	// -MaxLockPriority and MaxLockPriority. (The items of a [Queue] count the other way round, as
	// kazoo's.)
	//
	// The lock itself is granted in the order of the queue, as ever. A contender that gets to the
	// front, and finds a more urgent one behind it, yields: it moves to the end of the queue. So a
	// Curator or kazoo contender is overtaken by nobody; one of negative priority lets it go first.
	// Who holds the lock keeps it. Among contenders of one priority, those that came first and have
	// yielded go first. docs/guarantees.md has the bounds and the limits. TryLock does not yield.
	//
	// A MultiMutex and a MajorityMutex have the priorities of their parts. An Election has none.
	Priority int

	// Yields is how often this contender yields at most, during one Lock; then it keeps its place.
	// It is the bound on starvation: with each yield others go first, those that are in the queue
	// then. 0 stands for DefaultYields; with a negative number it never yields.
	Yields int

	// OnWait, if it is not nil, is called with the situation of a Lock that waits: when it begins
	// to wait, when the contender next before it has gone and there is another, and beyond that
	// after 10 s, 20 s, 40 s and so on, every 10 minutes at last. It has to return soon: the Lock
	// goes on when it has. A call costs a read of each contender that it names, and a list of the
	// queue if nothing has changed. A MajorityMutex may make calls at the same time.
	OnWait func(Wait)

	// ACL is for the nodes that are made: the lock's, and the missing ones of the path. Without
	// CREATE and DELETE on the path nobody can lock. Nil stands for [Config].ACL.
	ACL []zk.ACL

	// LockDelay is how long the lock is kept from the next one if this holder vanishes: if its
	// session expires before it has unlocked. It is for resources that cannot check a fencing
	// token: late requests of the vanished holder may arrive in that time. At most MaxLockDelay; 0
	// stands for none, and does not respect others' delays.
	//
	// A holder leaves a note beside the path, in the node _lockdelay_NAME, which goes in the same
	// moment as the lock's node when it unlocks. Who finds the note of somebody who is gone waits
	// for the time that it says, counted from when the loss was first noticed by a contender with a
	// LockDelay. So the next holder gets the lock that long after the session's end, or later; and
	// a contender that gives up while it waits does not make the others start again. A lock with
	// this takes a round trip more to acquire, and CREATE and DELETE on the path's parent.
	//
	// Its limits: it does not hold up contenders that do not know of it, Curator's and kazoo's, and
	// Mutexes without it. Closing a Session, or deleting the lock's node, is no release: the delay
	// applies. Readers of an RWMutex respect it, and leave no note, as theirs is no loss to
	// anybody.
	LockDelay time.Duration
}

// MaxLockPriority is the largest Priority of a lock; the smallest is -MaxLockPriority.
const MaxLockPriority = locknode.MaxPriority

// DefaultYields is how often a contender yields to more urgent ones at most, by default.
const DefaultYields = 10

// check looks for faults.
func (o *MutexOptions) check() error {
	if o.Priority < -MaxLockPriority || o.Priority > MaxLockPriority {
		return fmt.Errorf("priority %d is not within %d and %d", o.Priority, -MaxLockPriority, MaxLockPriority)
	}
	return nil
}

// NewMutex returns the lock on a path. The nodes of the path are made when they are needed, as
// containers, which the cluster removes some time after they have become empty. path must be below
// "/".
func NewMutex(s *Session, path string, opts MutexOptions) *Mutex {
	return &Mutex{s: s, path: path, opts: opts}
}

// Path returns the path of the lock.
func (m *Mutex) Path() string { return m.path }

// Lock waits until the lock is held, or ctx or the session ends.
//
// When it returns an error, the lock is not held and no node stays behind: whatever is left to be
// done for that goes on in the background, through disconnects, until it is certain or the Session
// is closed.
//
// While there is no connection, Lock waits for one. It keeps its place in the queue over
// disconnects, but not over the expiry of the session: then it returns ErrExpired, for the caller
// to decide whether to queue up again at the end.
func (m *Mutex) Lock(ctx context.Context) (*Grant, error) { return m.acquire(ctx, true) }

// TryLock acquires the lock if nobody holds it or waits for it, and else returns ErrLocked, after
// its node has gone. It does not wait for other contenders; it does wait for the cluster, for as
// long as ctx lets it.
//
// The answer is about the present, never about a past that a server which lags behind still sees: a
// holder that has unlocked before TryLock is called is not in its way.
func (m *Mutex) TryLock(ctx context.Context) (*Grant, error) { return m.acquire(ctx, false) }

func (m *Mutex) acquire(ctx context.Context, wait bool) (*Grant, error) {
	return acquireQueued(ctx, m.s, m.path, lockName, KindWrite, m.opts, wait)
}

// SimpleMutex is the lock that everybody writes first: one ephemeral node. Who manages to create it
// has the lock; all others watch it, and try again when it goes. It is here for comparison, and for
// paths that programs lock in that way already; [Mutex] is better:
//
//   - It has a herd: with n that wait, each release costs n notifications and n creates, n-1 of
//     them in vain. Handing the lock once to each of n contenders costs the cluster in the order of
//     n² requests; a Mutex needs about 7n.
//   - It is not fair: the quickest contender gets it, and a contender that is far from the leader
//     may never.
//   - The lock's node has the same name for everybody. So its grants cannot Guard anything, and
//     there is a narrow gap that a Mutex does not have: if the connection breaks in the moment in
//     which Unlock hands its request to the client library, and comes back only after the session
//     has expired and another has the lock, the library may send the request in its next session,
//     and delete the other's node. (The other's grant is then lost, and says so.)
//
// In common with Mutex it has the token, Lost and Valid; it leaves nothing behind, and settles lost
// replies.
type SimpleMutex struct {
	s    *Session
	path string
	opts MutexOptions
}

// NewSimpleMutex returns the lock with the node path. Of the options, Data, LockDelay and Priority
// do not apply: the node's data are the [Info], which tell the contenders of one session apart.
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
	info := newInfo(m.opts.Note)
	info.ID = p.node.prefix
	p.node.data = encodeInfo(info)
	p.node.dir, _ = split(m.path)
	p.node.fixed = &fixed{path: m.path, mark: info.ID}
	p.report = newWaitReport(m.path, m.opts.OnWait)
	g, err := acquire(ctx, p, m.path, wait)
	if err != nil {
		return nil, fmt.Errorf("recipes: lock %s: %w", m.path, err)
	}
	return g, nil
}

// ErrNotHeld: Unlock was called on a handle more often than Lock.
var ErrNotHeld = errors.New("recipes: unlocked more often than locked")

// Handle makes a lock re-entrant: a caller that has the handle and holds the lock may lock it
// again, gets the same Grant again, and has to unlock as often. Go has no threads to tell who that
// is, as Curator's locks do; here it is whom the program passes the handle to. Its methods may be
// called from any goroutine; while one waits for the lock, the others that have the handle wait for
// it to succeed.
//
// Unlock by the handle, not by the Grant: Grant.Unlock ends it for all. When the grant is lost,
// Lock fails with the reason until all that held it have unlocked: who got in later must not hold a
// lock that the ones outside have lost.
type Handle struct {
	acquire func(ctx context.Context, kind Kind, wait bool) (*Grant, error)
	path    string
	turn    chan struct{} // the sender of its element may use the fields below
	grant   *Grant
	holds   int
}

// RWHandle is a [Handle] of an [RWMutex]. Who holds the lock for writing may lock it for reading
// too, which counts as one hold more of the same grant. Who holds it for reading and wants to write
// gets ErrUpgrade.
type RWHandle struct{ Handle }

// Handle returns a new handle, which holds nothing yet.
func (m *Mutex) Handle() *Handle {
	acquire := func(ctx context.Context, _ Kind, wait bool) (*Grant, error) { return m.acquire(ctx, wait) }
	return &Handle{path: m.path, turn: make(chan struct{}, 1), acquire: acquire}
}

// Handle returns a new handle, which holds nothing yet.
func (m *RWMutex) Handle() *RWHandle {
	return &RWHandle{Handle{path: m.path, turn: make(chan struct{}, 1), acquire: m.acquire}}
}

// Path returns the path of the lock.
func (h *Handle) Path() string { return h.path }

// Lock waits until the lock is held, or returns at once if the handle holds it.
func (h *Handle) Lock(ctx context.Context) (*Grant, error) { return h.lock(ctx, KindWrite, true) }

// TryLock is Lock, but returns ErrLocked if it would have to wait for others.
func (h *Handle) TryLock(ctx context.Context) (*Grant, error) { return h.lock(ctx, KindWrite, false) }

// RLock waits until the lock is held for reading, or returns at once if the handle holds it, be it
// for writing.
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

// Unlock takes one hold back. The last one unlocks; see [Grant.Unlock] for its errors. ErrNotHeld
// if there is none.
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

// Hold runs f while it holds the lock, and sees to it that it is held again when it was lost: it is
// the one place in this package where a lock is acquired on a new session without the program
// asking for it each time.
//
// f gets the grant, and a ctx that ends when the grant is lost (context.Cause tells why) or when
// the ctx of Hold does. It has to return soon then, with an error. Only then Hold acquires the lock
// again, at the end of the queue, and calls f again. So f must be able to start over: it finds its
// own work done, perhaps not all of it, and perhaps changed by those who had the lock in between.
//
// Hold returns when
//
//   - f has returned nil: nil if the grant stood until then. Else the reason for its loss: f may
//     have done its work without the lock.
//   - f has returned an error while the grant stood: that error.
//   - ctx has ended: its error, or f's.
//   - the lock cannot be acquired for another reason than an expired session, or the Session was
//     closed.
//
// The lock is unlocked in all these cases.
func Hold(ctx context.Context, l Locker, f func(ctx context.Context, g *Grant) error) error {
	for {
		g, err := l.Lock(ctx)
		if errors.Is(err, ErrExpired) {
			continue // each costs a session; Lock waits for the next one
		}
		if err != nil {
			return err
		}
		lost, err := holdOnce(ctx, g, f)
		switch {
		case err == nil && lost == nil:
			return nil
		case err == nil:
			return fmt.Errorf("recipes: hold %s: finished, but the lock had been lost: %w", l.Path(), lost)
		case lost == nil, ctx.Err() != nil, errors.Is(lost, ErrClosed):
			return err
		}
	}
}

// holdOnce runs f with one grant, and returns why that was lost, if it was, and the error of f.
func holdOnce(ctx context.Context, g *Grant, f func(ctx context.Context, g *Grant) error) (lost, err error) {
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	g.whenLost(cancel)
	defer func() {
		// Also when f panics. When ctx has ended, this goes on in the background.
		if uerr := g.Unlock(ctx); uerr != nil && ctx.Err() == nil {
			lost = uerr
		} else if lost = g.Err(); lost == ErrReleased {
			lost = nil
		}
	}()
	return nil, f(work, g)
}

// Locker is a lock, whatever recipe: [Mutex], [RWMutex] and its RLocker, [SimpleMutex],
// [Semaphore].
type Locker interface {
	// Lock waits until the lock is held; see [Mutex.Lock].
	Lock(ctx context.Context) (*Grant, error)
	// TryLock acquires the lock or returns ErrLocked; see [Mutex.TryLock].
	TryLock(ctx context.Context) (*Grant, error)
	// Path returns the path of the lock.
	Path() string
}

var (
	_ Locker = (*Mutex)(nil)
	_ Locker = (*RWMutex)(nil)
	_ Locker = (*SimpleMutex)(nil)
	_ Locker = (*Semaphore)(nil)
)
