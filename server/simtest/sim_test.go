package simtest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var (
	simHours = flag.Float64("sim.hours", 0.5, "virtual hours that the simulations run")
	simSeed  = flag.Uint64("sim.seed", 0, "seed of the simulations; 0 means a new one each time")
)

func seed(t *testing.T) uint64 {
	s := *simSeed
	if s == 0 {
		s = rand.Uint64()>>33 + 1
	}
	t.Logf("seed %d (run again with -sim.seed=%d -sim.hours=%g)", s, s, *simHours)
	return s
}

func TestSimLocks(t *testing.T) {
	s := seed(t)
	started := time.Now()
	virtual := time.Duration(*simHours * float64(time.Hour))
	synctest.Test(t, func(t *testing.T) {
		simulate(t, s, virtual)
	})
	real := time.Since(started)
	t.Logf("%v virtual in %v real (%.1f hours per minute)", virtual, real.Round(time.Millisecond), virtual.Hours()/real.Minutes())
}

func simulate(t *testing.T, seed uint64, virtual time.Duration) {
	j := newJournal(t)
	c := newCluster(t, seed, j)
	g := newGate()
	reg := &registry{c: c, strict: true, holders: map[*lockClient]*holder{}}
	n := &nemesis{c: c, rng: rand.New(rand.NewPCG(seed, 1)), gentle: true, counts: map[string]int{}}
	var work sync.WaitGroup
	var names []string
	for i := range 5 {
		l := newLockClient(c, reg, g, i, seed)
		n.clients = append(n.clients, l.host)
		names = append(names, l.name)
		work.Go(l.run)
	}
	for time.Since(j.start) < virtual && !t.Failed() {
		n.round()
		g.open()
		time.Sleep(time.Minute)
		if got := g.active(); len(got) != len(names) {
			t.Errorf("a minute after everything was healed only these have worked: %v", got)
		}
		if !g.close(2 * time.Minute) {
			t.Errorf("work does not come to an end though everything is healed")
		}
		c.settled(30 * time.Second)
		g.open()
	}
	g.end()
	work.Wait()
	c.shutdown()
	t.Logf("%d acquisitions, %d grants lost; faults %s", reg.acquisitions, reg.lost, fmt.Sprint(n.counts))
}
