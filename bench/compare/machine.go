package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"lockkeeper/bench"
	"lockkeeper/internal/freeport"
	"lockkeeper/jepsen"
)

// machine is what the machine could do, measured.
type machine struct {
	// FdatasyncUs is the median of writing a small block into a file that has its length already, and having it on disk.
	FdatasyncUs    float64 `json:"fdatasyncUs"`
	FdatasyncP99Us float64 `json:"fdatasyncP99Us"`
	// RoundTripUs is the median of one request to a server that does nothing and its answer, over loopback.
	RoundTripUs float64 `json:"roundTripUs"`
	// StartMs is how long that server, a Go program, takes from its start to its first answer.
	StartMs float64 `json:"startMs"`
	// Echo is what it does with many clients.
	Echo []*bench.Result `json:"echo"`
	// Cluster is what three such servers do with the writes of many clients, each of which answers its clients all at once, and HerdMs
	// how long they take until the last of a herd has its event.
	Cluster []*bench.Result `json:"cluster"`
	HerdMs  float64         `json:"herdMs"`
}

// echoShapes are the clients and requests in flight that the figures are held against.
var echoShapes = [][2]int{{1, 1}, {16, 1}, {128, 1}, {128, 8}}

func (m *machine) echo(clients, inFlight int) *bench.Result { return find(m.Echo, clients, inFlight) }

func (m *machine) cluster(clients int) *bench.Result { return find(m.Cluster, clients, 1) }

func find(results []*bench.Result, clients, inFlight int) *bench.Result {
	for _, r := range results {
		if r.Clients == clients && r.InFlight == inFlight {
			return r
		}
	}
	return &bench.Result{}
}

// measureMachine measures in dir, each thing for a duration.
func measureMachine(ctx context.Context, dir string, duration time.Duration) (m *machine, err error) {
	m = &machine{}
	if m.FdatasyncUs, m.FdatasyncP99Us, err = measureSync(filepath.Join(dir, "sync"), duration); err != nil {
		return nil, err
	}
	steps := []func(ctx context.Context, dir string, duration time.Duration) error{m.measureStart, m.measureServer, m.measureWrites, m.measureHerd}
	for _, measure := range steps {
		if err := measure(ctx, dir, duration); err != nil {
			return nil, err
		}
	}
	return m, ctx.Err()
}

// measureStart measures how long a bare server takes to start.
func (m *machine) measureStart(ctx context.Context, _ string, _ time.Duration) error {
	servers, err := echoServers(1, 1)
	if err != nil {
		return err
	}
	r, err := bench.Run(ctx, bench.Config{Workload: "boot", Servers: servers.addrs, Start: servers.command(0)})
	if err == nil {
		m.StartMs = r.Latency.P50
	}
	return err
}

// measureServer measures what one bare server does.
func (m *machine) measureServer(ctx context.Context, dir string, duration time.Duration) error {
	return withEcho(ctx, dir, 1, 1, func(servers []string) error {
		for _, shape := range echoShapes {
			r, err := bench.Run(ctx, bench.Config{Workload: "read", Servers: servers, Clients: shape[0], InFlight: shape[1],
				Duration: duration, WarmUp: duration})
			if err != nil {
				return err
			}
			m.Echo = append(m.Echo, r)
		}
		m.RoundTripUs = m.echo(1, 1).Latency.P50 * 1000
		return nil
	})
}

// measureWrites measures what three of them do that answer their clients together.
func (m *machine) measureWrites(ctx context.Context, dir string, duration time.Duration) error {
	for _, clients := range clusterClients {
		err := withEcho(ctx, dir, members, clients/members, func(servers []string) error {
			r, err := bench.Run(ctx, bench.Config{Workload: "write", Servers: servers, Clients: clients, Duration: duration, WarmUp: duration})
			if err == nil {
				m.Cluster = append(m.Cluster, r)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// measureHerd measures how long three of them take to tell many.
func (m *machine) measureHerd(ctx context.Context, dir string, _ time.Duration) error {
	return withEcho(ctx, dir, members, 1, func(servers []string) error {
		r, err := bench.Run(ctx, bench.Config{Workload: "herd", Servers: servers, Clients: herdClients})
		if err == nil {
			m.HerdMs = lastOfAll(r)
		}
		return err
	})
}

// echoCluster are bare servers that are peers of each other.
type echoCluster struct {
	program string
	addrs   []string
	group   int
}

// echoServers finds addresses for so many.
func echoServers(n, group int) (*echoCluster, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ports, err := freeport.Take(n)
	if err != nil {
		return nil, err
	}
	c := &echoCluster{program: self, group: group}
	for _, p := range ports {
		c.addrs = append(c.addrs, fmt.Sprintf("127.0.0.1:%d", p))
	}
	return c, nil
}

// command starts one of them.
func (c *echoCluster) command(i int) []string {
	peers := slices.Delete(slices.Clone(c.addrs), i, i+1)
	return append([]string{c.program, echoArg, c.addrs[i], strconv.Itoa(c.group)}, peers...)
}

// withEcho runs f beside so many bare servers.
func withEcho(ctx context.Context, dir string, n, group int, f func(servers []string) error) (err error) {
	c, err := echoServers(n, group)
	if err != nil {
		return err
	}
	for i, addr := range c.addrs {
		command := c.command(i)
		p, startErr := jepsen.StartProcess("echo", exec.Command(command[0], command[1:]...), filepath.Join(dir, "echo.log"))
		if startErr != nil {
			return startErr
		}
		defer func() { err = errors.Join(err, p.Kill()) }()
		if err := await(ctx, addr); err != nil {
			return err
		}
	}
	return f(c.addrs)
}

// clusterClients are the numbers of clients that writes of a cluster are held against.
var clusterClients = []int{16, 128}

// mean is what lies between two measurements; either may be nil.
func mean(a, b *machine) *machine {
	if a == nil || b == nil {
		return cmpOr(a, b)
	}
	half := func(x, y float64) float64 { return (x + y) / 2 }
	m := &machine{
		FdatasyncUs: half(a.FdatasyncUs, b.FdatasyncUs), FdatasyncP99Us: half(a.FdatasyncP99Us, b.FdatasyncP99Us),
		RoundTripUs: half(a.RoundTripUs, b.RoundTripUs), StartMs: half(a.StartMs, b.StartMs),
	}
	both := func(x, y []*bench.Result) (means []*bench.Result) {
		for _, x := range x {
			y := find(y, x.Clients, x.InFlight)
			means = append(means, &bench.Result{Clients: x.Clients, InFlight: x.InFlight,
				PerSecond: half(x.PerSecond, y.PerSecond), ServerCPU: half(x.ServerCPU, y.ServerCPU), ClientCPU: half(x.ClientCPU, y.ClientCPU)})
		}
		return means
	}
	m.Echo, m.Cluster, m.HerdMs = both(a.Echo, b.Echo), both(a.Cluster, b.Cluster), half(a.HerdMs, b.HerdMs)
	return m
}

func cmpOr(a, b *machine) *machine {
	if a != nil {
		return a
	}
	return b
}

const (
	// syncBlock is how much is written each time, and syncFile how long the file is.
	syncBlock, syncFile = 512, 4 << 20
)

// measureSync writes small blocks one after the other into a file that is there already, each followed by fdatasync.
func measureSync(name string, duration time.Duration) (p50Us, p99Us float64, err error) {
	f, err := os.Create(name)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(name)) }()
	if _, err := f.Write(make([]byte, syncFile)); err != nil {
		return 0, 0, err
	}
	if err := f.Sync(); err != nil {
		return 0, 0, err
	}
	var h bench.Histogram
	block := []byte(strings.Repeat("x", syncBlock))
	began := time.Now()
	for i := 0; time.Since(began) < duration; i++ {
		start := time.Now()
		if _, err := f.WriteAt(block, int64(i*syncBlock%syncFile)); err != nil {
			return 0, 0, err
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return 0, 0, fmt.Errorf("fdatasync: %w", err)
		}
		h.Add(time.Since(start))
	}
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	return us(h.Quantile(0.5)), us(h.Quantile(0.99)), nil
}

// describe says which machine this is, and what the data lie on.
func describe(dir string) []string {
	var lines []string
	add := func(what, value string) {
		if value != "" {
			lines = append(lines, what+": "+value)
		}
	}
	add("CPU", fmt.Sprintf("%s, %d cores", fieldOf("/proc/cpuinfo", "model name"), runtime.NumCPU()))
	add("memory", fieldOf("/proc/meminfo", "MemTotal"))
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		add("kernel", strings.TrimSpace(string(b)))
	}
	add("data on", mountOf(dir))
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		add("load average before", strings.Join(strings.Fields(string(b))[:3], " "))
	}
	return lines
}

// fieldOf finds the first line of a file that begins with a name and a colon, or a name and blanks.
func fieldOf(file, name string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// mountOf is the file system that holds a directory: its type, device and options.
func mountOf(dir string) string {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return ""
	}
	defer f.Close()
	best, text := "", ""
	for s := bufio.NewScanner(f); s.Scan(); {
		w := strings.Fields(s.Text()) // device, place, type, options
		inside := len(w) > 3 && (w[1] == "/" || dir == w[1] || strings.HasPrefix(dir, w[1]+"/"))
		if inside && len(w[1]) >= len(best) {
			best, text = w[1], fmt.Sprintf("%s on %s (%s)", w[2], w[0], w[3])
		}
	}
	return text
}

// output is the first line that a command prints, or what is wrong with it.
func output(name string, args ...string) string {
	out, err := exec.Command(name, args...).CombinedOutput()
	lines := slices.Collect(strings.Lines(string(out)))
	if err != nil || len(lines) == 0 {
		return "unknown"
	}
	return strings.TrimSpace(lines[0])
}
