package server

import (
	"runtime"
	"sync"

	"lockkeeper/session"
)

// flushers send the output of the connections that their sessions have woken, with at most as many
// goroutines as there are processors: one entry may make output for thousands of connections.
type flushers struct {
	mu      sync.Mutex
	waiting []*conn // in the order of Conn.Wake
	running int     // goroutines; each ends when no connection waits
}

// add has the output of a connection sent. It does not block.
func (f *flushers) add(c *conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = append(f.waiting, c)
	if f.running < runtime.GOMAXPROCS(0) {
		f.running++
		c.port.wg.Go(f.run)
	}
}

func (f *flushers) run() {
	for c := f.next(); c != nil; c = f.next() {
		_ = c.flush(session.FlushShared)
	}
}

// next takes the first connection that waits. With nil the goroutine that calls it ends.
func (f *flushers) next() *conn {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.waiting) == 0 {
		f.running--
		f.waiting = nil
		return nil
	}
	c := f.waiting[0]
	f.waiting[0] = nil
	f.waiting = f.waiting[1:]
	return c
}
