package bench

import (
	"cmp"
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
	r.Rounds = cmp.Or(r.Rounds, herdRounds)
	if err := r.makeDirs(ctx, "herd", 1); err != nil {
		return err
	}
	path := r.dir + "/herd0"
	writer, err := r.dial(ctx, 0)
	if err != nil {
		return err
	}
	defer writer.end()
	watchers, leave, err := r.dialAll(ctx, func(time.Duration) {})
	defer leave()
	if err != nil {
		return err
	}
	r.enter("measure")
	var last Histogram
	for range r.Rounds {
		slowest, err := r.herdRound(ctx, path, writer, watchers)
		if err != nil {
			return err
		}
		last.Add(slowest)
	}
	r.figures["last of all, p50 ms"], r.figures["last of all, max ms"] = ms(last.Quantile(0.5)), ms(last.Max())
	return nil
}

// herdRound is one round: all clients watch, one writes, all get the event.
func (r *run) herdRound(ctx context.Context, path string, writer *conn,
	watchers []*conn) (slowest time.Duration, err error) {
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
	if err := writer.set(path, r.Size); err != nil {
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
	r.merge(&h)
	r.ops.Add(int64(len(heard)))
	return h.Max(), nil
}
