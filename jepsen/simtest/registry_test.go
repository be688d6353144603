package simtest

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// registry watches over one lock from outside of the cluster: at every moment
// it knows who believes to hold it.
type registry struct {
	c *cluster
	// besieged makes holders hold on, as long as a minute at most.
	besieged atomic.Bool
	// strict extends a holder's belief to the reports of its client library; see holder.
	strict bool

	mu           sync.Mutex
	holders      map[string]*holder // by name of the client
	lastToken    int64
	acquisitions int
	lost         int // grants that ended before they were given back
}

// holder is a client that has acquired the lock and not given it back.
type holder struct {
	conn    *zk.Conn
	session int64 // in which the lock was acquired
	timeout time.Duration
	token   int64       // for fencing; 0 if the client has none
	held    func() bool // whether its grant stands; nil if it has none
}

// believes says why a client may take itself for the holder, "" if it may not:
//
//   - its Grant stands, or
//   - its client library says that it is connected, with the session that the
//     lock was acquired in. That is all that a program has which knows nothing
//     of Grants, and what promise C6 is about.
func (h *holder) believes(strict bool) string {
	switch {
	case h.held != nil && h.held():
		return "its grant stands"
	case strict && h.conn.State() == zk.StateHasSession && h.conn.SessionID() == h.session:
		return "its library says that it is connected"
	}
	return ""
}

// acquired is called by a client the moment it has got the lock. The holder
// before it must have given it back, or know that it may no longer rely on it.
func (r *registry) acquired(name string, h *holder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acquisitions++
	r.c.journal.printf("%s acquired, session %#x, token %#x", name, h.session, h.token)
	for other, o := range r.holders {
		if why := o.believes(r.strict); why != "" {
			r.c.t.Errorf("after %v: two holders: %s (session %#x, token %#x) and %s (session %#x, token %#x), of which %s",
				r.c.journal.age(), name, h.session, h.token, other, o.session, o.token, why)
		}
	}
	if h.token != 0 {
		if h.token <= r.lastToken {
			r.c.t.Errorf("%s acquired with token %#x after one with %#x", name, h.token, r.lastToken)
		}
		r.lastToken = h.token
	}
	r.holders[name] = h
}

// releases is called by a client before it gives the lock back.
func (r *registry) releases(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holders[name].believes(true) == "" {
		r.lost++
	}
	delete(r.holders, name)
	r.c.journal.printf("%s releases", name)
}

// present is who holds the lock, nil if nobody does.
func (r *registry) present() *holder {
	r.mu.Lock()
	defer r.mu.Unlock()
	var first string // by name, for the order of a map follows from no seed
	for name := range r.holders {
		if first == "" || name < first {
			first = name
		}
	}
	return r.holders[first]
}

// hold lets the time pass for which a lock is held: mostly a moment, sometimes long enough for a
// session to expire meanwhile. It ends early with stop. Meanwhile the holder works with the
// protected resource, and so has its library hear something as often as can be.
func (r *registry) hold(rng *rand.Rand, stop <-chan struct{}, conn *zk.Conn) {
	over := make(chan struct{})
	defer close(over)
	go r.work(conn, over)
	d := time.Duration(rng.IntN(300)) * time.Millisecond
	if rng.IntN(6) == 0 {
		d = time.Duration(rng.IntN(20000)) * time.Millisecond
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	for start := time.Now(); ; {
		select {
		case <-stop:
			return
		case <-timer.C:
			if !r.besieged.Load() || time.Since(start) > time.Minute {
				return
			}
			timer.Reset(100 * time.Millisecond)
		}
	}
}

// work reads again and again, under siege more often: a library's belief counts from the last byte.
func (r *registry) work(conn *zk.Conn, over <-chan struct{}) {
	for {
		pause := 200 * time.Millisecond
		if r.besieged.Load() {
			pause = siegePause
		}
		select {
		case <-over:
			return
		case <-time.After(pause):
			_, _, _ = conn.Exists(lockPath) // only that it is asked counts
		}
	}
}
