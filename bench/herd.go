package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"lockkeeper/wire"
)

const herdRounds = 20

// herd is many clients that watch one node. An operation is an event: its latency is from when the
// write is sent until the client has the event.
func herd(ctx context.Context, r *run) error {
	if r.Rounds == 0 {
		r.Rounds = herdRounds
	}
	if err := r.makeDirs(ctx, "herd", 1); err != nil {
		return err
	}
	path := r.dir + "/herd0"
	writer, err := r.dial(ctx, 0)
	if err != nil {
		return err
	}
	defer writer.end()
	watchers := make([]*conn, r.Clients)
	err = r.each(r.Clients, func(n int) (err error) {
		watchers[n], err = r.dial(ctx, n)
		return err
	})
	defer func() {
		for _, c := range watchers {
			if c != nil {
				_ = c.Close()
			}
		}
	}()
	if err != nil {
		return err
	}
	r.enter("measure")
	var last Histogram
	for range r.Rounds {
		slowest, err := r.stampede(ctx, path, writer, watchers)
		if err != nil {
			return err
		}
		last.Add(slowest)
	}
	r.figures["last of all, p50 ms"], r.figures["last of all, max ms"] = ms(last.Quantile(0.5)), ms(last.Max())
	for _, c := range watchers {
		c.put(wire.OpCloseSession, nil)
		_ = c.flush()
	}
	return nil
}

// each calls f for 0 to n-1, several side by side, until one fails. The error is that of the first.
func (r *run) each(n int, f func(i int) error) error {
	const atOnce = 32
	slots := make(chan struct{}, atOnce)
	failed := make(chan error, 1)
	var wg sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		if len(failed) > 0 {
			break
		}
		wg.Go(func() {
			if err := f(i); err != nil {
				select {
				case failed <- err:
				default:
				}
			}
			<-slots
		})
	}
	wg.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// stampede is one round: everybody watches, one writes, everybody hears of it.
func (r *run) stampede(ctx context.Context, path string, writer *conn, watchers []*conn) (slowest time.Duration, err error) {
	err = r.each(len(watchers), func(n int) error {
		_, err := watchers[n].call(wire.OpGetData, &wire.PathWatchRequest{Path: path, Watch: true})
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("watch: %w", err)
	}
	heard := make([]time.Time, len(watchers))
	errs := make([]error, len(watchers))
	var wg sync.WaitGroup
	var ready sync.WaitGroup
	ready.Add(len(watchers))
	for n, c := range watchers {
		wg.Go(func() {
			ready.Done()
			_, errs[n] = c.event(ctx)
			heard[n] = time.Now()
		})
	}
	ready.Wait()
	pause(ctx, 50*time.Millisecond) // all of them wait for their sockets now
	mark := r.startUsage()
	if _, err := writer.call(wire.OpSetData, &wire.SetDataRequest{Path: path, Data: make([]byte, r.Size), Version: -1}); err != nil {
		return 0, fmt.Errorf("write: %w", err)
	}
	wg.Wait()
	r.addUsage(mark)
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	var h Histogram
	for _, at := range heard {
		h.Add(at.Sub(mark.at))
	}
	r.recorder.merge(&h)
	r.ops.Add(int64(len(heard)))
	return h.Max(), nil
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
	return usageMark{u.CPU, ownCPU(), known, time.Now()}
}

// addUsage adds what has passed since mark to what was measured.
func (r *run) addUsage(mark usageMark) {
	m := r.recorder
	m.elapsed += time.Since(mark.at)
	m.clientCPU += ownCPU() - mark.own
	if u, _, known := r.usage(); known && mark.known {
		m.serverCPU += u.CPU - mark.servers
	}
}
