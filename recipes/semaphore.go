package recipes

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"lockkeeper/locknode"
)

// Semaphore lets up to a number of contenders in at a time, in the order in which they came: each
// holds one of its leases.
//
// It is Curator's InterProcessSemaphoreV2 on the same path: a queue in the child locks, where one
// at a time waits for a lease to be free, and the leases in the child leases. Programs that share
// it have to agree on the number, or on the node that has it. kazoo's Semaphore is another thing,
// which does not mix with it: its leases are children of the path itself, without numbers, its
// queue is beside the path, and the path's data are the number, in decimal.
//
// It waits for every holder that has locked the path with a lock of this package, Curator, kazoo or
// go-zookeeper before the lease was made; Curator's semaphore does not.
//
// A lease's token is larger than every earlier lease's. But as several are held at a time, it is
// good for telling holders apart and for [Grant.Guard], not for fencing.
type Semaphore struct {
	s    *Session
	path string
	opts SemaphoreOptions
}

// SemaphoreOptions are the settings of a Semaphore.
type SemaphoreOptions struct {
	// MutexOptions: LockDelay does not apply.
	MutexOptions

	// Leases is the number of leases, at least 1. With a CountPath it is the number for as long as
	// that node does not exist.
	Leases int

	// CountPath is a node with the number of leases, as Curator's SharedCount keeps it: 4 bytes,
	// big-endian. It may change at any time: if it grows, who waits is let in; if it shrinks,
	// nobody is thrown out, but nobody is let in before enough have left. Empty: the number is
	// Leases for ever.
	CountPath string
}

// NewSemaphore returns the semaphore on a path; see [NewMutex] for how its nodes are made.
func NewSemaphore(s *Session, path string, opts SemaphoreOptions) *Semaphore {
	return &Semaphore{s: s, path: path, opts: opts}
}

// Path returns the path of the semaphore.
func (m *Semaphore) Path() string { return m.path }

// Lock waits until it has a lease, or ctx or the session ends; see [Mutex.Lock]. The Grant's Unlock
// gives it back.
func (m *Semaphore) Lock(ctx context.Context) (*Grant, error) { return m.acquire(ctx, true) }

// TryLock takes a lease if there is one and nobody waits for it, else it returns ErrLocked. It may
// do so too while another is just taking one.
func (m *Semaphore) TryLock(ctx context.Context) (*Grant, error) { return m.acquire(ctx, false) }

// SetLeases writes the number of leases to the CountPath, and makes that node if need be. When it
// returns an error other than of the arguments, the number may or may not have been written; to
// call it again does no harm.
func (m *Semaphore) SetLeases(ctx context.Context, n int) error {
	if err := m.setLeases(ctx, n); err != nil {
		return fmt.Errorf("recipes: set leases of %s: %w", m.path, err)
	}
	return nil
}

func (m *Semaphore) setLeases(ctx context.Context, n int) error {
	if n < 0 || int(int32(n)) != n {
		return fmt.Errorf("%d leases", n)
	}
	if m.opts.CountPath == "" {
		return errors.New("no CountPath")
	}
	data, acl := binary.BigEndian.AppendUint32(nil, uint32(n)), m.s.aclOr(m.opts.ACL)
	k, path := m.s.link, m.opts.CountPath
	return k.do(ctx, func(ctx context.Context) error {
		set := func() error {
			_, err := k.conn.Set(path, data, -1)
			return err
		}
		err := k.again(ctx, nil, set)
		if !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		if err := k.makeNode(ctx, nil, path, data, acl); err != nil {
			return err
		}
		return k.again(ctx, nil, set) // the node may be somebody else's
	})
}

func (m *Semaphore) acquire(ctx context.Context, wait bool) (*Grant, error) {
	if m.opts.Leases < 1 && m.opts.CountPath == "" {
		return nil, fmt.Errorf("recipes: semaphore %s: %d leases", m.path, m.opts.Leases)
	}
	if err := m.opts.check(); err != nil {
		return nil, fmt.Errorf("recipes: semaphore %s: %w", m.path, err)
	}
	// A lease has no priority: its place in the queue does not matter.
	p := newPlace(m.s, m.path+"/"+locknode.CuratorLeases, leaseName, KindLease,
		MutexOptions{Note: m.opts.Note, Data: m.opts.Data, ACL: m.opts.ACL})
	p.gate = newPlace(m.s, m.path+"/"+locknode.CuratorLocks, lockName, KindWrite, m.opts.MutexOptions)
	p.gate.doing = p.doing
	p.report = newWaitReport(m.path, m.opts.OnWait)
	p.gate.report = p.report
	p.turn = func(ctx context.Context, wait bool) error { return m.awaitLease(ctx, p, wait) }
	g, err := acquire(ctx, p, m.path, wait)
	if err != nil {
		return nil, fmt.Errorf("recipes: semaphore %s: %w", m.path, err)
	}
	return g, nil
}

// awaitLease waits until there are no more leases than there may be; ours is among them. p is at
// the front of the gate, so that nobody else waits with a lease made, and when somebody else has a
// lease too, it has had it since before we came. That we count all of them, also those behind ours,
// is for when the gate was tampered with, or the number shrinks: better none than one too many.
func (m *Semaphore) awaitLease(ctx context.Context, p *place, wait bool) error {
	waited := false
	for attempt := 1; ; {
		changed := p.s.link.news()
		p.want(true)
		look, err := m.count(p)
		if err == nil && look.free && waited && p.gate.yields > 0 {
			err = p.gate.stillFirst()
		}
		switch {
		case fateOf(err) == fateUnknown:
			if err := p.s.link.pause(ctx, attempt); err != nil {
				return err
			}
			attempt++
			continue
		case err != nil:
			return err
		case look.free:
			return nil
		case !wait:
			return ErrLocked
		}
		attempt, waited = 1, true
		p.want(false)
		p.doing.set("waiting for one of the leases")
		p.report.leased(ctx, p, look.names)
		if err := p.awaitEither(ctx, look, changed); err != nil {
			return err
		}
	}
}

// stillFirst returns errYields if a more urgent one has come to the gate while the place waited
// behind it.
func (p *place) stillFirst() error {
	l := p.look()
	if l.err == nil && l.better != "" {
		return errYields
	}
	return l.err
}

// leaseLook is a look at the leases and their number.
type leaseLook struct {
	free          bool            // ours is one of those that there may be
	leases, count <-chan struct{} // closed when that has changed
	beside        <-chan struct{} // closed when there are other locks on the path, or no longer
	names         []string        // of the leases
}

// awaitEither waits for a change of the look, of our nodes, or of the session.
func (p *place) awaitEither(ctx context.Context, look leaseLook, changed <-chan struct{}) error {
	select {
	case <-look.leases:
	case <-look.count:
	case <-look.beside:
	case <-p.report.due():
	case <-changed: // the watches may not have been set again
	case ev := <-p.node.own:
		return p.node.changed(ctx, ev)
	case ev := <-p.gate.node.own:
		// Without our node in the gate another would wait beside us.
		return p.gate.node.changed(ctx, ev)
	case <-p.node.lease.ended:
		return p.node.over()
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func (m *Semaphore) count(p *place) (l leaseLook, err error) {
	limit := m.opts.Leases
	if m.opts.CountPath != "" {
		v, err := m.s.watches.node(m.opts.CountPath)
		if err != nil {
			return l, err
		}
		if v.exists {
			if len(v.data) != 4 {
				return l, fmt.Errorf("number of leases in %s has %d bytes, not 4", m.opts.CountPath, len(v.data))
			}
			n := int(int32(binary.BigEndian.Uint32(v.data)))
			limit = n
		}
		l.count = v.watch.fired
	}
	v, err := m.s.watches.children(p.node.dir)
	if err != nil {
		return l, err
	}
	if _, found := locknode.Predecessor(v.names, p.node.name(), false, nil); !found {
		return l, p.node.gone(zk.ErrNoNode)
	}
	locked, beside, err := p.beside(m.path)
	if err != nil {
		return l, err
	}
	l.leases, l.beside, l.names = v.watch.fired, beside, v.names
	l.free = len(v.names) <= limit && !locked
	return l, nil
}

// beside looks for contenders of other locks on a semaphore's path that were there before our lease
// was made. changed is closed when they change.
func (p *place) beside(path string) (found bool, changed <-chan struct{}, err error) {
	v, err := p.s.watches.children(path)
	if err != nil {
		return false, nil, err
	}
	var names []string
	for _, n := range v.names {
		if _, ok := locknode.Sequence(n); ok || locknode.IsKazooLease(n) {
			names = append(names, n)
		}
	}
	first, err := p.earlier(path, names)
	return first != "", v.watch.fired, err
}
