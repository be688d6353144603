package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"lockkeeper/bench"
	"lockkeeper/jepsen"
)

// cluster is one that runs.
type cluster interface {
	// measure puts a load on it.
	measure(ctx context.Context, l load, duration time.Duration) (*bench.Result, error)
	// close kills it.
	close() error
}

// system is a system in the comparison.
type system struct {
	name    string
	version string
	// start starts members with their data below dir, and waits until they serve.
	start func(ctx context.Context, dir string, members int) (cluster, error)
	only  func(load) bool // the loads that it takes; nil: all
	jit   bool            // compiles what it runs often while it runs
	// target is its program, if that speaks ZooKeeper's protocol.
	target jepsen.Target
}

// takes reports whether the system takes a load.
func (s *system) takes(l load) bool { return s.only == nil || s.only(l) }

// systemNames are all systems, in the order in which they take turns.
const systemNames = "lockkeeper,zookeeper,etcd,etcd37,limit,zookeeper-recommended,etcd37-recommended"

// systems are those with these names; java are more options of ZooKeeper's JVM.
func systems(names []string, c config, java ...string) (list []*system, err error) {
	for _, full := range names {
		name, recommended := strings.CutSuffix(full, recommendedSuffix)
		s := &system{name: full}
		with := settings{java: java}
		if recommended {
			with = recommendedSettings(name, c.logDisk)
			s.only = func(l load) bool { return l.recommended }
		}
		switch name {
		case "lockkeeper":
			s.version, s.target = lockkeeperVersion(c.sources), jepsen.Lockkeeper(c.binary)
		case "zookeeper":
			s.jit, s.version = true, zookeeperVersion(with.java...)
			if s.target, err = jepsen.StockZooKeeper(with.java...); err != nil {
				return nil, err
			}
		case "etcd", "etcd37":
			program := "etcd"
			if name == "etcd37" {
				program = c.etcd37
			}
			s.version = etcdVersion(program)
			s.only = func(l load) bool { return l.etcd && (!recommended || l.recommended) }
			s.start = func(ctx context.Context, dir string, members int) (cluster, error) {
				return startEtcd(ctx, program, dir, members, with)
			}
		case "limit":
			s.version = "limit: three processes that only send, sync and answer (jepsen/compare/floor)"
			s.only = func(l load) bool { return l.workload == "write" || l.workload == "read" }
			s.start = func(ctx context.Context, dir string, _ int) (cluster, error) { return startLimit(ctx, dir) }
		default:
			return nil, fmt.Errorf("there is no system %q: %s", full, systemNames)
		}
		if recommended {
			if with.empty() {
				return nil, fmt.Errorf("%s: its documentation recommends no settings but the defaults%s", full, logDiskHint)
			}
			s.version += ", with " + with.text()
		}
		if s.start != nil && c.delay > 0 {
			return nil, fmt.Errorf("-delay: %s cannot have it; leave it out with -systems lockkeeper,zookeeper", full)
		}
		if s.start == nil {
			s.start = func(ctx context.Context, dir string, members int) (cluster, error) {
				return startKeeper(ctx, s.target, jepsen.ClusterConfig{Members: members, Dir: dir,
					Extra: with.extra()}, c)
			}
		}
		list = append(list, s)
	}
	return list, nil
}

// sample has the figures of one step, of one system in one round.
type sample struct {
	Round  int           `json:"round"`
	System string        `json:"system"`
	Step   string        `json:"step"` // its first figure
	Result *bench.Result `json:"result,omitempty"`
	Error  string        `json:"error,omitempty"`
	// Stolen is which share of the CPU time that the machine wanted meanwhile its host gave to
	// others, 0 to 1.
	Stolen float64 `json:"stolen"`
	// Tries is the number of measurements that were made to find this one.
	Tries int `json:"tries"`
}

// members is the number of members of a cluster.
const members = 3

// round measures one system once.
type round struct {
	number   int
	system   *system
	dir      string
	duration time.Duration // of each measurement
	warmUp   time.Duration // of a cluster
	capacity capacity      // for open loops
	progress io.Writer
	stat     string // where the CPU times stand
	samples  []sample

	cluster cluster // the running cluster, or nil
	warmed  bool
	used    int // directories
}

func newRound(number int, s *system, dir string, c config, progress io.Writer) *round {
	return &round{number: number, system: s, dir: dir, duration: c.duration, warmUp: c.warmUp, progress: progress,
		stat: "/proc/stat"}
}

// stepPatience is how long a step may take beyond its duration.
const stepPatience = 3 * time.Minute

// run takes the steps. A failure is an entry of its own; the rest goes on, with a new cluster.
func (r *round) run(ctx context.Context, steps []step) {
	defer r.drop()
	for _, s := range steps {
		if !r.system.takes(s.load) {
			continue
		}
		for range max(1, s.times) {
			one := r.undisturbed(ctx, s)
			if ctx.Err() != nil { // its measurements are worth nothing
				return
			}
			r.samples = append(r.samples, one)
		}
	}
}

// undisturbed takes a step until the host has left the machine alone meanwhile, stolenTries times
// at the most. The least disturbed measurement counts. It does not repeat failures, nor steps that
// measure memory only.
func (r *round) undisturbed(ctx context.Context, s step) (best sample) {
	start, f := time.Now(), s.figures[0]
	for try := 1; try <= stolenTries; try++ {
		began := time.Now()
		one := sample{Round: r.number, System: r.system.name, Step: f.name}
		var err error
		var said string
		if one.Result, one.Stolen, err = r.take(ctx, s); err != nil {
			one.Error = err.Error()
			said = "failed: " + one.Error
			r.drop()
		} else {
			said = fmt.Sprintf("%s %s, %.0f %% stolen", number(f.value(one.Result)), f.unit, 100*one.Stolen)
		}
		fmt.Fprintf(r.progress, "round %d, %s: %s: %s (%.1f s)\n", r.number, r.system.name, f.name, said,
			time.Since(began).Seconds())
		if try == 1 || one.Error == "" && one.Stolen < best.Stolen {
			best = one
		}
		best.Tries = try
		if one.Error != "" || one.Stolen <= stolenMax || s.memory || time.Since(start) > stolenPatience ||
			ctx.Err() != nil {
			break
		}
	}
	return best
}

// take takes one step, and says which share of the CPU time was stolen while it measured.
func (r *round) take(ctx context.Context, s step) (res *bench.Result, stolen float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.duration+stepPatience)
	defer cancel()
	if s.stage == fresh || s.stage == alone {
		r.drop() // only one cluster runs at a time
		defer r.drop()
	}
	if r.cluster == nil {
		many := members
		if s.stage == alone {
			many = 1
		}
		if err := r.start(ctx, many); err != nil {
			return nil, 0, err
		}
	}
	var warming time.Duration
	switch {
	case s.stage == warm && !r.warmed:
		warming, r.warmed = r.warmUp, true
	case s.stage == fresh && r.system.jit:
		// The JVM's compiled code takes memory, too. It must exist before the measurement.
		warming = r.warmUp / 2
	}
	if warming > 0 {
		if err := r.warm(ctx, warming); err != nil {
			return nil, 0, fmt.Errorf("warm up: %w", err)
		}
	}
	before, err := readCPUTime(r.stat)
	if err != nil {
		return nil, 0, err
	}
	do, err := r.capacity.at(s.load)
	if err != nil {
		return nil, 0, err
	}
	if res, err = r.cluster.measure(ctx, do, r.duration); err == nil {
		err = worthless(res)
	}
	after, e := readCPUTime(r.stat)
	return res, after.stolenSince(before), errors.Join(err, e, ctx.Err())
}

// worthless says why a result is none.
func worthless(r *bench.Result) error {
	// In a failover connections break, and above its capacity a system may refuse requests.
	if r.Workload != "failover" && r.Rate == 0 {
		for text, n := range r.Errors {
			return fmt.Errorf("%d errors: %s", n, text)
		}
	}
	if r.Workload != idle && r.Ops == 0 {
		return errors.New("nothing was done")
	}
	return nil
}

// warm runs the later load for a time, for a JVM to compile it.
func (r *round) warm(ctx context.Context, d time.Duration) error {
	fmt.Fprintf(r.progress, "round %d, %s: warm up\n", r.number, r.system.name)
	for _, w := range []struct {
		load
		share time.Duration
	}{
		{load{workload: "write", clients: 64, inFlight: 4, etcd: true, recommended: true}, d / 2},
		{load{workload: "read", clients: 64, inFlight: 4, recommended: true}, d / 4},
		{load{workload: "lock-cycle", clients: 16, etcd: true, recommended: true}, d / 4},
		// Sessions that come and go, and watches.
		{load{workload: "herd", clients: 500, rounds: 5, recommended: true}, 0},
	} {
		if !r.system.takes(w.load) {
			continue
		}
		if _, err := r.cluster.measure(ctx, w.load, w.share); err != nil {
			return err
		}
	}
	return nil
}

func (r *round) start(ctx context.Context, many int) error {
	r.used++
	r.warmed = false
	if err := os.MkdirAll(r.dataDir(), 0o755); err != nil {
		return err
	}
	c, err := r.system.start(ctx, r.dataDir(), many)
	if err == nil {
		r.cluster = c
	}
	return err
}

// dataDir is where the cluster has its data.
func (r *round) dataDir() string { return filepath.Join(r.dir, fmt.Sprint(r.used)) }

// drop kills the cluster, if there is one, and removes its data; the next one finds a disk that has
// nothing left to do.
func (r *round) drop() {
	if r.cluster == nil {
		return
	}
	if err := errors.Join(r.cluster.close(), os.RemoveAll(r.dataDir())); err != nil {
		fmt.Fprintln(r.progress, "compare:", err)
	}
	r.cluster = nil
	syscall.Sync()
}
