package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/report"
	"lockkeeper/jepsen/workload"
)

// Default is a Test with the settings that are used unless others are asked for.
var Default = Test{
	Members: 5, Clients: 5, Time: time.Minute, Able: 0.5, Think: 20 * time.Millisecond, Network: Auto,
	TickTime:       2 * time.Second, // as in ZooKeeper's sample configuration
	SessionTimeout: 4 * time.Second, // the shortest that this tick allows
	Progress:       io.Discard,
}

// A Test is a run that can be done.
type Test struct {
	// Target is the server software.
	Target jepsen.Target
	// Members is their number, 1 to jepsen.MaxHosts.
	Members int
	// Workloads are the workloads of the clients, by name; at least one, or "all".
	Workloads []string
	// Libraries are the client libraries of the workload libraries.
	Libraries []jepsen.Client
	// Nemeses are the faults, by name; none, or "all".
	Nemeses []string
	// Time is for how long things are broken.
	Time time.Duration
	// Able is the least share of Time, 0 to 1, in which a majority of the members can act: acts
	// that would take more are left out, and a run in which it was less shows too little.
	Able float64
	// Seed makes the plans.
	Seed uint64
	// Clients is the number of clients of each workload.
	Clients int
	// Think is how long a client waits between two operations, on average.
	Think time.Duration
	// TickTime is the members' tickTime, SessionTimeout the timeout that clients request.
	TickTime, SessionTimeout time.Duration
	// Network is how members are separated: Auto, Namespace or Proxy.
	Network string
	// Mutation is a bug that is planted in the clients' package recipes, to see that a run finds
	// it; empty for none. Client has to be built with the overlay of package mutant.
	Mutation string
	// Client is the command line that runs Client.
	Client []string
	// Scratch is a directory for the members' data and everyone's logs. It must exist.
	Scratch string
	// Again is the command line of this run, for the report.
	Again string
	// Progress gets a line for each event.
	Progress io.Writer
}

// The values of Test.Network.
const (
	// Auto is Namespace where that is possible, for all nemeses that are asked for, and else Proxy.
	Auto = "auto"
	// Namespace gives every member a host of its own (jepsen.Network).
	Namespace = "namespace"
	// Proxy puts proxies between the members (jepsen.Proxies).
	Proxy = "proxy"
)

// workloads are the names of the workloads, without "all".
func (t Test) workloads() []string {
	if slices.Contains(t.Workloads, "all") {
		return workload.Names()
	}
	return t.Workloads
}

// Check says everything that is wrong with the test's settings.
func (t Test) Check() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("run: "+format, args...))
		}
	}
	check(t.Members >= 1 && t.Members <= jepsen.MaxHosts, "%d members: there can be 1 to %d", t.Members,
		jepsen.MaxHosts)
	check(t.Clients >= 1, "%d clients", t.Clients)
	check(t.Time > 0, "a time of %v", t.Time)
	check(t.Able >= 0 && t.Able <= 1, "a share of %v in which a majority can act: it must be between 0 and 1", t.Able)
	check(len(t.Workloads) > 0, "no workload; there are %s", strings.Join(workload.Names(), ", "))
	check(!slices.Contains(t.Workloads, workload.Libraries) || len(t.Libraries) > 0,
		"no client libraries for the workload %s", workload.Libraries)
	check(slices.Contains([]string{Auto, Namespace, Proxy}, t.Network), "a network %q; there are %s, %s and %s",
		t.Network, Auto, Namespace, Proxy)
	check(t.Network != Proxy || t.Target.Name != "zookeeper",
		"ZooKeeper behind proxies: its members tell each other their addresses and go round; it needs namespaces "+
			"(run as root)")
	for i, name := range t.workloads() {
		_, err := workload.New(name)
		check(err == nil, "%w", err)
		check(!slices.Contains(t.workloads()[:i], name), "workload %s is asked for twice", name)
	}
	if _, err := expand(t.Nemeses); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Run does the test. An error means that it could not be done; whether promises were broken is in
// the result. When ctx ends, the run is called off and that is an error. Nothing of the run is left
// then or later, apart from the files in t.Scratch.
func (t Test) Run(ctx context.Context) (*report.Run, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	t.Workloads = t.workloads()
	s := &stage{test: t, result: &report.Run{Title: t.title(), Target: t.Target.Name, Began: time.Now(), Seed: t.Seed,
		Again: t.Again}}
	watching, stop := context.WithCancel(ctx)
	machine, watched := newMachine(), make(chan struct{})
	go func() {
		defer close(watched)
		machine.watch(watching)
	}()
	err := s.play(ctx)
	stop()
	<-watched
	if err = errors.Join(err, s.close()); err != nil {
		return nil, err
	}
	s.result.Took, s.result.Faults, s.result.Settings = time.Since(s.result.Began), s.field.faults,
		append(t.settings(s.network), report.Setting{Name: "machine", Value: machine.text()})
	return s.result, nil
}

// settings are the configuration, for the report.
func (t Test) settings(network string) []report.Setting {
	var settings []report.Setting
	add := func(name, format string, args ...any) {
		settings = append(settings, report.Setting{Name: name, Value: fmt.Sprintf(format, args...)})
	}
	add("members", "%d", t.Members)
	add("network", "%s", network)
	add("workloads", "%s", strings.Join(t.Workloads, ", "))
	add("clients per workload", "%d", t.Clients)
	add("nemeses", "%s", strings.Join(t.Nemeses, ", "))
	add("time", "%v", t.Time)
	add("tickTime", "%v", t.TickTime)
	add("session timeout", "%v", t.SessionTimeout)
	add("pause between operations", "%v", t.Think)
	add("longest time without an operation", "%v, while a majority can act", t.progressBound())
	add("a majority can act", "for at least %.0f %% of the time", 100*t.Able)
	return settings
}

// title is the run in one line.
func (t Test) title() string {
	under := ""
	if len(t.Nemeses) > 0 {
		under = " under " + strings.Join(t.Nemeses, ", ")
	}
	return fmt.Sprintf("%s on %d members of %s%s", strings.Join(t.Workloads, ", "), t.Members, t.Target.Name, under)
}
