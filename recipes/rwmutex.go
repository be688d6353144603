package recipes

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"lockkeeper/locknode"
)

// RWMutex is a fair lock that readers share and that a writer has alone. All are in one queue: a
// reader waits for the writers in front of it, a writer for everybody in front of it. So readers
// that keep coming do not keep a writer out: those that come after it wait for it.
//
// It excludes Curator's InterProcessReadWriteLock on the same path, with the same names of nodes
// (__READ__ and __WRIT__), and, as a writer would, every Mutex. kazoo has to be told of the names:
//
//	WriteLock(client, path, extra_lock_patterns=["__WRIT__", "__READ__"])
//
// kazoo's ReadLock (of 2.8.0) is understood, but of no use beside any writer: it waits for the
// newest one, also if that came later, and so the two wait for each other for ever, without
// anybody's help. testdata/kazoo_contender.py has one that works, and that gets along with
// Curator's too.
//
// As a Mutex, it is a name for the path and has no state. A holder that locks again blocks itself
// if either lock is for writing; for that there is [RWMutex.Handle].
type RWMutex struct {
	s    *Session
	path string
	opts MutexOptions
}

// NewRWMutex returns the lock on a path; see [NewMutex].
func NewRWMutex(s *Session, path string, opts MutexOptions) *RWMutex {
	return &RWMutex{s: s, path: path, opts: opts}
}

// Path returns the path of the lock.
func (m *RWMutex) Path() string { return m.path }

// Lock waits until the lock is held for writing; see [Mutex.Lock].
func (m *RWMutex) Lock(ctx context.Context) (*Grant, error) {
	return m.acquire(ctx, KindWrite, true)
}

// TryLock acquires the lock for writing if nobody holds it or waits for it; see [Mutex.TryLock].
func (m *RWMutex) TryLock(ctx context.Context) (*Grant, error) {
	return m.acquire(ctx, KindWrite, false)
}

// RLock waits until the lock is held for reading; see [Mutex.Lock].
//
// The tokens of readers that read at the same time differ, and say nothing of their order; but each
// is larger than every earlier writer's.
func (m *RWMutex) RLock(ctx context.Context) (*Grant, error) {
	return m.acquire(ctx, KindRead, true)
}

// TryRLock acquires the lock for reading if no writer holds it or waits for it.
func (m *RWMutex) TryRLock(ctx context.Context) (*Grant, error) {
	return m.acquire(ctx, KindRead, false)
}

func (m *RWMutex) acquire(ctx context.Context, kind Kind, wait bool) (*Grant, error) {
	base := writeName
	if kind == KindRead {
		base = readName
	}
	return acquireQueued(ctx, m.s, m.path, base, kind, m.opts, wait)
}

// RLocker returns the lock for reading as a [Locker].
func (m *RWMutex) RLocker() Locker { return rlocker{m} }

type rlocker struct{ m *RWMutex }

func (r rlocker) Lock(ctx context.Context) (*Grant, error)    { return r.m.RLock(ctx) }
func (r rlocker) TryLock(ctx context.Context) (*Grant, error) { return r.m.TryRLock(ctx) }
func (r rlocker) Path() string                                { return r.m.path }

// Downgrade turns a grant for writing of an RWMutex into one for reading. It is the same grant,
// with its node, its token and its place in front of everybody: no other writer comes in between,
// and the readers next to it are let in. When it returns nil, Kind is KindRead. It returns
// ErrNotWriter for any other grant.
//
// A node cannot change its name, so its data say it. Curator's readers and kazoo's do not look
// there, and wait as before until the grant ends.
//
// From the call on the grant counts as one for reading. It does not become one for writing again
// unless the cluster refuses; so when ctx ends before the cluster has confirmed, it counts as one
// for reading, though it may not be.
func (g *Grant) Downgrade(ctx context.Context) error {
	err := g.downgrade(ctx)
	if err != nil {
		return fmt.Errorf("recipes: downgrade %s: %w", g.path, err)
	}
	return nil
}

// Upgrade refuses: see [ErrUpgrade]. It is there to say so.
func (g *Grant) Upgrade(context.Context) error {
	return fmt.Errorf("recipes: upgrade %s: %w", g.path, ErrUpgrade)
}

func (g *Grant) downgrade(ctx context.Context) error {
	if g.Kind() != KindWrite || locknode.Layout(g.node.name()) != writeName {
		return ErrNotWriter
	}
	if err := g.Err(); err != nil {
		return err
	}
	// keep owns the place.
	done := make(chan error, 1)
	select {
	case g.work <- func() { done <- g.doDowngrade(ctx) }:
	case <-g.life.Done():
		return g.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *Grant) doDowngrade(ctx context.Context) error {
	n := g.node
	info := newInfo("")
	if i := locknode.ParseInfo(n.data); i != nil {
		info = *i
	} else {
		info.Data = n.data
	}
	info.Downgraded = true
	data, rewrite := encodeInfo(info), n.set
	if g.place.delay != nil {
		rewrite = g.place.delay.rewrite
	}
	// Order: first the grant, then the cluster, which lets readers in before we hear of it.
	g.setKind(KindRead)
	for attempt := 1; ; attempt++ {
		err := rewrite(data)
		switch fateOf(err) {
		case fateDone:
			return nil
		case fateRefused:
			if attempt == 1 { // certainly not done
				g.setKind(KindWrite)
			}
			if errors.Is(err, zk.ErrNoNode) {
				err = n.gone(err)
				g.lose(err)
			}
			return err
		}
		select {
		case <-g.release:
			return ErrReleased
		default:
		}
		if err := n.link.pause(ctx, attempt); err != nil {
			return err
		}
		if err := n.over(); err != nil {
			return err
		}
	}
}

// setKind changes the kind of the grant.
func (g *Grant) setKind(k Kind) {
	g.node.link.mu.Lock()
	defer g.node.link.mu.Unlock()
	g.kind = k
}
