package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockkeeper/bench"
)

func benchUsage() string {
	var b strings.Builder
	b.WriteString(`Usage: lockkeeper bench [flags]

Puts load on servers that speak ZooKeeper's protocol, and says how many operations a second
they did, with what latency and which errors; for servers on this machine also how much CPU
an operation took, and how much memory they have.

Workloads:
`)
	for _, w := range bench.Workloads() {
		fmt.Fprintf(&b, "	%-15s %s\n", w[0], w[1])
	}
	b.WriteString(`
Flags:
	-servers host:port,...   the servers; the clients spread over them
	                         (default $LOCKKEEPER_SERVERS, or 127.0.0.1:2181)
	-workload w              which (default write)
	-clients n               connections that work side by side (default: the workload's own number)
	-in-flight n             requests that each has outstanding; write, read, mixed (default 1)
	-duration d              how long to measure, after a second of warming up (default 10s)
	-size n                  bytes of data (default 100)
	-nodes n                 how many nodes; znodes (default 200000)
	-rounds n                how many rounds; herd, boot
	-session d               session timeout (default 30s)
	-pids n,...              the servers' processes, in the order of -servers; by default they are
	                         looked for by their ports (Linux)
	-start 'command'         starts the first server, in the foreground; boot, and znodes to
	                         measure a restart (which kills the server with SIGKILL first)
	-json                    the result as one JSON object

All nodes are made below one of the benchmark's own, /bench-..., which is deleted in the end.
failover kills the leader with SIGKILL, and leaves it to you to start it again.

Exit status: 0; 1 nothing could be measured; 2 wrong command line.
`)
	return b.String()
}

// benchFlags are the flags of bench.
type benchFlags struct {
	bench.Config
	servers, pids, start string
	json                 bool
}

func parseBench(fs *flag.FlagSet) *benchFlags {
	f := &benchFlags{}
	fs.StringVar(&f.servers, "servers", usualServers(), "")
	fs.StringVar(&f.Workload, "workload", "write", "")
	fs.IntVar(&f.Clients, "clients", 0, "")
	fs.IntVar(&f.InFlight, "in-flight", 0, "")
	fs.DurationVar(&f.Duration, "duration", 0, "")
	fs.IntVar(&f.Size, "size", 0, "")
	fs.IntVar(&f.Nodes, "nodes", 0, "")
	fs.IntVar(&f.Rounds, "rounds", 0, "")
	fs.DurationVar(&f.Session, "session", 0, "")
	fs.StringVar(&f.pids, "pids", "", "")
	fs.StringVar(&f.start, "start", "", "")
	fs.BoolVar(&f.json, "json", false, "")
	return f
}

// config completes the Config from the flags that are lists.
func (f *benchFlags) config() (cfg bench.Config, err error) {
	cfg = f.Config
	if cfg.Servers, err = (&clientFlags{servers: f.servers}).serverList(); err != nil {
		return cfg, err
	}
	for word := range strings.SplitSeq(f.pids, ",") {
		if word == "" {
			continue
		}
		pid, err := strconv.Atoi(word)
		if err != nil || pid <= 0 {
			return cfg, fmt.Errorf("-pids: %q is no process", word)
		}
		cfg.PIDs = append(cfg.PIDs, pid)
	}
	cfg.Start = strings.Fields(f.start)
	return cfg, cfg.Validate()
}

func runBench(args []string, e env) int {
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	f := parseBench(fs)
	if status, done := parseFlags(fs, benchUsage(), args, e); done {
		return status
	}
	if fs.NArg() > 0 {
		return usageError("bench", e, "unexpected argument %q", fs.Arg(0))
	}
	cfg, err := f.config()
	if err != nil {
		return usageError("bench", e, "%v", err)
	}
	progress := io.Discard
	if f, ok := e.stderr.(*os.File); ok && isTerminal(f) {
		progress = f
	}
	cfg.Progress = func(p bench.Progress) {
		fmt.Fprintf(progress, "\r\x1b[K%s: %s, %d operations", p.Elapsed.Round(100*time.Millisecond), p.Phase, p.Ops)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-e.signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	res, err := bench.Run(ctx, cfg)
	fmt.Fprint(progress, "\r\x1b[K")
	if err != nil {
		fmt.Fprintf(e.stderr, "lockkeeper bench: %v\n", err)
		return exitFailed
	}
	if f.json {
		_ = json.NewEncoder(e.stdout).Encode(res)
	} else {
		printResult(e.stdout, res)
	}
	return exitOK
}

// printResult writes a result as text.
func printResult(w io.Writer, r *bench.Result) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-12s "+format+"\n", append([]any{name}, args...)...)
	}
	line("workload", "%s, %d clients, %d in flight, %s", r.Workload, r.Clients, r.InFlight, strings.Join(r.Servers, ", "))
	line("throughput", "%.0f operations a second (%d in %.1f s)", r.PerSecond, r.Ops, r.Seconds)
	l := r.Latency
	line("latency", "p50 %.3g ms, p90 %.3g ms, p99 %.3g ms, p99.9 %.3g ms, max %.3g ms", l.P50, l.P90, l.P99, l.P999, l.Max)
	if r.ServerCPU > 0 {
		line("CPU", "%.3g us an operation in all servers, %.3g us in this program", r.ServerCPU, r.ClientCPU)
	}
	if len(r.Resident) > 0 {
		var each []string
		for _, n := range r.Resident {
			each = append(each, fmt.Sprintf("%.1f MB", float64(n)/1e6))
		}
		line("memory", "%s", strings.Join(each, ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Figures)) {
		line("", "%s: %.4g", name, r.Figures[name])
	}
	if len(r.Errors) == 0 {
		line("errors", "none")
	}
	for _, text := range slices.Sorted(maps.Keys(r.Errors)) {
		line("errors", "%d: %s", r.Errors[text], text)
	}
}
