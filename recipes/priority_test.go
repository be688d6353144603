package recipes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/locknode"
)

// priorities is a queue in a bubble in which contenders with names come one after the other, and
// are granted the lock one after the other.
type priorities struct {
	t       *testing.T
	c       *fakeCluster
	r       *referee // nil: the lock is shared
	mu      sync.Mutex
	order   []string
	release chan struct{} // has an element for each grant that may go
}

func newPriorities(t *testing.T) *priorities {
	return &priorities{t: t, c: newFakeCluster(), r: &referee{t: t}, release: make(chan struct{})}
}

// come has a contender come, and returns when it has its place.
func (p *priorities) come(name string, l func(s *Session) Locker) {
	p.t.Helper()
	s, _ := newTestSession(p.c)
	p.t.Cleanup(s.Close)
	go func() {
		g, err := l(s).Lock(p.t.Context())
		if err != nil {
			p.t.Errorf("%s: %v", name, err)
			return
		}
		if p.r != nil {
			p.r.enter(g)
		}
		p.mu.Lock()
		p.order = append(p.order, name)
		p.mu.Unlock()
		<-p.release
		if err := g.Unlock(context.Background()); err != nil {
			p.t.Errorf("%s: %v", name, err)
		}
	}()
	synctest.Wait()
}

// mutex has a contender with a priority come.
func (p *priorities) mutex(name string, priority int) {
	p.t.Helper()
	p.come(name, func(s *Session) Locker {
		return NewMutex(s, testPath, MutexOptions{Priority: priority, Yields: 3})
	})
}

// next has n holders, one after the other, give the lock back.
func (p *priorities) next(n int) {
	for range n {
		p.release <- struct{}{}
		synctest.Wait()
	}
}

// want checks the order in which the lock was granted so far.
func (p *priorities) want(names string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if got := strings.Join(p.order, " "); got != names {
		p.t.Errorf("granted to %s, want %s", got, names)
	}
}

func inQueue(t *testing.T, f func(p *priorities)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPriorities(t)
		f(p)
		wantEmpty(t, p.c)
	})
}

func TestUrgentOnesGoFirst(t *testing.T) {
	inQueue(t, func(p *priorities) {
		for i, priority := range []int{0, 0, -1, 0, 5, 7, 5, -1} {
			p.mutex(fmt.Sprint(i, ":", priority), priority)
		}
		p.next(8)
		p.want("0:0 5:7 4:5 6:5 1:0 3:0 2:-1 7:-1")
	})
}

// TestOrderIsRestored: an ordinary contender that came after the urgent one does not go before
// others that came before it and have yielded.
func TestOrderIsRestored(t *testing.T) {
	inQueue(t, func(p *priorities) {
		p.mutex("a", 0)
		p.mutex("b", 0)
		p.mutex("c", 0)
		p.mutex("urgent", 1)
		p.mutex("d", 0)
		p.next(1)
		p.mutex("e", 0)
		p.next(5)
		p.want("a urgent b c d e")
	})
}

// TestYieldsAreBounded: urgent contenders that keep coming do not keep an ordinary one out.
func TestYieldsAreBounded(t *testing.T) {
	inQueue(t, func(p *priorities) {
		p.mutex("0", 9)
		p.mutex("ordinary", 0)
		for i := range 6 {
			p.mutex(fmt.Sprint(i+1), 9)
			p.next(1)
		}
		p.next(2)
		p.want("0 1 2 3 ordinary 4 5 6")
	})
	synctest.Test(t, func(t *testing.T) {
		p := newPriorities(t)
		p.mutex("first", 0)
		p.come("stays", func(s *Session) Locker { return NewMutex(s, testPath, MutexOptions{Yields: -1}) })
		p.mutex("urgent", 9)
		p.next(3)
		p.want("first stays urgent")
	})
}

// TestStrangersAreNotOvertaken: a node of another library in the queue keeps its place, and urgent
// contenders behind it wait for it. One of a priority below zero lets it go first.
func TestStrangersAreNotOvertaken(t *testing.T) {
	for _, priority := range []int{0, -1} {
		synctest.Test(t, func(t *testing.T) {
			p := newPriorities(t)
			p.mutex("holder", 0)
			p.mutex("ours", priority)
			conn := p.c.connect()
			defer conn.Close()
			node, err := conn.Create(testPath+"/"+newUUID()+"__lock__", nil, zk.FlagEphemeralSequential, nil)
			if err != nil {
				t.Fatal(err)
			}
			if priority == 0 {
				p.mutex("urgent", 9)
			}
			p.next(1)
			p.want("holder")
			names, _, _ := conn.Children(testPath)
			_, own := split(node)
			if front, _ := locknode.Predecessor(names, own, false, nil); front != "" {
				t.Errorf("%s is in front of the stranger", front)
			}
			if err := conn.Delete(node, -1); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if priority == 0 {
				p.next(2)
				p.want("holder urgent ours")
			} else {
				p.next(1)
				p.want("holder ours")
			}
		})
	}
}

// TestReadersYieldToWriters: a reader yields to an urgent writer, not to an urgent reader.
func TestReadersYieldToWriters(t *testing.T) {
	read := func(priority int) func(s *Session) Locker {
		return func(s *Session) Locker {
			return NewRWMutex(s, testPath, MutexOptions{Priority: priority}).RLocker()
		}
	}
	write := func(priority int) func(s *Session) Locker {
		return func(s *Session) Locker { return NewRWMutex(s, testPath, MutexOptions{Priority: priority}) }
	}
	synctest.Test(t, func(t *testing.T) {
		p := newPriorities(t)
		p.come("writer", write(0))
		p.come("reader", read(0))
		p.come("urgent writer", write(1))
		p.next(1)
		p.want("writer urgent writer")
		p.next(2)
		p.want("writer urgent writer reader")
	})
	synctest.Test(t, func(t *testing.T) {
		p := newPriorities(t)
		p.come("writer", write(0))
		p.come("ordinary writer", write(0))
		p.come("urgent reader", read(1))
		p.next(3)
		p.want("writer urgent reader ordinary writer")
	})
}

// TestUrgentLease: the next to get a lease of a semaphore leaves the gate to a more urgent one that
// comes while it waits.
func TestUrgentLease(t *testing.T) {
	lease := func(priority int) func(s *Session) Locker {
		return func(s *Session) Locker {
			return NewSemaphore(s, testPath, SemaphoreOptions{Leases: 1, MutexOptions: MutexOptions{Priority: priority}})
		}
	}
	inQueue(t, func(p *priorities) {
		p.come("holder", lease(0))
		p.come("a", lease(0))
		p.come("b", lease(0))
		p.come("urgent", lease(1))
		p.next(4)
		p.want("holder urgent a b")
	})
}

// TestTryLockDoesNotYield: it is for the lock that is free.
func TestTryLockDoesNotYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, conn := newTestSession(c)
		defer s.Close()
		mustUnlock(t, mustLock(t, NewMutex(s, testPath, MutexOptions{})))
		p := newPlace(s, testPath, lockName, KindWrite, MutexOptions{})
		if err := p.enter(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		<-p.first
		p.first = nil
		if _, err := conn.Create(testPath+"/"+protect("p+09-"+lockName), nil, zk.FlagEphemeralSequential, nil); err != nil {
			t.Fatal(err)
		}
		node := p.node.path
		if err := p.await(t.Context(), false); err != nil || p.node.path != node {
			t.Errorf("await = %v, at %s, was %s", err, p.node.path, node)
		}
		if err := p.leave(); err != nil {
			t.Error(err)
		}
	})
}

// TestLockDelayAfterYield: the note of a holder that has yielded before is of its last node.
func TestLockDelayAfterYield(t *testing.T) {
	delayed := func(priority int) func(s *Session) Locker {
		return func(s *Session) Locker {
			return NewMutex(s, testPath, MutexOptions{Priority: priority, LockDelay: time.Second})
		}
	}
	inQueue(t, func(p *priorities) {
		p.come("holder", delayed(0))
		p.come("ordinary", delayed(0))
		p.come("urgent", delayed(1))
		p.next(3)
		p.want("holder urgent ordinary")
	})
}

// TestYieldCosts: a yield is one transaction, and wakes one contender.
func TestYieldCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPriorities(t)
		p.mutex("holder", 0)
		const n = 6
		for i := range n {
			p.mutex(fmt.Sprint(i), 0)
		}
		p.mutex("urgent", 1)
		calls := func() (sum int) {
			p.c.mu.Lock()
			defer p.c.mu.Unlock()
			for _, conn := range p.c.conns {
				sum += conn.calls
			}
			return sum
		}
		before := calls()
		p.next(1)
		// The unlock; of each that yields a list, the transaction, a read of the new node, and a
		// list and a read of the node next before that; the list of the urgent one, and a proof.
		if most := 1 + 5*n + 2; calls()-before > most {
			t.Errorf("%d calls for %d yields, want at most %d", calls()-before, n, most)
		}
		p.want("holder urgent")
		p.next(n + 1)
	})
}

func TestPriorityOutOfRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, _ := newTestSession(c)
		defer s.Close()
		for _, priority := range []int{-MaxLockPriority - 1, MaxLockPriority + 1} {
			o := MutexOptions{Priority: priority}
			for _, l := range []Locker{NewMutex(s, testPath, o), NewRWMutex(s, testPath, o).RLocker(),
				NewSemaphore(s, testPath, SemaphoreOptions{MutexOptions: o, Leases: 1})} {
				if _, err := l.Lock(t.Context()); err == nil || !strings.Contains(err.Error(), "priority") {
					t.Errorf("%T with priority %d: %v", l, priority, err)
				}
			}
		}
		wantEmpty(t, c)
	})
}

// waits collects the calls of OnWait.
type waits struct {
	mu   sync.Mutex
	list []Wait
}

func (w *waits) add(one Wait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, one)
}

// take returns the calls since the last take.
func (w *waits) take() []Wait {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.list
	w.list = nil
	return list
}

// brief shows a Wait by the notes of its contenders.
func (w Wait) brief() string {
	note := func(c *Contender) string {
		switch {
		case c == nil:
			return "-"
		case c.Info == nil:
			return "?"
		case !c.Held:
			return c.Info.Note + " (waits)"
		}
		return c.Info.Note
	}
	var holders []string
	for i := range w.Holders {
		holders = append(holders, note(&w.Holders[i]))
	}
	return fmt.Sprintf("%d ahead, held by %s, behind %s", w.Ahead, strings.Join(holders, " "), note(w.Next))
}

func wantWaits(t *testing.T, got []Wait, want ...string) {
	t.Helper()
	var brief []string
	for _, w := range got {
		brief = append(brief, w.brief())
		if w.Path != testPath || !strings.HasPrefix(w.Node, testPath) || w.Began.IsZero() {
			t.Errorf("wait of %s at %s since %v", w.Node, w.Path, w.Began)
		}
		for _, c := range w.Holders {
			if c.Session == 0 || c.Token == 0 || c.Created.IsZero() {
				t.Errorf("holder %+v", c)
			}
		}
	}
	if !slices.Equal(brief, want) {
		t.Errorf("told of %q, want %q", brief, want)
	}
}

func TestWaitIsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, w := newPriorities(t), &waits{}
		for _, name := range []string{"a", "b", "c"} {
			p.come(name, func(s *Session) Locker { return NewMutex(s, testPath, MutexOptions{Note: name}) })
		}
		p.come("d", func(s *Session) Locker { return NewMutex(s, testPath, MutexOptions{OnWait: w.add}) })
		wantWaits(t, w.take(), "3 ahead, held by a, behind c (waits)")
		p.next(1)
		wantWaits(t, w.take()) // the one before it is the same, and it was not woken
		time.Sleep(firstWaitPause)
		wantWaits(t, w.take(), "2 ahead, held by b, behind c (waits)")
		time.Sleep(3 * firstWaitPause)
		wantWaits(t, w.take(), "2 ahead, held by b, behind c (waits)")
		p.next(1)
		wantWaits(t, w.take())
		p.next(1)
		wantWaits(t, w.take())
		p.want("a b c d")
		p.next(1)
	})
}

// TestWaitIsSeldomRead: without a change the reads become fewer, and the calls between are as
// without OnWait.
func TestWaitIsSeldomRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, w := newPriorities(t), &waits{}
		p.mutex("holder", 0)
		p.come("waits", func(s *Session) Locker { return NewMutex(s, testPath, MutexOptions{OnWait: w.add}) })
		time.Sleep(24 * time.Hour)
		// 10 s, 20 s ... 320 s, 10 min at last
		if n, most := len(w.take()), 1+7+24*6; n > most || n < most-5 {
			t.Errorf("told %d times in a day, want about %d", n, most)
		}
		p.next(2)
	})
}

// TestWaitOfOthers: readers, leases, nodes, elections and delays are explained, too.
func TestWaitOfOthers(t *testing.T) {
	options := func(w *waits, note string) MutexOptions { return MutexOptions{Note: note, OnWait: w.add} }
	for _, c := range []struct {
		name  string
		locks []func(s *Session, o MutexOptions) Locker // the last one waits
		want  string
	}{
		{"readers", []func(s *Session, o MutexOptions) Locker{readLocker, readLocker, writeLocker},
			"2 ahead, held by 0 1, behind 1"},
		{"reader behind a writer", []func(s *Session, o MutexOptions) Locker{readLocker, writeLocker, readLocker},
			"2 ahead, held by 0, behind 1 (waits)"},
		{"leases", []func(s *Session, o MutexOptions) Locker{twoLeases, twoLeases, twoLeases},
			"2 ahead, held by 0 1, behind -"},
		{"a lock behind a lease", []func(s *Session, o MutexOptions) Locker{twoLeases, mutexLocker},
			"1 ahead, held by 0, behind 0"},
		{"simple", []func(s *Session, o MutexOptions) Locker{simpleLocker, simpleLocker},
			"1 ahead, held by 0, behind 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, w := newPriorities(t), &waits{}
				p.r = nil
				for i, l := range c.locks {
					w.take()
					p.come(fmt.Sprint(i), func(s *Session) Locker { return l(s, options(w, fmt.Sprint(i))) })
				}
				wantWaits(t, w.take(), c.want)
				p.next(len(c.locks))
			})
		})
	}
}

func readLocker(s *Session, o MutexOptions) Locker   { return NewRWMutex(s, testPath, o).RLocker() }
func writeLocker(s *Session, o MutexOptions) Locker  { return NewRWMutex(s, testPath, o) }
func mutexLocker(s *Session, o MutexOptions) Locker  { return NewMutex(s, testPath, o) }
func simpleLocker(s *Session, o MutexOptions) Locker { return NewSimpleMutex(s, testPath, o) }
func twoLeases(s *Session, o MutexOptions) Locker {
	return NewSemaphore(s, testPath, SemaphoreOptions{MutexOptions: o, Leases: 2})
}

// TestWaitInGate: the third for a lease waits behind the second, and the lease is the holder's.
func TestWaitInGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, w := newPriorities(t), &waits{}
		one := func(note string, on func(Wait)) func(s *Session) Locker {
			return func(s *Session) Locker {
				return NewSemaphore(s, testPath, SemaphoreOptions{Leases: 1, MutexOptions: MutexOptions{Note: note, OnWait: on}})
			}
		}
		p.come("0", one("0", nil))
		p.come("1", one("1", nil))
		p.come("2", one("2", w.add))
		// The second has made its lease already, and a place in the queue beside it.
		wantWaits(t, w.take(), "2 ahead, held by 0, behind 1 (waits)")
		p.next(3)
	})
}

func TestWaitOfACandidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, w := newFakeCluster(), &waits{}
		s, _ := newTestSession(c)
		defer s.Close()
		e := NewElection(s, testPath, ElectionOptions{OnWait: w.add})
		first, err := e.Campaign(t.Context(), Describe("first"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := e.Campaign(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Campaign = %v", err)
		}
		wantWaits(t, w.take(), "1 ahead, held by first, behind first")
		if err := first.Resign(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestWaitForADelay: the rest of a lock delay is told, and the yields.
func TestWaitForADelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, w := newFakeCluster(), &waits{}
		gone, _ := newTestSession(c)
		o := MutexOptions{LockDelay: 5 * time.Second}
		if _, err := NewMutex(gone, testPath, o).Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		gone.Close()
		s, _ := newTestSession(c)
		defer s.Close()
		o.OnWait = w.add
		g, err := NewMutex(s, testPath, o).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		told := w.take()
		if len(told) != 1 || told[0].Delay <= 0 || told[0].Delay > 5*time.Second || told[0].Ahead != 0 {
			t.Errorf("told of %+v", told)
		}
		mustUnlock(t, g)
	})
	synctest.Test(t, func(t *testing.T) {
		p, w := newPriorities(t), &waits{}
		p.mutex("holder", 0)
		p.come("ordinary", func(s *Session) Locker { return NewMutex(s, testPath, MutexOptions{OnWait: w.add}) })
		p.mutex("urgent", 5)
		w.take()
		p.next(1)
		told := w.take()
		if len(told) != 1 || told[0].Yielded != 1 || told[0].Next.Priority != 5 || told[0].Next.Yielded {
			t.Errorf("told of %+v", told)
		}
		_, name := split(told[0].Node)
		if r, _ := locknode.RankOf(name); r != (locknode.Rank{Number: 1}) {
			t.Errorf("waits at %s", name)
		}
		p.next(2)
	})
}
