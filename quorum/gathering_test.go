package quorum

import (
	"slices"
	"sync"
	"testing"
	"time"

	"lockkeeper/wire"
)

// Who was answered is waited for, for a bounded time; where that brings nothing, it is tried ever more seldom.
func TestGathering(t *testing.T) {
	now := time.Now()
	g := gathering{few: 2}
	if g.left(now, 1) != 0 {
		t.Error("the first command waits")
	}
	g.landed(now, time.Millisecond, 1, 0)
	if g.left(now, 1) != 0 {
		t.Error("a client alone waits")
	}
	g.landed(now, time.Millisecond, 8, 8)
	if got := g.left(now, 15); got != 2*time.Millisecond {
		t.Errorf("one of those who were answered is waited for for %v, want two flights", got)
	}
	if g.left(now, 16) != 0 || g.left(now, 1) != 0 {
		t.Error("all are there, and are waited for")
	}
	g.landed(now, time.Millisecond, 128, 0)
	if g.left(now, 119) == 0 || g.left(now, 120) != 0 {
		t.Error("of many, the last few are waited for, or more than these are not")
	}
	g.landed(now, time.Millisecond, 64, 0)
	if got, want := g.left(now, 1), 60*gatherEach; got != want {
		t.Errorf("60 commands are waited for for %v, want %v", got, want)
	}
	g.landed(now, time.Millisecond, 1000, 0)
	if got := g.left(now, 1); got != gatherMax {
		t.Errorf("a thousand commands are waited for for %v, want %v", got, gatherMax)
	}
	g.landed(now, time.Second, 8, 8)
	if got := g.left(now, 8); got != gatherMax {
		t.Errorf("commands wait for %v, want %v", got, gatherMax)
	}

	// An entry lands each millisecond, and waiting takes two of them.
	var tried []time.Duration
	g = gathering{few: 2}
	start := now
	for now.Sub(start) < 300*time.Millisecond {
		g.landed(now, time.Millisecond, 1, 1)
		if g.left(now, 1) != 0 {
			tried = append(tried, now.Sub(start)/time.Millisecond)
			if now = now.Add(2 * time.Millisecond); g.left(now, 1) != 0 {
				t.Fatal("commands wait when their time has passed")
			}
			continue
		}
		now = now.Add(time.Millisecond)
	}
	if want := []time.Duration{0, 4, 10, 20, 38, 72, 138, 204, 270}; !slices.Equal(tried, want) {
		t.Errorf("fruitless, waiting is tried at %d ms, want %d", tried, want)
	}
	now = g.again
	g.landed(now, time.Millisecond, 1, 1)
	if g.left(now, 2) != 0 || g.rest != 0 {
		t.Error("a wait that was worth it changes nothing")
	}
}

// takeTurns has clients ask again as soon as they are answered, each a step later than the one before it, and returns how many entries that took.
// Client i is at the member that at names.
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
				c.recs[at(i)].result(t, c.propose(at(i), sequential(wire.SessionID(i+1), uint64(n+1), "/n-")))
			}
		})
	}
	wg.Wait()
	return log.LastIndex() - before
}

// Clients who ask again as soon as they are answered get into one entry. In two groups that take turns, each would wait for two entries.
func TestClientsThatTakeTurnsGatherInOneEntry(t *testing.T) {
	const clients, turns = 8, 40
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.recs[l].await(t, "leadership", func() bool { return c.recs[l].leads })
		if got := takeTurns(t, c, clients, turns, 100*time.Microsecond, func(int) int { return l }); got > turns*5/4 {
			t.Errorf("%d entries for %d turns of %d clients", got, turns, clients)
		}
	})
}
