package simtest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// shape is what a simulation is like: it follows from the seed.
type shape struct {
	voters, observers int
	tick              time.Duration
	// gentle: no byte comes late from a member to a client; see TestSimulation.
	gentle bool
	// wan: the way from member to member takes up to this much longer, now and then.
	wan time.Duration
	// How many clients of each kind there are.
	locks, foreignLocks, registers, pipes int
}

// shapeOf draws the shape of a simulation.
func shapeOf(seed uint64) shape {
	rng := rand.New(rand.NewPCG(seed, 1<<32))
	s := shape{
		voters: []int{3, 3, 3, 3, 3, 4, 5, 5}[rng.IntN(8)],
		tick:   []time.Duration{time.Second, 2 * time.Second, 2 * time.Second, 4 * time.Second}[rng.IntN(4)],
		gentle: rng.IntN(3) > 0,
	}
	if rng.IntN(5) == 0 {
		s.observers = 1 + rng.IntN(2)
	}
	if rng.IntN(3) == 0 {
		s.wan = time.Duration(1+rng.IntN(300)) * time.Millisecond
	}
	s.locks, s.foreignLocks, s.registers, s.pipes = 1+rng.IntN(3), rng.IntN(2), 1+rng.IntN(3), 1+rng.IntN(2)
	return s
}

func (s shape) String() string {
	text := fmt.Sprintf("%d voters, %d observers, tick %v; %d locks, %d foreign locks, %d registers, %d pipes",
		s.voters, s.observers, s.tick, s.locks, s.foreignLocks, s.registers, s.pipes)
	if s.gentle {
		text += "; gentle"
	}
	if s.wan > 0 {
		text += fmt.Sprintf("; up to %v between members", s.wan)
	}
	return text
}

// only leaves the workloads of a list, separated by commas, with three clients each; "" leaves the shape as it is.
func (s shape) only(list string) (shape, error) {
	if list == "" {
		return s, nil
	}
	s.locks, s.foreignLocks, s.registers, s.pipes = 0, 0, 0, 0
	counts := map[string]*int{"locks": &s.locks, "foreign-locks": &s.foreignLocks, "registers": &s.registers, "pipes": &s.pipes}
	for _, name := range strings.Split(list, ",") {
		n := counts[name]
		if n == nil {
			return s, fmt.Errorf("there is no workload %q", name)
		}
		*n = 3
	}
	return s, nil
}

// timeouts are what the sessions ask for: from the least that a member grants.
func (s shape) timeouts() []time.Duration {
	return []time.Duration{2 * s.tick, 3 * s.tick, 9 * s.tick / 2, 15 * s.tick / 2}
}
