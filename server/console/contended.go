package console

import (
	"cmp"
	"slices"
	"time"

	"lockkeeper/locknode"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Contention is a lock that others wait for.
type Contention struct {
	Path    string
	Waiting int
	// OldestMs is since when the longest waiter has waited, in ms since 1970.
	OldestMs int64
}

// LongestWait is how long the longest waiter has waited at that time.
func (c Contention) LongestWait(now time.Time) time.Duration {
	return max(0, now.Sub(time.UnixMilli(c.OldestMs)))
}

const (
	// walkStep is how many sessions and ephemeral nodes are visited under one lock of the state.
	walkStep = 500
	// contendedLook is how many nodes at the head of a queue Contended looks at, to tell who waits.
	contendedLook = 64
	// contendedChildren is how many children it looks at for that.
	contendedChildren = 1000
)

// Contended returns the n locks with the most waiters, the most contended first. view is
// Member.View. It visits the ephemeral nodes of all sessions in steps, which takes about half a
// microsecond for each, and needs no index. Nodes that no lock is known to make are not counted:
// the members of a group do not wait.
func Contended(view func(func(*znode.Store)), n int) []Contention {
	queues := map[string]int{} // nodes, by their parent
	walkEphemerals(view, func(e znode.Ephemeral) {
		if dir, name := locknode.Split(e.Path); locknode.KindOf(name) != locknode.KindUnknown {
			queues[dir]++
		}
	})
	var list []Contention
	for dir, nodes := range queues {
		if nodes > 1 {
			list = append(list, Contention{Path: dir, Waiting: nodes})
		}
	}
	slices.SortFunc(list, func(a, b Contention) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(a.Path, b.Path))
	})
	list = slices.Clip(list[:min(n, len(list))])
	for i := range list {
		list[i].measure(view)
	}
	list = slices.DeleteFunc(list, func(c Contention) bool { return c.Waiting <= 0 })
	return list
}

// measure finds out how many of the nodes hold, and since when the first of the others waits. Nodes
// of a queue that are no ephemerals of a lock are few, if any, and only the first children are
// looked at. What the nodes say of their owners is parsed without the lock of the state.
func (c *Contention) measure(view func(func(*znode.Store))) {
	type found struct {
		name string
		data []byte
		stat wire.Stat
	}
	var first []found
	view(func(store *znode.Store) {
		looked := 0
		for name, data := range store.ChildrenInOrder(c.Path) {
			if looked++; len(first) == contendedLook || looked > contendedChildren {
				break
			}
			if st, ok := store.Node(c.Path + "/" + name); ok && st.EphemeralOwner != 0 && locknode.Contends(name) {
				first = append(first, found{name, data, st})
			}
		}
	})
	var head []locknode.Contender
	for _, f := range first {
		head = append(head, locknode.New(c.Path, f.name, int64(f.stat.EphemeralOwner), time.UnixMilli(f.stat.Ctime),
			int64(f.stat.Czxid), f.data[:min(len(f.data), dataMax)]))
	}
	for _, one := range locknode.Resolve(locknode.Sorted(c.Path, head)) {
		if one.Held || one.MayHold {
			c.Waiting--
		} else if c.OldestMs == 0 || one.Created.UnixMilli() < c.OldestMs {
			c.OldestMs = one.Created.UnixMilli()
		}
	}
	if c.OldestMs == 0 {
		c.Waiting = 0 // all of them hold: readers, or the leases of a semaphore
	}
}

// walkEphemerals visits all ephemeral nodes. It begins again if a snapshot replaces the state.
func walkEphemerals(view func(func(*znode.Store)), visit func(znode.Ephemeral)) (restarted bool) {
	var walk *znode.EphemeralWalk
	for done := false; !done; {
		view(func(store *znode.Store) {
			if walk == nil {
				walk = store.WalkEphemerals()
			}
			lost := false
			if done, lost = walk.Step(store, walkStep, visit); lost {
				walk, restarted = nil, true
			}
		})
	}
	return restarted
}
