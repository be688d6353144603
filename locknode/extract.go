package locknode

import "slices"

// Extract has those contenders of one lock that decide who of them holds it and whether the one
// with a token does. They are few, however many contenders there are: of those that others have to
// wait for in the same way, the first. It is for a server, which is asked about a lock with a
// million contenders and keeps none of them.
type Extract struct {
	lock  string
	token int64
	own   *Contender

	queue   map[Class]Contender  // the first of the lock's own queue
	first   map[string]Contender // of those who wait for a lease, by the queue's path
	pending map[string]Contender // the newest lease that may be of the first, by the leases' path
	leases  map[Class]Contender  // the oldest that is held
}

// NewExtract returns an Extract of the lock on a path, for the contender with a token.
func NewExtract(lock string, token int64) *Extract {
	return &Extract{lock: lock, token: token, queue: map[Class]Contender{}, first: map[string]Contender{},
		pending: map[string]Contender{}, leases: map[Class]Contender{}}
}

// Add adds a contender. Contenders that wait for a lease of a semaphore come before the leases: the
// nodes of LOCK/locks and LOCK-__lock__ before the nodes of LOCK/leases and LOCK.
func (e *Extract) Add(c Contender) {
	leases, waiting := e.lock+"/"+CuratorLeases, e.lock+"/"+CuratorLocks
	if c.Layout == LayoutKazooLease {
		leases, waiting = e.lock, e.lock+KazooLockSuffix
	}
	switch {
	case isLeaseAbove(e.lock, &c):
		return
	case c.Path == e.lock+KazooLockSuffix, c.Path == e.lock+"/"+CuratorLocks:
		if first, ok := e.first[c.Path]; !ok || Order(&c, &first) < 0 {
			e.first[c.Path] = c
		}
	case c.Path == leases && (c.Layout == LayoutLease || c.Layout == LayoutKazooLease):
		e.addLease(c, e.first[waiting])
	case c.Path == e.lock:
		if first, ok := e.queue[c.Class()]; !ok || Order(&c, &first) < 0 {
			e.queue[c.Class()] = c
		}
	default:
		return // it is none of the lock's
	}
	if c.Token == e.token && (e.own == nil || isNewer(e.own, &c)) {
		e.own = &c
	}
}

func (e *Extract) addLease(c, first Contender) {
	c.Kind = KindLease
	if isPending(&c, []Contender{first}) {
		newest, ok := e.pending[c.Path]
		if !ok || isNewer(&c, &newest) {
			e.pending[c.Path] = c
			if !ok {
				return
			}
			c = newest
		}
	}
	if oldest, ok := e.leases[c.Class()]; !ok || isNewer(&oldest, &c) {
		e.leases[c.Class()] = c
	}
}

// Verdict is the result for the contender with a token.
type Verdict struct {
	// Own is the contender; nil if there is none with the token.
	Own *Contender
	// Holds is the first holder of the lock, if its nodes have their numbers in the order in which
	// they were made; nil if there is none.
	Holds *Contender
	// Behind is the last of those that are known to be in front of Own and that it waits for; nil
	// if there is none, or if it waits for a lease.
	Behind *Contender
}

// Verdict judges the added contenders.
func (e *Extract) Verdict() Verdict {
	var all []Contender
	for _, m := range []map[Class]Contender{e.queue, e.leases} {
		for _, c := range m {
			all = append(all, c)
		}
	}
	for _, m := range []map[string]Contender{e.first, e.pending} {
		for _, c := range m {
			all = append(all, c)
		}
	}
	is := func(own, c *Contender) bool { return own.Path == c.Path && own.Node == c.Node }
	if e.own != nil && !slices.ContainsFunc(all, func(c Contender) bool { return is(e.own, &c) }) {
		all = append(all, *e.own)
	}
	all = Resolve(Sorted(e.lock, all))
	v := Verdict{}
	for i := range all {
		c := &all[i]
		if c.Held && (v.Holds == nil || c.Token < v.Holds.Token) {
			v.Holds = c
		}
		if e.own != nil && is(e.own, c) {
			v.Own = c
		}
	}
	if v.Own == nil && e.own != nil {
		own := *e.own // the place in the queue of the next to get a lease
		own.Kind = KindLease
		v.Own = &own
	}
	if v.Own != nil && !v.Own.Held {
		v.Behind = behind(all, v.Own)
	}
	return v
}

// behind returns the last of all that a contender of a lock's queue waits for.
func behind(all []Contender, own *Contender) (last *Contender) {
	if own.Kind == KindLease {
		return nil
	}
	for i := range all {
		c := &all[i]
		inFront := c.Kind == KindLease && c.Held && c.Token < own.Token || c.Kind != KindLease && Order(c, own) < 0
		if inFront && !shares(own, c.Class()) && (last == nil || Order(last, c) < 0) {
			last = c
		}
	}
	return last
}
