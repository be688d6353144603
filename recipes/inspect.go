package recipes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// Contender is somebody who holds a lock or waits for it, as others see it: one
// node, made by this package, Curator, kazoo or go-zookeeper.
type Contender struct {
	// Path is the parent of the node: the lock's path, or a child of it where
	// the recipe has several queues.
	Path string `json:"path"`
	// Node is the node's name.
	Node string `json:"node"`
	// Session owns the node.
	Session int64 `json:"session"`
	// Created is when the node was made, by the clock of the cluster.
	Created time.Time `json:"created"`
	// Token is the node's czxid: the fencing token, see [Grant.Token].
	Token int64 `json:"token"`
	// Kind is what the contender wants: to read, to write, a lease.
	Kind Kind `json:"kind"`
	// Held: the lock is its. Otherwise it waits, unless MayHold.
	Held bool `json:"held"`
	// MayHold: it is not the first in the queue, but its library does not wait for
	// those in front, unless the program has told it to, which cannot be seen from
	// outside. It may hold the lock beside another.
	MayHold bool `json:"mayHold,omitempty"`
	// Layout is what the node is called in front of its sequence number: lock-,
	// __WRIT__ and __READ__ (Curator's and ours), __lock__ and __rlock__ (kazoo's), x-
	// (ZooKeeper's recipes), lease-, "kazoo lease" (which has no number), or "".
	Layout string `json:"layout,omitempty"`
	// MayIgnore are layouts of other contenders of this path, of other libraries,
	// that this one's library does not wait for unless it is told to. Where there are
	// any, the lock may have two holders: see docs/guarantees.md, who excludes whom.
	MayIgnore []string `json:"mayIgnore,omitempty"`
	// Orphan: its session has another node in the same queue. Either several
	// contenders share a session, as goroutines do, or one of the nodes was left
	// behind by a client that never got the reply to its creation. Such a node
	// blocks the queue for as long as the session lives. The nodes of both are
	// marked, for which one is unknown to its owner cannot be seen from outside.
	Orphan bool `json:"orphan,omitempty"`
	// Library is who made the node, as far as its name tells: lockkeeper,
	// curator, kazoo, go-zookeeper, zookeeper (its own recipes), or "".
	Library string `json:"library,omitempty"`
	// Info is what the contender says of itself; nil if Data are no metadata of
	// this package.
	Info *Info `json:"info,omitempty"`
	// Data are the node's data: Curator's default is the client's IP address,
	// kazoo's is the identifier that the program has given.
	Data []byte `json:"data,omitempty"`
}

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
		if _, err := s.conn.Sync("/"); err != nil {
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

// Names of the queues within a semaphore's path.
const (
	curatorLeases   = "leases"
	curatorLocks    = "locks"
	kazooLockSuffix = "-__lock__"
)

func (i inspector) path(path string) ([]Contender, error) {
	names, _, err := i.s.conn.Children(path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return i.simple(path)
	}
	var leases []Contender
	numbered := slices.DeleteFunc(slices.Clone(names), isKazooLease)
	if slices.Contains(names, curatorLeases) {
		if leases, err = i.semaphore(path+"/"+curatorLeases, nil, path+"/"+curatorLocks); err != nil {
			return nil, err
		}
	}
	if len(numbered) < len(names) {
		kazoo := slices.DeleteFunc(names, func(n string) bool { return !isKazooLease(n) })
		more, err := i.semaphore(path, kazoo, path+kazooLockSuffix)
		if err != nil {
			return nil, err
		}
		leases = append(leases, more...)
	}
	q, err := i.queue(path, numbered)
	if err != nil {
		return nil, err
	}
	return judge(leases, q), nil
}

// judge finds out who of a path holds: of the leases of its semaphore, of which it is
// known, and of the queue of its lock. It returns holders first.
func judge(leases, q []Contender) []Contender {
	all := append(leases, q...)
	for n := len(leases); n < len(all); n++ {
		c := &all[n]
		c.Held, c.MayHold = true, true
		reads := c.Kind == KindRead || c.Info != nil && c.Info.Downgraded
		for m := range all[:n] {
			other := &all[m]
			inFront := m >= len(leases) || other.Held && other.Token < c.Token
			if !inFront || reads && !exclusive(*other) {
				continue
			}
			c.Held = false
			c.MayHold = c.MayHold && mayIgnore(c, other)
		}
		c.MayHold = c.MayHold && !c.Held
	}
	strangers(all)
	slices.SortStableFunc(all, func(a, b Contender) int { return b.rank() - a.rank() })
	return all
}

// rank is larger for those who hold.
func (c *Contender) rank() int {
	switch {
	case c.Held:
		return 2
	case c.MayHold:
		return 1
	}
	return 0
}

func exclusive(c Contender) bool {
	return c.Kind != KindRead && (c.Info == nil || !c.Info.Downgraded)
}

// semaphore reads the leases, and the queue of those who wait for one.
//
// The first in the queue has made its lease before it knows whether it may have
// it. It keeps its place in the queue until it does. So a lease is held unless its
// session is the first of the queue and got there before it made the lease.
//
// names are the leases, nil for all children of the node leases.
func (i inspector) semaphore(leases string, names []string, locks string) ([]Contender, error) {
	held, err := i.queue(leases, names)
	if names == nil {
		held, err = i.children(leases)
	}
	if err != nil {
		return nil, err
	}
	waiting, err := i.children(locks)
	if err != nil {
		return nil, err
	}
	for n := range waiting {
		waiting[n].Kind = KindLease
	}
	for n := range held {
		c := &held[n]
		c.Kind = KindLease
		c.Held = len(waiting) == 0 || waiting[0].Session != c.Session || waiting[0].Token > c.Token
	}
	return append(held, waiting...), nil
}

// simple reads a path that is a lock's node itself.
func (i inspector) simple(path string) ([]Contender, error) {
	dir, name := split(path)
	c, err := i.node(dir, name)
	if err != nil || c.Session == 0 || c.Info == nil {
		return nil, err
	}
	c.Held, c.Kind = true, KindWrite
	return []Contender{c}, nil
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

// queue reads the nodes that contend, in their order.
func (i inspector) queue(path string, names []string) ([]Contender, error) {
	names = slices.DeleteFunc(names, func(n string) bool {
		_, ok := sequence(n)
		return !ok && !isKazooLease(n)
	})
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
	found = slices.DeleteFunc(found, func(c Contender) bool { return c.Session == 0 })
	slices.SortFunc(found, inOrder)
	nodes := make(map[int64]int)
	for _, c := range found {
		nodes[c.Session]++
	}
	for n := range found {
		found[n].Orphan = nodes[found[n].Session] > 1
	}
	return found, nil
}

// inOrder is the order of a queue: that of the sequence numbers, or of creation
// if the nodes have none.
func inOrder(a, b Contender) int {
	an, aok := sequence(a.Node)
	bn, bok := sequence(b.Node)
	switch {
	case aok && bok && an != bn:
		return int(an - bn)
	case a.Token != b.Token:
		return int(max(-1, min(1, a.Token-b.Token)))
	}
	return strings.Compare(a.Node, b.Node)
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
	if stat.EphemeralOwner < 0 && stat.EphemeralOwner == containerOwner {
		return Contender{}, nil
	}
	info := parseInfo(data)
	return Contender{
		Path:    dir,
		Node:    name,
		Session: stat.EphemeralOwner,
		Created: time.UnixMilli(stat.Ctime),
		Token:   stat.Czxid,
		Kind:    kindOf(name),
		Layout:  layoutOf(name),
		Library: libraryOf(name, info),
		Info:    info,
		Data:    data,
	}, nil
}

// containerOwner is what the server says instead of a session for a container.
const containerOwner = -1 << 63
