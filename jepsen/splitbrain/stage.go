package splitbrain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/jepsen"
)

// A stage is one case while it is played: its clients, and their and the probes' observations.
//
//	holder   one for each member, which it knows only; holds a lock of its own before the break
//	waiter   one for each side; waits, from before the break, for the locks of all that are not on
//	         its side; after the break it contends for the one lock that every side wants
//	writer   one for each side, at the leader if that is there; writes the numbers 1, 2, 3, ...
type stage struct {
	session time.Duration
	root    string // the node below which everything is
	members []*jepsen.Member
	leader  int
	sides   [][]int
	dead    []int
	rec     *recorder

	holders map[int]*client
	waiters []*client
	writers []*writer

	early atomic.Bool // a waiter got a lock; before the break it may not

	stop context.CancelFunc // ends the background work
	busy sync.WaitGroup
}

// A writer writes to a node of its own, one number after another.
type writer struct {
	*client
	path string
	// begun is the last number that was sent, acked the last one that was acknowledged.
	begun, acked atomic.Int64
}

// path is a node of the stage.
func (s *stage) path(format string, args ...any) string {
	return s.root + "/" + fmt.Sprintf(format, args...)
}

// addrs are where some members serve clients.
func (s *stage) addrs(ids ...int) []string {
	var all []string
	for _, id := range ids {
		all = append(all, s.members[id-1].ClientAddr)
	}
	return all
}

// sideOf is the side of a member, -1 if it is among those that die.
func (s *stage) sideOf(id int) int {
	return slices.IndexFunc(s.sides, func(side []int) bool { return slices.Contains(side, id) })
}

// dial starts all clients and waits for their sessions.
func (s *stage) dial(ctx context.Context) error {
	s.holders = make(map[int]*client)
	for _, m := range s.members {
		c, err := dial(s.addrs(m.ID), s.session, func(connected bool) { s.heard(m.ID, connected) })
		if err != nil {
			return err
		}
		s.holders[m.ID] = c
	}
	for i, side := range s.sides {
		waiter, err := dial(s.addrs(side...), s.session, nil)
		if err != nil {
			return err
		}
		s.waiters = append(s.waiters, waiter)
		if s.sideOf(s.leader) == i {
			side = []int{s.leader}
		}
		w, err := dial(s.addrs(side...), s.session, nil)
		if err != nil {
			return err
		}
		s.writers = append(s.writers, &writer{client: w, path: s.path("numbers-%d", i+1)})
	}
	for _, c := range s.clients() {
		if err := c.AwaitSession(ctx); err != nil {
			return err
		}
	}
	return nil
}

// heard notes the news of the holder at a member.
func (s *stage) heard(id int, connected bool) {
	s.rec.note(func(r *recorder, now Instant) {
		if connected {
			delete(r.told, id)
			return
		}
		first(r.told, id, now)
		first(r.dropped, id, now)
	})
}

// clients are all of them.
func (s *stage) clients() []*client {
	all := slices.Clone(s.waiters)
	for _, c := range s.holders {
		all = append(all, c)
	}
	for _, w := range s.writers {
		all = append(all, w.client)
	}
	return all
}

// set puts everything in its place before the break: nodes, locks that are held, waiters that wait
// for them, numbers that are written.
func (s *stage) set(ctx context.Context) error {
	admin := s.waiters[0]
	nodes := []string{s.root}
	for _, w := range s.writers {
		nodes = append(nodes, w.path)
	}
	for _, node := range nodes {
		if _, err := admin.Create(node, []byte("0"), 0, anyone); err != nil {
			return fmt.Errorf("splitbrain: create %s: %w", node, err)
		}
	}
	for id, holder := range s.holders {
		if err := holder.lock(ctx, s.path("lock-%d", id), nil); err != nil {
			return err
		}
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	var ready sync.WaitGroup
	for i, waiter := range s.waiters {
		for id := range s.holders {
			if s.sideOf(id) != i {
				ready.Add(1)
				s.busy.Go(func() { s.awaitLock(background, waiter, i, id, sync.OnceFunc(ready.Done)) })
			}
		}
	}
	for i, w := range s.writers {
		ready.Add(1)
		s.busy.Go(func() { s.write(background, w, i, sync.OnceFunc(ready.Done)) })
	}
	return wait(ctx, &ready)
}

// wait waits for a group until ctx ends.
func wait(ctx context.Context, group *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("splitbrain: clients do not get ready: %w", context.Cause(ctx))
	}
}

// awaitLock waits for the lock of a member's holder.
func (s *stage) awaitLock(ctx context.Context, waiter *client, side, id int, ready func()) {
	defer ready()
	if waiter.lock(ctx, s.path("lock-%d", id), ready) == nil {
		s.early.Store(true)
		s.rec.note(func(r *recorder, now Instant) { first(r.sides[side].Inherited, id, now) })
	}
}

// checkReady says whether everything is in its place just before the break: every holder is
// connected and has its lock.
func (s *stage) checkReady() error {
	if s.early.Load() {
		return fmt.Errorf("%w: a lock has changed hands", errNotReady)
	}
	for id, holder := range s.holders {
		if holder.State() != zk.StateHasSession {
			return fmt.Errorf("%w: the client of m%d is not connected", errNotReady, id)
		}
	}
	return nil
}

// write writes numbers until ctx ends. An unacknowledged number is not written again: it may have
// been.
func (s *stage) write(ctx context.Context, w *writer, side int, ready func()) {
	defer ready()
	for n := int64(1); ctx.Err() == nil; n++ {
		begun := time.Now()
		w.begun.Store(n)
		_, err := w.Set(w.path, []byte(strconv.FormatInt(n, 10)), -1)
		if err == nil {
			w.acked.Store(n)
			ready()
			s.rec.note(func(r *recorder, now Instant) {
				if r.brokenBefore(begun) {
					r.sides[side].wrote(now)
				}
			})
		}
		jepsen.Sleep(ctx, retryPause)
	}
}

// wrote notes an acknowledged write.
func (s *Seen) wrote(now Instant) {
	if s.Writes++; s.Writes == 1 {
		s.Wrote = now
	}
}

// watch begins the work after the break: probes of all members that live, and the race for the
// lock.
func (s *stage) watch(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var probes sync.WaitGroup
	for i, side := range s.sides {
		for _, id := range side {
			probes.Go(func() { probe(ctx, s.rec, i, s.members[id-1]) })
		}
		s.busy.Go(func() {
			if s.waiters[i].lock(ctx, s.path("race"), nil) == nil {
				s.rec.note(func(r *recorder, now Instant) { r.sides[i].Lock = now })
			}
		})
	}
	return func() {
		cancel()
		probes.Wait()
	}
}

// close ends all clients and waits for them. It may be called on a stage that was never set.
func (s *stage) close() {
	if s.stop != nil {
		s.stop()
	}
	var closing sync.WaitGroup
	for _, c := range s.clients() {
		closing.Go(c.Close)
	}
	closing.Wait()
	s.busy.Wait()
}

// errLost is an acknowledged write that is not there.
var errLost = errors.New("an acknowledged write is lost")

// checkNumbers says whether the last acknowledged number of each writer is in a replica, or a later
// one that was sent.
func (s *stage) checkNumbers(r Replica) error {
	var errs []error
	for _, w := range s.writers {
		text := r.nodes[w.path].data
		n, err := strconv.ParseInt(text, 10, 64)
		if acked, begun := w.acked.Load(), w.begun.Load(); err != nil || n < acked || n > begun {
			errs = append(errs, fmt.Errorf("splitbrain: %s is %q at m%d, the last that was acknowledged was %d, "+
				"the last that was sent %d: %w", w.path, text, r.Member, acked, begun, errLost))
		}
	}
	return errors.Join(errs...)
}
