package recipes

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/locknode"
)

// Contender is somebody who holds a lock or waits for it, as others see it: one
// node, made by this package, Curator, kazoo or go-zookeeper.
type Contender = locknode.Contender

// Contenders lists who holds the lock on a path and who waits for it, holders
// first, then the others in the order in which it will be their turn. It knows
// the layouts of this package's recipes, of Curator's InterProcessMutex,
// InterProcessReadWriteLock and InterProcessSemaphoreV2, of kazoo's Lock,
// ReadLock, WriteLock and Semaphore, and of go-zookeeper's Lock. A path that does
// not exist has no contenders.
//
// It reads one node after the other, so what it returns is no state in which the
// cluster was at one moment: a node that goes meanwhile is left out.
func (s *Session) Contenders(ctx context.Context, path string) ([]Contender, error) {
	i := inspector{s: s}
	cs, err := ask(ctx, s, func() ([]Contender, error) {
		// Who asks after a change that it knows of shall see it.
		if err := s.confirm(); err != nil {
			return nil, err
		}
		return i.path(path)
	})
	if err != nil {
		return nil, fmt.Errorf("recipes: contenders of %s: %w", path, err)
	}
	return cs, nil
}

// Holders lists those of the [Session.Contenders] of a path who hold the lock, or may
// hold it.
func (s *Session) Holders(ctx context.Context, path string) ([]Contender, error) {
	cs, err := s.Contenders(ctx, path)
	return slices.DeleteFunc(cs, func(c Contender) bool { return !c.Held && !c.MayHold }), err
}

// ask makes calls that change nothing, or nothing more when they are made again,
// until it is known what came of them.
func ask[T any](ctx context.Context, s *Session, f func() (T, error)) (T, error) {
	return call(ctx, s, func(ctx context.Context) (v T, err error) {
		err = s.again(ctx, nil, func() error {
			v, err = f()
			return err
		})
		return v, err
	}, nil)
}

// inspector reads queues.
type inspector struct{ s *Session }

func (i inspector) path(path string) ([]Contender, error) {
	names, _, err := i.s.conn.Children(path)
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
	names, _, err := i.s.conn.Children(path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return i.queue(path, names)
}

// inspectAtOnce is how many reads of nodes are under way at a time.
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
	data, stat, err := i.s.conn.Get(dir + "/" + name)
	if errors.Is(err, zk.ErrNoNode) {
		return Contender{}, nil
	}
	if err != nil {
		return Contender{}, err
	}
	if !ephemeral(stat.EphemeralOwner) {
		return Contender{}, nil
	}
	return locknode.New(dir, name, stat.EphemeralOwner, time.UnixMilli(stat.Ctime), stat.Czxid, data), nil
}

// ephemeral reports whether a node with this owner belongs to a session, and so may be a
// contender. A lock's path below a lock's path may end in ten digits, too.
// The smallest number is what servers store as the owner of a container.
func ephemeral(owner int64) bool { return owner != 0 && owner != math.MinInt64 }
