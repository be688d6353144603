package bench

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"lockkeeper/internal/cputime"
)

// meter adds up the measurements.
type meter struct {
	measuring atomic.Bool

	mu        sync.Mutex
	latency   Histogram
	errors    map[string]int
	elapsed   time.Duration
	serverCPU time.Duration
	clientCPU time.Duration
}

// merge adds a client's counts.
func (m *meter) merge(h *Histogram) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.latency.Merge(h)
}

// fail counts an error.
func (m *meter) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.errors == nil {
		m.errors = map[string]int{}
	}
	m.errors[brief(err)]++
}

// brief formats an error without the parts that differ each time.
func brief(err error) string {
	var op *net.OpError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE):
		return "connection lost"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "no answer"
	case errors.As(err, &op):
		return op.Err.Error()
	}
	return err.Error()
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

// usageMark is where measuring began: how much CPU time was used by then, and when.
type usageMark struct {
	servers, own time.Duration
	known        bool
	at           time.Time
}

// startUsage begins to measure. The time that it takes itself to look is not measured.
func (r *run) startUsage() usageMark {
	u, _, known := r.usage()
	return usageMark{u.CPU, cputime.Process(), known, time.Now()}
}

// addUsage adds the usage since mark to the measurements.
func (r *run) addUsage(mark usageMark) {
	r.elapsed += time.Since(mark.at)
	r.clientCPU += cputime.Process() - mark.own
	if u, _, known := r.usage(); known && mark.known {
		r.serverCPU += u.CPU - mark.servers
	}
}

// Measure has clients work side by side, which need not speak ZooKeeper's protocol: for cfg.WarmUp,
// and then for the measured cfg.Duration. A client works until its ctx ends, and calls done, from
// one goroutine, for each operation. Its error ends them all. It ignores the fields of cfg that are
// about workloads.
func Measure(ctx context.Context, cfg Config, client func(ctx context.Context, n int,
	done func(took time.Duration)) error) (*Result, error) {
	cfg.setDefaults(workload{})
	r := newRun(cfg)
	if err := r.measure(ctx, client); err != nil {
		return nil, err
	}
	return r.result(), nil
}

func (r *run) measure(ctx context.Context, client func(ctx context.Context, n int,
	done func(took time.Duration)) error) error {
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var clients sync.WaitGroup
	for n := range r.Clients {
		clients.Go(func() {
			var h Histogram
			err := client(working, n, func(took time.Duration) {
				r.ops.Add(1)
				if r.measuring.Load() {
					h.Add(took)
				}
			})
			if err != nil {
				stop(err) // does nothing when working has ended
			}
			r.merge(&h)
		})
	}
	r.enter("warm up")
	pause(working, r.WarmUp)
	mark := r.startUsage()
	r.enter("measure")
	r.measuring.Store(true)
	pause(working, r.Duration)
	r.measuring.Store(false)
	r.addUsage(mark)
	stop(context.Canceled)
	clients.Wait()
	if err := context.Cause(working); !errors.Is(err, context.Canceled) && ctx.Err() == nil {
		return err
	}
	return nil
}

// work runs a client on one connection, until ctx ends or the connection breaks. It calls done for
// each operation.
type work func(ctx context.Context, c *conn, done func(took time.Duration)) error

// clients measures clients that work on one connection after the other.
func (r *run) clients(ctx context.Context, client func(n int) work) error {
	return r.measure(ctx, func(ctx context.Context, n int, done func(time.Duration)) error {
		return r.again(ctx, n, done, client(n))
	})
}

// again has a client work on one connection after the other until ctx ends.
func (r *run) again(ctx context.Context, n int, done func(time.Duration), work work) error {
	for tries := 0; ctx.Err() == nil; tries++ {
		var c *conn
		var err error
		if tries == 0 {
			c, err = r.dial(ctx, n)
		} else {
			c, err = dial(ctx, r.route(), r.server(n+tries), r.Session, patience)
		}
		if err != nil {
			if tries == 0 && ctx.Err() == nil {
				return err
			}
			r.fail(err)
			pause(ctx, 20*time.Millisecond)
			continue
		}
		cut := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
		err = work(ctx, c, done)
		cut()
		if ctx.Err() != nil {
			c.leave()
		} else if err != nil {
			r.fail(err)
		}
		_ = c.Close()
	}
	return nil
}

// opened counts the opening of a session.
func (r *run) opened(took time.Duration) {
	var h Histogram
	h.Add(took)
	r.merge(&h)
	r.ops.Add(1)
}

func (r *run) result() *Result {
	res := &Result{
		Workload: r.Workload, Servers: slices.Clone(r.Servers), Clients: r.Clients, InFlight: r.InFlight, Size: r.Size,
		Seconds: r.elapsed.Seconds(), Ops: r.latency.Count(), Latency: latency(&r.latency), Errors: r.errors,
		Figures: r.figures,
	}
	if r.elapsed > 0 {
		res.PerSecond = float64(res.Ops) / res.Seconds
	}
	if res.Ops > 0 {
		res.ServerCPU = float64(r.serverCPU.Microseconds()) / float64(res.Ops)
		res.ClientCPU = float64(r.clientCPU.Microseconds()) / float64(res.Ops)
	}
	if _, each, known := r.usage(); known {
		res.Resident = each
	}
	if r.open != nil {
		r.open.finish(res)
	}
	return res
}
