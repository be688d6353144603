package bench

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// recorder gathers what clients measure.
type recorder struct {
	measuring atomic.Bool

	mu        sync.Mutex
	latency   Histogram
	errors    map[string]int
	elapsed   time.Duration
	serverCPU time.Duration
	clientCPU time.Duration
}

func newRecorder() *recorder { return &recorder{errors: map[string]int{}} }

// merge adds what a client has counted.
func (m *recorder) merge(h *Histogram) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.latency.Merge(h)
}

// fail counts an error.
func (m *recorder) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.errors[brief(err)]++
}

// brief formats an error without what differs each time.
func brief(err error) string {
	var op *net.OpError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
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

// measure runs all clients side by side: for the warm-up, and then for as long as the run is to
// last. Each calls its work again and again until stop says so.
func (r *run) measure(ctx context.Context, client func(ctx context.Context, n int) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var clients sync.WaitGroup
	failed := make(chan error, r.Clients)
	for n := range r.Clients {
		clients.Go(func() {
			if err := client(ctx, n); err != nil && ctx.Err() == nil {
				failed <- err
				stop()
			}
		})
	}
	r.enter("warm up")
	pause(ctx, r.WarmUp)
	m := r.recorder
	before, _, known := r.usage()
	own := ownCPU()
	began := time.Now()
	r.enter("measure")
	m.measuring.Store(true)
	pause(ctx, r.Duration)
	m.measuring.Store(false)
	m.elapsed = time.Since(began)
	m.clientCPU = ownCPU() - own
	if after, _, still := r.usage(); known && still {
		m.serverCPU = after.CPU - before.CPU
	}
	stop()
	clients.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
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
