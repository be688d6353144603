package console

import (
	"bytes"
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
	// walkStep is the number of sessions and ephemeral nodes that are visited under one lock of the
	// state.
	walkStep = 500
	// contendedLook is the number of nodes at the head of a queue that Survey looks at, to tell who
	// waits.
	contendedLook = 64
	// contendedChildren is the number of children that it looks at for that.
	contendedChildren = 1000
	// deadlockContenders bounds the contenders among which it looks for deadlocks.
	deadlockContenders = 50_000
)

// Waits is who waits for locks.
type Waits struct {
	Contended []Contention // the locks with the most waiters, the most contended first
	// Deadlocks is their number. It is not Known if the sessions that have nodes in several queues
	// contend with more than deadlockContenders others.
	Deadlocks int
	Known     bool
}

// Survey finds the n locks with the most waiters, and counts the deadlocks. view is Member.View. It
// visits the ephemeral nodes of all sessions in steps, which takes about half a microsecond for
// each, and needs no index. Nodes that no lock is known to make are not counted: the members of a
// group do not wait.
func Survey(view func(func(*znode.Store)), n int) Waits {
	var s survey
	for whole := false; !whole; { // again if a snapshot replaces the state
		s = survey{queues: map[string]*tally{}, several: map[string]bool{}, semaphores: map[string]bool{}}
		whole = walkEphemerals(view, s.visit)
	}
	s.endSession()
	w := Waits{Contended: s.contended(view, n)}
	w.Deadlocks, w.Known = s.deadlocks(view)
	return w
}

// survey is the result of a walk.
type survey struct {
	queues     map[string]*tally // by lock
	several    map[string]bool   // locks of sessions that are in several, or around others
	semaphores map[string]bool   // by path

	session wire.SessionID // the owner of the nodes being visited
	first   string         // the lock of its first node
	more    []string       // paths of its other nodes
}

// tally counts the nodes of a lock.
type tally struct {
	nodes   int // of its own queue
	leases  int
	waiting int // in the queue of its semaphore
}

func (s *survey) isSemaphore(store *znode.Store) func(path string) bool {
	return func(path string) bool {
		is, known := s.semaphores[path]
		if !known {
			_, is = store.Node(locknode.LeasesPath(path))
			s.semaphores[path] = is
		}
		return is
	}
}

func (s *survey) visit(store *znode.Store, e znode.Ephemeral) {
	dir, name := locknode.Split(e.Path)
	if locknode.KindOf(name) == locknode.KindUnknown {
		return
	}
	lock, _ := locknode.Place(e.Path, s.isSemaphore(store))
	t := s.queues[lock]
	if t == nil {
		t = &tally{}
		s.queues[lock] = t
	}
	switch {
	case dir == lock+"/"+locknode.CuratorLocks, dir == lock+locknode.KazooLockSuffix:
		t.waiting++
	case dir == lock+"/"+locknode.CuratorLeases, locknode.IsKazooLease(name):
		t.leases++
	default:
		t.nodes++
	}
	if e.Owner != s.session {
		s.endSession()
		s.session, s.first, s.more = e.Owner, lock, s.more[:0]
	} else {
		s.more = append(s.more, lock)
	}
	if bytes.Contains(e.Data[:min(len(e.Data), dataMax)], []byte(`"within"`)) {
		s.several[lock] = true
	}
}

// endSession notes the locks of a session that has nodes in several.
func (s *survey) endSession() {
	if slices.ContainsFunc(s.more, func(lock string) bool { return lock != s.first }) {
		s.several[s.first] = true
		for _, lock := range s.more {
			s.several[lock] = true
		}
	}
}

func (s *survey) contended(view func(func(*znode.Store)), n int) []Contention {
	var list []Contention
	for lock, t := range s.queues {
		if t.nodes > 1 || t.waiting > 0 || t.nodes > 0 && t.leases > 0 {
			list = append(list, Contention{Path: lock, Waiting: t.nodes + t.waiting})
		}
	}
	slices.SortFunc(list, func(a, b Contention) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(a.Path, b.Path))
	})
	list = slices.Clip(list[:min(n, len(list))])
	for i := range list {
		list[i].measure(view, s.queues[list[i].Path])
	}
	return slices.DeleteFunc(list, func(c Contention) bool { return c.Waiting <= 0 })
}

// measure counts the nodes that hold, and finds since when the first of the others waits. Nodes of
// a queue that are no ephemerals of a lock are few, if any, and only the first children are looked
// at. The nodes' data are parsed without the lock of the state.
func (c *Contention) measure(view func(func(*znode.Store)), t *tally) {
	dirs := []string{c.Path}
	if t.waiting+t.leases > 0 {
		dirs = locknode.Directories(c.Path, true)
	}
	var head []locknode.Contender
	for _, dir := range dirs {
		head = append(head, firstContenders(view, dir)...)
	}
	for _, one := range locknode.Resolve(locknode.Sorted(c.Path, head)) {
		switch {
		case one.Held || one.MayHold:
			if one.Kind != locknode.KindLease {
				c.Waiting--
			}
		case c.OldestMs == 0 || one.Queued.UnixMilli() < c.OldestMs:
			c.OldestMs = one.Queued.UnixMilli()
		}
	}
	if c.OldestMs == 0 {
		c.Waiting = 0 // all of them hold: readers
	}
}

// firstContenders returns the contenders among the first children of a directory.
func firstContenders(view func(func(*znode.Store)), dir string) (head []locknode.Contender) {
	type found struct {
		name string
		data []byte
		stat wire.Stat
	}
	var first []found
	view(func(store *znode.Store) {
		looked := 0
		for name, data := range store.ChildrenInOrder(dir) {
			if looked++; len(first) == contendedLook || looked > contendedChildren {
				break
			}
			if st, ok := store.Node(dir + "/" + name); ok && st.EphemeralOwner != 0 && locknode.Contends(name) {
				first = append(first, found{name, data, st})
			}
		}
	})
	for _, f := range first {
		head = append(head, locknode.New(dir, f.name, int64(f.stat.EphemeralOwner), time.UnixMilli(f.stat.Ctime),
			int64(f.stat.Czxid), f.data[:min(len(f.data), dataMax)]))
	}
	return head
}

// deadlocks counts them. Only locks for which somebody waits, and of which a contender has a node
// in the queue of another, can be part of one.
func (s *survey) deadlocks(view func(func(*znode.Store))) (n int, known bool) {
	contenders := 0
	for lock := range s.several {
		t := s.queues[lock]
		if t.waiting == 0 && t.nodes < 2 && (t.nodes == 0 || t.leases == 0) {
			delete(s.several, lock)
			continue
		}
		contenders += t.nodes + t.leases + t.waiting
	}
	if len(s.several) == 0 || contenders > deadlockContenders {
		return 0, len(s.several) == 0
	}
	queues := map[string][]znode.Ephemeral{}
	if !walkEphemerals(view, func(store *znode.Store, e znode.Ephemeral) {
		lock, plain := locknode.Place(e.Path, s.isSemaphore(store))
		if !plain && s.several[lock] && len(queues[lock]) < deadlockContenders {
			queues[lock] = append(queues[lock], e)
		}
	}) {
		return 0, false
	}
	var locks []locknode.Lock
	for path, nodes := range queues {
		var queue []locknode.Contender
		for _, e := range nodes {
			dir, name := locknode.Split(e.Path)
			queue = append(queue, locknode.New(dir, name, int64(e.Owner), time.UnixMilli(e.CtimeMs), int64(e.Czxid),
				e.Data[:min(len(e.Data), dataMax)]))
		}
		locks = append(locks, locknode.Lock{Path: path, Contenders: locknode.Resolve(locknode.Sorted(path, queue))})
	}
	return len(locknode.Deadlocks(locks)), true
}

// walkEphemerals visits all ephemeral nodes. It is not whole if a snapshot has replaced the state.
func walkEphemerals(view func(func(*znode.Store)), visit func(*znode.Store, znode.Ephemeral)) (whole bool) {
	var walk *znode.EphemeralWalk
	for done, lost := false, false; !done; {
		view(func(store *znode.Store) {
			if walk == nil {
				walk = store.WalkEphemerals()
			}
			done, lost = walk.Step(store, walkStep, func(e znode.Ephemeral) { visit(store, e) })
		})
		if lost {
			return false
		}
	}
	return true
}
