package recipes

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/locknode"
)

// errEnded is the error of the functions of the drill hold when their ctx ends.
var errEnded = errors.New("the ctx has ended")

// playHold has Hold run functions, of which half heed their ctx. Two do not run with grants that
// stand; the ctx ends with the grant; nil means that the grant stood to the end; and a function
// that was told of a loss runs again.
func playHold(p *play) func() {
	c := &court{p: p, most: 1, order: true}
	for _, s := range p.sessions {
		p.worker(func(rnd *rand.Rand) {
			for range 3 {
				stood, heeded := false, false
				err := Hold(context.Background(), NewMutex(s, testPath, MutexOptions{}), func(ctx context.Context, g *Grant) error {
					c.enter(g)
					work := time.NewTimer(time.Duration(rnd.Int64N(int64(3 * time.Second))))
					if rnd.IntN(3) == 0 {
						work.Reset(time.Duration(rnd.Int64N(int64(3 * testTimeout))))
					}
					if heeded = rnd.IntN(2) == 0; heeded {
						select {
						case <-ctx.Done():
						case <-work.C:
						}
					} else {
						<-work.C
					}
					if stood = g.Held(); !stood && ctx.Err() == nil {
						p.fault("the grant %s is lost, and the ctx has not ended", g.Node())
					}
					if heeded && !stood {
						return errEnded
					}
					return nil
				})
				switch {
				case err == nil && !stood:
					p.fault("finished without the lock, and Hold does not say so")
				case errors.Is(err, errEnded):
					p.fault("the lock was lost, and not acquired again")
				case err != nil && !errOneOf(err, mayEnd):
					p.fault("hold: %v", err)
				}
			}
		})
	}
	return nil
}

// playHandle has two goroutines share a handle of each session, which they lock one to three times.
// As long as one of them holds it is one grant, which nobody gives back; readers do not become
// writers.
func playHandle(p *play) func() {
	c := &court{p: p, most: 1}
	for _, s := range p.sessions {
		h, entered := NewRWMutex(s, testPath, MutexOptions{}).Handle(), make(map[*Grant]bool)
		var mu sync.Mutex
		for range 2 {
			p.worker(func(rnd *rand.Rand) {
				for range 3 {
					kind, lock := KindWrite, h.Lock
					if rnd.IntN(2) == 0 {
						kind, lock = KindRead, h.RLock
					}
					g, err := lock(context.Background())
					if err != nil {
						if !errOneOf(err, mayEnd) && !errors.Is(err, ErrUpgrade) {
							p.fault("lock: %v", err)
						}
						time.Sleep(time.Duration(1 + rnd.Int64N(int64(time.Second))))
						continue
					}
					mu.Lock()
					if !entered[g] {
						entered[g] = true
						c.enter(g)
					}
					mu.Unlock()
					p.nest(h, g, kind, rnd)
				}
			})
		}
	}
	return nil
}

// nest holds a handle that is locked for a while, perhaps several times over, and unlocks it.
func (p *play) nest(h *RWHandle, g *Grant, kind Kind, rnd *rand.Rand) {
	if kind == KindWrite && g.Kind() == KindRead {
		p.fault("locked for writing, and the grant is one to read")
	}
	holds := 1
	for range rnd.IntN(3) {
		again, err := h.RLock(context.Background())
		if err == nil {
			holds++
		}
		if err == nil && again != g {
			p.fault("locked again, with another grant: %s, %s", g.Node(), again.Node())
		} else if err != nil && g.Held() {
			p.fault("lock again: %v", err)
		}
	}
	for holds > 0 {
		time.Sleep(time.Duration(rnd.Int64N(int64(3 * time.Second))))
		if errors.Is(g.Err(), ErrReleased) {
			p.fault("%s was given back with %d holds", g.Node(), holds)
		}
		err := h.Unlock(context.Background())
		if holds--; err != nil && !errors.Is(err, ErrExpired) && !errors.Is(err, ErrSilent) {
			p.fault("unlock: %v", err)
		}
	}
}

// guardedPath is the node that holders write with Guard.
const guardedPath = "/guarded"

// playGuard has holders write with Guard, while somebody deletes contenders' nodes by hand. A write
// was made while the writer's node was the first of all, and an acknowledged write is there.
func playGuard(p *play) func() {
	p.worker(func(*rand.Rand) {
		for {
			_, err := p.sessions[0].link.conn.Create(guardedPath, nil, zk.FlagPersistent, nil)
			if err == nil || errors.Is(err, zk.ErrNodeExists) {
				return
			}
			time.Sleep(time.Second)
		}
	})
	p.worker(func(rnd *rand.Rand) {
		for range 4 {
			time.Sleep(time.Duration(rnd.Int64N(int64(5 * time.Second))))
			p.deleteByHand(rnd)
		}
	})
	mayEnd := append(slices.Clip(mayEnd), ErrDeleted)
	var mu sync.Mutex
	var said []string
	for _, s := range p.sessions {
		p.worker(func(rnd *rand.Rand) {
			for range 3 {
				g, err := NewMutex(s, testPath, MutexOptions{}).Lock(context.Background())
				if err != nil {
					if !errOneOf(err, mayEnd) {
						p.fault("acquire: %v", err)
					}
					continue
				}
				for n := range 3 {
					time.Sleep(time.Duration(rnd.Int64N(int64(2 * time.Second))))
					data := fmt.Sprint(g.Node(), " ", g.Token(), " ", n)
					_, err := g.Guard(context.Background(), &zk.SetDataRequest{Path: guardedPath, Data: []byte(data), Version: -1})
					switch {
					case err == nil:
						mu.Lock()
						said = append(said, data)
						mu.Unlock()
					// /guarded may not be there yet
					case !errOneOf(err, mayEnd) && !errors.Is(err, zk.ErrNoNode):
						p.fault("guard: %v", err)
					}
				}
				if err := g.Unlock(context.Background()); err != nil && !errOneOf(err, mayEnd) {
					p.fault("release: %v", err)
				}
			}
		})
	}
	return func() { p.judgeGuarded(said) }
}

// judgeGuarded looks at all that was ever written to guardedPath.
func (p *play) judgeGuarded(said []string) {
	defer p.lock()()
	written, last := make(map[string]bool), ""
	for _, e := range p.history {
		n := e.view.nodes[guardedPath]
		if n == nil || string(n.data) == last || len(n.data) == 0 {
			continue
		}
		last = string(n.data)
		written[last] = true
		var node string
		var token int64
		fmt.Sscan(last, &node, &token)
		if own := e.view.nodes[node]; own == nil || own.czxid != token {
			p.fault("%s was written without its lock", last)
		}
		_, name := split(node)
		if front, _ := locknode.Predecessor(e.view.children(testPath), name, false, nil); front != "" {
			p.fault("%s was written while %s was in front", last, front)
		}
	}
	for _, data := range said {
		if !written[data] {
			p.fault("%s was not written", data)
		}
	}
}

// countPath has the number of leases of the drill semaphore-count.
const countPath = "/count"

// playSemaphoreCount changes the number of leases, 1 to 3, while there are contenders. Nobody is
// let in beside as many as the number was at any time of the wait.
func playSemaphoreCount(p *play) func() {
	opts := SemaphoreOptions{Leases: 3, CountPath: countPath}
	p.worker(func(rnd *rand.Rand) {
		for range 8 {
			err := NewSemaphore(p.sessions[0], testPath, opts).SetLeases(context.Background(), 1+rnd.IntN(3))
			if err != nil && !errOneOf(err, mayEnd) {
				p.fault("set leases: %v", err)
			}
			time.Sleep(time.Duration(rnd.Int64N(int64(4 * time.Second))))
		}
	})
	var mu sync.Mutex
	var held []*Grant
	enter := func(g *Grant, began time.Time) {
		mu.Lock()
		defer mu.Unlock()
		if held = slices.DeleteFunc(held, func(g *Grant) bool { return !g.Held() }); !g.Held() {
			return
		}
		held = append(held, g)
		most := 0
		p.between(began, time.Now(), func(v *fakeCluster) bool {
			n := opts.Leases
			if node := v.nodes[countPath]; node != nil {
				n = int(binary.BigEndian.Uint32(node.data))
			}
			most = max(most, n)
			return false
		})
		if len(held) > most {
			p.fault("%d hold, and there were at most %d leases", len(held), most)
		}
	}
	for _, s := range append(p.sessions, p.sessions[1:]...) {
		p.worker(func(rnd *rand.Rand) {
			for range 3 {
				began := time.Now()
				g, err := NewSemaphore(s, testPath, opts).Lock(context.Background())
				if err != nil {
					if !errOneOf(err, mayEnd) {
						p.fault("acquire: %v", err)
					}
					continue
				}
				enter(g, began)
				time.Sleep(time.Duration(rnd.Int64N(int64(4 * time.Second))))
				if err := g.Unlock(context.Background()); err != nil && !errOneOf(err, mayEnd) {
					p.fault("release: %v", err)
				}
			}
		})
	}
	return nil
}

// playOperator has somebody delete contenders' nodes by hand, and sometimes the lock's path with
// all that is below. Of two that hold only one has a node; who is granted the lock has had one
// within a session timeout, and the larger token of those whose nodes are there.
func playOperator(p *play) func() {
	p.worker(func(rnd *rand.Rand) {
		for range 12 {
			time.Sleep(time.Duration(rnd.Int64N(int64(3 * time.Second))))
			p.deleteByHand(rnd)
		}
	})
	var mu sync.Mutex
	var held []*Grant
	top := int64(0)
	enter := func(g *Grant) {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		there := func(g *Grant) func(v *fakeCluster) bool {
			return func(v *fakeCluster) bool { n := v.nodes[g.node.path]; return n != nil && n.czxid == g.token }
		}
		held = slices.DeleteFunc(held, func(o *Grant) bool { return !o.Held() || !p.between(now, now, there(o)) })
		switch {
		case !g.Held():
			return
		case !p.between(now.Add(-testTimeout), now, there(g)):
			p.fault("%s is granted, and was deleted long ago", g.Node())
		case !p.between(now, now, there(g)):
			return // the news is under way
		}
		if len(held) > 0 {
			p.fault("%s is granted while %s is held", g.Node(), held[0].Node())
		}
		if g.Token() <= top {
			p.fault("token %d of %s after %d", g.Token(), g.Node(), top)
		}
		held, top = append(held, g), g.Token()
	}
	for _, s := range append(p.sessions, p.sessions[1:]...) {
		p.worker(func(rnd *rand.Rand) {
			for range 4 {
				g, err := NewMutex(s, testPath, MutexOptions{}).Lock(context.Background())
				if err == nil {
					enter(g)
					time.Sleep(time.Duration(rnd.Int64N(int64(3 * time.Second))))
					err = g.Unlock(context.Background())
				}
				if err != nil && !errOneOf(err, mayEnd) && !errors.Is(err, ErrDeleted) {
					p.fault("lock: %v", err)
				}
			}
		})
	}
	return nil
}

// deleteByHand deletes a contender's node, or the lock's path with all that is below.
func (p *play) deleteByHand(rnd *rand.Rand) {
	defer p.lock()()
	names := slices.DeleteFunc(p.truth.children(testPath), func(name string) bool {
		_, ok := locknode.Sequence(name)
		return !ok
	})
	all := rnd.IntN(4) == 0
	if len(names) > 0 && !all {
		i := rnd.IntN(len(names))
		names = names[i : i+1]
	}
	for _, name := range names {
		p.commitLocked(func() { _ = p.truth.deleteLocked(testPath+"/"+name, -1) })
	}
	if all {
		p.commitLocked(func() { _ = p.truth.deleteLocked(testPath, -1) })
	}
	p.noteLocked("by hand: %s", strings.Join(names, " "))
}
