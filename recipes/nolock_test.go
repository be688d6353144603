package recipes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// bubble runs a test with a fake cluster and some sessions, in virtual time.
func bubble(t *testing.T, sessions int, test func(t *testing.T, c *fakeCluster, s []*Session, conns []*fakeConn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		var all []*Session
		var conns []*fakeConn
		for range sessions {
			s, conn := newTestSession(c)
			defer s.Close()
			all, conns = append(all, s), append(conns, conn)
		}
		test(t, c, all, conns)
	})
}

// errOneOf reports whether err is one of those that a fault may cause.
func errOneOf(err error, may []error) bool {
	return slices.ContainsFunc(may, func(e error) bool { return errors.Is(err, e) })
}

// faultDrill is a recipe as the tests with faults drive it.
type faultDrill struct {
	name string
	// run uses the recipe with two sessions. It may report an error that the
	// fault explains; anything else it says to t.
	run func(t *testing.T, a, b *Session, mayFail []error) error
	// stays are the nodes that may be left when all is over; the rest is a leak.
	stays []string
	calls int // at the very least
}

var faultDrills = []faultDrill{
	{name: "counter", run: drillCounter, stays: []string{"/n", "/n/count"}, calls: 4},
	{name: "update", run: drillUpdate, stays: []string{"/u", "/u/v"}, calls: 4},
	{name: "barrier", run: drillBarrier, calls: 4},
	{name: "doublebarrier", run: drillDoubleBarrier, calls: 8},
	{name: "queue", run: drillQueue, stays: []string{"/q/entries", "/q/taken", "/q/puts"}, calls: 10},
	{name: "group", run: drillGroup, calls: 5},
	{name: "election", run: drillElection, calls: 6},
}

// drillCounter: the value is the sum of the acknowledged changes, each once, with any loss.
func drillCounter(t *testing.T, a, b *Session, mayFail []error) error {
	var failed error
	ca, cb := NewCounter(a, "/n/count", CounterOptions{}), NewCounter(b, "/n/count", CounterOptions{})
	sure, may := int64(0), []int64{0} // the sums that the doubtful ones may add
	add := func(c *Counter, n int64) {
		_, err := c.Add(t.Context(), n)
		switch {
		case err == nil:
			sure += n
		case !errOneOf(err, mayFail):
			t.Error(err)
		case errors.Is(err, ErrUnknown):
			failed = err
			for _, m := range may {
				may = append(may, m+n)
			}
		default:
			failed = err
		}
	}
	add(ca, 1)
	add(cb, 10)
	add(ca, 100)
	add(cb, 1000)
	got, err := ca.Get(t.Context())
	for try := 0; err != nil && try < 5; try++ {
		got, err = ca.Get(t.Context())
	}
	if err != nil {
		t.Error(err)
	}
	if !slices.Contains(may, got-sure) {
		t.Errorf("counter is %d, want %d and one of %d", got, sure, may)
	}
	return failed
}

func drillUpdate(t *testing.T, a, b *Session, mayFail []error) error {
	var failed error
	want := ""
	for i, s := range []*Session{a, b, a} {
		u, err := OptimisticUpdate(t.Context(), s, "/u/v", UpdateOptions{Create: true}, func(old []byte) ([]byte, error) {
			return fmt.Append(old, i), nil
		})
		switch {
		case err == nil:
			if string(u.Old) != want || string(u.New) != fmt.Sprint(want, i) {
				t.Errorf("update %d: %q to %q, want it to add to %q", i, u.Old, u.New, want)
			}
			want = string(u.New)
		case !errOneOf(err, mayFail):
			t.Error(err)
		default:
			failed = err
			v, err := readNode(t.Context(), b, "/u/v")
			for try := 0; err != nil && try < 4; try++ {
				v, err = readNode(t.Context(), b, "/u/v")
			}
			if err != nil {
				t.Error(err)
			}
			if got := string(v.data); got != want && got != fmt.Sprint(want, i) {
				t.Errorf("after an unknown outcome: %q", got)
			} else {
				want = got
			}
		}
	}
	return failed
}

func drillBarrier(t *testing.T, a, b *Session, mayFail []error) error {
	ba, bb := NewBarrier(a, "/b/x", nil), NewBarrier(b, "/b/x", nil)
	var mu sync.Mutex
	var failed error
	try := func(f func(context.Context) error) {
		for range 6 {
			err := f(t.Context())
			if err == nil {
				return
			}
			mu.Lock()
			failed = err
			mu.Unlock()
			if !errOneOf(err, mayFail) {
				t.Error(err)
			}
		}
		t.Error("no end of errors")
	}
	try(ba.Set)
	try(bb.Set)
	through := make(chan struct{})
	go func() {
		defer close(through)
		try(ba.Wait)
	}()
	synctest.Wait()
	select {
	case <-through:
		t.Error("the barrier does not hold")
	default:
	}
	try(bb.Remove)
	<-through
	try(ba.Set)
	try(ba.Remove)
	try(ba.Remove)
	try(bb.Wait)
	return failed
}

func drillDoubleBarrier(t *testing.T, a, b *Session, mayFail []error) error {
	var mu sync.Mutex
	var failed error
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if failed = err; !errOneOf(err, mayFail) {
			t.Error(err)
		}
	}
	var inside, done int
	for range 2 {
		var wg sync.WaitGroup
		for _, s := range []*Session{a, b} {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				bar := NewDoubleBarrier(s, "/db/x", 2, nil)
				in, err := bar.Enter(ctx, nil)
				for try := 0; err != nil && try < 4; try++ {
					fail(err)
					in, err = bar.Enter(ctx, nil)
				}
				if err != nil {
					fail(err)
					return
				}
				mu.Lock()
				inside++
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				if inside < 2 {
					t.Error("let in alone")
				}
				done++
				mu.Unlock()
				if err := in.Leave(ctx); err != nil {
					fail(err)
				} else {
					mu.Lock()
					if done < 2 && len(mayFail) == 0 { // who vanished is not waited for
						t.Error("left alone")
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		inside, done = 0, 0
	}
	// Whoever was inside alone when its session ended has left "ready" behind.
	for _, s := range []*Session{a} {
		in, err := NewDoubleBarrier(s, "/db/x", 1, nil).Enter(t.Context(), nil)
		if err == nil {
			err = in.Leave(t.Context())
		}
		if err != nil {
			fail(err)
		}
	}
	time.Sleep(10 * time.Second)
	if failed != nil {
		NewDoubleBarrier(b, "/db/x", 1, nil).sweep()
	}
	return failed
}

func drillQueue(t *testing.T, a, b *Session, mayFail []error) error {
	var failed error
	fail := func(err error) {
		if failed = err; !errOneOf(err, mayFail) {
			t.Error(err)
		}
	}
	qa, qb := NewQueue(a, "/q", nil), NewQueue(b, "/q", nil)
	min, max := make(map[string]int), make(map[string]int) // how often each may be consumed
	for i, q := range []*Queue{qa, qb, qa} {
		item := fmt.Sprint("item", i)
		max[item]++
		err := q.Put(t.Context(), Entry{Data: []byte(item)})
		for try := 0; err != nil && try < 4; try++ {
			fail(err)
			if errors.Is(err, ErrUnknown) {
				max[item]++
			}
			err = q.Put(t.Context(), Entry{Data: []byte(item)})
		}
		min[item]++
	}
	got := make(map[string]int)
	for turn := 0; ; turn++ {
		items, taken, err := qb.Len(t.Context())
		if err != nil {
			fail(err)
			continue
		}
		if items == 0 {
			if taken != 0 {
				time.Sleep(10 * time.Second) // in the background
				if _, taken, err = qb.Len(t.Context()); taken != 0 || err != nil {
					t.Errorf("%d taken of none, %v", taken, err)
				}
			}
			break
		}
		if turn > 20 {
			t.Error("no end of items")
			break
		}
		it, err := []*Queue{qa, qb}[turn%2].Take(t.Context())
		if err != nil {
			fail(err)
			continue
		}
		if turn == 0 {
			if err := it.Return(t.Context()); err != nil {
				fail(err)
			}
			continue
		}
		item := string(it.Data())
		switch err := it.Done(t.Context()); {
		case err == nil:
			got[item]++
		case errors.Is(err, ErrUnknown):
			fail(err)
			min[item]--
			got[item] += 0
		default:
			fail(err)
		}
	}
	for item, n := range max {
		if got[item] < min[item] || got[item] > n {
			t.Errorf("%s consumed %d times, want %d to %d", item, got[item], min[item], n)
		}
	}
	return failed
}

func drillGroup(t *testing.T, a, b *Session, mayFail []error) error {
	var failed error
	fail := func(err error) {
		if failed = err; !errOneOf(err, mayFail) {
			t.Error(err)
		}
	}
	ga, gb := NewGroup(a, "/g", nil), NewGroup(b, "/g", nil)
	join := func(g *Group, id string) *Membership {
		for range 5 {
			m, err := g.Join(t.Context(), id, []byte("data of "+id))
			if err == nil {
				return m
			}
			fail(err)
			time.Sleep(time.Second) // what is left of it goes in the background
		}
		t.Fatal("no end of errors")
		return nil
	}
	x, y := join(ga, "x"), join(gb, "y")
	look := func(want ...string) {
		for try := 0; ; try++ {
			members, err := ga.Members(t.Context())
			if err != nil {
				if fail(err); try < 4 {
					continue
				}
			}
			var ids []string
			for _, m := range members {
				ids = append(ids, m.ID)
			}
			if !slices.Equal(ids, want) && failed == nil {
				t.Errorf("members %v, want %v", ids, want)
			}
			return
		}
	}
	look("x", "y")
	if err := x.SetData(t.Context(), []byte("new")); err != nil {
		fail(err)
	}
	for _, m := range []*Membership{x, y} {
		if err := m.Leave(t.Context()); err != nil {
			fail(err)
		}
	}
	look()
	return failed
}

func drillElection(t *testing.T, a, b *Session, mayFail []error) error {
	var failed error
	fail := func(err error) {
		if failed = err; !errOneOf(err, mayFail) {
			t.Error(err)
		}
	}
	r := &referee{t: t}
	campaign := func(s *Session) *Leadership {
		for range 5 {
			l, err := NewElection(s, "/e/x", ElectionOptions{}).Campaign(t.Context(), []byte("me"))
			if err == nil {
				r.enter(l.Grant)
				return l
			}
			if !errOneOf(err, mayFail) {
				t.Error(err)
			}
		}
		t.Error("no end of errors")
		return nil
	}
	la := campaign(a)
	next := make(chan *Leadership)
	go func() { next <- campaign(b) }()
	synctest.Wait()
	if leader, err := NewElection(a, "/e/x", ElectionOptions{}).Leader(t.Context()); err != nil {
		if !errors.Is(err, ErrNoLeader) || len(mayFail) == 0 {
			fail(err)
		}
	} else if leader.Node != la.Node() && la.Held() {
		t.Errorf("leader is %s, want %s", leader.Node, la.Node())
	}
	if err := la.Proclaim(t.Context(), []byte("news")); err != nil {
		fail(err)
	}
	if err := la.Resign(t.Context()); err != nil {
		fail(err)
	}
	lb := <-next
	if err := lb.Resign(t.Context()); err != nil {
		fail(err)
	}
	return failed
}

// drillMayFail lists the errors that a recipe may return after a fault.
func drillMayFail(what fault) []error {
	switch what {
	case faultExpire, faultExpireAfter:
		return []error{ErrExpired, ErrTaken, ErrNoLeader}
	case faultStrange:
		return []error{errStrange, ErrUnknown, ErrTaken}
	}
	return nil
}

// leaked lists the nodes that should not be there.
func leaked(c *fakeCluster, stays []string) []string {
	return slices.DeleteFunc(c.paths(), func(p string) bool { return slices.Contains(stays, p) })
}

// TestRecipeFaultAtEveryCall lets each fault hit each call of one of two users of
// each recipe.
func TestRecipeFaultAtEveryCall(t *testing.T) {
	for _, drill := range faultDrills {
		for what := faultNone; what < faults; what++ {
			t.Run(drill.name+"/"+what.String(), func(t *testing.T) {
				t.Parallel()
				for at := 0; !t.Failed(); at++ {
					hit, failed := "", error(nil)
					bubble(t, 2, func(t *testing.T, c *fakeCluster, s []*Session, conns []*fakeConn) {
						conns[0].hook = func(n int, op, path string) fault {
							if n != at {
								return faultNone
							}
							hit = op + " " + path
							return what
						}
						failed = drill.run(t, s[0], s[1], drillMayFail(what))
						time.Sleep(20 * time.Second) // what goes on in the background
						if left := leaked(c, drill.stays); len(left) > 0 {
							t.Errorf("left behind: %v", left)
						}
					})
					if t.Failed() {
						t.Logf("call %d, %s: %v", at, hit, failed)
					}
					if what == faultNone {
						return
					}
					if hit == "" {
						if at < drill.calls {
							t.Errorf("only %d calls: the drill does not do what it should", at)
						}
						return
					}
				}
			})
		}
	}
}

// recipeOps are calls of the recipes that are no locks, one of each.
var recipeOps = map[string]func(ctx context.Context, s *Session) error{
	"counter": func(ctx context.Context, s *Session) error {
		_, err := NewCounter(s, "/c/count", CounterOptions{}).Add(ctx, 1)
		return err
	},
	"barrier": func(ctx context.Context, s *Session) error { return NewBarrier(s, "/c/held", nil).Wait(ctx) },
	"enter": func(ctx context.Context, s *Session) error {
		in, err := NewDoubleBarrier(s, "/c/db", 1, nil).Enter(ctx, nil)
		if err == nil {
			err = in.Leave(ctx)
		}
		return err
	},
	"enter alone": func(ctx context.Context, s *Session) error {
		_, err := NewDoubleBarrier(s, "/c/db", 2, nil).Enter(ctx, nil)
		return err
	},
	"put": func(ctx context.Context, s *Session) error {
		return NewQueue(s, "/c/p", nil).Put(ctx, Entry{Data: []byte("x")})
	},
	"take": func(ctx context.Context, s *Session) error {
		it, err := NewQueue(s, "/c/q", nil).Take(ctx)
		if err == nil {
			err = it.Return(ctx)
		}
		return err
	},
	"join": func(ctx context.Context, s *Session) error {
		m, err := NewGroup(s, "/c/g", nil).Join(ctx, "me", nil)
		if err == nil {
			err = m.Leave(ctx)
		}
		return err
	},
	"watch": func(ctx context.Context, s *Session) error {
		for _, err := range NewGroup(s, "/c/g", nil).Watch(ctx) {
			if err != nil {
				return err
			}
		}
		return nil
	},
	"campaign": func(ctx context.Context, s *Session) error {
		l, err := NewElection(s, "/c/e", ElectionOptions{}).Campaign(ctx, nil)
		if err == nil {
			err = l.Resign(ctx)
		}
		return err
	},
	"observe": func(ctx context.Context, s *Session) error {
		for _, err := range NewElection(s, "/c/e", ElectionOptions{}).Observe(ctx) {
			if err != nil {
				return err
			}
		}
		return nil
	},
}

// TestRecipeCancelAtEveryCall ends the ctx of each operation while each of its
// calls is under way, with and without the loss of the reply: it returns at once,
// and leaves nothing behind.
func TestRecipeCancelAtEveryCall(t *testing.T) {
	stays := []string{"/c/count", "/c/held", "/c/db/ready", "/c/p/entries", "/c/p/puts", "/c/p/taken",
		"/c/q/entries", "/c/q/puts", "/c/q/taken", "/c/q/entries/entry-100-0000000000"}
	for name, op := range recipeOps {
		for _, what := range []fault{faultNone, faultCutBefore, faultCutAfter, faultCutLate} {
			t.Run(name+"/"+what.String(), func(t *testing.T) {
				t.Parallel()
				for at := 0; ; at++ {
					last := false
					bubble(t, 2, func(t *testing.T, c *fakeCluster, s []*Session, conns []*fakeConn) {
						if err := NewBarrier(s[1], "/c/held", nil).Set(t.Context()); err != nil {
							t.Fatal(err)
						}
						if err := NewQueue(s[1], "/c/q", nil).Put(t.Context(), Entry{}); err != nil {
							t.Fatal(err)
						}
						time.Sleep(time.Second)
						ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
						defer cancel()
						var hit atomic.Int64 // when, in ns
						c.with(func() {
							conns[0].hook = func(n int, _, _ string) fault {
								if n != at {
									return faultNone
								}
								hit.Store(time.Now().UnixNano())
								cancel()
								time.Sleep(time.Second)
								return what
							}
						})
						type outcome struct {
							err error
							at  time.Time
						}
						done := make(chan outcome, 1)
						go func() {
							err := op(ctx, s[0])
							done <- outcome{err, time.Now()}
						}()
						// Some wait for ever, with calls that keep the session proved.
						time.Sleep(3 * time.Second)
						if last = hit.Load() == 0; last {
							cancel()
						}
						got := <-done
						err := got.err
						// Without error if the call was none that it waits for.
						if err != nil && !errors.Is(err, context.Canceled) {
							t.Errorf("call %d: %v", at, err)
						}
						if d := got.at.Sub(time.Unix(0, hit.Load())); !last && err != nil && d > 0 {
							t.Errorf("call %d: returned %v after ctx ended", at, d)
						}
						stays := stays
						if name == "put" && (err == nil || errors.Is(err, ErrUnknown)) {
							stays = append(slices.Clone(stays), "/c/p/entries/entry-100-0000000000")
						}
						time.Sleep(time.Minute)
						if left := leaked(c, stays); len(left) > 0 {
							t.Errorf("call %d: left behind: %v", at, left)
						}
						if strings.HasPrefix(name, "enter") && slices.Contains(c.paths(), "/c/db/ready") {
							c.with(func() { conns[0].hook = nil })
							// It may stay, but it must not let anybody in.
							wantNotEntered(t, s[0], at)
						}
					})
					if last || t.Failed() {
						if at < 2 {
							t.Errorf("only %d calls", at)
						}
						return
					}
				}
			})
		}
	}
}

// wantNotEntered checks that nobody gets into the barrier alone.
func wantNotEntered(t *testing.T, s *Session, at int) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := NewDoubleBarrier(s, "/c/db", 2, nil).Enter(ctx, nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("call %d: entered a barrier alone: %v", at, err)
	}
	time.Sleep(time.Second)
}
