package simtest

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/quorum/model/trace"
	"lockkeeper/znode"
)

var (
	simVirtual  = flag.Duration("sim.virtual", defaultVirtual, "virtual time that each simulation runs")
	simSeed     = flag.Uint64("sim.seed", 0, "seed of the first simulation; 0 means a new one each time")
	simSeeds    = flag.Uint64("sim.seeds", defaultSeeds, "how many simulations, with seeds that follow one another")
	simResults  = flag.String("sim.results", "", "file that gets one line of JSON for each simulation")
	simWorkload = flag.String("sim.workload", "", "what clients do, a list with commas; empty means what the seed says")
	simScripts  = flag.Bool("sim.scripts", false, "begin with a script of the model where the members fit it")
	simJournal  = flag.String("sim.journal", "", "file that gets everything that happens")
)

// scenarioSeed is the seed of a scenario, a directed test: -sim.seed, or 1. It decides the order in
// which goroutines run.
func scenarioSeed() uint64 { return cmp.Or(*simSeed, 1) }

// TestSimulation has clusters go through partitions, crashes, restarts, slow and failing disks
// while clients take locks, write and read, and checks the promises of the contract: see registry
// (C6 and fencing), register (C4), pipeliner (C2, C3, C5). In between everything is healed: then
// everybody must make progress, and the replicas must be equal and sound.
//
// Two thirds of the seeds are gentle: they have no cuts between clients and members that are healed
// before the client's library has noticed. Such cuts may delay a member's bytes until they are no
// longer true, and then a client library that counts from when it receives believes too long.
// Grants count from when a request was sent and must stand that. So the belief of libraries is
// checked in gentle simulations, the grants in all.
//
// Defends: C1, C4, C5, C6.
func TestSimulation(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates hours; not with -short: jepsen sim does, as in ./test")
	}
	plant(t)
	out := resultsFile(t)
	first := *simSeed
	if first == 0 {
		first = rand.Uint64()>>33 + 1
	}
	for seed := first; seed < first+*simSeeds; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s, err := shapeOf(seed).only(*simWorkload)
			if err != nil {
				t.Fatal(err)
			}
			var r result
			defer func() { // a bubble in which something failed ends the test
				t.Logf("seed %d, %v: %s in %v; %d faults, journal %s (again: go test -run 'TestSimulation$' "+
					"-sim.seed=%d -sim.virtual=%v)",
					seed, s, *simVirtual, time.Duration(r.RealMs)*time.Millisecond, r.Faults, r.Journal, seed,
					*simVirtual)
				if err := json.NewEncoder(out).Encode(r); err != nil {
					t.Errorf("results: %v", err)
				}
			}()
			simulate(t, seed, s, *simVirtual, &r)
		})
	}
}

// result is the result of a simulation, as a line of JSON: cmd/jepsen reads it.
type result struct {
	Seed       uint64         `json:"seed"`
	Shape      string         `json:"shape"`
	VirtualMs  int64          `json:"virtualMs"`
	RealMs     int64          `json:"realMs"`
	Violations []string       `json:"violations,omitempty"`
	Faults     int            `json:"faults"`
	FaultKinds map[string]int `json:"faultKinds"`
	// Journal is a digest of everything that happened, with its virtual time: equal for equal runs.
	Journal string         `json:"journal"`
	Figures map[string]int `json:"figures"`
	// Pairs has the pairs of actions that members took, as "one > the next".
	Pairs map[string]int `json:"pairs"`
}

func resultsFile(t *testing.T) io.Writer {
	if *simResults == "" {
		return io.Discard
	}
	f, err := os.OpenFile(*simResults, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatalf("results: %v", err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// simulate runs one simulation in a bubble of its own, and says in r how it went.
func simulate(t *testing.T, seed uint64, s shape, virtual time.Duration, r *result) {
	started := time.Now()
	seedRuntime(t, seed)
	j := newJournal(t, *simJournal)
	rec := &recorder{}
	defer func() {
		j.end()
		r.Seed, r.Shape, r.Journal, r.Violations = seed, s.String(), j.digest(), rec.violations
		r.RealMs = time.Since(started).Milliseconds()
	}()
	defer func() {
		// A simulation that has failed leaves its bubble with everybody in it. synctest takes that
		// for a deadlock.
		if deadlock := recover(); deadlock != nil && !t.Failed() {
			panic(deadlock)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		rec.T = t
		j.begin()
		sim := newSimulation(rec, seed, s, j)
		sim.run(virtual)
		*r = sim.result()
	})
}

// client is a program that works piece by piece.
type client interface {
	// work does one piece of work and reports whether it succeeded.
	work() bool
	close()
}

type simulation struct {
	c         *cluster
	seed      uint64
	workloads *workloads
	gate      *gate
	nemesis   *nemesis
	reg       *registry
	cell      *register
	pipes     []*pipeliner
	names     []string
	script    script // it begins with this one; without a name: with none
	played    *player
	work      sync.WaitGroup
	passed    time.Duration
}

func newSimulation(t *recorder, seed uint64, sh shape, j *journal) *simulation {
	c := newClusterOf(t, sh, seed, j)
	c.witness.strict = sh.gentle
	s := &simulation{
		c: c, seed: seed, gate: newGate(), nemesis: &nemesis{c: c, members: c.members,
			rng: rand.New(rand.NewPCG(seed, 0)), gentle: sh.gentle, counts: map[string]int{}},
		reg: &registry{c: c, holders: map[string]*holder{}, strict: sh.gentle}, cell: &register{c: c},
	}
	s.nemesis.reg = s.reg
	timeouts := sh.timeouts()
	i := 0
	next := func(make func(host string, timeout time.Duration, rng *rand.Rand) client) {
		i++
		host := fmt.Sprintf("10.0.1.%d", i)
		c.net.Host(host)
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		s.add(host, rng, make(host, timeouts[i%len(timeouts)], rng))
	}
	for range sh.locks {
		next(func(host string, timeout time.Duration, rng *rand.Rand) client {
			return newLockClient(c, s.reg, host, timeout, rng)
		})
	}
	for range sh.foreignLocks {
		next(func(host string, timeout time.Duration, rng *rand.Rand) client {
			return newForeignLockClient(c, s.reg, host, timeout, rng)
		})
	}
	for range sh.registers {
		next(func(host string, timeout time.Duration, rng *rand.Rand) client {
			return newRegisterClient(c, s.cell, host, timeout, rng)
		})
	}
	for range sh.pipes {
		next(func(host string, timeout time.Duration, rng *rand.Rand) client {
			p := newPipeliner(c, host, timeout, rng,
				func() string { return c.members[rng.IntN(len(c.members))].clientAddr() })
			s.pipes = append(s.pipes, p)
			return p
		})
	}
	s.workloads = newWorkloads(s, sh.workloads)
	s.script = scriptFor(sh, seed)
	s.nemesis.tell = s.workloads.tell
	return s
}

func (s *simulation) add(host string, rng *rand.Rand, w client) {
	s.names = append(s.names, host)
	s.nemesis.clients = append(s.nemesis.clients, host)
	s.work.Go(func() {
		defer w.close()
		for s.gate.enter() {
			s.gate.leave(host, w.work())
			time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
		}
	})
}

// run alternates between faults and checks. It returns as soon as something is wrong: a cluster
// that has broken a promise may never reach the awaited state.
func (s *simulation) run(virtual time.Duration) {
	t, c := s.c.t, s.c
	c.awaitLeader()
	c.each(forgetful)
	over := make(chan struct{})
	s.work.Go(func() { c.watchProgress(over) })
	s.work.Go(func() { c.collectGarbage(over) })
	if c.shape.neighbour {
		n := newNeighbour(c, s.seed)
		s.nemesis.neighbour = n
		s.work.Go(func() { n.watch(over) })
	}
	s.play()
	for c.journal.age() < virtual && !t.Failed() {
		s.round()
		s.passed = c.journal.age()
	}
	if t.Failed() {
		return
	}
	s.gate.end()
	close(over)
	if !ended(&s.work, 5*time.Minute) {
		t.Errorf("the clients do not end though everything is healed")
		return
	}
	if n := s.nemesis.neighbour; n != nil {
		n.stop()
	}
	c.shutdown()
}

// play plays the script while no client works. It is left out if it cannot be begun.
func (s *simulation) play() {
	if s.script.name == "" || !s.gate.close(time.Minute) {
		return
	}
	s.played, _ = s.c.play(s.script, rand.New(rand.NewPCG(s.seed, 1<<35)))
	for _, m := range s.c.members {
		m.start()
	}
	if spare := s.c.spare; spare != nil && spare.used {
		s.nemesis.members = s.c.machines()
	}
	s.gate.open()
}

// ended waits for a group to end, and reports whether it does within limit.
func ended(work *sync.WaitGroup, limit time.Duration) bool {
	done := make(chan struct{})
	go func() {
		work.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-time.After(limit):
		return false
	}
}

// round breaks things, heals them, and has everybody show that nothing is wrong. It ends early when
// something is.
func (s *simulation) round() {
	t, c := s.c.t, s.c
	visit := s.workloads.begin()
	for _, step := range []func(){
		s.nemesis.round,
		s.gate.open,
		s.everybodyWorks,
		func() { s.workloads.end(visit) },
		s.everybodyRests,
		func() { c.settled(30 * time.Second) },
		func() { c.members[0].running().view(s.verify) },
		s.neighbourIsWhole,
		s.gate.open,
	} {
		if step(); t.Failed() {
			return
		}
	}
}

// everybodyWorks waits until every client has done something. Three may stand in the queue of one
// lock, and each may hold it for 20 s; the node of a foreign lock is in the way until its session
// expires.
func (s *simulation) everybodyWorks() {
	time.Sleep(10 * time.Second)
	for wait := 0; len(s.gate.active()) != len(s.names) && wait < 170; wait++ {
		time.Sleep(time.Second)
	}
	if got := s.gate.active(); len(got) != len(s.names) {
		s.c.t.Errorf("after %v: three minutes after everything was healed only these have worked: %v",
			s.c.journal.age(), got)
	}
}

// everybodyRests waits until every client has finished its operation.
func (s *simulation) everybodyRests() {
	if !s.gate.close(2 * time.Minute) {
		s.c.t.Errorf("after %v: work does not come to an end though everything is healed", s.c.journal.age())
	}
}

func (s *simulation) neighbourIsWhole() {
	if n := s.nemesis.neighbour; n != nil {
		n.whole()
	}
}

func (s *simulation) result() result {
	r := result{VirtualMs: s.passed.Milliseconds(), FaultKinds: s.nemesis.counts}
	for _, n := range s.nemesis.counts {
		r.Faults += n
	}
	replies, broken, events := 0, 0, 0
	for _, p := range s.pipes {
		replies, broken, events = replies+p.replies, broken+p.broken, events+p.events
	}
	net, g := s.c.net.Stats(), s.workloads
	r.Pairs = map[string]int{}
	for pair, n := range s.c.explained.checker.Pairs {
		r.Pairs[string(pair[0])+" > "+string(pair[1])] = n
	}
	r.Figures = map[string]int{
		"acquisitions": s.reg.acquisitions, "grants lost": s.reg.lost, "reads behind a sync": int(s.cell.reads.Load()),
		"pipelined requests": replies, "connections broken": broken, "events": events,
		"dials": int(net.Dials), "segments": int(net.Segments), "resets": int(net.Resets),
		"terms": len(s.c.witness.winners), "sessions expired": s.c.witness.expired,
		"history entries": g.entries, "logs repaired": int(s.c.repaired.Load()),
		"disks replaced": s.c.replaced, "disks set back": s.c.setBack, "disks damaged": s.c.damaged,
		"snapshots damaged": s.c.damagedSnapshots, "imports": s.c.imports,
		"members changed": int(s.nemesis.changed.Load()), "commits": s.c.explained.checker.Commits,
		"elections": s.c.explained.checker.Elections, "answers": s.c.explained.checker.Events[trace.Answered],
		"files set aside": s.c.setAside,
	}
	if n := s.nemesis.neighbour; n != nil {
		r.Figures["addresses exchanged"] = n.exchanges
	}
	if p := s.played; p != nil {
		r.Figures["script steps"], r.Figures["script steps followed"] = len(p.s.steps), p.steps()
		r.Figures["script "+p.s.name] = 1
	}
	for name, n := range g.checked {
		r.Figures["verdicts "+name], r.Figures["unknown verdicts "+name] = n, g.unknown[name]
	}
	return r
}

func (s *simulation) verify(store *znode.Store) {
	for _, p := range s.pipes {
		p.verify(store)
	}
}
