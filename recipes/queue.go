package recipes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// Queue hands out each of its items to one consumer at a time, until a consumer says that it is
// done with it. If its consumer vanishes, or returns it, an item is handed out again, in its old
// place: each item is consumed at least once, and none is lost.
//
// It has the nodes of kazoo's LockingQueue, with which it can be shared:
//
//	path/entries/entry-PPP-NNNNNNNNNN   an item; PPP is its priority, 100 by default
//	path/taken/entry-PPP-NNNNNNNNNN     ephemeral: somebody has it
//	path/puts/                          tags of the puts that are under way
//
// Items are taken in the order of their names: by priority, and within one in the order in which
// they were put. Several consumers at a time finish in any order.
type Queue struct {
	s    *Session
	path string
	acl  []zk.ACL

	mu   sync.Mutex
	made bool // the three nodes were there
}

// NewQueue returns the queue on a path. The nodes are made when they are needed, and stay. acl is
// for them and for the items; nil stands for [Config].ACL.
func NewQueue(s *Session, path string, acl []zk.ACL) *Queue {
	return &Queue{s: s, path: path, acl: s.aclOr(acl)}
}

func (q *Queue) entries() string { return q.path + "/entries" }
func (q *Queue) taken() string   { return q.path + "/taken" }
func (q *Queue) puts() string    { return q.path + "/puts" }

// Bounds of an Entry's Priority.
const (
	MinPriority = -normalPriority
	MaxPriority = 999 - normalPriority

	normalPriority = 100 // in kazoo's terms
)

// Entry is something to be put into a Queue.
type Entry struct {
	Data []byte

	// Priority is 0 for most; an item with a smaller one is taken earlier. It is within MinPriority
	// and MaxPriority; kazoo's is larger by 100.
	Priority int
}

// Put puts entries into the queue, all or none, exactly once. When it returns nil they are in it.
// The error is ErrUnknown if ctx, or the session, ended before that was certain.
func (q *Queue) Put(ctx context.Context, entries ...Entry) error {
	if err := q.put(ctx, entries); err != nil {
		return fmt.Errorf("recipes: put into %s: %w", q.path, err)
	}
	return nil
}

func (q *Queue) put(ctx context.Context, entries []Entry) error {
	if len(entries) == 0 {
		return nil
	}
	ops := make([]any, len(entries))
	for i, e := range entries {
		if e.Priority < MinPriority || e.Priority > MaxPriority {
			return fmt.Errorf("priority %d is not within %d and %d", e.Priority, MinPriority, MaxPriority)
		}
		data := e.Data
		if data == nil {
			data = []byte{}
		}
		ops[i] = &zk.CreateRequest{
			Path: fmt.Sprintf("%s/entry-%03d-", q.entries(), e.Priority+normalPriority),
			Data: data, Acl: q.acl, Flags: zk.FlagSequence,
		}
	}
	for {
		if err := q.makeNodes(ctx); err != nil {
			return err
		}
		_, err := newCommit(q.s, q.puts(), q.acl).run(ctx, ops...)
		if errors.Is(err, zk.ErrNodeExists) {
			return ErrExhausted // two items of one number
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		q.unmade() // somebody has deleted them
	}
}

// makeNodes makes the queue's nodes. They are persistent, not containers: were the entries deleted
// and made again, sequence numbers would start over, and a consumer of long ago could take a new
// item for the one that it had.
func (q *Queue) makeNodes(ctx context.Context) error {
	q.mu.Lock()
	made := q.made
	q.mu.Unlock()
	if made {
		return nil
	}
	err := q.s.link.do(ctx, func(ctx context.Context) error {
		l, err := q.s.link.ready(ctx)
		for _, path := range []string{q.entries(), q.taken(), q.puts()} {
			if err == nil {
				err = q.s.link.makeNode(ctx, l, path, []byte{}, q.acl)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.made = true
	return nil
}

func (q *Queue) unmade() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.made = false
}

// Len returns the number of items, and of the taken ones among them.
func (q *Queue) Len(ctx context.Context) (items, taken int, err error) {
	n, err := call(ctx, q.s.link, func(ctx context.Context) (n [2]int, err error) {
		l, err := q.s.link.ready(ctx)
		if err == nil {
			err = q.s.link.catchUp(ctx, l)
		}
		for i, path := range []string{q.entries(), q.taken()} {
			if err != nil {
				return n, err
			}
			err = q.s.link.again(ctx, l, func() error {
				names, _, err := q.s.link.conn.Children(path)
				if errors.Is(err, zk.ErrNoNode) {
					return nil
				}
				n[i] = len(names)
				return err
			})
		}
		return n, err
	}, nil)
	if err != nil {
		return 0, 0, fmt.Errorf("recipes: length of %s: %w", q.path, err)
	}
	return n[0], n[1], nil
}

// Take waits until there is an item that nobody has, and takes the first. It is the caller's until
// Done or Return, or until it is lost.
//
// When Take returns an error no item is taken. When ctx ends while one is, it is returned in the
// background. When the session expires the error is ErrExpired.
func (q *Queue) Take(ctx context.Context) (*Item, error) {
	it, err := q.take(ctx)
	if err != nil {
		return nil, fmt.Errorf("recipes: take from %s: %w", q.path, err)
	}
	return it, nil
}

func (q *Queue) take(ctx context.Context) (*Item, error) {
	if err := q.makeNodes(ctx); err != nil {
		return nil, err
	}
	l, err := q.s.link.ready(ctx)
	if err != nil {
		return nil, err
	}
	type seen struct {
		free  []string
		views [2]view
	}
	for attempt := 0; ; {
		news := q.s.link.news()
		now, err := call(ctx, q.s.link, func(ctx context.Context) (r seen, err error) {
			r.free, r.views, err = q.look(ctx, l)
			return r, err
		}, nil)
		if err != nil {
			return nil, err
		}
		for _, id := range now.free {
			it, err := q.try(ctx, l, id)
			if it != nil || err != nil {
				return it, err
			}
		}
		if len(now.free) > 0 { // others were faster, which costs everybody
			attempt++
			if err := backOff(ctx, attempt); err != nil {
				return nil, err
			}
			if attempt%8 == 0 { // or else somebody has deleted the nodes
				q.unmade()
				if err := q.makeNodes(ctx); err != nil {
					return nil, err
				}
			}
			continue
		}
		attempt = 0
		if err := awaitAny(ctx, l, news, now.views[:]...); err != nil {
			return nil, err
		}
	}
}

// look lists the items that nobody has, the first one first.
func (q *Queue) look(ctx context.Context, l *lease) (free []string, views [2]view, err error) {
	// Order: first the taken ones. An item that is taken and consumed in between is then in neither
	// list; the other way round it would seem to be free.
	for i, path := range []string{q.taken(), q.entries()} {
		err := q.s.link.again(ctx, l, func() (err error) {
			views[i], err = q.s.watches.children(path)
			return err
		})
		if err != nil {
			return nil, views, err
		}
	}
	taken := make(map[string]bool)
	for _, id := range views[0].names {
		taken[id] = true
	}
	for _, id := range views[1].names {
		if !taken[id] {
			free = append(free, id)
		}
	}
	slices.SortFunc(free, inTurn)
	return free, views, nil
}

// entryStart is the length of an item's name without its number: entry-PPP-.
const entryStart = len("entry-000-")

// inTurn is the order of items: by their names, but negative numbers, of a counter of ZooKeeper
// that has overflowed, come last.
func inTurn(a, b string) int {
	if len(a) > entryStart && len(b) > entryStart && a[:entryStart] == b[:entryStart] {
		aOver, bOver := a[entryStart] == '-', b[entryStart] == '-'
		switch {
		case aOver && bOver:
			// -2147483648 is the first
			return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(b, a))
		case aOver:
			return 1
		case bOver:
			return -1
		}
	}
	return strings.Compare(a, b)
}

// try takes an item in the session of l, and returns nil if somebody else has it, or had it.
//
// The same multi that takes the item writes its data again, which counts the times it was taken,
// and makes Done possible for nobody but the last taker.
func (q *Queue) try(ctx context.Context, l *lease, id string) (*Item, error) {
	entry := q.entries() + "/" + id
	node, err := readNode(ctx, q.s, entry)
	if err != nil || !node.exists {
		return nil, err
	}
	create := func() error {
		_, err := q.s.link.conn.Multi(
			&zk.CreateRequest{Path: q.taken() + "/" + id, Data: []byte(newUUID()), Acl: q.acl, Flags: zk.FlagEphemeral},
			&zk.SetDataRequest{Path: entry, Data: node.data, Version: node.stat.Version},
		)
		if errors.Is(err, zk.ErrNoNode) {
			// hold would make the directory, which is not missing.
			return zk.ErrBadVersion
		}
		return err
	}
	grant, err := hold(ctx, holding{s: q.s, dir: q.taken(), name: id, acl: q.acl, lease: l, create: create})
	switch {
	case errors.Is(err, ErrTaken), errors.Is(err, zk.ErrBadVersion):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &Item{
		q: q, id: id, grant: grant, data: node.data,
		version: node.stat.Version + 1, since: time.UnixMilli(node.stat.Ctime),
	}, nil
}

// Item is something that was taken from a Queue. Its methods may be called from any goroutine.
type Item struct {
	q       *Queue
	id      string
	grant   *Grant
	data    []byte
	version int32 // of the entry, while nobody else has taken it
	since   time.Time

	mu   sync.Mutex
	over bool // by Done or Return
}

// Data returns the data that were put.
func (it *Item) Data() []byte { return it.data }

// ID returns the item's name, which no other item of the queue has.
func (it *Item) ID() string { return it.id }

// Priority returns the priority of the item's Entry; 0 if its name does not say.
func (it *Item) Priority() int {
	parts := strings.Split(it.id, "-")
	if len(parts) < 3 {
		return 0
	}
	n, err := strconv.Atoi(parts[1])
	if err != nil {
		return 0
	}
	return n - normalPriority
}

// Put returns when the item was put, by the cluster's clock.
func (it *Item) Put() time.Time { return it.since }

// Attempt returns the number of times that the item has been taken with this package, from 1. An
// item that kills its consumers shows it here.
func (it *Item) Attempt() int { return int(it.version) }

// Token returns a fencing token: larger than every earlier consumer's of the item.
func (it *Item) Token() int64 { return it.grant.Token() }

// Lost returns a channel that is closed when the item can no longer be relied on not to be somebody
// else's too, as Grant.Lost does. Done and Return close it.
func (it *Item) Lost() <-chan struct{} { return it.grant.Lost() }

// Err returns nil while the item is certain to be the caller's alone, else why it is not; see
// Grant.Err.
func (it *Item) Err() error {
	it.mu.Lock()
	defer it.mu.Unlock()
	if it.over {
		return ErrReleased
	}
	return it.grant.Err()
}

// Done removes the item from the queue. It works as long as nobody else has taken the item, so also
// when Lost was closed for silence only. When somebody else has, or the session is over, the error
// says so, and the item will be, or was, consumed once more.
//
// When ctx ends, Done goes on in the background until it is certain. When the session ends before
// that, the error is ErrUnknown: either the item is gone, or it will be handed out again.
func (it *Item) Done(ctx context.Context) error {
	if err := it.end(ctx, it.remove); err != nil {
		return fmt.Errorf("recipes: item %s of %s done: %w", it.id, it.q.path, err)
	}
	return nil
}

// Return puts the item back to its place in the queue. It returns as Grant.Unlock does.
func (it *Item) Return(ctx context.Context) error {
	if err := it.end(ctx, nil); err != nil {
		return fmt.Errorf("recipes: item %s of %s returned: %w", it.id, it.q.path, err)
	}
	return nil
}

func (it *Item) end(ctx context.Context, remove func() error) error {
	it.mu.Lock()
	over := it.over
	it.over = true
	it.mu.Unlock()
	switch {
	case over:
		return ErrReleased
	case remove == nil:
		return it.grant.letGo(ctx)
	}
	done := make(chan error, 1)
	ok := it.q.s.link.spawn(func() {
		done <- remove()
		it.grant.giveUp()
	})
	if !ok {
		return it.q.s.link.closed()
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnknown, ctx.Err())
	}
}

// remove deletes the item, if nobody else has taken it since, and waits until it is certain whether
// it did.
func (it *Item) remove() error {
	s, l := it.q.s, it.grant.node.lease
	entry := it.q.entries() + "/" + it.id
	doubt := false
	for attempt := 1; ; attempt++ {
		if err := s.link.over(l); err != nil {
			return it.unknown(doubt, err)
		}
		_, err := s.link.conn.Multi(
			&zk.DeleteRequest{Path: entry, Version: it.version},
			&zk.DeleteRequest{Path: it.grant.node.path, Version: -1},
		)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, zk.ErrNoNode):
			return it.missing(doubt, entry)
		case errors.Is(err, zk.ErrBadVersion):
			return fmt.Errorf("%w: another consumer took it", ErrTaken)
		case fateOf(err) == fateRefused:
			return err
		case fateOf(err) == fateStrange:
			return it.unknown(doubt, err)
		}
		doubt = true
		if err := s.link.pause(context.Background(), attempt); err != nil {
			return it.unknown(doubt, err)
		}
	}
}

// missing explains why one of the two nodes was not there. While our session lives nobody else
// deletes them: if the entry is gone, and a request of ours was lost before, it was that.
func (it *Item) missing(doubt bool, entry string) error {
	s, l := it.q.s, it.grant.node.lease
	var exists bool
	err := s.link.again(context.Background(), l, func() (err error) {
		exists, _, err = s.link.conn.Exists(entry)
		return err
	})
	switch over := s.link.over(l); {
	case over != nil:
		return it.unknown(doubt, over)
	case err != nil:
		return it.unknown(doubt, err)
	case !exists && doubt:
		return nil
	}
	return ErrDeleted
}

func (it *Item) unknown(doubt bool, err error) error {
	if doubt {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return err
}
