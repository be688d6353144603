package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"lockkeeper/wire"
)

// Config says what to measure.
type Config struct {
	// Servers are host:port; client n connects to the n-th of them, and again from the first.
	Servers []string
	// Workload is one of Workloads.
	Workload string
	// Clients is how many connections work side by side; 0 means the workload's own number.
	Clients int
	// InFlight is how many requests a client has outstanding, where the workload pipelines; 0 means
	// 1.
	InFlight int
	// Duration is for how long is measured; 0 means 10 s. Workloads that do a fixed number of
	// things take as long as these do.
	Duration time.Duration
	// WarmUp is for how long clients work before that; 0 means 1 s.
	WarmUp time.Duration
	// Size is the length of the data that are written, in bytes; 0 means 100.
	Size int
	// Nodes is how many nodes the workload znodes makes, or Rounds the number of rounds of herd,
	// failover and boot; 0 means the workload's own number.
	Nodes, Rounds int
	// Session is the session timeout asked for; 0 means 30 s.
	Session time.Duration
	// PIDs are the servers' processes, for CPU time and memory; those that are empty are looked for
	// by their ports.
	PIDs []int
	// Start is the command line that starts a server, for boot and for the restart of znodes. It
	// must stay in the foreground.
	Start []string
	// Settle is called before the servers' memory is looked at, to have them put it in order; nil
	// waits 3 s for them to do so themselves.
	Settle func(ctx context.Context) error
	// Leave says that what was made need not be deleted in the end: the servers' data go anyway.
	Leave bool
	// Progress is called about twice a second, from another goroutine; nil for nobody.
	Progress func(Progress)
}

// Progress is where a run stands.
type Progress struct {
	Elapsed time.Duration
	Ops     int64
	Phase   string // set up, warm up, measure
}

// Result is what a run measured.
type Result struct {
	Workload string   `json:"workload"`
	Servers  []string `json:"servers"`
	Clients  int      `json:"clients"`
	InFlight int      `json:"inFlight"`
	Size     int      `json:"sizeBytes,omitempty"`
	Seconds  float64  `json:"seconds"`
	Ops      uint64   `json:"ops"`
	// PerSecond is Ops through Seconds.
	PerSecond float64 `json:"opsPerSecond"`
	// Latency is of one operation, as a client sees it.
	Latency Latency `json:"latencyMs"`
	// Errors counts what went wrong, by text. A client that loses its connection opens another one.
	Errors map[string]int `json:"errors,omitempty"`
	// ServerCPU is the CPU time of all servers together, in microseconds for each operation; 0 if
	// it is not known.
	ServerCPU float64 `json:"serverCpuUsPerOp,omitempty"`
	// ClientCPU is this process's own.
	ClientCPU float64 `json:"clientCpuUsPerOp,omitempty"`
	// Resident is what each server has in memory at the end, in bytes; in the order of Servers.
	Resident []int64 `json:"residentBytes,omitempty"`
	// Figures are what only this workload measures, by name and unit.
	Figures map[string]float64 `json:"figures,omitempty"`
}

// Latency are quantiles in milliseconds.
type Latency struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99.9"`
	Max  float64 `json:"max"`
	Mean float64 `json:"mean"`
}

func latency(h *Histogram) Latency {
	return Latency{
		P50: ms(h.Quantile(0.5)), P90: ms(h.Quantile(0.9)), P99: ms(h.Quantile(0.99)), P999: ms(h.Quantile(0.999)),
		Max: ms(h.Max()), Mean: ms(h.Mean()),
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (c *Config) setDefaults(w workload) {
	if c.Clients == 0 {
		c.Clients = w.clients
	}
	if c.InFlight == 0 {
		c.InFlight = 1
	}
	if c.Duration == 0 {
		c.Duration = 10 * time.Second
	}
	if c.WarmUp == 0 {
		c.WarmUp = time.Second
	}
	if c.Size == 0 {
		c.Size = 100
	}
	if c.Session == 0 {
		c.Session = 30 * time.Second
	}
}

// Validate reports what is wrong with c.
func (c *Config) Validate() error {
	var faults []error
	w, ok := find(c.Workload)
	if !ok {
		faults = append(faults, fmt.Errorf("there is no workload %q; there are %s", c.Workload, strings.Join(names(), ", ")))
	}
	if len(c.Servers) == 0 {
		faults = append(faults, errors.New("no server is named"))
	}
	if c.Clients < 0 || c.InFlight < 0 || c.Duration < 0 || c.WarmUp < 0 || c.Size < 0 || c.Nodes < 0 || c.Rounds < 0 || c.Session < 0 {
		faults = append(faults, errors.New("a number is negative"))
	}
	if len(c.PIDs) > 0 && len(c.PIDs) != len(c.Servers) {
		faults = append(faults, fmt.Errorf("%d processes for %d servers", len(c.PIDs), len(c.Servers)))
	}
	if w.starts && len(c.Start) == 0 {
		faults = append(faults, fmt.Errorf("workload %s needs the command line that starts a server", c.Workload))
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	return nil
}

// run is a run on its way.
type run struct {
	Config
	dir      string // the node below which everything is made; gone in the end
	recorder *recorder
	ops      atomic.Int64
	phase    atomic.Pointer[string]
	figures  map[string]float64
}

// Run measures one workload. It returns what it has measured so far when ctx ends, and an error if
// the run is worthless.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	w, _ := find(cfg.Workload)
	cfg.setDefaults(w)
	r := &run{Config: cfg, recorder: newRecorder(), figures: map[string]float64{}}
	r.enter("set up")
	if len(r.PIDs) == 0 {
		for _, s := range r.Servers {
			r.PIDs = append(r.PIDs, FindProcess(s))
		}
	}
	defer r.reportProgress()()
	if !w.starts {
		if err := r.makeDir(ctx); err != nil {
			return nil, err
		}
		if !r.Leave {
			defer r.removeDir()
		}
	}
	if err := w.run(ctx, r); err != nil {
		return nil, fmt.Errorf("bench: %s: %w", cfg.Workload, err)
	}
	return r.result(), nil
}

func (r *run) enter(phase string) { r.phase.Store(&phase) }

// reportProgress calls Progress now and then until the function that it returns is called.
func (r *run) reportProgress() (stop func()) {
	if r.Progress == nil {
		return func() {}
	}
	done, over := make(chan struct{}), make(chan struct{})
	start := time.Now()
	go func() {
		defer close(over)
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				r.Progress(Progress{Elapsed: time.Since(start), Ops: r.ops.Load(), Phase: *r.phase.Load()})
			}
		}
	}()
	return func() {
		close(done)
		<-over
	}
}

func (r *run) server(n int) string { return r.Servers[n%len(r.Servers)] }

// dialPatience is for how long a server may turn a client away: it may just have been started.
const dialPatience = 10 * time.Second

// dial connects client n to its server. It tries again while that is there, but gives no session.
func (r *run) dial(ctx context.Context, n int) (*conn, error) {
	var refused error
	for began := time.Now(); ; pause(ctx, 20*time.Millisecond) {
		c, err := r.dialOnce(ctx, n)
		switch {
		case err == nil:
			return c, nil
		case ctx.Err() != nil:
			return nil, cmp.Or(refused, err)
		case !errors.Is(err, errTurnedAway):
			return nil, err
		}
		refused = fmt.Errorf("%w (the server has no leader, or as many connections from this address as its maxClientCnxns allows, 60 by default)", err)
		if time.Since(began) > dialPatience {
			return nil, refused
		}
	}
}

func (r *run) dialOnce(ctx context.Context, n int) (*conn, error) {
	return dial(ctx, r.server(n), r.Session)
}

// makeDir makes the node that everything else is made below.
func (r *run) makeDir(ctx context.Context) error {
	c, err := r.dial(ctx, 0)
	if err != nil {
		return err
	}
	defer c.end()
	r.dir, err = c.create(fmt.Sprintf("/bench-%d-", os.Getpid()), nil, wire.ModePersistentSequential)
	if err != nil {
		return fmt.Errorf("bench: create a directory: %w", err)
	}
	return r.syncAll(ctx)
}

// removeDir deletes what is below the directory, and it.
func (r *run) removeDir() {
	r.enter("clean up")
	for i := range r.Servers { // the first that serves
		c, err := dial(context.Background(), r.server(i), r.Session)
		if err != nil {
			continue
		}
		err = c.removeAll(r.dir)
		c.end()
		if err == nil {
			return
		}
	}
}

// usage adds up all servers' processes; false if one of them is not known.
func (r *run) usage() (total Usage, each []int64, known bool) {
	for _, pid := range r.PIDs {
		u, err := UsageOf(pid)
		if pid == 0 || err != nil {
			return total, nil, false
		}
		total.CPU += u.CPU
		total.Resident += u.Resident
		each = append(each, u.Resident)
	}
	return total, each, true
}

func (r *run) result() *Result {
	m := r.recorder
	res := NewResult(&m.latency, m.elapsed, m.serverCPU, m.clientCPU)
	res.Workload, res.Servers, res.Clients, res.InFlight, res.Size = r.Workload, slices.Clone(r.Servers), r.Clients, r.InFlight, r.Size
	res.Errors, res.Figures = m.errors, r.figures
	if _, each, known := r.usage(); known {
		res.Resident = each
	}
	return res
}

// NewResult works out a Result from the latencies of all operations, how long they took, and the
// CPU time that all servers and this process used meanwhile. What it was measured on is left to
// fill in.
func NewResult(operations *Histogram, elapsed, servers, own time.Duration) *Result {
	res := &Result{Seconds: elapsed.Seconds(), Ops: operations.Count(), Latency: latency(operations)}
	if elapsed > 0 {
		res.PerSecond = float64(res.Ops) / res.Seconds
	}
	if res.Ops > 0 {
		res.ServerCPU = float64(servers.Microseconds()) / float64(res.Ops)
		res.ClientCPU = float64(own.Microseconds()) / float64(res.Ops)
	}
	return res
}
