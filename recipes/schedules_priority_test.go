package recipes

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/locknode"
)

// modelYields is how often a contender of the drill priority yields at most.
const modelYields = 2

// playPriority has contenders of three priorities at one lock, beside two strangers, which know
// nothing of priorities. Nobody is granted the lock while a node is in front,
// tokens rise, and nobody yields more often than it may.
func playPriority(p *play) func() {
	c := &court{p: p, most: 1, order: true, front: true}
	for _, s := range append(p.sessions, p.sessions...) {
		p.contend(c, func(rnd *rand.Rand) testLocker {
			return plain{NewMutex(s, testPath, MutexOptions{Priority: rnd.IntN(3) - 1, Yields: modelYields})}
		})
	}
	for range 2 {
		p.worker(func(rnd *rand.Rand) {
			for range 3 {
				p.strange(c, rnd)
				time.Sleep(time.Duration(rnd.Int64N(int64(5 * time.Second))))
			}
		})
	}
	return func() { p.judgeYields() }
}

// playPriorityShared has contenders of three priorities at a lock that some of them share: a
// semaphore of two leases, or readers and writers.
func playPriorityShared(rw bool) func(p *play) func() {
	return func(p *play) func() {
		c := &court{p: p, most: 2}
		if rw {
			c.most, c.downgrade = 1, true
		}
		for _, s := range append(p.sessions, p.sessions...) {
			p.contend(c, func(rnd *rand.Rand) testLocker {
				o := MutexOptions{Priority: rnd.IntN(3) - 1, Yields: modelYields}
				if rw && rnd.IntN(2) == 0 {
					return plain{NewRWMutex(s, testPath, o).RLocker()}
				}
				if rw {
					return plain{NewRWMutex(s, testPath, o)}
				}
				return plain{NewSemaphore(s, testPath, SemaphoreOptions{MutexOptions: o, Leases: 2})}
			})
		}
		return func() { p.judgeYields() }
	}
}

// judgeYields looks at all nodes that were ever there: one UUID is one contender.
func (p *play) judgeYields() {
	defer p.lock()()
	nodes := make(map[string]map[string]bool)
	for _, e := range p.history {
		for path := range e.view.nodes {
			_, name := split(path)
			if _, ok := locknode.Sequence(name); !ok || !strings.HasPrefix(name, locknode.ProtectedStart) {
				continue
			}
			id := locknode.Protection(name)
			if nodes[id] == nil {
				nodes[id] = make(map[string]bool)
			}
			nodes[id][name] = true
		}
	}
	for id, names := range nodes {
		if n := len(names) - 1; n > modelYields {
			p.fault("%s yielded %d times", id, n)
		}
	}
}

// stranger is a contender of Curator or kazoo that holds the lock: its node is there.
type stranger struct {
	p        *play
	node     string
	token    int64
	released bool // guarded by the model's mutex
}

func (s *stranger) Held() bool {
	defer s.p.lock()()
	n := s.p.truth.nodes[s.node]
	return !s.released && n != nil && n.czxid == s.token
}

func (s *stranger) Token() int64                 { return s.token }
func (s *stranger) Node() string                 { return s.node }
func (s *stranger) Err() error                   { return nil }
func (s *stranger) Unlock(context.Context) error { return nil }

// strange has a stranger acquire the lock and give it back, once. If it cannot tell what has become
// of a request, it gives up with its session.
func (p *play) strange(c *court, rnd *rand.Rand) {
	conn := p.connect()
	defer conn.Close()
	if _, err := conn.CreateContainer("/locks", nil, zk.FlagContainer, nil); fateOf(err) == fateUnknown {
		return
	}
	if _, err := conn.CreateContainer(testPath, nil, zk.FlagContainer, nil); fateOf(err) == fateUnknown {
		return
	}
	name := protect(lockName)
	if rnd.IntN(2) == 0 {
		name = newUUID() + locknode.LayoutKazooLock
	}
	node, err := conn.Create(testPath+"/"+name, nil, zk.FlagEphemeralSequential, nil)
	if err != nil {
		return
	}
	_, stat, err := conn.Get(node)
	if err != nil || !p.awaitFirst(conn, node) {
		return
	}
	s := &stranger{p: p, node: node, token: stat.Czxid}
	c.enter(s)
	time.Sleep(time.Duration(rnd.Int64N(int64(3 * time.Second))))
	unlock := p.lock()
	s.released = true
	unlock()
	_ = conn.Delete(node, -1)
}

// awaitFirst waits as Curator's and kazoo's locks do: for the node next before its own, of the
// order of the numbers. It reports false if the session is over.
func (p *play) awaitFirst(conn *modelConn, node string) bool {
	_, own := split(node)
	for {
		names, _, err := conn.Children(testPath)
		names = slices.DeleteFunc(names, func(n string) bool { _, ok := locknode.Sequence(n); return !ok })
		if err == nil && !slices.Contains(names, own) {
			return false
		}
		slices.SortFunc(names, func(a, b string) int { return strings.Compare(a[len(a)-10:], b[len(b)-10:]) })
		at := slices.Index(names, own)
		if err == nil && at == 0 {
			return true
		}
		var events <-chan zk.Event
		if err == nil {
			_, _, events, err = conn.GetW(testPath + "/" + names[at-1])
		}
		switch fateOf(err) {
		case fateDone:
			select {
			case <-events:
			case <-time.After(testTimeout): // the watch may be lost with a connection
			}
		case fateUnknown:
			time.Sleep(time.Second)
		}
	}
}
