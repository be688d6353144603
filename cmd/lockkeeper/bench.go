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

	"golang.org/x/term"

	"lockkeeper/bench"
)

// benchCommand is bench, with the flags that are no fields of the Config.
type benchCommand struct {
	bench.Config
	e                             env
	servers, context, pids, start string
	tls                           tlsFlags
	json                          bool
}

func (c *benchCommand) flags(fs *flag.FlagSet, e env) {
	c.e = e
	fs.Var((*serversFlag)(&c.servers), "servers", "`host:port,...` the servers; the clients spread over them (default "+
		"$LOCKKEEPER_SERVERS, or the current context, or 127.0.0.1:2181)")
	fs.StringVar(&c.context, "context", "", contextUsage)
	fs.StringVar(&c.Workload, "workload", "write", "`w` which (default write)")
	fs.IntVar(&c.Clients, "clients", 0, "`n` connections that work side by side (default: the workload's own number)")
	fs.IntVar(&c.InFlight, "in-flight", 0, "`n` requests that each has outstanding; write, read, mixed (default 1)")
	fs.Float64Var(&c.Rate, "rate", 0,
		"`n` requests a second of all together, sent at times that do not depend on the replies; write, read, mixed "+
			"(default: each client sends when it has a reply)")
	durationVar(fs, &c.Duration, "duration", 0, "`d` how long to measure, after a second of warming up (default 10s)")
	fs.IntVar(&c.Size, "size", 0, "`n` bytes of data (default 100)")
	fs.IntVar(&c.Nodes, "nodes", 0, "`n` number of nodes; znodes (default 200000)")
	fs.IntVar(&c.Rounds, "rounds", 0, "`n` number of rounds; herd, boot")
	durationVar(fs, &c.Session, "session", 0, "`d` session timeout (default 30s)")
	fs.StringVar(&c.pids, "pids", "",
		"`n,...` the servers' processes, in the order of -servers; by default they are looked for by their "+
			"ports (Linux)")
	fs.StringVar(&c.start, "start", "",
		"`'command'` starts the first server, in the foreground; boot, and znodes to measure "+
			"a restart (which kills the server with SIGKILL first)")
	c.tls.flags(fs, e)
	fs.BoolVar(&c.json, "json", false, "the result as one JSON object")
}

// config completes the Config from the flags that are lists.
func (c *benchCommand) config() (cfg bench.Config, err error) {
	cfg = c.Config
	servers, from, err := c.e.destination(c.servers, c.context)
	if err != nil {
		return cfg, err
	}
	if from != nil {
		c.tls.complete(from)
	}
	if cfg.Servers, err = serverList(servers); err != nil {
		return cfg, err
	}
	if cfg.TLS, err = c.tls.config(); err != nil {
		return cfg, err
	}
	for word := range strings.SplitSeq(c.pids, ",") {
		if word == "" {
			continue
		}
		pid, err := strconv.Atoi(word)
		if err != nil || pid <= 0 {
			return cfg, fmt.Errorf("-pids: %q is no process", word)
		}
		cfg.PIDs = append(cfg.PIDs, pid)
	}
	cfg.Start = strings.Fields(c.start)
	return cfg, cfg.Validate()
}

func (c *benchCommand) run(e env, _ []string) error {
	cfg, err := c.config()
	if err != nil {
		return usageError{err}
	}
	progress := io.Discard
	if f, ok := e.stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
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
		return err
	}
	if c.json {
		return json.NewEncoder(e.stdout).Encode(res)
	}
	printResult(e.stdout, res)
	return nil
}

func printResult(w io.Writer, r *bench.Result) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-12s "+format+"\n", append([]any{name}, args...)...)
	}
	servers := strings.Join(r.Servers, ", ")
	if r.Rate > 0 {
		line("workload", "%s, %d clients, %.0f requests a second, %s", r.Workload, r.Clients, r.Rate, servers)
		line("throughput", "%.0f replies a second (%d requests in %.1f s)", r.PerSecond, r.Ops, r.Seconds)
	} else {
		line("workload", "%s, %d clients, %d in flight, %s", r.Workload, r.Clients, r.InFlight, servers)
		line("throughput", "%.0f operations a second (%d in %.1f s)", r.PerSecond, r.Ops, r.Seconds)
	}
	l := r.Latency
	line("latency", "p50 %.3g ms, p90 %.3g ms, p99 %.3g ms, p99.9 %.3g ms, max %.3g ms",
		l.P50, l.P90, l.P99, l.P999, l.Max)
	if r.Behind {
		line("", "this program fell behind its schedule, which the latency includes")
	}
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
