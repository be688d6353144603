package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/report"
	"lockkeeper/jepsen/run"
	"lockkeeper/jepsen/workload"
)

const runUsage = `usage: go run ./cmd/jepsen run [flags]

Starts a cluster of real processes, each member on a host of its own; lets clients work
on it; breaks things; heals; and has checkers judge what the clients saw. Writes a report.
Nothing else is left afterwards, however it ends.

Flags:
  -members n            how many members, 1 to %d (default %d)
  -workload name,name   what clients do (default lock): %s; all is all of these. And %s: kazoo,
                        Curator and go-zookeeper take locks, which have to be installed
  -nemesis name,name    what breaks, or all (default partition,kill,pause); "" for nothing
  -time duration        for how long things break (default %v)
  -seed n               when what breaks, and what clients do; default: one that is printed
  -clients n            clients of each workload, each a process (default %d)
  -think duration       how long a client waits between operations, on average (default %v)
  -able share           the least share of the time, 0 to 1, in which a majority of the members can
                        act; what would take more is left out (default %v)
  -tick duration        the members' tickTime (default %v)
  -session-timeout d    what clients ask for (default %v)
  -target name          lockkeeper, or zookeeper to compare (Debian's package)
  -binary file          a lockkeeper that is built already
  -race                 build lockkeeper with the race detector
  -network kind         namespace (needs root), proxy, or auto: namespaces where they can be
                        had and can do what the nemeses need, else TCP proxies (default auto)
  -report directory     where the report goes (default jepsen-runs/<when>-<seed>)

Nemeses:
%s
The same seed plans the same faults. Which of them would leave no majority for too long, which
member leads then, and what clients see, is up to the processes.

Exit status: 0 every checker is satisfied; 1 a promise was broken, or a member crashed; 2 the
run could not be done, or was called off; 3 nothing is known to be broken, but too little
happened for some checker to tell.
`

// runHelp is the help of run, with the lists that other packages have.
func runHelp() string {
	var list strings.Builder
	names, helps := run.Nemeses()
	for i, name := range names {
		fmt.Fprintf(&list, "  %-24s %s\n", name, helps[i])
	}
	return fmt.Sprintf(runUsage, jepsen.MaxHosts, run.DefaultMembers, strings.Join(workload.Names(), ", "), workload.Libraries, run.DefaultTime,
		run.DefaultClients, run.DefaultThink, run.DefaultAble, run.DefaultTickTime, run.DefaultSessionTimeout, list.String())
}

// runFlags are what run was told.
type runFlags struct {
	test           run.Test
	target, binary string
	race           bool
}

func parseRun(args []string, stdout, stderr io.Writer) (f runFlags, status int, done bool) {
	fs := flag.NewFlagSet("run", flag.ContinueOnError)
	t := &f.test
	workloads := fs.String("workload", "lock", "")
	nemeses := fs.String("nemesis", "partition,kill,pause", "")
	fs.IntVar(&t.Members, "members", run.DefaultMembers, "")
	fs.DurationVar(&t.Time, "time", run.DefaultTime, "")
	fs.Uint64Var(&t.Seed, "seed", 0, "")
	fs.IntVar(&t.Clients, "clients", run.DefaultClients, "")
	fs.Float64Var(&t.Able, "able", run.DefaultAble, "")
	fs.DurationVar(&t.Think, "think", run.DefaultThink, "")
	fs.DurationVar(&t.TickTime, "tick", run.DefaultTickTime, "")
	fs.DurationVar(&t.SessionTimeout, "session-timeout", run.DefaultSessionTimeout, "")
	fs.StringVar(&f.target, "target", "lockkeeper", "")
	fs.StringVar(&f.binary, "binary", "", "")
	fs.BoolVar(&f.race, "race", false, "")
	fs.StringVar(&t.Network, "network", run.Auto, "")
	fs.StringVar(&t.Report, "report", "", "")
	fs.SetOutput(io.Discard) // the texts are ours
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, runHelp())
		return f, exitOK, true
	case err == nil && fs.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if err != nil {
		fmt.Fprintf(stderr, "jepsen run: %v\njepsen run -help says what it takes\n", err)
		return f, exitUsage, true
	}
	t.Workloads, t.Nemeses, t.Progress = words(*workloads), words(*nemeses), stdout
	t.Again = again(args)
	seeded := false
	fs.Visit(func(given *flag.Flag) { seeded = seeded || given.Name == "seed" })
	if !seeded {
		t.Seed = rand.Uint64() >> 32
		t.Again += fmt.Sprintf(" -seed %d", t.Seed)
	}
	if t.Report == "" {
		t.Report = filepath.Join("jepsen-runs", fmt.Sprintf("%s-%d", time.Now().Format("20060102-150405"), t.Seed))
	}
	return f, 0, false
}

// words splits a list at its commas.
func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// again is the command line of this run.
func again(args []string) string {
	line := "go run ./cmd/jepsen run"
	for _, arg := range args {
		if arg == "" || strings.ContainsAny(arg, " \"'$") {
			arg = fmt.Sprintf("%q", arg)
		}
		line += " " + arg
	}
	return line
}

func runRun(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	f, status, done := parseRun(args, stdout, stderr)
	if done {
		return status
	}
	result, err := f.run(ctx)
	if err != nil {
		fmt.Fprintf(stderr, "jepsen run: %v\n", err)
		return exitUsage
	}
	run.PrintVerdicts(stdout, result)
	fmt.Fprintf(stdout, "\nvalid: %s. The report is %s\nAgain: %s\n", result.Valid(), filepath.Join(f.test.Report, "index.html"), result.Again)
	switch result.Valid() {
	case workload.Yes:
		return exitOK
	case workload.No:
		return exitInvalid
	}
	return exitUnknown
}

// run does the run and writes the report.
func (f runFlags) run(ctx context.Context) (result *report.Run, err error) {
	t := f.test
	if f.target != "lockkeeper" && f.target != "zookeeper" {
		err = fmt.Errorf("there is no target %q; there are lockkeeper and zookeeper", f.target)
	}
	if slices.Contains(t.Workloads, workload.Libraries) {
		t.Libraries = []jepsen.Client{{}} // found below, when everything else is known to be right
	}
	if err := errors.Join(err, t.Check()); err != nil {
		return nil, err
	}
	scratch, err := jepsen.NewScratch()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, scratch.Close()) }()
	if err := scratch.ForTemporaryFiles(); err != nil {
		return nil, err
	}
	t.Scratch = scratch.Dir
	if t.Target, err = f.findTarget(); err != nil {
		return nil, err
	}
	if t.Libraries != nil {
		tools, err := jepsen.NewToolbox(false) // goes with the scratch directory
		if err != nil {
			return nil, err
		}
		if t.Libraries, err = tools.Libraries(); err != nil {
			return nil, err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("where is this program? %w", err)
	}
	t.Client = []string{self, "client"}
	fmt.Fprintf(t.Progress, "seed %d\n", t.Seed)
	if result, err = t.Run(ctx); err != nil {
		return nil, err
	}
	return result, run.Write(t.Report, scratch.Dir, result)
}

// findTarget gets the server software.
func (f runFlags) findTarget() (jepsen.Target, error) {
	switch {
	case f.target == "zookeeper":
		return jepsen.ZooKeeper()
	case f.binary != "":
		binary, err := filepath.Abs(f.binary)
		return jepsen.Lockkeeper(binary), err
	}
	tools, err := jepsen.NewToolbox(f.race) // goes with the scratch directory
	if err != nil {
		return jepsen.Target{}, err
	}
	return tools.Lockkeeper()
}

// runClient is a client's process of run.
func runClient(_ context.Context, _ []string, stdout, stderr io.Writer) int {
	if err := run.Client(os.Stdin, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "jepsen client: %v\n", err)
		return exitUsage
	}
	return exitOK
}
