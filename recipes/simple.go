package recipes

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/mutant"
	"lockkeeper/locknode"
)

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
	if !ours && !mutant.On(mutant.NodeOfAnother) {
		return nil, nil
	}
	return []string{p.dir}, nil
}
