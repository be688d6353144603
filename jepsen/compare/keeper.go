package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"lockkeeper/bench"
	"lockkeeper/jepsen"
)

const (
	// tickTime is the value in ZooKeeper's sample configuration.
	tickTime = 2 * time.Second
	// settling is for how long servers are left alone before their memory is looked at.
	settling = 3 * time.Second
	// failoverTime is long enough for a warm-up, the death of a leader, and all that comes of it.
	failoverTime = 6 * time.Second
)

// keeper is a cluster that speaks ZooKeeper's protocol.
type keeper struct {
	*jepsen.Cluster
	links   *jepsen.Proxies // delay between the members; nil without one
	sources string          // of lockkeeper
}

// startKeeper starts a cluster of a target as cfg says, and waits until it has a leader.
func startKeeper(ctx context.Context, target jepsen.Target, cfg jepsen.ClusterConfig, c config) (*keeper, error) {
	cfg.Target, cfg.TickTime = target, tickTime
	k := &keeper{sources: c.sources}
	if c.delay > 0 {
		k.links = jepsen.NewProxies(cfg.Members, 1)
		for host := 1; host <= cfg.Members; host++ {
			if err := k.links.Shape(host, jepsen.Shape{Delay: c.delay}); err != nil {
				return nil, err
			}
		}
		cfg.Between = k.links.Between
	}
	var err error
	if k.Cluster, err = jepsen.StartCluster(ctx, cfg); err != nil {
		return nil, errors.Join(err, k.unlink())
	}
	if _, err := k.AwaitLeader(ctx); err != nil {
		return nil, errors.Join(err, k.close())
	}
	return k, nil
}

// unlink ends the proxies.
func (k *keeper) unlink() error {
	if k.links == nil {
		return nil
	}
	return k.links.Close()
}

// close kills all processes, also one that package bench has started in place of a member.
func (k *keeper) close() error {
	err := k.Cluster.Close()
	for _, m := range k.Members() {
		if pid := bench.FindProcess(m.ClientAddr); pid > 0 {
			if p, e := os.FindProcess(pid); e == nil {
				err = errors.Join(err, p.Kill())
			}
		}
	}
	return errors.Join(err, k.unlink())
}

// inOrder sorts the addresses of members: first comes one with that role if one is asked for, else
// the leader.
func inOrder(members []string, leads string, first role) []string {
	others := slices.DeleteFunc(slices.Clone(members), func(addr string) bool { return addr == leads })
	if first == follower && len(others) > 0 {
		return slices.Concat(others[:1], []string{leads}, others[1:])
	}
	return append([]string{leads}, others...)
}

func (k *keeper) measure(ctx context.Context, l load, duration time.Duration) (*bench.Result, error) {
	if l.workload == "boot" {
		return k.boot(ctx)
	}
	// A failover before this one has left a member dead.
	for _, m := range k.Members() {
		if !m.Running() {
			if err := m.Restart(ctx); err != nil {
				return nil, err
			}
		}
	}
	leads, err := k.AwaitLeader(ctx)
	if err != nil {
		return nil, err
	}
	servers := inOrder(strings.Split(k.Servers(), ","), leads.ClientAddr, l.first)
	cfg := bench.Config{Workload: l.workload, Servers: servers, Clients: l.clients, InFlight: l.inFlight,
		Rate: l.rate, Nodes: l.nodes, Rounds: l.rounds, Duration: duration}
	for _, addr := range servers {
		cfg.PIDs = append(cfg.PIDs, bench.FindProcess(addr))
	}
	switch l.workload {
	case idle:
		return rest(ctx, cfg.PIDs)
	case locks:
		cfg.WarmUp = libraryWarmUp
		if l.library == curator {
			return measureCurator(ctx, cfg, filepath.Join(k.sources, "jepsen", "compare", "CuratorBench.java"))
		}
		return bench.Measure(ctx, cfg, mutexClient(servers))
	case "failover":
		cfg.Duration = max(duration, failoverTime)
	case "sessions", "znodes":
		cfg.Leave = true
		cfg.Settle = func(ctx context.Context) error { return settle(ctx, cfg.PIDs) }
		first := k.Members()[slices.IndexFunc(k.Members(),
			func(m *jepsen.Member) bool { return m.ClientAddr == servers[0] })]
		cfg.Start = first.Command()
	}
	return bench.Run(ctx, cfg)
}

// boot starts the only member with nothing on its disk.
func (k *keeper) boot(ctx context.Context) (*bench.Result, error) {
	m := k.Members()[0]
	if err := errors.Join(m.Kill(), m.Wipe()); err != nil {
		return nil, err
	}
	return bench.Run(ctx, bench.Config{Workload: "boot", Servers: []string{m.ClientAddr}, Rounds: 1,
		Start: m.Command()})
}

// rest leaves servers alone, and looks at their memory.
func rest(ctx context.Context, pids []int) (*bench.Result, error) {
	if !jepsen.Sleep(ctx, settling) {
		return nil, ctx.Err()
	}
	r := &bench.Result{Workload: idle}
	for _, pid := range pids {
		u, err := bench.UsageOf(pid)
		if err != nil {
			return nil, err
		}
		r.Resident = append(r.Resident, u.Resident)
	}
	return r, nil
}

// settle has servers put their memory in order. A JVM takes all memory that it is allowed to before
// it collects garbage, so it is told to; others have settling to do so by themselves.
func settle(ctx context.Context, pids []int) error {
	for _, pid := range pids {
		program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil {
			return err
		}
		if filepath.Base(program) != "java" {
			continue
		}
		out, err := exec.CommandContext(ctx, "jcmd", fmt.Sprint(pid), "GC.run").CombinedOutput()
		if err != nil {
			return fmt.Errorf("jcmd GC.run: %w: %s", err, out)
		}
	}
	jepsen.Sleep(ctx, settling)
	return ctx.Err()
}

// lockkeeperVersion is the commit of the sources.
func lockkeeperVersion(sources string) string {
	return "lockkeeper " + output("git", "-C", sources, "describe", "--always", "--dirty", "--abbrev=10")
}

// zookeeperVersion asks Debian's package, and the JVM.
func zookeeperVersion(java ...string) string {
	_, v, _ := strings.Cut(output("dpkg-query", "-W", "zookeeper"), "\t")
	if !slices.ContainsFunc(java, func(o string) bool { return strings.HasPrefix(o, "-Xmx") }) {
		java = append([]string{"-Xmx1000m"}, java...)
	}
	return fmt.Sprintf("ZooKeeper %s (%s, %s)", v, strings.Join(java, " "), output("java", "-version"))
}
