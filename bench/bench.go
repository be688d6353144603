package bench

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/wire"
)

// Config describes a measurement.
type Config struct {
	// Servers are host:port; client n connects to the n-th of them, and again from the first.
	Servers []string
	// TLS, if it is not nil, has every connection encrypted.
	TLS *tls.Config
	// Source is the address that connections come from; the zero one: as the system chooses. About
	// 14,000 connections from one address are made fast (half of net.ipv4.ip_local_port_range).
	Source netip.Addr
	// Workload is one of Workloads.
	Workload string
	// Clients is the number of connections that work side by side; 0 means the workload's own
	// number.
	Clients int
	// InFlight is the number of requests that a client has in flight, where the workload pipelines;
	// 0 means 1.
	InFlight int
	// Rate is the number of requests a second of all clients together, which are sent at times that
	// do not depend on the replies (an open loop; InFlight does not count); latency is from these
	// times. For write, read and mixed. 0: each client sends when it has a reply (a closed loop).
	Rate float64
	// Duration is for how long is measured; 0 means 10 s. Workloads that do a fixed number of
	// things take as long as these do.
	Duration time.Duration
	// WarmUp is for how long clients work before that; 0 means 1 s.
	WarmUp time.Duration
	// Size is the length of the data that are written, in bytes; 0 means 100.
	Size int
	// Nodes is the number of nodes that the workload znodes makes, Rounds the number of rounds of
	// herd, failover and boot; 0 means the workload's own number.
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
	// Leave says that the nodes need not be deleted in the end: the servers' data go anyway.
	Leave bool
	// Progress is called about twice a second, from another goroutine; nil: never.
	Progress func(Progress)
}

// Progress is where a run stands.
type Progress struct {
	Elapsed time.Duration
	Ops     int64
	Phase   string // set up, warm up, measure
}

// Result is the result of a run.
type Result struct {
	Workload string   `json:"workload"`
	Servers  []string `json:"servers"`
	Clients  int      `json:"clients"`
	InFlight int      `json:"inFlight"`
	Size     int      `json:"sizeBytes,omitempty"`
	Seconds  float64  `json:"seconds"`
	Ops      uint64   `json:"ops"`
	// PerSecond is Ops through Seconds; of an open loop the number of replies in that time.
	PerSecond float64 `json:"opsPerSecond"`
	// Rate is Config.Rate, and Behind says that the generator itself was too slow for it: it sent
	// one of a hundred requests more than a millisecond late. The latencies include this delay.
	Rate   float64 `json:"ratePerSecond,omitempty"`
	Behind bool    `json:"generatorBehind,omitempty"`
	// Latency is of one operation, as a client sees it.
	Latency Latency `json:"latencyMs"`
	// Errors counts the errors, by text. A client that loses its connection opens another one.
	Errors map[string]int `json:"errors,omitempty"`
	// ServerCPU is the CPU time of all servers together, in microseconds for each operation; 0 if
	// it is not known.
	ServerCPU float64 `json:"serverCpuUsPerOp,omitempty"`
	// ClientCPU is this process's own.
	ClientCPU float64 `json:"clientCpuUsPerOp,omitempty"`
	// Resident is the resident memory of each server at the end, in bytes; in the order of Servers.
	Resident []int64 `json:"residentBytes,omitempty"`
	// Figures are the figures of this workload alone, by name and unit.
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
	c.Clients = cmp.Or(c.Clients, w.clients)
	c.InFlight = cmp.Or(c.InFlight, 1)
	c.Duration = cmp.Or(c.Duration, 10*time.Second)
	c.WarmUp = cmp.Or(c.WarmUp, time.Second)
	c.Size = cmp.Or(c.Size, 100)
	c.Session = cmp.Or(c.Session, 30*time.Second)
}

// Validate reports the faults of c.
func (c *Config) Validate() error {
	var faults []error
	w, ok := find(c.Workload)
	if !ok {
		var names []string
		for _, known := range workloads() {
			names = append(names, known.name)
		}
		faults = append(faults, fmt.Errorf("there is no workload %q; there are %s", c.Workload,
			strings.Join(names, ", ")))
	}
	if len(c.Servers) == 0 {
		faults = append(faults, errors.New("no server is named"))
	}
	if min(c.Clients, c.InFlight, c.Size, c.Nodes, c.Rounds) < 0 || min(c.Duration, c.WarmUp, c.Session) < 0 {
		faults = append(faults, errors.New("a number is negative"))
	}
	if len(c.PIDs) > 0 && len(c.PIDs) != len(c.Servers) {
		faults = append(faults, fmt.Errorf("%d processes for %d servers", len(c.PIDs), len(c.Servers)))
	}
	if c.Rate < 0 || c.Rate > 0 && ok && !w.paced {
		faults = append(faults, fmt.Errorf("a rate of %g: only write, read and mixed have one, above 0", c.Rate))
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
	meter
	dir   string // the node below which everything is made; gone in the end
	ops   atomic.Int64
	phase atomic.Pointer[string]
	// figures is Result.Figures.
	figures map[string]float64
	open    *openLoop // nil: a closed loop
}

func newRun(cfg Config) *run {
	r := &run{Config: cfg, figures: map[string]float64{}}
	if cfg.Rate > 0 {
		r.open = newOpenLoop(r)
	}
	r.enter("set up")
	return r
}

// Run measures one workload. When ctx ends, it returns the measurements so far. It returns an error
// if the run is worthless.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	w, _ := find(cfg.Workload)
	cfg.setDefaults(w)
	r := newRun(cfg)
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
	ctx, cancel := context.WithCancel(context.Background())
	start := time.Now()
	var reporting sync.WaitGroup
	reporting.Go(func() {
		for pause(ctx, 500*time.Millisecond); ctx.Err() == nil; pause(ctx, 500*time.Millisecond) {
			r.Progress(Progress{Elapsed: time.Since(start), Ops: r.ops.Load(), Phase: *r.phase.Load()})
		}
	})
	return func() {
		cancel()
		reporting.Wait()
	}
}

func (r *run) server(n int) string { return r.Servers[n%len(r.Servers)] }

// dialPatience is for how long a server may turn a client away: it may just have been started.
const dialPatience = 10 * time.Second

// dial connects client n to its server. It tries again while that is there, but gives no session.
func (r *run) dial(ctx context.Context, n int) (*conn, error) {
	var refused error
	for began := time.Now(); ; pause(ctx, 20*time.Millisecond) {
		c, err := dial(ctx, r.route(), r.server(n), r.Session, patience)
		switch {
		case err == nil:
			return c, nil
		case ctx.Err() != nil:
			return nil, cmp.Or(refused, err)
		case !errors.Is(err, errTurnedAway):
			return nil, err
		}
		refused = fmt.Errorf("%w (the server has no leader, or as many connections from this address as its "+
			"maxClientCnxns allows, 60 by default)", err)
		if time.Since(began) > dialPatience {
			return nil, refused
		}
	}
}

// dialAll connects all clients, and calls opened for each. leave closes their sessions.
func (r *run) dialAll(ctx context.Context, opened func(took time.Duration)) (all []*conn, leave func(), err error) {
	all = make([]*conn, r.Clients)
	leave = func() {
		for _, c := range all {
			if c != nil {
				c.leave()
			}
		}
	}
	err = r.each(r.Clients, func(n int) (err error) {
		began := time.Now()
		if all[n], err = r.dial(ctx, n); err == nil {
			opened(time.Since(began))
		}
		return err
	})
	return all, leave, err
}

// each calls f for 0 to n-1, several side by side, until one fails. It returns the first error.
func (r *run) each(n int, f func(i int) error) error {
	const atOnce = 32
	slots := make(chan struct{}, atOnce)
	failed := make(chan error, n)
	var wg sync.WaitGroup
	for i := 0; i < n && len(failed) == 0; i++ {
		slots <- struct{}{}
		wg.Go(func() {
			if err := f(i); err != nil {
				failed <- err
			}
			<-slots
		})
	}
	wg.Wait()
	close(failed)
	return <-failed
}

// makeDir makes the node that everything else is made below.
func (r *run) makeDir(ctx context.Context) error {
	c, err := r.dial(ctx, 0)
	if err != nil {
		return err
	}
	defer c.end()
	r.dir, err = c.create(fmt.Sprintf("/bench-%d-", os.Getpid()), wire.ModePersistentSequential)
	if err != nil {
		return fmt.Errorf("bench: create a directory: %w", err)
	}
	return r.syncAll(ctx)
}

// makeNodes makes nodes below the directory, and has every server know them.
func (r *run) makeNodes(ctx context.Context, n int, path func(i int) string, data []byte) error {
	c, err := r.dial(ctx, 0)
	if err != nil {
		return err
	}
	defer c.end()
	if err := c.createAll(ctx, n, path, data); err != nil {
		return err
	}
	return r.syncAll(ctx)
}

// makeDirs makes nodes name0, name1, ... below the directory.
func (r *run) makeDirs(ctx context.Context, name string, n int) error {
	return r.makeNodes(ctx, n, func(i int) string { return fmt.Sprintf("%s/%s%d", r.dir, name, i) }, nil)
}

// syncAll returns when every server has applied all writes.
func (r *run) syncAll(ctx context.Context) error {
	for i := range r.Servers {
		c, err := r.dial(ctx, i)
		if err != nil {
			return err
		}
		_, err = c.call(wire.OpSync, &wire.SyncRequest{Path: r.dir})
		c.end()
		if err != nil {
			return fmt.Errorf("sync: %w", err)
		}
	}
	return nil
}

// removeDir deletes the directory with everything below it.
func (r *run) removeDir() {
	r.enter("clean up")
	for i := range r.Servers { // the first that serves
		c, err := dial(context.Background(), r.route(), r.server(i), r.Session, patience)
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

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
