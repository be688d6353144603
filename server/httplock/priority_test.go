package httplock_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"lockkeeper/recipes"
)

// turns are the grants of a lock, one after the other.
type turns struct {
	mu    sync.Mutex
	t     *testing.T
	inUse bool
	token int64
	by    map[string]int
}

// take is called by a holder, which calls give before it releases the lock.
func (u *turns) take(kind string, token int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.inUse || token <= u.token {
		u.t.Errorf("%s has the lock with token %d after %d; held by another: %v", kind, token, u.token, u.inUse)
	}
	u.inUse, u.token = true, token
	u.by[kind]++
}

func (u *turns) give() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.inUse = false
}

// TestPrioritiesAreShared: contenders over HTTP and of package recipes, with three priorities,
// yield to each other. One holds at a time, tokens rise from holder to holder, and all get the
// lock.
func TestPrioritiesAreShared(t *testing.T) {
	c := start(t, 3)
	u := &turns{t: t, by: map[string]int{}}
	const rounds, each = 6, 3
	var all sync.WaitGroup
	for i := range each {
		priority := i - 1
		all.Go(func() {
			address := fmt.Sprintf("/shared?wait=1m&hold=renew&priority=%d", priority)
			for range rounds {
				l, err := c.ask(i, http.MethodPut, address, "")
				if err != nil || l.resp.StatusCode != http.StatusOK {
					t.Errorf("PUT %s: %+v, %v", address, l, err)
					return
				}
				u.take("HTTP", l.first.Token)
				u.give()
				if l, err = c.ask(i, http.MethodDelete, "/shared", l.first.Secret); err != nil || l.first.Event != "released" {
					t.Errorf("DELETE: %+v, %v", l, err)
				}
			}
		})
		s, err := recipes.Connect(recipes.Config{Servers: c.Servers()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		all.Go(func() {
			for range rounds {
				g, err := recipes.NewMutex(s, "/shared", recipes.MutexOptions{Priority: priority}).Lock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				u.take("recipes", g.Token())
				u.give()
				if err := g.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if got := []int{u.by["HTTP"], u.by["recipes"]}; !slices.Equal(got, []int{rounds * each, rounds * each}) {
		t.Errorf("%d grants over HTTP and of recipes, want %d each", got, rounds*each)
	}
}
