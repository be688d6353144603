package simtest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/znode"
)

var (
	simHours = flag.Float64("sim.hours", defaultHours, "virtual hours that each simulation runs")
	simSeed  = flag.Uint64("sim.seed", 0, "seed of the simulations; 0 means a new one each time")
)

// inBubble runs f in virtual time, with a seed that it prints.
func inBubble(t *testing.T, f func(t *testing.T, seed uint64, virtual time.Duration)) {
	seed := *simSeed
	if seed == 0 {
		seed = rand.Uint64()>>33 + 1
	}
	t.Logf("seed %d (again: go test -run %s -sim.seed=%d -sim.hours=%g)", seed, t.Name(), seed, *simHours)
	started := time.Now()
	virtual := time.Duration(*simHours * float64(time.Hour))
	synctest.Test(t, func(t *testing.T) { f(t, seed, virtual) })
	real := time.Since(started)
	t.Logf("%v virtual in %v real: %.1f hours per minute", virtual, real.Round(time.Millisecond), virtual.Hours()/real.Minutes())
}

// TestCluster has three members go through partitions, crashes and restarts
// while clients take locks, write and read, and checks the promises of the
// contract: see registry (C6 and fencing), register (C4), pipeliner (C2, C3, C5).
// In between everything is healed: then everybody must make progress, and the
// replicas must be equal and sound.
func TestCluster(t *testing.T) {
	inBubble(t, func(t *testing.T, seed uint64, virtual time.Duration) {
		s := newSimulation(t, seed, &nemesis{gentle: true})
		s.reg.strict = true
		s.run(virtual)
	})
}

// TestClusterDelayed is TestCluster with cuts between clients and members of any
// length. They may delay what a member has sent until it is no longer true, and
// then a client library that counts from when it receives believes too long.
// Grants count from when a request was sent and must stand that.
func TestClusterDelayed(t *testing.T) {
	inBubble(t, func(t *testing.T, seed uint64, virtual time.Duration) {
		newSimulation(t, seed, &nemesis{}).run(virtual)
	})
}

// client is a program that works piece by piece.
type client interface {
	// work does one piece of work and reports whether it succeeded.
	work() bool
	close()
}

type simulation struct {
	c       *cluster
	gate    *gate
	nemesis *nemesis
	reg     *registry
	cell    *register
	pipes   []*pipeliner
	names   []string
	work    sync.WaitGroup
}

func newSimulation(t *testing.T, seed uint64, n *nemesis) *simulation {
	c := newCluster(t, seed, newJournal(t))
	n.c, n.rng, n.counts = c, rand.New(rand.NewPCG(seed, 0)), map[string]int{}
	s := &simulation{
		c: c, gate: newGate(), nemesis: n,
		reg: &registry{c: c, holders: map[string]*holder{}}, cell: &register{c: c},
	}
	n.reg = s.reg
	timeouts := []time.Duration{4 * time.Second, 6 * time.Second, 9 * time.Second, 15 * time.Second}
	for i := range 12 {
		host := fmt.Sprintf("10.0.1.%d", i+1)
		c.net.Host(host)
		rng := rand.New(rand.NewPCG(seed, uint64(i+1)))
		timeout := timeouts[i%len(timeouts)]
		switch {
		case i < 4:
			s.add(host, rng, newLockClient(c, s.reg, host, timeout, rng))
		case i < 6:
			s.add(host, rng, newForeignLockClient(c, s.reg, host, timeout, rng))
		case i < 9:
			s.add(host, rng, newRegisterClient(c, s.cell, host, timeout, rng))
		default:
			p := newPipeliner(c, host, timeout, rng, func() string { return c.members[rng.IntN(clusterSize)].clientAddr() })
			s.pipes = append(s.pipes, p)
			s.add(host, rng, p)
		}
	}
	return s
}

func (s *simulation) add(host string, rng *rand.Rand, w client) {
	s.names = append(s.names, host)
	s.nemesis.clients = append(s.nemesis.clients, host)
	s.work.Go(func() {
		defer w.close()
		for s.gate.enter() {
			s.gate.leave(host, w.work())
			time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
		}
	})
}

// run alternates between breaking things and looking at what has come of it.
func (s *simulation) run(virtual time.Duration) {
	t, c := s.c.t, s.c
	over := make(chan struct{})
	s.work.Go(func() { c.watchProgress(over) })
	for time.Since(c.journal.start) < virtual && !t.Failed() {
		s.nemesis.round()
		s.gate.open()
		time.Sleep(time.Minute)
		// Six stand in the queue of one lock, and each may hold it for 20 s; what a foreign lock leaves behind is in the
		// way until its session expires.
		for wait := 0; len(s.gate.active()) != len(s.names) && wait < 120; wait++ {
			time.Sleep(time.Second)
		}
		if got := s.gate.active(); len(got) != len(s.names) {
			t.Errorf("after %v: three minutes after everything was healed only these have worked: %v", time.Since(c.journal.start), got)
		}
		if !s.gate.close(2 * time.Minute) {
			t.Errorf("after %v: work does not come to an end though everything is healed", time.Since(c.journal.start))
		}
		c.settled(30 * time.Second)
		if !t.Failed() {
			c.members[0].running().view(s.verify)
		}
		s.gate.open()
	}
	s.gate.end()
	close(over)
	s.work.Wait()
	c.shutdown()
	replies, broken, events := 0, 0, 0
	for _, p := range s.pipes {
		replies, broken, events = replies+p.replies, broken+p.broken, events+p.events
	}
	t.Logf("%d acquisitions, %d ended before they were given back; %d reads behind a sync; %d pipelined requests answered on %d connections, %d events",
		s.reg.acquisitions, s.reg.lost, s.cell.reads.Load(), replies, broken, events)
	t.Logf("network %+v; faults %v", c.net.Stats(), s.nemesis.counts)
}

func (s *simulation) verify(store *znode.Store) {
	for _, p := range s.pipes {
		p.verify(store)
	}
}
