package fence

import "sync"

// Gate remembers in memory, for as long as the process runs. The zero value is ready. Its methods
// may be called from any goroutine.
//
// It keeps some 100 bytes for every resource that it has ever been asked about.
type Gate struct {
	mu        sync.Mutex
	resources map[string]*gated
}

// gated is one resource of a Gate.
type gated struct {
	mu     sync.Mutex // held while Do's function runs
	newest int64
}

// Check accepts a token or refuses it, and remembers it.
func (g *Gate) Check(resource string, token int64) error {
	return g.Do(resource, token, func() error { return nil })
}

// Do calls f if the token is accepted, and returns the error of f. While f runs every other call
// for the same resource waits, whatever its token: no newer holder's write comes before f's.
func (g *Gate) Do(resource string, token int64, f func() error) error {
	r := g.resource(resource)
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := check(resource, token, r.newest); err != nil {
		return err
	}
	r.newest = token
	return f()
}

// Newest returns the largest token seen; 0 if none.
func (g *Gate) Newest(resource string) int64 {
	r := g.resource(resource)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest
}

func (g *Gate) resource(name string) *gated {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.resources == nil {
		g.resources = make(map[string]*gated)
	}
	r := g.resources[name]
	if r == nil {
		r = new(gated)
		g.resources[name] = r
	}
	return r
}
