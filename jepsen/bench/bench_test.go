package bench_test

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/bench"
	"lockkeeper/jepsen"
)

var tools *jepsen.Toolbox

func TestMain(m *testing.M) {
	log.SetFlags(0)
	flag.Parse()
	os.Exit(jepsen.Main(m, &tools, jepsen.Race))
}

func startCluster(t *testing.T, members int) *jepsen.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("starts real processes; not with -short")
	}
	target, err := tools.Lockkeeper()
	jepsen.Need(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := jepsen.StartCluster(ctx, jepsen.ClusterConfig{Target: target, Members: members,
		Dir: jepsen.KeptDir(t, false)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// TestWorkloads runs every workload that needs no command line against three members, and looks at
// the remaining nodes.
func TestWorkloads(t *testing.T) {
	cluster := startCluster(t, 3)
	servers := strings.Split(cluster.Servers(), ",")
	for _, cfg := range []bench.Config{
		{Workload: "write", Clients: 3},
		{Workload: "write", Clients: 2, InFlight: 8},
		{Workload: "read", Clients: 3, InFlight: 3},
		{Workload: "mixed", Clients: 3},
		{Workload: "lock-cycle", Clients: 3},
		{Workload: "lock-contended", Clients: 4},
		{Workload: "herd", Clients: 30, Rounds: 2},
		{Workload: "sessions", Clients: 5},
		{Workload: "znodes", Nodes: 2500},
		// the last: it leaves two members
		{Workload: "failover", Clients: 6, Duration: 3 * time.Second},
	} {
		if cfg.Duration == 0 {
			cfg.Duration, cfg.WarmUp = 200*time.Millisecond, 200*time.Millisecond
		}
		cfg.Servers = servers
		t.Run(fmt.Sprintf("%s/%d", cfg.Workload, cfg.InFlight), func(t *testing.T) {
			res, err := bench.Run(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if res.Ops == 0 || res.PerSecond <= 0 || res.Latency.P50 <= 0 || res.Latency.Max < res.Latency.P99 ||
				res.Latency.P99 < res.Latency.P50 {
				t.Errorf("%+v", res)
			}
			failover := cfg.Workload == "failover"
			if len(res.Errors) > 0 && !failover {
				t.Errorf("errors: %v", res.Errors)
			}
			if !failover && (len(res.Resident) != 3 || res.Resident[0] < 1<<20) {
				t.Errorf("resident: %v", res.Resident)
			}
			for _, name := range figuresOf[cfg.Workload] {
				if _, ok := res.Figures[name]; !ok {
					t.Errorf("no figure %q in %v", name, res.Figures)
				}
			}
			if lost := res.Figures["connections lost on survivors"]; lost > 0 {
				t.Errorf("%v connections were lost on members that went on", lost)
			}
			wantNothingLeft(t, servers)
		})
	}
}

var figuresOf = map[string][]string{
	"herd": {"last of all, p50 ms", "last of all, max ms"},
	"sessions": {"resident bytes per session", "expiry late p50 ms", "expiry late max ms",
		"idle CPU per session and second us"},
	"znodes":   {"resident bytes per node and server"},
	"failover": {"gap without a write ms", "connections lost on survivors", "connections on survivors"},
}

// wantNothingLeft looks at the root through a server that serves.
func wantNothingLeft(t *testing.T, servers []string) {
	t.Helper()
	conn, events, err := zk.Connect(servers, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for e := range events {
		if e.State == zk.StateHasSession {
			break
		}
	}
	if _, err := conn.Sync("/"); err != nil {
		t.Fatal(err)
	}
	if names, _, err := conn.Children("/"); err != nil || len(names) != 1 || names[0] != "zookeeper" {
		t.Errorf("left in the root: %q %v", names, err)
	}
}

// TestStarts: the workloads that start servers.
func TestStarts(t *testing.T) {
	cluster := startCluster(t, 1)
	member := cluster.Members()[0]
	command := member.Command()
	addr := member.ClientAddr
	res, err := bench.Run(t.Context(), bench.Config{Workload: "znodes", Servers: []string{addr}, Nodes: 1200, Start: command})
	if err != nil {
		t.Fatal(err)
	}
	if res.Figures["restart ms"] <= 0 {
		t.Errorf("%+v", res)
	}
	pid := bench.FindProcess(addr)
	if pid <= 0 {
		t.Fatal("no server is left by znodes")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for bench.FindProcess(addr) != 0 {
		runtime.Gosched() // until the kernel has closed its port
	}
	res, err = bench.Run(t.Context(), bench.Config{Workload: "boot", Servers: []string{addr}, Rounds: 2, Start: command})
	if err != nil {
		t.Fatal(err)
	}
	if res.Ops != 2 || res.Latency.P50 <= 0 || res.Figures["resident bytes after the start"] < 1<<20 {
		t.Errorf("%+v", res)
	}
	if pid = bench.FindProcess(addr); pid != 0 {
		t.Errorf("a server was left: %d", pid)
	}
	broken := []string{command[0], "serve", filepath.Join(t.TempDir(), "missing.cfg")}
	if _, err = bench.Run(t.Context(), bench.Config{Workload: "boot", Servers: []string{addr}, Start: broken}); err == nil ||
		!strings.Contains(err.Error(), "missing.cfg") {
		t.Errorf("a server that does not start: %v", err)
	}
}
