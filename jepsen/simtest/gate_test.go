package simtest

import (
	"slices"
	"sync"
	"time"
)

// gate lets clients work, one piece of work at a time, and can be closed to have
// all of them between two pieces.
type gate struct {
	mu      sync.Mutex
	changed *sync.Cond
	closed  bool
	over    bool
	working int
	who     map[string]int // pieces done since the gate was opened
}

func newGate() *gate {
	g := &gate{who: map[string]int{}}
	g.changed = sync.NewCond(&g.mu)
	return g
}

// enter waits for the gate to open; false means that it is all over.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.closed && !g.over {
		g.changed.Wait()
	}
	if g.over {
		return false
	}
	g.working++
	return true
}

// leave ends a piece of work that enter began; done says that it succeeded.
func (g *gate) leave(who string, done bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.working--
	if done {
		g.who[who]++
	}
	g.changed.Broadcast()
}

// close lets everybody finish the present operation. It returns false when that takes longer than
// limit.
func (g *gate) close(limit time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	late := false
	timer := time.AfterFunc(limit, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		late = true
		g.changed.Broadcast()
	})
	defer timer.Stop()
	for g.working > 0 && !late {
		g.changed.Wait()
	}
	return g.working == 0
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = false
	clear(g.who)
	g.changed.Broadcast()
}

// end sends everybody home.
func (g *gate) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.over = true
	g.changed.Broadcast()
}

// active lists who has done work since the gate was opened.
func (g *gate) active() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var names []string
	for name := range g.who {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
