package simtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"lockkeeper/jepsen/workload"
)

// shape has the parameters of a simulation: it follows from the seed.
type shape struct {
	voters, observers int
	tick              time.Duration
	// gentle: no byte comes late from a member to a client; see TestSimulation.
	gentle bool
	// wan: the way from member to member takes up to this much longer, now and then.
	wan time.Duration
	// The commands before a snapshot, and the entries that it leaves in the log.
	snapCount int
	trailing  uint64
	// changes: operators change the members now and then.
	changes bool
	// neighbour: another cluster is on the same network.
	neighbour bool
	// lateStarts: some members may start for the first time when the others have.
	lateStarts bool
	// Numbers of clients of each kind.
	locks, foreignLocks, registers, pipes int
	// workloads are from package jepsen/workload.
	workloads []string
	// secretFile is peer.secretFile of all members.
	secretFile string
	// anyPeerAddr is peerAddressCheck=false.
	anyPeerAddr bool
	// http: members serve HTTP.
	http bool
	// rest is the ratio of the clients' pauses to a busy simulation's. The clients' operations cost
	// the time of a simulation, but faults cause most findings: so most are not busy.
	rest int
}

// shapeOf draws the shape of a simulation.
func shapeOf(seed uint64) shape {
	rng := rand.New(rand.NewPCG(seed, 1<<32))
	s := shape{
		voters: []int{3, 3, 3, 3, 3, 4, 5, 5}[rng.IntN(8)],
		tick:   []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second}[rng.IntN(4)],
		gentle: rng.IntN(3) > 0,
	}
	s.lateStarts = true
	s.snapCount, s.trailing = 20+rng.IntN(200), uint64(1+rng.IntN(40))
	if rng.IntN(5) == 0 {
		s.observers = 1 + rng.IntN(2)
	}
	if rng.IntN(3) == 0 {
		// A session of two ticks wants an answer within a third of that, which takes up to four
		// times this long.
		s.wan = time.Duration(1 + rng.Int64N(int64(min(s.tick/10, 300*time.Millisecond))))
	}
	// Some kinds of clients in each, not all: many at once cost time, and little is won by it.
	s.locks = []int{0, 2, 2, 3}[rng.IntN(4)]
	s.pipes = []int{0, 1, 2}[rng.IntN(3)]
	s.registers = []int{0, 0, 2}[rng.IntN(3)]
	s.foreignLocks = []int{0, 0, 2}[rng.IntN(3)]
	for _, name := range workload.Names() {
		if rng.IntN(5) == 0 && s.fits(name) {
			s.workloads = append(s.workloads, name)
		}
	}
	if s.locks+s.pipes == 0 {
		s.locks, s.pipes = 2, 1
	}
	if s.pipes > 0 {
		s.registers = max(s.registers, 1) // they watch the registers' nodes
	}
	s.rest = 6
	if rng.IntN(8) == 0 {
		s.rest = 1
	}
	s.changes = rng.IntN(2) == 0
	s.neighbour = rng.IntN(3) == 0
	s.anyPeerAddr = s.neighbour && rng.IntN(2) == 0
	return s
}

// fits says whether a workload keeps its promise in such a simulation. A library's belief is not
// promised when bytes come late.
func (s shape) fits(name string) bool { return name != "belief" || s.gentle }

func (s shape) String() string {
	text := fmt.Sprintf("%d voters, %d observers, tick %v; %d locks, %d foreign locks, %d registers, %d pipes",
		s.voters, s.observers, s.tick, s.locks, s.foreignLocks, s.registers, s.pipes)
	if len(s.workloads) > 0 {
		text += "; " + strings.Join(s.workloads, ", ")
	}
	if s.rest == 1 {
		text += "; busy"
	}
	if s.changes {
		text += "; changes of members"
	}
	if s.neighbour {
		text += "; a neighbour"
	}
	if s.gentle {
		text += "; gentle"
	}
	if s.wan > 0 {
		text += fmt.Sprintf("; up to %v between members", s.wan.Round(time.Millisecond))
	}
	return text
}

// only leaves the workloads of a list, separated by commas, with three busy clients each; "" leaves
// the shape as it is.
func (s shape) only(list string) (shape, error) {
	if list == "" {
		return s, nil
	}
	s.locks, s.foreignLocks, s.registers, s.pipes, s.workloads, s.rest = 0, 0, 0, 0, nil, 1
	counts := map[string]*int{"locks": &s.locks, "foreign-locks": &s.foreignLocks, "registers": &s.registers, "pipes": &s.pipes}
	for _, name := range strings.Split(list, ",") {
		n := counts[name]
		if slices.Contains(workload.Names(), name) {
			s.workloads = append(s.workloads, name)
			continue
		}
		if n == nil {
			return s, fmt.Errorf("there is no workload %q", name)
		}
		*n = 3
	}
	return s, nil
}

// timeouts are the sessions' requested timeouts: from the least that a member grants.
func (s shape) timeouts() []time.Duration {
	return []time.Duration{2 * s.tick, 3 * s.tick, 9 * s.tick / 2, 15 * s.tick / 2}
}
