package recipes

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/locknode"
)

var (
	modelSchedules = flag.Int("model.schedules", 0, "schedules of each recipe that TestSchedules plays; 0: a few seconds' worth")
	modelSeed      = flag.Uint64("model.seed", 0, "the first seed of TestSchedules; 0: any")
)

// play is one schedule of a recipe: the model, a few sessions at it, and the faults found.
type play struct {
	*model
	sessions []*Session
	seed     uint64
	more     []*model // other clusters, of a majority lock

	mu     sync.Mutex
	faults []string
	wg     sync.WaitGroup
}

func (p *play) fault(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, fmt.Sprintf(format, args...))
}

// worker runs f, with a source of random numbers of its own, and a time by which work that cannot
// go on any more has to be given up.
func (p *play) worker(f func(rnd *rand.Rand)) {
	rnd := rand.New(rand.NewPCG(p.seed, p.rndUint()))
	p.wg.Go(func() { f(rnd) })
}

func (p *play) rndUint() uint64 {
	defer p.lock()()
	return p.rnd.Uint64()
}

// drill is a recipe as TestSchedules drives it. It starts workers, and returns what is to be looked
// at when they have ended.
type drill struct {
	name  string
	start func(p *play) (end func())
	stays func(path string) bool // nodes that may be left; nil: none
}

// schedule plays one schedule and returns the faults found.
func (d drill) schedule(t *testing.T, seed uint64) (faults []string) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{model: newModel(seed, seed%3 == 0), seed: seed}
		for range 3 {
			c := p.connect()
			p.sessions = append(p.sessions, NewSession(c, c.events, testTimeout))
		}
		end := d.start(p)
		for _, m := range append(p.more, p.model) {
			go m.trouble()
		}
		done := make(chan struct{})
		go func() {
			p.wg.Wait()
			close(done)
		}()
		time.Sleep(time.Duration(p.rndUint() % uint64(40*time.Second)))
		for _, m := range append(p.more, p.model) {
			m.calm()
		}
		select {
		case <-done:
		case <-time.After(10 * time.Minute):
			p.fault("somebody waits for nothing")
		}
		time.Sleep(time.Minute) // what goes on in the background
		if end != nil && len(p.faults) == 0 {
			end()
		}
		for _, m := range append(p.more, p.model) {
			for _, path := range m.truth.paths() {
				if len(p.faults) == 0 && (d.stays == nil || !d.stays(path)) {
					p.fault("left behind: %s", path)
				}
			}
		}
		for _, s := range p.sessions {
			s.Close()
		}
		<-done
		if faults = p.faults; len(faults) > 0 {
			t.Log(strings.Join(p.trace, "\n"))
		}
	})
	return faults
}

// TestSchedules plays schedules of each recipe. -model.schedules=100000 is the long form.
func TestSchedules(t *testing.T) {
	n := *modelSchedules
	if n == 0 {
		n = 300
		if raceEnabled || testing.Short() {
			n = 20
		}
	}
	first := *modelSeed
	if first == 0 {
		first = rand.Uint64() >> 1
	}
	for _, d := range drills {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			for seed := first; seed < first+uint64(n); seed++ {
				if faults := d.schedule(t, seed); len(faults) > 0 {
					t.Fatalf("-model.seed=%d -model.schedules=1: %s", seed, strings.Join(faults, "; "))
				}
			}
		})
	}
}

// mayEnd are the errors with which an acquire may end while there are faults.
var mayEnd = []error{ErrExpired, ErrSilent, ErrLocked, ErrTaken, ErrUnknown, ErrNoLeader, context.DeadlineExceeded}

// court watches over the grants of one lock.
type court struct {
	p         *play
	most      int           // holders at a time
	order     bool          // tokens rise
	delay     time.Duration // how long after a holder has vanished the next one comes, at least
	downgrade bool          // writers become readers
	front     bool          // no node is in front of a holder's

	mu   sync.Mutex
	held []testGrant
	top  int64    // the largest token
	were []string // the nodes of all that were granted
}

// enter notes a grant.
func (c *court) enter(g testGrant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = slices.DeleteFunc(c.held, func(g testGrant) bool { return !g.Held() })
	if !g.Held() {
		return
	}
	c.held = append(c.held, g)
	reads, writes := 0, 0
	for _, g := range c.held {
		if kinded, ok := g.(*Grant); ok && kinded.Kind() == KindRead {
			reads++
		} else {
			writes++
		}
	}
	if writes > c.most || writes > 0 && reads > 0 {
		c.p.fault("%d writers and %d readers hold: %s", writes, reads, nodes(c.held))
	}
	if c.order && g.Token() <= c.top {
		c.p.fault("token %d of %s after %d", g.Token(), g.Node(), c.top)
	}
	c.top = max(c.top, g.Token())
	defer c.p.lock()()
	c.lookInFrontLocked(g)
	for _, node := range c.were {
		if at, ok := c.p.vanished[node]; ok && time.Since(at) < c.delay {
			c.p.fault("%s granted %v after %s has vanished", g.Node(), time.Since(at), node)
		}
	}
	c.were = append(c.were, g.Node())
}

// lookInFrontLocked looks for nodes in front of the grant's, which nobody may overtake. The model's
// mutex is held.
func (c *court) lookInFrontLocked(g testGrant) {
	if n := c.p.truth.nodes[g.Node()]; !c.front || n == nil || n.czxid != g.Token() {
		return
	}
	_, name := split(g.Node())
	if front, _ := locknode.Predecessor(c.p.truth.children(testPath), name, false, nil); front != "" {
		c.p.fault("%s granted while %s is in front", g.Node(), front)
	}
}

func nodes(grants []testGrant) (list []string) {
	for _, g := range grants {
		list = append(list, g.Node())
	}
	return list
}

// contend has a worker acquire and release for some rounds.
func (p *play) contend(c *court, pick func(rnd *rand.Rand) testLocker) {
	p.worker(func(rnd *rand.Rand) {
		for range 3 {
			l := pick(rnd)
			ctx, cancel := context.WithCancel(context.Background())
			if rnd.IntN(3) == 0 {
				ctx, cancel = context.WithTimeout(ctx, time.Duration(rnd.Int64N(int64(4*time.Second))))
			}
			acquire := l.Lock
			if rnd.IntN(5) == 0 {
				acquire = l.TryLock
			}
			g, err := acquire(ctx)
			cancel()
			if err != nil {
				if !errOneOf(err, mayEnd) {
					p.fault("acquire: %v", err)
				}
				continue
			}
			c.enter(g)
			if one, ok := g.(*Grant); ok && c.downgrade && one.Kind() == KindWrite && rnd.IntN(2) == 0 {
				if err := one.Downgrade(context.Background()); err != nil && !errOneOf(err, mayEnd) {
					p.fault("downgrade: %v", err)
				}
			}
			hold := 3 * time.Second
			if rnd.IntN(3) == 0 {
				hold = 3 * testTimeout
			}
			time.Sleep(time.Duration(rnd.Int64N(int64(hold))))
			err = g.Unlock(context.Background())
			if err != nil && !errors.Is(err, ErrExpired) && !errors.Is(err, ErrSilent) {
				p.fault("release: %v", err)
			}
		}
	})
}

// lockDrill is the drill of a lock of which two of the sessions' contenders use a, and one b.
func lockDrill(name string, most int, order bool, stays func(string) bool, pick func(rnd *rand.Rand, s *Session) testLocker) drill {
	return drill{name: name, stays: stays, start: func(p *play) func() {
		c := &court{p: p, most: most, order: order}
		switch name {
		case "delay":
			c.delay = modelDelay
		case "rwmutex":
			c.downgrade = true
		}
		for i, s := range append(p.sessions, p.sessions[0]) {
			if i == 3 && p.seed%2 == 0 {
				break // sometimes two contenders share a session
			}
			p.contend(c, func(rnd *rand.Rand) testLocker { return pick(rnd, s) })
		}
		return nil
	}}
}

// modelDelay is the lock delay of the drill of that name.
const modelDelay = 5 * time.Second

func isNote(path string) bool { return strings.Contains(path, delayName) }

var drills = []drill{
	lockDrill("mutex", 1, true, nil, func(_ *rand.Rand, s *Session) testLocker {
		return plain{NewMutex(s, testPath, MutexOptions{})}
	}),
	lockDrill("delay", 1, true, isNote, func(_ *rand.Rand, s *Session) testLocker {
		return plain{NewMutex(s, testPath, MutexOptions{LockDelay: modelDelay})}
	}),
	lockDrill("rwmutex", 1, false, nil, func(rnd *rand.Rand, s *Session) testLocker {
		m := NewRWMutex(s, testPath, MutexOptions{})
		if rnd.IntN(2) == 0 {
			return plain{m.RLocker()}
		}
		return plain{m}
	}),
	lockDrill("semaphore", 2, false, nil, func(_ *rand.Rand, s *Session) testLocker {
		return plain{NewSemaphore(s, testPath, SemaphoreOptions{Leases: 2})}
	}),
	lockDrill("semaphore-mutex", 1, false, nil, func(rnd *rand.Rand, s *Session) testLocker {
		if rnd.IntN(2) == 0 {
			return plain{NewMutex(s, testPath, MutexOptions{})}
		}
		return plain{NewSemaphore(s, testPath, SemaphoreOptions{Leases: 1})}
	}),
	lockDrill("simple", 1, true, nil, func(_ *rand.Rand, s *Session) testLocker {
		return plain{NewSimpleMutex(s, testPath, MutexOptions{})}
	}),
	lockDrill("multi", 1, true, nil, func(_ *rand.Rand, s *Session) testLocker { return testMulti(s, testPath) }),
	lockDrill("election", 1, true, nil, func(_ *rand.Rand, s *Session) testLocker {
		return candidate{NewElection(s, testPath, ElectionOptions{})}
	}),
	{name: "priority", start: playPriority},
	{name: "priority-rwmutex", start: playPriorityShared(true)},
	{name: "priority-semaphore", start: playPriorityShared(false)},
	{name: "majority", start: playMajority},
	{name: "doublebarrier", start: playDoubleBarrier, stays: func(path string) bool { return path == testPath+"/ready" }},
	{name: "barrier", start: playBarrier, stays: func(string) bool { return true }},
	{name: "counter", start: playCounter, stays: func(path string) bool { return path == testPath }},
	{name: "queue", start: playQueue, stays: func(path string) bool { return strings.Count(path, "/") == 3 }},
	{name: "group", start: playGroup},
	{name: "hold", start: playHold},
	{name: "handle", start: playHandle},
	{name: "guard", start: playGuard, stays: func(path string) bool { return path == guardedPath }},
	{name: "semaphore-count", start: playSemaphoreCount, stays: func(path string) bool { return path == countPath }},
	{name: "operator", start: playOperator},
	{name: "observe", start: playObserve},
	{name: "watch", start: playWatch},
}

// playMajority has three contenders with a session at each of three clusters.
func playMajority(p *play) func() {
	for n := range uint64(2) {
		p.more = append(p.more, newModel(p.seed+(n+1)<<32, p.seed%3 == 0))
	}
	c := &court{p: p, most: 1}
	for _, s := range p.sessions[:3:3] {
		parts := []*Session{s}
		for _, m := range p.more {
			conn := m.connect()
			parts = append(parts, NewSession(conn, conn.events, testTimeout))
		}
		p.sessions = append(p.sessions, parts[1:]...)
		p.contend(c, func(*rand.Rand) testLocker {
			return inMost{NewMajorityMutex(testPath, MajorityOptions{}, parts...)}
		})
	}
	return nil
}

// inMost makes a testLocker of a MajorityMutex. Its grants have no token: there is none that can be
// compared over clusters.
type inMost struct{ m *MajorityMutex }

type majorityGrant struct{ *MultiGrant }

func (g majorityGrant) Token() int64 { return 0 }
func (g majorityGrant) Node() string { return fmt.Sprint(g.Tokens()) }

func (m inMost) Lock(ctx context.Context) (testGrant, error) { return ofMajority(m.m.Lock(ctx)) }
func (m inMost) TryLock(ctx context.Context) (testGrant, error) {
	return ofMajority(m.m.TryLock(ctx))
}

func ofMajority(g *MultiGrant, err error) (testGrant, error) {
	if err != nil {
		return nil, err
	}
	return majorityGrant{g}, nil
}

// candidate makes a testLocker of an Election.
type candidate struct{ e *Election }

func (c candidate) Lock(ctx context.Context) (testGrant, error) {
	l, err := c.e.Campaign(ctx, nil)
	if err != nil {
		return nil, err
	}
	return l.Grant, nil
}

func (c candidate) TryLock(ctx context.Context) (testGrant, error) { return c.Lock(ctx) }
