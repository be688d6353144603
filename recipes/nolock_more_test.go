package recipes

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
)

// TestRecipeFaultsAtRandom lets several faults hit both users of each recipe.
func TestRecipeFaultsAtRandom(t *testing.T) {
	rounds := uint64(60)
	if raceEnabled { // which makes it slow
		rounds = 20
	}
	seed := uint64(time.Now().UnixNano())
	mayFail := []error{ErrExpired, ErrSilent, errStrange, ErrTaken, ErrNoLeader, ErrUnknown, ErrDeleted}
	for _, drill := range faultDrills {
		t.Run(drill.name, func(t *testing.T) {
			t.Parallel()
			for round := uint64(0); round < rounds && !t.Failed(); round++ {
				bubble(t, 2, func(t *testing.T, c *fakeCluster, s []*Session, conns []*fakeConn) {
					rnd, left := rand.New(rand.NewPCG(seed, round)), 4
					var mu sync.Mutex
					hook := func(int, string, string) fault {
						mu.Lock()
						defer mu.Unlock()
						if left == 0 || rnd.IntN(5) > 0 {
							return faultNone
						}
						left--
						n := int(faults)
						if drill.name == "doublebarrier" {
							// who is counted, and vanishes, leaves the other alone
							n = int(faultExpire)
						}
						return faultNone + 1 + fault(rnd.IntN(n-1))
					}
					c.with(func() { conns[0].hook, conns[1].hook = hook, hook })
					drill.run(t, s[0], s[1], mayFail)
					c.with(func() { conns[0].hook, conns[1].hook = nil, nil })
					time.Sleep(time.Minute)
					if drill.name == "doublebarrier" {
						NewDoubleBarrier(s[0], "/db/x", 1, nil).sweep()
					}
					if left := leaked(c, drill.stays); len(left) > 0 {
						t.Errorf("left behind: %v", left)
					}
				})
				if t.Failed() {
					t.Logf("seed %d, round %d", seed, round)
				}
			}
		})
	}
}

func TestCounterFormats(t *testing.T) {
	for _, tt := range []struct {
		format CounterFormat
		value  int64
		data   string
	}{
		{Decimal, 0, "0"},
		{Decimal, -12, "-12"},
		{Decimal, math.MinInt64, "-9223372036854775808"},
		{AtomicLong, 258, "\x00\x00\x00\x00\x00\x00\x01\x02"},
		{AtomicLong, -1, "\xff\xff\xff\xff\xff\xff\xff\xff"},
		{SharedCount, 258, "\x00\x00\x01\x02"},
		{SharedCount, -2, "\xff\xff\xff\xfe"},
	} {
		data, err := tt.format.encode(tt.value)
		if err != nil || string(data) != tt.data {
			t.Errorf("encode %d as %d = %q, %v", tt.value, tt.format, data, err)
		}
		if v, err := tt.format.decode([]byte(tt.data)); v != tt.value || err != nil {
			t.Errorf("decode %q as %d = %d, %v", tt.data, tt.format, v, err)
		}
		if v, err := tt.format.decode(nil); v != 0 || err != nil {
			t.Errorf("decode nothing as %d = %d, %v", tt.format, v, err)
		}
		if _, err := tt.format.decode([]byte("1.5 or so")); !errors.Is(err, ErrFormat) {
			t.Errorf("decode text as %d: %v", tt.format, err)
		}
	}
	if _, err := SharedCount.encode(math.MaxInt32 + 1); !errors.Is(err, ErrOverflow) {
		t.Errorf("32 bits: %v", err)
	}
}

func TestCounterOverflow(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *fakeCluster, s []*Session, _ []*fakeConn) {
		n := NewCounter(s[0], "/n", CounterOptions{})
		for _, tt := range []struct{ at, add int64 }{
			{math.MaxInt64, 1}, {math.MaxInt64 - 5, 6}, {math.MinInt64, -1}, {-2, math.MinInt64},
		} {
			if _, err := n.Set(t.Context(), tt.at); err != nil {
				t.Fatal(err)
			}
			if _, err := n.Add(t.Context(), tt.add); !errors.Is(err, ErrOverflow) {
				t.Errorf("%d + %d: %v", tt.at, tt.add, err)
			}
			if v, err := n.Get(t.Context()); v != tt.at || err != nil {
				t.Errorf("after an overflow: %d, %v, want %d", v, err, tt.at)
			}
		}
		if old, err := n.Set(t.Context(), 7); old != -2 || err != nil {
			t.Errorf("Set = %d, %v", old, err)
		}
	})
}

// TestUpdateCollides: many who change one node at a time lose nothing.
func TestUpdateCollides(t *testing.T) {
	bubble(t, 5, func(t *testing.T, c *fakeCluster, s []*Session, conns []*fakeConn) {
		c.with(func() {
			for _, conn := range conns {
				conn.hook = func(int, string, string) fault { time.Sleep(time.Millisecond); return faultNone }
			}
		})
		var wg sync.WaitGroup
		for _, s := range s {
			wg.Go(func() {
				for range 10 {
					if _, err := NewCounter(s, "/n", CounterOptions{}).Add(t.Context(), 1); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if v, err := NewCounter(s[0], "/n", CounterOptions{}).Get(t.Context()); v != 50 || err != nil {
			t.Errorf("%d, %v, want 50", v, err)
		}
	})
}

func TestUpdateRefuses(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *fakeCluster, s []*Session, _ []*fakeConn) {
		keep := func(old []byte) ([]byte, error) { return old, nil }
		if _, err := OptimisticUpdate(t.Context(), s[0], "/x/y", UpdateOptions{}, keep); !errors.Is(err, zk.ErrNoNode) {
			t.Errorf("no node: %v", err)
		}
		no := errors.New("no")
		_, err := OptimisticUpdate(t.Context(), s[0], "/x/y", UpdateOptions{Create: true}, func(old []byte) ([]byte, error) {
			if old != nil {
				t.Errorf("old = %q of no node", old)
			}
			return nil, no
		})
		if !errors.Is(err, no) || len(c.paths()) > 0 {
			t.Errorf("refused by change: %v, %v", err, c.paths())
		}
		u, err := OptimisticUpdate(t.Context(), s[0], "/x/y", UpdateOptions{Create: true, TagDir: "/tags"}, keep)
		if err != nil || u.Version != 0 || len(u.New) != 0 {
			t.Errorf("%+v, %v", u, err)
		}
		u, err = OptimisticUpdate(t.Context(), s[0], "/x/y", UpdateOptions{TagDir: "/tags"}, keep)
		if err != nil || u.Version != 1 || u.Old == nil {
			t.Errorf("%+v, %v", u, err)
		}
	})
}

// TestUnknownOutcome: the reply is lost and the session ends before it can be settled the outcome
// of the request. The error says both.
func TestUnknownOutcome(t *testing.T) {
	for _, what := range []fault{faultCutBefore, faultCutAfter} {
		bubble(t, 1, func(t *testing.T, c *fakeCluster, s []*Session, conns []*fakeConn) {
			n := NewCounter(s[0], "/n", CounterOptions{})
			if _, err := n.Set(t.Context(), 5); err != nil {
				t.Fatal(err)
			}
			c.with(func() {
				conns[0].hook = func(_ int, op, _ string) fault {
					if op != "multi" {
						return faultNone
					}
					c.with(func() { conns[0].hook = nil })
					return what
				}
				conns[0].reply = func(op string) { // the request has come to its fate
					if op == "multi" {
						c.with(func() { conns[0].reply = nil })
						c.with(conns[0].expireLocked)
					}
				}
			})
			_, err := n.Add(t.Context(), 1)
			if !errors.Is(err, ErrUnknown) || !errors.Is(err, ErrExpired) {
				t.Errorf("%v: %v, want ErrUnknown and ErrExpired", what, err)
			}
			want := int64(5)
			if what == faultCutAfter {
				want = 6
			}
			if v, err := n.Get(t.Context()); v != want || err != nil {
				t.Errorf("%v: %d, %v, want %d", what, v, err, want)
			}
		})
	}
}

// TestQueueLateDone: who has lost an item to another cannot take it from him.
func TestQueueLateDone(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *fakeCluster, s []*Session, _ []*fakeConn) {
		a, b := NewQueue(s[0], "/q", nil), NewQueue(s[1], "/q", nil)
		if err := a.Put(t.Context(), Entry{Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		late, err := a.Take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c.delete("/q/taken/" + late.ID()) // as if its session had ended
		it, err := b.Take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if it.Attempt() != 2 || it.Token() <= late.Token() || it.ID() != late.ID() {
			t.Errorf("%s: attempt %d, token %d after %d", it.ID(), it.Attempt(), it.Token(), late.Token())
		}
		if err := late.Done(t.Context()); !errors.Is(err, ErrTaken) {
			t.Errorf("late Done = %v, want ErrTaken", err)
		}
		if err := late.Done(t.Context()); !errors.Is(err, ErrReleased) {
			t.Errorf("Done again = %v, want ErrReleased", err)
		}
		time.Sleep(time.Second) // what goes on in the background
		if items, taken, err := b.Len(t.Context()); items != 1 || taken != 1 || err != nil {
			t.Errorf("Len = %d, %d, %v", items, taken, err)
		}
		if err := it.Done(t.Context()); err != nil {
			t.Error(err)
		}
		if err := it.Err(); err != ErrReleased {
			t.Errorf("Err after Done = %v", err)
		}
		<-it.Lost()
	})
}

// TestQueueTakeExpires: a Take takes nothing if its session expires between its look and its
// request in the next session.
func TestQueueTakeExpires(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *fakeCluster, s []*Session, conns []*fakeConn) {
		q := NewQueue(s[0], "/q", nil)
		if err := q.Put(t.Context(), Entry{Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // Put deletes its tag in the background
		looked, expired := false, false
		c.with(func() {
			conns[0].hook = func(_ int, op, path string) fault {
				if op == "get" && strings.HasPrefix(path, "/q/entries/") {
					c.with(func() { looked = true })
				}
				return faultNone
			}
			conns[0].reply = func(op string) {
				c.with(func() {
					if op == "get" && looked && !expired {
						expired = true
						conns[0].expireLocked()
					}
				})
			}
		})
		if it, err := q.Take(t.Context()); !errors.Is(err, ErrExpired) || !expired {
			t.Errorf("Take = %v, %v, want ErrExpired", it, err)
		}
		if items, taken, err := q.Len(t.Context()); items != 1 || taken != 0 || err != nil {
			t.Errorf("Len = %d, %d, %v", items, taken, err)
		}
	})
}

// TestQueueSilence: an item is lost for its consumer before another gets it, and Done works
// nevertheless as long as nobody has.
func TestQueueSilence(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *fakeCluster, s []*Session, conns []*fakeConn) {
		q := NewQueue(s[0], "/q", nil)
		if err := q.Put(t.Context(), Entry{Data: []byte("x")}, Entry{Data: []byte("y")}); err != nil {
			t.Fatal(err)
		}
		it, err := q.Take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c.with(func() {
			conns[0].reconnect = testTimeout * 3 / 4
			conns[0].cutLocked()
		})
		start := time.Now()
		<-it.Lost()
		if d := time.Since(start); d > testTimeout*2/3 || it.Err() != ErrSilent {
			t.Errorf("lost after %v: %v", d, it.Err())
		}
		if err := it.Done(t.Context()); err != nil {
			t.Errorf("Done of an item that nobody else has: %v", err)
		}
		next, err := NewQueue(s[1], "/q", nil).Take(t.Context())
		if err != nil || string(next.Data()) != "y" {
			t.Errorf("next: %v, %v", next, err)
		}
	})
}

func TestQueuePriority(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *fakeCluster, s []*Session, _ []*fakeConn) {
		q := NewQueue(s[0], "/q", nil)
		for _, p := range []int{MinPriority - 1, MaxPriority + 1} {
			if err := q.Put(t.Context(), Entry{Priority: p}); err == nil {
				t.Errorf("priority %d is accepted", p)
			}
		}
		for _, p := range []int{0, MaxPriority, 5, MinPriority, -1, 0} {
			if err := q.Put(t.Context(), Entry{Priority: p}); err != nil {
				t.Fatal(err)
			}
		}
		var got []int
		for range 6 {
			it, err := q.Take(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, it.Priority())
		}
		if want := []int{MinPriority, -1, 0, 0, 5, MaxPriority}; !slices.Equal(got, want) {
			t.Errorf("taken in the order %v, want %v", got, want)
		}
	})
}

// TestNoPileOfWatches: those who look again and again at nodes that do not change leave one watch
// for each thing that they look at.
func TestNoPileOfWatches(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *fakeCluster, s []*Session, conns []*fakeConn) {
		q, e := NewQueue(s[0], "/q", nil), NewElection(s[0], "/e", ElectionOptions{})
		g, b := NewGroup(s[0], "/g", nil), NewBarrier(s[0], "/b", nil)
		if err := b.Set(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 50 {
			for _, wait := range []func(context.Context) error{
				func(ctx context.Context) error { _, err := q.Take(ctx); return err },
				b.Wait,
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				if err := wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				cancel()
			}
			ctx, cancel := context.WithCancel(t.Context())
			for range g.Watch(ctx) {
				break
			}
			for range e.Observe(ctx) {
				break
			}
			cancel()
			if _, err := g.Members(t.Context()); err != nil {
				t.Error(err)
			}
		}
		c.with(func() {
			for key, all := range conns[0].watches {
				if len(all) > 1 {
					t.Errorf("%d watches on %s", len(all), key.path)
				}
			}
			if n := len(conns[0].watches); n != 5 {
				t.Errorf("%d things watched, want 5", n)
			}
		})
	})
}

// TestObserveIsNoHerd: those who only watch are not woken by candidates who wait.
func TestObserveIsNoHerd(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *fakeCluster, s []*Session, conns []*fakeConn) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		e := NewElection(s[0], "/e", ElectionOptions{})
		first, err := e.Campaign(ctx, []byte("first"))
		if err != nil {
			t.Fatal(err)
		}
		seen := make(chan string, 100)
		go func() {
			for leader, err := range NewElection(s[1], "/e", ElectionOptions{}).Observe(ctx) {
				if err == nil {
					seen <- string(leader.Data)
				}
			}
		}()
		synctest.Wait()
		var before int
		c.with(func() { before = conns[1].calls })
		for i := range 5 {
			go e.Campaign(ctx, fmt.Append(nil, "candidate", i))
		}
		synctest.Wait()
		c.with(func() {
			if conns[1].calls != before {
				t.Errorf("%d calls for candidates who wait", conns[1].calls-before)
			}
		})
		if err := first.Resign(ctx); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		close(seen)
		var got []string
		for s := range seen {
			got = append(got, s)
		}
		if len(got) != 2 || got[0] != "first" || !strings.HasPrefix(got[1], "candidate") {
			t.Errorf("seen %v", got)
		}
		cancel()
		synctest.Wait()
	})
}

// TestObserveStartsWithACandidate: the first candidate comes between the two looks at a list that
// was empty.
func TestObserveStartsWithACandidate(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *fakeCluster, s []*Session, conns []*fakeConn) {
		e := NewElection(s[0], "/e", ElectionOptions{})
		l, err := e.Campaign(t.Context(), []byte("x"))
		if err == nil {
			err = l.Resign(t.Context()) // the path is there now
		}
		if err != nil {
			t.Fatal(err)
		}
		looks := 0
		c.with(func() {
			conns[1].hook = func(_ int, op, _ string) fault {
				if op == "children" {
					if looks++; looks == 2 {
						if l, err = e.Campaign(t.Context(), []byte("y")); err != nil {
							t.Error(err)
						}
					}
				}
				return faultNone
			}
		})
		for leader, err := range NewElection(s[1], "/e", ElectionOptions{}).Observe(t.Context()) {
			if err != nil || leader.Token != l.Token() {
				t.Errorf("%+v, %v", leader, err)
			}
			break
		}
	})
}

// TestDoubleBarrierLeftOver: a "ready" that belongs to nobody who is there lets nobody in.
func TestDoubleBarrierLeftOver(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *fakeCluster, s []*Session, _ []*fakeConn) {
		if err := NewBarrier(s[0], "/db/ready", nil).Set(t.Context()); err != nil {
			t.Fatal(err)
		}
		entered := make(chan *Inside, 2)
		enter := func(s *Session) {
			in, err := NewDoubleBarrier(s, "/db", 2, nil).Enter(t.Context(), nil)
			if err != nil {
				t.Error(err)
			}
			entered <- in
		}
		go enter(s[0])
		time.Sleep(time.Second)
		if len(entered) > 0 {
			t.Error("let in by what an earlier round has left behind")
		}
		go enter(s[1])
		a, b := <-entered, <-entered
		// Who comes late gets in.
		late, err := NewDoubleBarrier(s[0], "/db", 2, nil).Enter(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for _, in := range []*Inside{a, b, late} {
			wg.Go(func() {
				if err := in.Leave(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		wantEmpty(t, c)
	})
}

// enterDouble enters a DoubleBarrier for n members, n of them at once.
func enterDouble(t *testing.T, n int, s ...*Session) (in []*Inside) {
	t.Helper()
	entered := make(chan *Inside, len(s))
	for _, s := range s {
		go func() {
			in, err := NewDoubleBarrier(s, "/db", n, nil).Enter(t.Context(), nil)
			if err != nil {
				t.Error(err)
			}
			entered <- in
		}()
	}
	for range s {
		if one := <-entered; one != nil {
			in = append(in, one)
		}
	}
	if len(in) < len(s) {
		t.FailNow()
	}
	return in
}

// leaveDouble leaves in the background.
func leaveDouble(t *testing.T, in ...*Inside) *sync.WaitGroup {
	left := new(sync.WaitGroup)
	for _, in := range in {
		left.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if err := in.Leave(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	return left
}

// TestDoubleBarrierLate: who came late is inside like the others. As long as it is, "ready" stays,
// and others come in.
func TestDoubleBarrierLate(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *fakeCluster, s []*Session, _ []*fakeConn) {
		first := enterDouble(t, 3, s[0], s[1], s[0])
		late := enterDouble(t, 3, s[1])
		left := leaveDouble(t, first...)
		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		last, err := NewDoubleBarrier(s[0], "/db", 3, nil).Enter(ctx, nil)
		if err != nil {
			t.Fatalf("while one is inside: %v", err)
		}
		c.with(func() {
			if c.nodes["/db/ready"] == nil {
				t.Error("removed under a member that is inside")
			}
		})
		more := leaveDouble(t, append(late, last)...)
		left.Wait()
		more.Wait()
		wantEmpty(t, c)
	})
}

// TestDoubleBarrierTooLate: a member with a node, that has not come in before all have left, is not
// waited for.
func TestDoubleBarrierTooLate(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *fakeCluster, s []*Session, conns []*fakeConn) {
		in := enterDouble(t, 2, s[0], s[1])
		made, look := make(chan struct{}), make(chan struct{})
		c.with(func() {
			conns[2].hook = func(_ int, op, path string) fault {
				if op == "get" && path == "/db" {
					close(made)
					<-look
					c.with(func() { conns[2].hook = nil })
				}
				return faultNone
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := NewDoubleBarrier(s[2], "/db", 2, nil).Enter(ctx, nil)
			done <- err
		}()
		<-made
		left := leaveDouble(t, in...)
		time.Sleep(time.Minute)
		close(look)
		left.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("let in when all had left: %v", err)
		}
		time.Sleep(time.Second)
		wantEmpty(t, c)
	})
}

// TestDoubleBarrierOldWatch: a watch that another Enter of the Session has set tells of a "ready"
// from before our node was made.
func TestDoubleBarrierOldWatch(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *fakeCluster, s []*Session, _ []*fakeConn) {
		old := &watch{news: s[0].link.news(), number: s[0].watches.number(), fired: make(chan struct{}), event: zk.EventNodeCreated}
		key := watchKey{"/db/ready", 'e'}
		s[0].watches.mu.Lock()
		s[0].watches.standing = map[watchKey]*watch{key: old}
		s[0].watches.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		time.AfterFunc(time.Second, func() {
			s[0].watches.mu.Lock()
			defer s[0].watches.mu.Unlock()
			delete(s[0].watches.standing, key)
			close(old.fired)
		})
		if _, err := NewDoubleBarrier(s[0], "/db", 2, nil).Enter(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("let in alone: %v", err)
		}
	})
}

// TestDoubleBarrierVanishes: a member that goes between the count and the opening is not counted.
func TestDoubleBarrierVanishes(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *fakeCluster, s []*Session, conns []*fakeConn) {
		if _, err := conns[1].CreateContainer("/db", nil, zk.FlagContainer, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := conns[1].Create("/db/other", nil, zk.FlagEphemeral, nil); err != nil {
			t.Fatal(err)
		}
		c.with(func() {
			conns[0].hook = func(_ int, op, _ string) fault {
				if op == "multi" {
					c.with(conns[1].expireLocked)
				}
				return faultNone
			}
		})
		short, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if _, err := NewDoubleBarrier(s[0], "/db", 2, nil).Enter(short, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Enter = %v: let in with one who had gone", err)
		}
		time.Sleep(time.Second)
		wantEmpty(t, c)
	})
}

// TestGroupTaken: an id is one member's, in this Session and in others.
func TestGroupTaken(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *fakeCluster, s []*Session, conns []*fakeConn) {
		m, err := NewGroup(s[0], "/g", nil).Join(t.Context(), "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range s {
			if _, err := NewGroup(s, "/g", nil).Join(t.Context(), "x", nil); !errors.Is(err, ErrTaken) {
				t.Errorf("Join = %v, want ErrTaken", err)
			}
		}
		if got := c.paths(); !slices.Equal(got, []string{"/g/x"}) {
			t.Errorf("nodes: %v", got)
		}
		// In the next session it can be had again.
		c.with(conns[0].expireLocked)
		<-m.Lost()
		if err := m.Leave(t.Context()); !errors.Is(err, ErrExpired) {
			t.Errorf("Leave = %v, want ErrExpired", err)
		}
		again, err := NewGroup(s[0], "/g", nil).Join(t.Context(), "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		if again.Token() <= m.Token() {
			t.Errorf("token %d after %d", again.Token(), m.Token())
		}
	})
}

// TestDrillsWithTheFake: the live tests pass with the fake cluster too, with each of the calls of
// one side losing its connection in turn.
func TestDrillsWithTheFake(t *testing.T) {
	for _, drill := range liveDrills {
		t.Run(drill.name, func(t *testing.T) {
			t.Parallel()
			for at, hit := 0, true; hit && !t.Failed(); at++ {
				hit = false
				bubble(t, 2, func(t *testing.T, c *fakeCluster, s []*Session, conns []*fakeConn) {
					c.with(func() {
						conns[0].hook = func(n int, _, _ string) fault {
							if n != at {
								return faultNone
							}
							hit = true
							return faultCutAfter
						}
					})
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					if err := drill.run(ctx, s[0], s[1], "/live"); err != nil {
						t.Errorf("call %d: %v", at, err)
					}
					c.with(func() { conns[0].hook = nil })
				})
			}
		})
	}
}
