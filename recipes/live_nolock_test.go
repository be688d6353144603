package recipes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// liveDrill uses a recipe in a session with a connection that is cut, s, and in another.
type liveDrill struct {
	name string
	run  func(ctx context.Context, s, other *Session, path string) error
	// left is the number of children of the path that stay.
	left   int
	frames int // in each direction, at the very least
}

var liveDrills = []liveDrill{
	{name: "counter", run: liveCounter, frames: 6},
	{name: "barrier", run: liveBarrier, frames: 3},
	{name: "doublebarrier", run: liveDoubleBarrier, frames: 8},
	{name: "queue", run: liveQueue, left: 3, frames: 10},
	{name: "group", run: liveGroup, frames: 4},
	{name: "groupwatch", run: liveGroupWatch, frames: 4},
	{name: "election", run: liveElection, frames: 4},
	{name: "observe", run: liveObserve, frames: 4},
}

// TestLiveRecipeCutAtEveryFrame cuts the connection at each frame of the use of
// each recipe in turn, in both directions, before and after the frame is
// delivered. Nothing of it is seen, but for the time it takes.
func TestLiveRecipeCutAtEveryFrame(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx := limit(t, 5*time.Minute) // there are hundreds of cuts, and the machine may be busy
		base := livePath(t)
		other := live(t, addr, liveTimeout)
		var wg sync.WaitGroup
		room := make(chan struct{}, 12) // they wait, most of the time
		for _, drill := range liveDrills {
			for _, dir := range []direction{toServer, toClient} {
				for _, how := range []verdict{drop, deliver} {
					if raceEnabled && dir == toServer && how == deliver {
						continue // nearly the same as losing the reply, and slow
					}
					room <- struct{}{}
					wg.Go(func() {
						defer func() { <-room }()
						path := fmt.Sprintf("%s/%s-%d-%d", base, drill.name, dir, how)
						for at := 0; !t.Failed(); at++ {
							hit, err := drill.cutAt(t, ctx, addr, other, path, dir, how, at)
							if err != nil {
								t.Errorf("%s, %v %v, frame %d: %v", drill.name, how, dir, at, err)
							}
							if !hit {
								if at < drill.frames {
									t.Errorf("%s: only %d frames", drill.name, at)
								}
								break
							}
						}
					})
				}
			}
		}
		wg.Wait()
	})
}

// cutAt reports whether there was such a frame.
func (d liveDrill) cutAt(t *testing.T, ctx context.Context, addr string, other *Session, path string, dir direction, how verdict, at int) (hit bool, err error) {
	p := newProxy(t, addr)
	s, err := Connect(Config{Servers: []string{p.addr()}, SessionTimeout: liveTimeout, HostProvider: &impatientHosts{}, Dial: dialLive})
	if err != nil {
		return false, err
	}
	defer s.Close()
	if _, err := s.link.ready(ctx); err != nil {
		return false, err
	}
	var was atomic.Bool
	p.rule(func(d direction, n int) verdict {
		if was.Load() || d != dir || n != at {
			return pass
		}
		was.Store(true)
		return how
	})
	err = d.run(ctx, s, other, path)
	if err == nil {
		// Nothing stays while the session still lives.
		err = awaitLeft(ctx, other, path, d.left)
	}
	return was.Load(), err
}

func awaitLeft(ctx context.Context, s *Session, path string, n int) error {
	l, err := s.link.ready(ctx)
	if err != nil {
		return err
	}
	var names []string
	err = s.watches.until(ctx, l, func() (view, error) { return s.watches.children(path) }, func(v view) (bool, error) {
		names = v.names
		return len(names) == n, nil
	})
	if err != nil {
		return fmt.Errorf("left: %v, want %d: %w", names, n, err)
	}
	return nil
}

func liveCounter(ctx context.Context, s, other *Session, path string) error {
	mine, others := NewCounter(s, path, CounterOptions{}), NewCounter(other, path, CounterOptions{})
	before, err := others.Get(ctx)
	if err != nil {
		return err
	}
	for i, c := range []*Counter{mine, others, mine} {
		want := before + []int64{1, 11, 111}[i]
		if n, err := c.Add(ctx, []int64{1, 10, 100}[i]); n != want || err != nil {
			return fmt.Errorf("Add = %d, %v, want %d", n, err, want)
		}
	}
	if ok, err := mine.CompareAndSet(ctx, before+111, before+222); !ok || err != nil {
		return fmt.Errorf("CompareAndSet = %v, %v", ok, err)
	}
	if n, err := others.Get(ctx); n != before+222 || err != nil {
		return fmt.Errorf("Get = %d, %v, want %d", n, err, before+222)
	}
	return nil
}

func liveBarrier(ctx context.Context, s, other *Session, path string) error {
	mine, others := NewBarrier(s, path, nil), NewBarrier(other, path, nil)
	if err := others.Set(ctx); err != nil {
		return err
	}
	through := make(chan error, 1)
	go func() { through <- mine.Wait(ctx) }()
	if err := others.Remove(ctx); err != nil {
		return err
	}
	err := errors.Join(<-through, mine.Set(ctx))
	if exists, _, e := other.link.conn.Exists(path); e == nil && !exists {
		err = errors.Join(err, errors.New("not set"))
	}
	return errors.Join(err, mine.Remove(ctx), others.Wait(ctx))
}

func liveDoubleBarrier(ctx context.Context, s, other *Session, path string) error {
	var inside atomic.Int32
	member := func(s *Session) error {
		in, err := NewDoubleBarrier(s, path, 2, nil).Enter(ctx, nil)
		if err != nil {
			return err
		}
		if inside.Add(1) == 2 {
			// Both are in; the other one waits here or in Leave.
			inside.Add(10)
		}
		if err := in.Leave(ctx); err != nil {
			return err
		}
		if inside.Load() != 12 {
			return fmt.Errorf("left before the other was in: %d", inside.Load())
		}
		return nil
	}
	done := make(chan error, 1)
	go func() { done <- member(s) }()
	return errors.Join(member(other), <-done)
}

func liveQueue(ctx context.Context, s, other *Session, path string) error {
	mine, others := NewQueue(s, path, nil), NewQueue(other, path, nil)
	if err := mine.Put(ctx, Entry{Data: []byte("a")}, Entry{Data: []byte("b")}); err != nil {
		return err
	}
	if it, err := others.Take(ctx); err != nil {
		return err
	} else if err := it.Return(ctx); err != nil {
		return err
	}
	for i, want := range []string{"a", "b"} {
		it, err := mine.Take(ctx)
		if err != nil {
			return err
		}
		if string(it.Data()) != want || it.Attempt() != 2-i {
			return fmt.Errorf("took %s, attempt %d", it.Data(), it.Attempt())
		}
		if err := it.Done(ctx); err != nil {
			return err
		}
	}
	if items, taken, err := others.Len(ctx); items != 0 || taken != 0 || err != nil {
		return fmt.Errorf("Len = %d, %d, %v", items, taken, err)
	}
	// Tags may still be on their way out.
	return awaitLeft(ctx, other, path+"/puts", 0)
}

func liveGroup(ctx context.Context, s, other *Session, path string) error {
	mine, others := NewGroup(s, path, nil), NewGroup(other, path, nil)
	m, err := mine.Join(ctx, "me", []byte("old"))
	if err != nil {
		return err
	}
	if err := m.SetData(ctx, []byte("new")); err != nil {
		return err
	}
	if all, err := others.Members(ctx); err != nil || len(all) != 1 || string(all[0].Data) != "new" || all[0].Token != m.Token() {
		return fmt.Errorf("Members = %v, %v", all, err)
	}
	return m.Leave(ctx)
}

// liveGroupWatch: the last view is right, whatever was lost on the way to it.
func liveGroupWatch(ctx context.Context, s, other *Session, path string) error {
	group := NewGroup(other, path, nil)
	old, err := group.Join(ctx, "old", nil)
	if err != nil {
		return err
	}
	var young *Membership
	step := 0
	for members, err := range NewGroup(s, path, nil).Watch(ctx) {
		if err != nil {
			return err
		}
		var now []string
		for _, m := range members {
			now = append(now, m.ID+"="+string(m.Data))
		}
		switch {
		case step == 0 && slices.Equal(now, []string{"old="}):
			step++
			if young, err = group.Join(ctx, "young", []byte("1")); err != nil {
				return err
			}
		case step == 1 && slices.Equal(now, []string{"old=", "young=1"}):
			step++
			if err := young.SetData(ctx, []byte("2")); err != nil {
				return err
			}
		case step == 2 && slices.Equal(now, []string{"old=", "young=2"}):
			step++
			if err := old.Leave(ctx); err != nil {
				return err
			}
		case step == 3 && slices.Equal(now, []string{"young=2"}):
			return young.Leave(ctx)
		default:
			return fmt.Errorf("step %d: view %v", step, now)
		}
	}
	return nil
}

func liveElection(ctx context.Context, s, other *Session, path string) error {
	mine, others := NewElection(s, path, ElectionOptions{}), NewElection(other, path, ElectionOptions{})
	first, err := others.Campaign(ctx, []byte("first"))
	if err != nil {
		return err
	}
	type won struct {
		l   *Leadership
		err error
	}
	next := make(chan won, 1)
	go func() {
		l, err := mine.Campaign(ctx, []byte("second"))
		next <- won{l, err}
	}()
	if err := awaitLeft(ctx, other, path, 2); err != nil {
		return err
	}
	if err := first.Resign(ctx); err != nil {
		return err
	}
	second := <-next
	if second.err != nil {
		return second.err
	}
	if err := second.l.Proclaim(ctx, []byte("proclaimed")); err != nil {
		return err
	}
	leader, err := others.Leader(ctx)
	if err != nil || leader.Token != second.l.Token() || leader.Token <= first.Token() || string(leader.Data) != "proclaimed" {
		return fmt.Errorf("leader %+v, %v", leader, err)
	}
	return second.l.Resign(ctx)
}

// liveObserve: every leader that lasts is seen, and none comes back.
func liveObserve(ctx context.Context, s, other *Session, path string) error {
	e := NewElection(other, path, ElectionOptions{})
	var l *Leadership
	step, last := 0, int64(0)
	for leader, err := range NewElection(s, path, ElectionOptions{}).Observe(ctx) {
		if err != nil {
			return err
		}
		if leader.Token != 0 && leader.Token < last {
			return fmt.Errorf("back to %d from %d", leader.Token, last)
		}
		last = max(last, leader.Token)
		switch {
		case step%4 == 0 && leader.Node == "":
			if step == 4 {
				return nil
			}
			if l, err = e.Campaign(ctx, []byte("x")); err != nil {
				return err
			}
			step++
		case step%4 == 1 && string(leader.Data) == "x" && leader.Token == l.Token():
			if err := l.Proclaim(ctx, []byte("y")); err != nil {
				return err
			}
			step++
		case step%4 == 2 && string(leader.Data) == "y" && leader.Node == l.Node():
			old := l
			took := make(chan error, 1)
			go func() {
				next, err := e.Campaign(ctx, []byte("z"))
				l = next
				took <- err
			}()
			if err := errors.Join(old.Resign(ctx), <-took); err != nil {
				return err
			}
			step++
		case step%4 == 3 && string(leader.Data) == "z" && leader.Token == l.Token():
			if err := l.Resign(ctx); err != nil {
				return err
			}
			step++
		case step%4 == 3 && leader.Node == "": // between y and z
		default:
			return fmt.Errorf("step %d: %+v", step, leader)
		}
	}
	return nil
}

// TestLiveRecipesExpire: somebody ends the session. Everything that was acquired
// is lost, everything that waits returns, and both say why.
func TestLiveRecipesExpire(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx, path := limit(t, 2*time.Minute), livePath(t)
		p := newProxy(t, addr)
		s, other := live(t, p.addr(), liveTimeout), live(t, addr, liveTimeout)
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(NewBarrier(other, path+"/barrier", nil).Set(ctx))
		first, err := NewElection(other, path+"/election", ElectionOptions{}).Campaign(ctx, nil)
		must(err)
		q := NewQueue(s, path+"/queue", nil)
		must(NewQueue(other, path+"/queue", nil).Put(ctx, Entry{Data: []byte("x")}))

		// The grant. Its Err may also say that the node was deleted, if the
		// connection lived to see that.
		item, err := q.Take(ctx)
		must(err)
		member, err := NewGroup(s, path+"/group", nil).Join(ctx, "me", nil)
		must(err)
		in, err := NewDoubleBarrier(s, path+"/inside", 1, nil).Enter(ctx, nil)
		must(err)
		leads, err := NewElection(s, path+"/leads", ElectionOptions{}).Campaign(ctx, nil)
		must(err)
		held := map[string]interface {
			Lost() <-chan struct{}
			Err() error
		}{"item": item, "member": member, "inside": in, "leadership": leads}

		waits := waitingCalls(ctx, s, path)
		type end struct {
			name string
			err  error
		}
		ends := make(chan end, len(waits))
		for name, wait := range waits {
			go func() { ends <- end{name, wait()} }()
		}
		awaitMembers(t, ctx, other, path+"/election", 2)
		awaitMembers(t, ctx, other, path+"/enter", 1)
		awaitWatches(t, ctx, s, path+"/barrier", path+"/queue/entries", path+"/watched", path+"/observed")

		release := p.hold() // or the client comes back before the session is closed
		defer release()
		id, password := p.session()
		closeSession(t, addr, id, password)
		release()
		for range waits {
			if e := <-ends; !errors.Is(e.err, ErrExpired) && !errors.Is(e.err, ErrDeleted) {
				t.Errorf("%s: %v, want ErrExpired", e.name, e.err)
			}
		}
		for name, h := range held {
			<-h.Lost()
			if err := h.Err(); !errors.Is(err, ErrExpired) && !errors.Is(err, ErrDeleted) {
				t.Errorf("%s: %v, want ErrExpired", name, err)
			}
		}
		if err := item.Done(ctx); !errors.Is(err, ErrExpired) {
			t.Errorf("Done = %v, want ErrExpired", err)
		}
		if err := in.Leave(ctx); err == nil {
			t.Error("Leave = nil")
		}
		must(first.Resign(ctx))

		must(Again(ctx, s, func(ctx context.Context) error { return takeAgain(t, ctx, q, item) }))
		must(awaitLeft(ctx, other, path+"/election", 0))
		must(awaitLeft(ctx, other, path+"/group", 0))
		must(awaitLeft(ctx, other, path+"/queue/entries", 0))
		must(awaitLeft(ctx, other, path+"/queue/taken", 0))
	})
}

// takeAgain takes the item that another session of the same client had.
func takeAgain(t *testing.T, ctx context.Context, q *Queue, before *Item) error {
	item, err := q.Take(ctx)
	if err != nil {
		return err
	}
	if item.Attempt() != 2 || item.Token() <= before.Token() {
		t.Errorf("attempt %d, token %d after %d", item.Attempt(), item.Token(), before.Token())
	}
	return item.Done(ctx)
}

// waitingCalls are calls of the recipes that wait until the session ends.
func waitingCalls(ctx context.Context, s *Session, path string) map[string]func() error {
	return map[string]func() error{
		"barrier": func() error { return NewBarrier(s, path+"/barrier", nil).Wait(ctx) },
		"enter": func() error {
			_, err := NewDoubleBarrier(s, path+"/enter", 2, nil).Enter(ctx, nil)
			return err
		},
		"take": func() error { _, err := NewQueue(s, path+"/queue", nil).Take(ctx); return err },
		"watch": func() error {
			for _, err := range NewGroup(s, path+"/watched", nil).Watch(ctx) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"campaign": func() error {
			_, err := NewElection(s, path+"/election", ElectionOptions{}).Campaign(ctx, nil)
			return err
		},
		"observe": func() error {
			for _, err := range NewElection(s, path+"/observed", ElectionOptions{}).Observe(ctx) {
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// awaitWatches waits until a Session watches all of these nodes.
func awaitWatches(t *testing.T, ctx context.Context, s *Session, paths ...string) {
	t.Helper()
	for tick := time.Tick(time.Millisecond); ; {
		s.watches.mu.Lock()
		watched := make(map[string]bool)
		for key := range s.watches.standing {
			watched[key.path] = true
		}
		s.watches.mu.Unlock()
		if !slices.ContainsFunc(paths, func(p string) bool { return !watched[p] }) {
			return
		}
		select {
		case <-tick:
		case <-ctx.Done():
			t.Fatalf("watches %v, want %v", slices.Sorted(maps.Keys(watched)), paths)
		}
	}
}

// TestLiveQueueConsumers: several producers and consumers at a time; consumers
// that return items, and one with sessions that end again and again. Everything that
// was put is done, once.
func TestLiveQueueConsumers(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx, path := limit(t, 2*time.Minute), livePath(t)
		const producers, consumers, each = 3, 4, 20
		var mu sync.Mutex
		got := make(map[string]int)
		var produced, consumed sync.WaitGroup
		for p := range producers {
			s := live(t, addr, liveTimeout)
			produced.Go(func() {
				for i := range each {
					if err := NewQueue(s, path, nil).Put(ctx, Entry{Data: fmt.Append(nil, p, "-", i)}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		done, finish := context.WithCancel(ctx)
		defer finish()
		for c := range consumers {
			s := live(t, addr, liveTimeout)
			consumed.Go(func() {
				last := make(map[string]int) // per producer, to see the order
				for n := 0; ; n++ {
					it, err := NewQueue(s, path, nil).Take(done)
					if errors.Is(err, context.Canceled) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					switch {
					case c == 1 && n%3 == 0:
						if err := it.Return(ctx); err != nil {
							t.Error(err)
						}
						continue
					case c == 2 && n%5 == 0: // vanishes with its item
						s.Close()
						s = live(t, addr, liveTimeout)
						continue
					}
					if err := it.Done(ctx); err != nil {
						t.Error(err)
					}
					var p, i int
					fmt.Sscanf(string(it.Data()), "%d-%d", &p, &i)
					key := fmt.Sprint(p)
					if before, ok := last[key]; ok && i < before && it.Attempt() == 1 {
						t.Errorf("%s taken for the first time after %d", it.Data(), before)
					}
					last[key] = max(last[key], i)
					mu.Lock()
					got[string(it.Data())]++
					if len(got) == producers*each {
						finish()
					}
					mu.Unlock()
				}
			})
		}
		produced.Wait()
		consumed.Wait()
		for item, n := range got {
			if n != 1 {
				t.Errorf("%s done %d times", item, n)
			}
		}
		if len(got) != producers*each {
			t.Errorf("%d of %d items", len(got), producers*each)
		}
	})
}
