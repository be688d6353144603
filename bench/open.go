package bench

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"lockkeeper/wire"
)

// drainTime is for how long an open-loop run waits for replies after its last request.
const drainTime = time.Second

// lateP99 is the delay of sending, in the 99th percentile, above which the generator itself is too
// slow for its schedule.
const lateP99 = time.Millisecond

// errUnanswered ends a request that has no reply when the run ends.
var errUnanswered = errors.New("unanswered")

// schedule is the times at which an open-loop load sends requests, and the client of each: a
// Poisson process, as of many users who do not know of each other. Equal rates and numbers of
// clients give equal schedules.
type schedule struct {
	rng     *rand.Rand
	gap     float64 // ns between two requests, on average
	clients int
	at      float64 // ns since the start
}

func newSchedule(perSecond float64, clients int) *schedule {
	return &schedule{rng: rand.New(rand.NewPCG(1, 1)), gap: float64(time.Second) / perSecond, clients: clients}
}

// next is the time of the next request since the start, and its client.
func (s *schedule) next() (at time.Duration, client int) {
	s.at += s.rng.ExpFloat64() * s.gap
	return time.Duration(s.at), s.rng.IntN(s.clients)
}

// openLoop sends requests at the times of a schedule, whether or not the earlier ones have been
// answered. The latency of a request counts from the time in the schedule, so it includes all that
// kept the request from being sent (no coordinated omission). Requests of the warm-up do not count.
// A request without a reply drainTime after the last one counts with its age by then.
type openLoop struct {
	*run
	schedule *schedule
	sleep    func(time.Duration) // may return early
	start    time.Time
	pending  sync.WaitGroup // requests without a reply

	// The run's mu guards these.
	late       Histogram // from the intended time until the request was passed to its connection
	inTime     int       // replies that came during the measurement
	unanswered int
}

func newOpenLoop(r *run) *openLoop {
	return &openLoop{run: r, schedule: newSchedule(r.Rate, r.Clients)}
}

// request is one of an open-loop load.
type request struct {
	loop *openLoop
	at   time.Duration // intended, since the start
}

// done ends the request: with its reply, if err is nil.
func (q request) done(err error) {
	l := q.loop
	defer l.pending.Done()
	now := time.Since(l.start)
	unanswered := errors.Is(err, errUnanswered)
	switch {
	case err == nil:
		l.ops.Add(1)
	case !unanswered:
		if l.counts(q.at) {
			l.fail(err)
		}
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !unanswered && l.counts(now) {
		l.inTime++
	}
	if !l.counts(q.at) {
		return
	}
	if unanswered {
		l.unanswered++
	}
	l.latency.Add(now - q.at)
}

// counts reports whether a time since the start belongs to the measurement.
func (l *openLoop) counts(at time.Duration) bool { return at >= l.WarmUp && at < l.WarmUp+l.Duration }

// measureOpen runs an open-loop load. client keeps connection n until its ctx ends; its error ends
// the run. send passes a request to connection n and does not block; done must be called once for
// each request, with errUnanswered when ctx ends first.
func (l *openLoop) measureOpen(ctx context.Context, client func(ctx context.Context, n int) error,
	send func(ctx context.Context, n int, q request)) error {
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	l.start = time.Now()
	var clients, pacer sync.WaitGroup
	for n := range l.Clients {
		clients.Go(func() {
			if err := client(working, n); err != nil {
				stop(err)
			}
		})
	}
	pacer.Go(func() { l.pace(working, send) })
	l.enter("warm up")
	pause(working, l.WarmUp)
	l.enter("measure")
	mark := l.startUsage()
	pause(working, l.WarmUp+l.Duration-time.Since(l.start))
	l.addUsage(mark)
	pacer.Wait()
	l.enter("drain")
	drained, cancel := context.WithTimeout(working, drainTime)
	go func() {
		l.pending.Wait()
		cancel()
	}()
	<-drained.Done()
	stop(context.Canceled)
	clients.Wait()
	l.pending.Wait()
	if err := context.Cause(working); !errors.Is(err, context.Canceled) && ctx.Err() == nil {
		return err
	}
	return nil
}

// pace sends each request when it is due, or at once when it is late.
func (l *openLoop) pace(ctx context.Context, send func(ctx context.Context, n int, q request)) {
	const slice = 20 * time.Millisecond // so that it sees the end of ctx
	sleep := l.sleep
	if sleep == nil {
		sleep = preciseSleep()
	}
	for {
		at, n := l.schedule.next()
		if at >= l.WarmUp+l.Duration {
			return
		}
		now := time.Since(l.start)
		for ; now < at && ctx.Err() == nil; now = time.Since(l.start) {
			sleep(min(at-now, slice))
		}
		if ctx.Err() != nil {
			return
		}
		if l.counts(at) {
			l.mu.Lock()
			l.late.Add(now - at)
			l.mu.Unlock()
		}
		l.pending.Add(1)
		send(ctx, n, request{l, at})
	}
}

// finish completes a result. The throughput is the number of replies that came during the
// measurement.
func (l *openLoop) finish(r *Result) {
	r.Rate, r.PerSecond = l.Rate, 0
	if r.Seconds > 0 {
		r.PerSecond = float64(l.inTime) / r.Seconds
	}
	late := l.late.Quantile(0.99)
	r.Behind = late > lateP99
	r.Figures["requests without a reply"] = float64(l.unanswered)
	r.Figures["generator late, p99 ms"] = ms(late)
	r.Figures["generator late, longest ms"] = ms(l.late.Max())
}

// MeasureRate is Measure as an open loop: it has cfg.Rate requests sent a second, spread over
// cfg.Clients connections, at times that do not depend on the replies. send sends a request on
// connection n without blocking, and has done called once, with nil for a reply and an error
// otherwise, also if ctx ends.
func MeasureRate(ctx context.Context, cfg Config,
	send func(ctx context.Context, n int, done func(error))) (*Result, error) {
	cfg.setDefaults(workload{})
	r := newRun(cfg)
	err := r.open.measureOpen(ctx, func(context.Context, int) error { return nil },
		func(ctx context.Context, n int, q request) {
			send(ctx, n, func(err error) {
				if err != nil && ctx.Err() != nil {
					err = errUnanswered
				}
				q.done(err)
			})
		})
	if err != nil {
		return nil, err
	}
	return r.result(), nil
}

// paced measures clients of write, read or mixed at a rate.
func (r *run) paced(ctx context.Context, client func(n int) *pipeline) error {
	lines := make([]*line, r.Clients)
	for n := range lines {
		lines[n] = &line{pipeline: client(n)}
	}
	return r.open.measureOpen(ctx, func(ctx context.Context, n int) error {
		defer lines[n].end()
		return r.again(ctx, n, nil, func(ctx context.Context, c *conn, _ func(time.Duration)) error {
			lines[n].work(ctx, c)
			return nil
		})
	}, func(_ context.Context, n int, q request) { lines[n].send(q) })
}

// line is a client of an open-loop load, on one connection after the other. At most pipelineWindow
// of its requests are in flight, so that a write does not block the generator; the others wait
// here.
type line struct {
	*pipeline

	// Lock: mu also guards the pipeline and the output of conn; only work reads from conn.
	mu       sync.Mutex
	conn     *conn // nil while there is none
	waiting  []request
	inFlight []request // the oldest first
	ended    bool
}

// send sends a request as soon as the window allows.
func (o *line) send(q request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		q.done(errUnanswered)
		return
	}
	o.waiting = append(o.waiting, q)
	o.flushLocked()
}

// flushLocked sends waiting requests. A broken connection shows when work reads.
func (o *line) flushLocked() {
	n := min(len(o.waiting), pipelineWindow-len(o.inFlight))
	if o.conn == nil || n <= 0 {
		return
	}
	for range n {
		o.put(o.conn)
	}
	o.inFlight = append(o.inFlight, o.waiting[:n]...)
	o.waiting = o.waiting[n:]
	_ = o.conn.SetWriteDeadline(time.Now().Add(patience))
	_ = o.conn.flush()
}

// work reads the replies of one connection until ctx ends or the connection breaks. The requests in
// flight end with the connection.
func (o *line) work(ctx context.Context, c *conn) {
	o.mu.Lock()
	o.conn = c
	o.flushLocked()
	o.mu.Unlock()
	err := o.read(ctx, c)
	if ctx.Err() != nil {
		err = errUnanswered
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.conn = nil
	for _, q := range o.inFlight {
		q.done(err)
	}
	o.inFlight = nil
}

func (o *line) read(ctx context.Context, c *conn) error {
	for heard := time.Now(); ; heard = time.Now() {
		if err := o.await(ctx, c, heard); err != nil {
			return err
		}
		h, _, err := c.read()
		if err != nil {
			return err
		}
		if h.Xid == wire.XidPing {
			continue
		}
		if h.Err != wire.CodeOK {
			err = h.Err
		}
		o.mu.Lock()
		q := o.inFlight[0]
		o.inFlight = o.inFlight[1:]
		o.flushLocked()
		o.mu.Unlock()
		q.done(err)
	}
}

// await returns when something has come. It pings after a third of the session timeout without, and
// gives up when the server has been silent since heard for as long as patience allows.
func (o *line) await(ctx context.Context, c *conn, heard time.Time) error {
	for c.R.Buffered() == 0 {
		_ = c.SetReadDeadline(time.Now().Add(c.timeout / 3))
		if ctx.Err() != nil { // looked at last: the end of ctx sets the deadline, too
			return ctx.Err()
		}
		_, err := c.R.Peek(1)
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(heard) > patience {
			return err
		}
		o.mu.Lock()
		_ = c.SetWriteDeadline(time.Now().Add(patience))
		c.put(wire.OpPing, nil)
		err = c.flush()
		o.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// end ends the requests that are left.
func (o *line) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	for _, q := range o.waiting {
		q.done(errUnanswered)
	}
	o.waiting = nil
}
