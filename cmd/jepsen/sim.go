package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"lockkeeper/jepsen/mutant"
	"lockkeeper/jepsen/sim"
	"lockkeeper/quorum/model/trace"
)

const simAbout = `Runs simulated clusters, whole members on simulated networks and disks, in virtual time: an hour
takes a few seconds. Each seed is another cluster, with other faults and clients.

Simulations run inside testing/synctest bubbles, so this compiles the tests of jepsen/simtest and
runs them, one process for each seed: it needs the Go toolchain and must be run inside the module.
For the sake of seeds that reproduce their runs the standard library is compiled anew, with a few
lines of the runtime replaced (see jepsen/sim); the first time takes a minute.
`

const simExits = `Exit status: 0 every promise was kept; 1 one was broken, or it could not be done, or the runs of
-repeat differ; 2 a wrong command line.
`

type simFlags struct {
	seeds, first                        uint64
	virtual                             time.Duration
	jobs                                int
	workload, jsonFile, journal         string
	mutation                            string
	keepGoing, repeat, mutations, quick bool
	list, plain, actions, scripts       bool
}

// define adds the flags to a command line.
func (f *simFlags) define(c *commandLine) {
	c.Uint64Var(&f.seeds, "seeds", 10, "number of simulations")
	c.Uint64Var(&f.first, "seed", 0, "the first seed; the others follow (default: by chance)")
	c.DurationVar(&f.virtual, "virtual", time.Hour, "virtual time of each")
	c.IntVar(&f.jobs, "jobs", 1, "simulations at a time")
	c.StringVar(&f.workload, "workload", "", "the clients' operations, instead of the seed's choice, a `list` of: "+
		strings.Join(sim.Workloads(), ", "))
	c.BoolVar(&f.keepGoing, "keep-going", false, "do not stop at the first seed that fails")
	c.BoolVar(&f.repeat, "repeat", false, "the same seed again and again; fails if the runs differ")
	c.StringVar(&f.jsonFile, "json", "", "append a line of JSON for each simulation to this `file`")
	c.StringVar(&f.journal, "journal", "", "the `file` for everything that happens in the (last) simulation")
	c.StringVar(&f.mutation, "mutation", "", "with the bug of this `name` planted; see -list")
	c.BoolVar(&f.mutations, "mutations", false, "with each planted bug, until it is caught")
	c.BoolVar(&f.quick, "quick", false, "-mutations only with those that are caught within seconds")
	c.BoolVar(&f.actions, "actions", false, "say which actions of the protocol the members took, and which\n"+
		"one right after the other")
	c.BoolVar(&f.scripts, "scripts", false, "begin with a script of the model of the protocol, where the members fit one")
	c.BoolVar(&f.list, "list", false, "list the bugs that can be planted")
	c.BoolVar(&f.plain, "plain", false, "with the Go runtime as it is: it is not compiled anew, and a seed is another run")
}

// check validates the flags, and chooses the first seed.
func (f *simFlags) check() error {
	switch {
	case f.seeds == 0 || f.jobs < 1 || f.virtual <= 0:
		return errors.New("-seeds, -jobs and -virtual must be more than 0")
	case f.mutation != "" && entry(f.mutation) == nil:
		return fmt.Errorf("there is no mutation %q; see -list", f.mutation)
	case f.mutation != "" && entry(f.mutation).Recipe != "":
		return fmt.Errorf("%q is for go test ./jepsen/mutant -run TestRecipes", f.mutation)
	case f.first == 0:
		f.first = rand.Uint64()>>33 + 1
	}
	return nil
}

func entry(name string) *mutant.Entry {
	for i := range mutant.Table {
		if mutant.Table[i].Name == name {
			return &mutant.Table[i]
		}
	}
	return nil
}

// runSim is the command sim.
func runSim(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var f simFlags
	c := newCommandLine("sim", simAbout, simExits)
	f.define(c)
	if status, ok := c.parse(args, stdout, stderr, f.check); !ok {
		return status
	}
	if f.list {
		for _, e := range mutant.Table {
			fmt.Fprintf(stdout, "%-26s %s  %s (%s)\n", e.Name, e.Promise, e.What, e.Where)
		}
		return exitOK
	}
	ok, err := f.simulate(ctx, stdout)
	if err != nil {
		fmt.Fprintf(stderr, "jepsen sim: %v\n", err)
	}
	if err != nil || !ok {
		return exitInvalid
	}
	return exitOK
}

// simulate builds the program and runs it as the flags say. It reports whether all is as it should
// be.
func (f *simFlags) simulate(ctx context.Context, stdout io.Writer) (ok bool, err error) {
	dir, err := os.MkdirTemp("", "jepsen-sim-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	program, err := sim.Build(ctx, dir, sim.BuildOptions{Mutants: f.mutation != "" || f.mutations,
		PlainRuntime: f.plain})
	if err != nil {
		return false, err
	}
	if program.Unseeded != nil {
		fmt.Fprintf(stdout, "A seed does not reproduce the order in which goroutines run: %v\n", program.Unseeded)
	}
	s := &simRun{flags: f, program: program, out: stdout, digests: make(map[string]int), pairs: make(map[string]int)}
	if f.jsonFile != "" {
		file, err := os.OpenFile(f.jsonFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return false, err
		}
		defer file.Close()
		s.json = json.NewEncoder(file)
	}
	if f.mutations {
		return s.allMutations(ctx)
	}
	if err := s.run(ctx, f.mutation, f.keepGoing); err != nil {
		return false, err
	}
	s.summary()
	if f.actions {
		s.tellActions()
	}
	return s.ok(), nil
}

// simRun is a run of several simulations.
type simRun struct {
	flags   *simFlags
	program *sim.Program
	json    *json.Encoder // nil for none
	out     io.Writer
	quiet   bool
	refused bool // see failed

	mu             sync.Mutex
	next           uint64 // simulations that have begun
	passed, failed int
	virtual        time.Duration
	faults         int
	began          time.Time
	digests        map[string]int // of the journals
	pairs          map[string]int // of actions
	firstFailure   *sim.Result
	err            error
}

// run runs the simulations, jobs at a time, to the last or until one fails.
func (s *simRun) run(ctx context.Context, mutation string, keepGoing bool) error {
	s.began = time.Now()
	var wg sync.WaitGroup
	for range s.flags.jobs {
		wg.Go(func() {
			for {
				seed, more := s.take(keepGoing)
				if !more {
					return
				}
				r, err := s.program.Run(ctx, sim.Simulation{
					Seed: seed, Virtual: s.flags.virtual, Workload: s.flags.workload, Mutation: mutation,
					Journal: s.flags.journal, Scripts: s.flags.scripts,
				})
				s.ended(r, err)
			}
		})
	}
	wg.Wait()
	return s.err
}

// take is the seed of the next simulation, if there is to be one.
func (s *simRun) take(keepGoing bool) (seed uint64, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.next == s.flags.seeds || s.failed > 0 && !keepGoing {
		return 0, false
	}
	seed = s.flags.first
	if !s.flags.repeat {
		seed += s.next
	}
	s.next++
	return seed, true
}

// failed reports whether a simulation has failed; if refused is true, only if the protocol does not
// explain its events.
func failed(r *sim.Result, refused bool) bool {
	return !r.OK() && (!refused || r.Unexplained() != "")
}

func (s *simRun) ended(r *sim.Result, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.err = errors.Join(s.err, err)
		return
	}
	s.virtual += r.Virtual()
	s.faults += r.Faults
	s.digests[r.Journal]++
	for pair, n := range r.Pairs {
		s.pairs[pair] += n
	}
	if s.json != nil {
		s.err = errors.Join(s.err, s.json.Encode(r))
	}
	if !failed(r, s.refused) {
		s.passed++
	} else {
		s.failed++
		if s.firstFailure == nil {
			s.firstFailure = r
		}
	}
	if !s.quiet {
		s.tell(r)
	}
}

// tell prints the line of a simulation, and its faults.
func (s *simRun) tell(r *sim.Result) {
	verdict := "ok  "
	if !r.OK() {
		verdict = "FAIL"
	}
	fmt.Fprintf(s.out, "%s seed %d: %v in %.1f s, %d faults, journal %s: %s\n", verdict, r.Seed,
		r.Virtual().Round(time.Second), float64(r.RealMs)/1000, r.Faults, r.Journal, r.Shape)
	if r.OK() {
		return
	}
	for _, v := range r.Violations {
		fmt.Fprintf(s.out, "     %s\n", v)
	}
	if r.Crashed {
		fmt.Fprintln(s.out, indent(r.Output))
	}
	fmt.Fprintf(s.out, "     again, with all that happened: "+
		"go run ./cmd/jepsen sim -seeds 1 -seed %d -virtual %v%s -journal sim-%d.log\n",
		r.Seed, s.flags.virtual, s.again(), r.Seed)
}

// again are the flags, besides the seed, on which a run depends.
func (s *simRun) again() (text string) {
	if s.flags.scripts {
		text += " -scripts"
	}
	if s.flags.workload != "" {
		text += " -workload " + s.flags.workload
	}
	if s.flags.mutation != "" {
		text += " -mutation " + s.flags.mutation
	}
	return text
}

// crashLines limits the lines of a crashed process's output; the first lines have the reason.
const crashLines = 60

func indent(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return "     | " + strings.Join(lines[:min(crashLines, len(lines))], "\n     | ")
}

// ok says that every simulation passed, and, with -repeat, that all runs were the same.
func (s *simRun) ok() bool { return s.failed == 0 && (!s.flags.repeat || len(s.digests) == 1) }

func (s *simRun) summary() {
	last := s.flags.first
	if !s.flags.repeat {
		last += max(s.next, 1) - 1
	}
	fmt.Fprintf(s.out, "%d simulations passed, %d failed: seeds %d to %d, %.1f virtual hours in %v, %d faults\n",
		s.passed, s.failed, s.flags.first, last, s.virtual.Hours(), time.Since(s.began).Round(time.Second), s.faults)
	if s.flags.repeat {
		most := 0
		for _, n := range s.digests {
			most = max(most, n)
		}
		fmt.Fprintf(s.out, "seed %d again and again: %d different journals, %d of %d runs have the most frequent one\n",
			s.flags.first, len(s.digests), most, s.passed+s.failed)
	}
}

// tellActions prints each action of the protocol with those that members took right after it.
func (s *simRun) tellActions() {
	fmt.Fprintf(s.out, "\nActions of members, and those that the same member took right after each: %d pairs of %d.\n",
		len(s.pairs), len(trace.Actions)*len(trace.Actions))
	for _, a := range trace.Actions {
		all, after := 0, []string(nil)
		for _, b := range trace.Actions {
			if n := s.pairs[string(a)+" > "+string(b)]; n > 0 {
				all += n
				after = append(after, fmt.Sprintf("%s %d", b, n))
			}
		}
		if all == 0 {
			after = []string{"not seen"}
		}
		fmt.Fprintf(s.out, "%s, %d: %s\n", a, all, strings.Join(after, "; "))
	}
}

// allMutations plants one bug after the other, and reports whether all were caught.
func (s *simRun) allMutations(ctx context.Context) (ok bool, err error) {
	ok = true
	for _, e := range mutant.Table {
		if s.flags.quick && !e.Quick || e.Recipe != "" {
			continue
		}
		began := time.Now()
		caught, how, err := s.hunt(ctx, e)
		if err != nil {
			return false, err
		}
		verdict := "caught    "
		if caught == nil {
			ok, verdict = false, "NOT CAUGHT"
		}
		fmt.Fprintf(s.out, "%s  %-26s %s  %s, %v", verdict, e.Name, e.Promise, how,
			time.Since(began).Round(time.Second))
		if caught != nil {
			fmt.Fprintf(s.out, ": %s", cmp.Or(caught.Unexplained(), caught.Violations[0]))
		}
		fmt.Fprintln(s.out)
	}
	return ok, nil
}

// hunt simulates with a planted bug until it is caught, for as many seeds as the flags say: random
// simulations, or the scenario that aims at the bug. It returns the result that caught it, nil if
// none did, and a phrase for the runs.
func (s *simRun) hunt(ctx context.Context, e mutant.Entry) (caught *sim.Result, how string, err error) {
	if e.Scenario != "" {
		for seed := range s.flags.seeds {
			r, err := s.program.Run(ctx, sim.Simulation{Scenario: e.Scenario, Seed: s.flags.first + seed,
				Mutation: e.Name, Virtual: s.flags.virtual})
			if err != nil || failed(r, e.Refused) {
				return r, fmt.Sprintf("by %s, run %d", e.Scenario, seed+1), err
			}
		}
		return nil, fmt.Sprintf("by %s, %d runs", e.Scenario, s.flags.seeds), nil
	}
	one := &simRun{flags: s.flags, program: s.program, json: s.json, out: s.out, quiet: true, refused: e.Refused,
		digests: make(map[string]int), pairs: make(map[string]int)}
	err = one.run(ctx, e.Name, false)
	if caught = one.firstFailure; caught == nil {
		return nil, fmt.Sprintf("in %d simulations, %.1f virtual hours", one.passed, one.virtual.Hours()), err
	}
	return caught, fmt.Sprintf("by simulation %d, after %.2f virtual hours", one.passed+1, one.virtual.Hours()), err
}
