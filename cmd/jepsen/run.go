package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/mutant"
	"lockkeeper/jepsen/report"
	"lockkeeper/jepsen/run"
	"lockkeeper/jepsen/workload"
	"lockkeeper/quorum/model/trace"
)

const runAbout = `Starts a cluster of real processes, each member on a host of its own; lets clients work
on it; breaks things; heals; and has checkers judge what the clients saw. Writes a report.
Nothing else is left afterwards, however it ends.
`

const runExits = `The same seed plans the same faults. Which of them would leave no majority for too long, which
member leads then, and what clients see, is up to the processes.

Exit status: 0 every checker is satisfied; 1 a promise was broken, or a member crashed; 2 the
run could not be done, or was called off; 3 nothing is known to be broken, but too little
happened for some checker to tell.
`

// nemesisHelp is the list of the nemeses.
func nemesisHelp() string {
	var list strings.Builder
	names, helps := run.Nemeses()
	for i, name := range names {
		fmt.Fprintf(&list, "  %-24s %s\n", name, helps[i])
	}
	return "Nemeses:\n" + list.String() + "\n"
}

// runRun is the command run.
func runRun(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var l live
	t := run.Default
	t.Progress = stdout
	c := newCommandLine("run", runAbout, nemesisHelp()+runExits)
	workloads := c.String("workload", "lock", "the clients' operations, `name,name`: "+strings.Join(workload.Names(), ", ")+
		"; all is all of these.\n"+
		"And "+workload.Libraries+": kazoo, Curator and go-zookeeper, which have to be installed, take locks;\n"+
		workload.Hold+": holders keep their locks for long, for the nemesis lone-leader")
	nemeses := c.String("nemesis", "partition,kill,pause", "the faults, `name,name`, or all; \"\" for nothing")
	c.IntVar(&t.Members, "members", t.Members, fmt.Sprintf("number of members, 1 to %d", jepsen.MaxHosts))
	c.DurationVar(&t.Time, "time", t.Time, "for how long things break")
	c.Uint64Var(&t.Seed, "seed", 0, "decides the faults, their times and the clients' operations; by default one that is printed")
	c.IntVar(&t.Clients, "clients", t.Clients, "clients of each workload, each of them a process")
	c.Float64Var(&t.Able, "able", t.Able,
		"the least share of the time, 0 to 1, in which a majority of the members can act;\n"+
			"faults that would take more are left out")
	c.DurationVar(&t.Think, "think", t.Think, "how long a client waits between operations, on average")
	c.DurationVar(&t.TickTime, "tick", t.TickTime, "the members' tickTime")
	c.DurationVar(&t.SessionTimeout, "session-timeout", t.SessionTimeout, "the session timeout that clients request")
	c.StringVar(&t.Network, "network", t.Network,
		"namespace (needs root), proxy, or auto: namespaces where they can be had and\n"+
			"can make the faults of the nemeses, else TCP proxies")
	c.StringVar(&t.Mutation, "mutation", "", "plant the `bug` in the recipes of the clients; needs Go and the sources")
	c.BoolVar(&l.traced, "trace", false, "build lockkeeper with trace points, and have the protocol explain\n"+
		"each write, request and answer of the members (quorum/model/trace)")
	l.define(c, "the `name` of the server: lockkeeper, or zookeeper to compare (Debian's package)")
	status, ok := c.parse(args, stdout, stderr, func() error {
		t.Workloads, t.Nemeses = words(*workloads), words(*nemeses)
		if slices.Contains(t.Workloads, workload.Libraries) {
			// One that passes the check; playRun finds the real ones.
			t.Libraries = []jepsen.Client{{}}
		}
		return errors.Join(l.check(), t.Check())
	})
	if !ok {
		return status
	}
	var seedFlag string
	t.Seed, seedFlag = seedOr(t.Seed)
	t.Again = c.again(args) + seedFlag
	var result *report.Run
	err := inScratch(func(dir string) (err error) {
		t.Scratch = dir
		result, err = playRun(ctx, t, l)
		return err
	})
	if err != nil {
		return c.failed(ctx, err, stderr)
	}
	run.PrintVerdicts(stdout, result)
	fmt.Fprintf(stdout, "\nvalid: %s. The report is %s\nAgain: %s\n", result.Valid(),
		filepath.Join(l.report, "index.html"), result.Again)
	switch result.Valid() {
	case workload.Yes:
		return exitOK
	case workload.No:
		return exitInvalid
	}
	return exitUnknown
}

// playRun does the run and writes the report.
func playRun(ctx context.Context, t run.Test, l live) (result *report.Run, err error) {
	if t.Target, err = l.server(); err != nil {
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
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("where is this program? %w", err)
	}
	if t.Mutation != "" {
		if program, err = buildPlanted(ctx, t.Scratch); err != nil {
			return nil, err
		}
	}
	t.Client = []string{program, "client"}
	traces := filepath.Join(t.Scratch, "traces")
	if l.traced {
		if err := errors.Join(os.Mkdir(traces, 0o755), os.Setenv("LOCKKEEPER_TRACE", traces)); err != nil {
			return nil, err
		}
	}
	fmt.Fprintf(t.Progress, "seed %d\n", t.Seed)
	if result, err = t.Run(ctx); err != nil {
		return nil, err
	}
	if l.traced {
		verdict, err := explain(traces)
		if err != nil {
			return nil, err
		}
		result.Verdicts = append(result.Verdicts, verdict)
		if verdict.Valid == workload.No {
			if err := keepTraces(filepath.Join(l.report, "traces"), traces, result); err != nil {
				return nil, err
			}
		}
	}
	return result, report.Write(l.report, t.Scratch, result)
}

// keepTraces copies the events of the members into the report.
func keepTraces(to, from string, r *report.Run) error {
	entries, err := os.ReadDir(from)
	for _, e := range entries {
		r.Files = append(r.Files, report.File{Name: filepath.Join(filepath.Base(to), e.Name())})
	}
	if err := errors.Join(err, os.CopyFS(to, os.DirFS(from))); err != nil {
		return fmt.Errorf("keep the traces: %w", err)
	}
	return nil
}

// explain has the protocol explain the events of all members.
func explain(dir string) (workload.Verdict, error) {
	events, err := trace.ReadDir(dir)
	if err != nil {
		return workload.Verdict{}, err
	}
	c := trace.NewChecker()
	for _, e := range events {
		if err = c.Add(e); err != nil {
			break
		}
	}
	err = c.Finish()
	v := workload.Verdict{Checker: "protocol", Promise: "C1", Valid: workload.Yes,
		Text: fmt.Sprintf("%d events of members are explained: %d elections, %d steps of the commit index, "+
			"%d answers, %d writes",
			len(events), c.Elections, c.Commits, c.Events[trace.Answered], c.Events[trace.Stored]),
		Checked: len(events), Unit: "events of members"}
	if c.Commits == 0 {
		v.Valid = workload.Unknown
	}
	if err != nil {
		v.Valid, v.Text = workload.No, "an event is not explained"
		v.Violations = []workload.Violation{{Text: err.Error()}}
	}
	return v, nil
}

// buildPlanted builds this program into dir, with the planted bugs, and returns its name.
func buildPlanted(ctx context.Context, dir string) (string, error) {
	files := filepath.Join(dir, "planted")
	if err := os.Mkdir(files, 0o755); err != nil {
		return "", err
	}
	overlay, err := mutant.Overlay(files)
	if err != nil {
		return "", err
	}
	program := filepath.Join(files, "jepsen")
	out, err := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", program, "lockkeeper/cmd/jepsen").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the clients with the planted bugs: %w\n%s", err, out)
	}
	return program, nil
}

// runClient is a client's process of run.
func runClient(_ context.Context, _ []string, stdout, stderr io.Writer) int {
	if err := run.Client(os.Stdin, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "jepsen client: %v\n", err)
		return exitUsage
	}
	return exitOK
}
