package quorum

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/wire"
)

// Commands linger until as many have arrived as the batch had, at most twice as long as that took,
// and not for a while after clients that are answered send nothing more.
func TestLinger(t *testing.T) {
	const ms = time.Millisecond
	now := time.Now()
	var l linger
	check := func(what string, want time.Duration) {
		t.Helper()
		if got := l.left(now); got != want {
			t.Errorf("%s: commands wait for %v, want %v", what, got, want)
		}
	}
	sessions := func(from, to wire.SessionID) (list []wire.SessionID) {
		for s := from; s <= to; s++ {
			list = append(list, s)
		}
		return list
	}
	arrive := func(sessions ...wire.SessionID) {
		for _, s := range sessions {
			l.arrive(s)
		}
	}
	complete := func(took time.Duration, sessions ...wire.SessionID) {
		l.answerable(sessions...)
		l.completed(now, now.Add(-took))
	}
	arrive(1)
	check("the first command", 0)
	complete(ms, 1)
	check("after a client alone", 0)
	complete(ms, 1, 1)
	arrive(1)
	check("one client with two in flight, one has not arrived", 2*ms)
	arrive(1)
	check("both have arrived", 0)
	complete(ms, sessions(1, 8)...)
	arrive(sessions(1, 7)...)
	check("one of eight has not arrived", 2*ms)
	now = now.Add(ms / 4)
	check("an eighth of the time has passed", 2*ms-ms/4)
	arrive(9)
	check("as many have arrived", 0)
	complete(time.Second, 1, 2)
	check("after a slow batch", lingerMax)
	arrive(1, 2)
	check("both have arrived", 0)

	// Clients that are answered early, and whose next requests arrive before the batch completes,
	// count.
	l.answerable(1, 2)
	arrive(1)
	l.answerable(3)
	arrive(3)
	complete(ms, 4)
	check("two of four are missing", 2*ms)
	arrive(2, 4)
	check("all have arrived", 0)

	l.completed(now, now.Add(-ms))
	check("after a batch that answered nobody", 0)

	complete(ms, sessions(1, 8)...)
	arrive(sessions(1, 4)...)
	now = now.Add(2 * ms)
	check("the time has passed, and half has arrived", 0)
	complete(ms, sessions(1, 8)...)
	check("it is tried again", 2*ms)
	arrive(1, 2, 3, 3)
	arrive(sessions(9, 12)...)
	check("as many have arrived, and most of them from other sessions", 0)
	for i := range lingerRest {
		complete(ms, sessions(1, 8)...)
		check(fmt.Sprint("batch ", i+1, " after clients that sent nothing more"), 0)
	}
	complete(ms, sessions(1, 8)...)
	check("it is tried again after a rest", 2*ms)
}

// takeTurns has clients send their next command a step after each other when they have been
// answered, and returns how many entries that took. Client i is at the member at(i).
func takeTurns(t *testing.T, c *cluster, clients, turns int, step time.Duration, at func(i int) int) uint64 {
	t.Helper()
	for i := range clients {
		c.recs[at(i)].result(t, c.propose(at(i), createSession(wire.SessionID(i+1))))
	}
	for _, d := range c.disks {
		d.SetSyncTime(time.Millisecond)
	}
	log := c.reps[c.leader()].raft
	before := log.LastIndex()
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			for n := range turns {
				time.Sleep(time.Duration(i) * step)
				command := sequential(wire.SessionID(i+1), uint64(n+1), "/n-")
				c.recs[at(i)].result(t, c.propose(at(i), command))
			}
		})
	}
	wg.Wait()
	return log.LastIndex() - before
}

// Closed-loop clients share one entry, at whatever members they are. In two groups that take turns,
// each would wait for two entries.
func TestClosedLoopClientsShareEntries(t *testing.T) {
	const clients, turns = 15, 40
	for name, where := range map[string]int{"at the leader": 1, "at all members": 3} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
				l := c.leader()
				c.recs[l].await(t, "leadership", func() bool { return c.recs[l].leads })
				at := func(i int) int { return (l + i%where) % 3 }
				got := takeTurns(t, c, clients, turns, 50*time.Microsecond, at)
				if got > turns*5/4 {
					t.Errorf("%d entries for %d turns of %d clients", got, turns, clients)
				}
			})
		})
	}
}

// openLoop has clients of all members send so many commands at random moments (a Poisson process),
// whether others have been answered or not, and returns how long they took, in order.
func openLoop(t *testing.T, c *cluster, commands int, perSecond float64) []time.Duration {
	const clients = 300
	for i := range clients {
		c.recs[i%3].result(t, c.propose(i%3, createSession(wire.SessionID(i+1))))
	}
	for _, d := range c.disks {
		d.SetSyncTime(time.Millisecond)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	took := make([]time.Duration, commands)
	var wg sync.WaitGroup
	for n := range commands {
		time.Sleep(time.Duration(rng.ExpFloat64() / perSecond * float64(time.Second)))
		start, at := time.Now(), n%clients%3
		key := c.propose(at, sequential(wire.SessionID(n%clients+1), uint64(n/clients+1), "/n-"))
		wg.Go(func() {
			c.recs[at].result(t, key)
			took[n] = time.Since(start)
		})
	}
	wg.Wait()
	slices.Sort(took)
	return took
}

// Open-loop clients, which send at moments of their own, pay for the linger what it says, at any
// load: their mean latency grows by three tenths at most, and the worst by lingerMax at a follower
// and once more at the leader.
func TestLingerCostsOpenLoopClientsLittle(t *testing.T) {
	mean := func(d []time.Duration) (sum time.Duration) {
		for _, d := range d {
			sum += d
		}
		return sum / time.Duration(len(d))
	}
	rates := []float64{1000, 100, 3000, 10_000} // an entry takes a little more than 1 ms
	if testing.Short() {
		rates = rates[:1]
	}
	for _, perSecond := range rates {
		var without, with []time.Duration
		for _, rest := range []int{1 << 30, 0} {
			inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
				l := c.leader()
				c.recs[l].await(t, "leadership", func() bool { return c.recs[l].leads })
				for _, r := range c.reps {
					r.batcher.mu.Lock()
					r.batcher.linger.rest = rest
					r.batcher.mu.Unlock()
					r.outbox.mu.Lock()
					r.outbox.linger.rest = rest
					r.outbox.mu.Unlock()
				}
				took := openLoop(t, c, 3000, perSecond)
				if rest > 0 {
					without = took
				} else {
					with = took
				}
			})
		}
		p99 := len(with) * 99 / 100
		t.Logf("%v/s: mean %v instead of %v, p99 %v instead of %v, most %v instead of %v", perSecond,
			mean(with), mean(without), with[p99], without[p99], with[len(with)-1], without[len(without)-1])
		if mean(with) > mean(without)*13/10 {
			t.Errorf("%v/s: mean %v, and without a linger %v", perSecond, mean(with), mean(without))
		}
		if most := without[len(without)-1] + 2*lingerMax; with[len(with)-1] > most {
			t.Errorf("%v/s: up to %v, want %v at most", perSecond, with[len(with)-1], most)
		}
	}
}

// remoteOutbox is an outbox whose leader is another member, and the frames that it has sent.
type remoteOutbox struct {
	*outbox
	frames []string // Lock: mu, the outbox's
	n      uint64
}

// route opens a route to the leader, until ctx ends.
func (o *remoteOutbox) route(ctx context.Context) {
	go func() {
		_ = o.sendTo(ctx, true, func(cmds [][]byte) error {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.frames = append(o.frames, string(slices.Concat(cmds...)))
			return nil
		})
	}()
	synctest.Wait()
}

// propose adds commands, one byte each.
func (o *remoteOutbox) propose(t *testing.T, cmds string) {
	for _, c := range cmds {
		o.n++
		if err := o.add(t.Context(), key(o.n), []byte{byte(c)}); err != nil {
			t.Error(err)
		}
	}
	synctest.Wait()
}

// apply applies the commands from first to last.
func (o *remoteOutbox) apply(first, last uint64) {
	for n := first; n <= last; n++ {
		o.settle(key(n))
	}
	o.applied()
	synctest.Wait()
}

// check compares the frames sent since the last call.
func (o *remoteOutbox) check(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Equal(o.frames, want) {
		t.Fatalf("sent %q, want %q", o.frames, want)
	}
	o.frames = nil
}

// Clients of a follower that have been answered share a frame to the leader, if they send in time.
func TestForwardedCommandsShareFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &remoteOutbox{outbox: newOutbox()}
		o.route(t.Context())
		o.propose(t, "abcd") // one at a time, for nobody has been answered
		o.check(t, "a", "b", "c", "d")
		time.Sleep(time.Millisecond)
		o.apply(1, 4)
		o.propose(t, "e")
		time.Sleep(time.Millisecond / 2)
		o.propose(t, "fg")
		o.check(t)
		o.propose(t, "h")
		o.check(t, "efgh")

		time.Sleep(time.Millisecond)
		o.apply(5, 8)
		o.propose(t, "ij") // the others send nothing more
		time.Sleep(2*time.Millisecond - 1)
		o.check(t)
		time.Sleep(time.Nanosecond)
		o.check(t, "ij")

		// What is to be sent again waits for nobody.
		o.propose(t, "kl")
		o.rewind()
		o.check(t, "k", "l", "ijkl")
		o.close()
	})
}

// Commands that linger when their route ends are sent over the next one, at once and in order.
func TestLingeringCommandsOutliveTheirRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &remoteOutbox{outbox: newOutbox()}
		ctx, cut := context.WithCancel(t.Context())
		o.route(ctx)
		o.propose(t, "abcde")
		o.check(t, "a", "b", "c", "d", "e")
		time.Sleep(time.Millisecond)
		o.apply(1, 5)
		o.propose(t, "fg")
		cut()
		synctest.Wait()
		o.propose(t, "h")
		time.Sleep(2 * lingerMax)
		o.check(t)
		o.rewind() // as startRoute does
		o.route(t.Context())
		o.check(t, "fgh")
		o.close()
	})
}
