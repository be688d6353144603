package bench

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/zkconn"
	"lockkeeper/wire"
)

// A schedule has its rate, spread over the clients, with gaps of a Poisson process, and is the same
// each time.
func TestSchedule(t *testing.T) {
	const n, perSecond, clients = 100_000, 5000, 8
	s, again := newSchedule(perSecond, clients), newSchedule(perSecond, clients)
	var each [clients]int
	var last time.Duration
	long := 0 // gaps above the average one
	for range n {
		at, client := s.next()
		if at2, client2 := again.next(); at2 != at || client2 != client {
			t.Fatalf("%v, client %d, then %v, client %d", at, client, at2, client2)
		}
		if at < last {
			t.Fatalf("%v after %v", at, last)
		}
		if at-last > time.Second/perSecond {
			long++
		}
		last = at
		each[client]++
	}
	if want := time.Duration(n) * time.Second / perSecond; last < want*98/100 || last > want*102/100 {
		t.Errorf("%d requests take %v, want about %v", n, last, want)
	}
	if share := float64(long) / n; math.Abs(share-1/math.E) > 0.01 {
		t.Errorf("%.3f of the gaps are longer than the average, want 1/e", share)
	}
	for i, count := range each {
		if count < n/clients*9/10 || count > n/clients*11/10 {
			t.Errorf("client %d sends %d of %d", i, count, n)
		}
	}
}

// openRun is an open loop in a bubble: a second of warm-up, two of measurement.
func openRun(rate float64, clients int) *run {
	r := newRun(Config{Workload: "write", Rate: rate, Clients: clients, WarmUp: time.Second, Duration: 2 * time.Second,
		Session: 30 * time.Second, Size: 10})
	r.open.sleep = time.Sleep
	return r
}

// While a server stalls, requests are sent on time, and their latency is from that time: after a
// stall of half a second in two, an eighth of all took more than a quarter of a second. A closed
// loop would have measured one such request.
func TestLatencyUnderAStalledServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = 1000
		const took, stall = time.Millisecond, 500 * time.Millisecond
		r := openRun(rate, 4)
		start := time.Now()
		err := r.open.measureOpen(t.Context(), func(context.Context, int) error { return nil },
			func(_ context.Context, _ int, q request) {
				go func() {
					time.Sleep(took)
					// The server stands still from 2 s on.
					if now := time.Since(start); now > 2*time.Second && now < 2*time.Second+stall {
						time.Sleep(2*time.Second + stall - now)
					}
					q.done(nil)
				}()
			})
		if err != nil {
			t.Fatal(err)
		}
		res := r.result()
		if res.Ops < 2*rate*9/10 || res.Ops > 2*rate*11/10 || res.PerSecond < rate*9/10 || res.PerSecond > rate*11/10 {
			t.Errorf("%d requests, %.0f/s; want about %d, %d/s", res.Ops, res.PerSecond, 2*rate, rate)
		}
		if l := res.Latency; l.P50 < 0.99 || l.P50 > 1.01 || l.P90 < 250 || l.P90 > 350 || l.Max < 490 || l.Max > 502 {
			t.Errorf("latency %+v; want a p50 of 1 ms, a p90 of 300 ms, at most 501 ms", l)
		}
		if res.Behind || res.Rate != rate || len(res.Errors) != 0 || res.Figures["requests without a reply"] != 0 {
			t.Errorf("%+v", res)
		}
	})
}

// Requests without a reply at the end count with their age; those with an error do not.
func TestRequestsWithoutAReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = 1000
		r := openRun(rate, 1)
		start := time.Now()
		refused := errors.New("refused")
		n := 0
		err := r.open.measureOpen(t.Context(), func(context.Context, int) error { return nil },
			func(ctx context.Context, _ int, q request) {
				switch n++; {
				case n%10 == 0:
					q.done(refused)
				case time.Since(start) < 2*time.Second:
					q.done(nil)
				default: // never in the second half of the measurement
					go func() {
						<-ctx.Done()
						q.done(errUnanswered)
					}()
				}
			})
		if err != nil {
			t.Fatal(err)
		}
		res := r.result()
		about := func(name string, got, want float64) {
			t.Helper()
			if got < want*0.9 || got > want*1.1 {
				t.Errorf("%s: %.0f, want about %.0f", name, got, want)
			}
		}
		about("without a reply", res.Figures["requests without a reply"], 0.9*rate)
		about("errors", float64(res.Errors["refused"]), 0.2*rate)
		about("replies a second", res.PerSecond, 0.45*rate)
		about("longest", res.Latency.Max, 2000) // sent at 2 s; the end is a second after 3 s
		about("p90", res.Latency.P90, 1800)
	})
}

// A generator that is late says so, and its delay belongs to the latency.
func TestGeneratorFallsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRun(100, 1)
		r.open.sleep = func(d time.Duration) { time.Sleep(d + 5*time.Millisecond) }
		err := r.open.measureOpen(t.Context(), func(context.Context, int) error { return nil },
			func(_ context.Context, _ int, q request) { q.done(nil) })
		if err != nil {
			t.Fatal(err)
		}
		res := r.result()
		if !res.Behind || res.Latency.P50 < 4 || res.Latency.P50 > 6 || res.Figures["generator late, p99 ms"] < 4 {
			t.Errorf("%+v, want about 5 ms late", res)
		}
	})
}

// A user's interrupt ends the run with the measurements so far.
func TestOpenLoopEndsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		r := openRun(100, 1)
		if err := r.open.measureOpen(ctx, func(context.Context, int) error { return nil },
			func(_ context.Context, _ int, q request) { q.done(nil) }); err != nil {
			t.Fatal(err)
		}
		if res := r.result(); res.PerSecond < 70 || res.PerSecond > 130 || res.Seconds != 1 {
			t.Errorf("%+v, want about 100/s in 1 s", res)
		}
	})
}

// Other protocols use the same loop, with its own clock: requests come at their rate, and a call
// that ends with ctx is one without a reply.
func TestMeasureRate(t *testing.T) {
	const rate = 2000
	var sent atomic.Int64
	cfg := Config{Clients: 3, Rate: rate, WarmUp: 50 * time.Millisecond, Duration: 200 * time.Millisecond}
	res, err := MeasureRate(t.Context(), cfg, func(ctx context.Context, n int, done func(error)) {
		if n < 0 || n >= cfg.Clients {
			t.Errorf("client %d", n)
		}
		if sent.Add(1)%2 == 0 {
			done(nil)
			return
		}
		go func() {
			<-ctx.Done()
			done(ctx.Err())
		}()
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := float64(sent.Load()); n < 0.8*rate/4 || n > 1.2*rate/4 {
		t.Errorf("%v requests in a quarter of a second, want about %d", n, rate/4)
	}
	if n := res.Figures["requests without a reply"]; len(res.Errors) > 0 || n < 0.35*float64(res.Ops) ||
		n > 0.65*float64(res.Ops) {
		t.Errorf("%v of %d requests without a reply, want half; errors %v", n, res.Ops, res.Errors)
	}
}

// heldServer is the server of a pipe. It reads all requests, answers pings at once, and each other
// request for a value in replies.
type heldServer struct {
	net.Conn
	replies chan struct{}
	ended   sync.WaitGroup

	mu       sync.Mutex
	requests []wire.Op // without pings
	pings    int
}

// pipe connects a line's connection to a heldServer.
func pipe() (*conn, *heldServer) {
	ours, theirs := net.Pipe()
	s := &heldServer{Conn: theirs, replies: make(chan struct{}, 1000)}
	unanswered := make(chan wire.Xid, 1000)
	s.ended.Go(func() {
		defer close(unanswered)
		for {
			frame, err := wire.ReadFrame(s, nil, zkconn.MaxFrameBytes)
			if err != nil {
				return
			}
			req, err := wire.DecodeRequest(frame)
			if err != nil {
				return
			}
			s.mu.Lock()
			if req.Op == wire.OpPing {
				s.pings++
				_, _ = s.Write(wire.AppendReply(nil, wire.ReplyHeader{Xid: wire.XidPing}, nil))
			} else {
				s.requests = append(s.requests, req.Op)
				unanswered <- req.Xid
			}
			s.mu.Unlock()
		}
	})
	s.ended.Go(func() {
		for xid := range unanswered {
			if _, more := <-s.replies; more {
				_, _ = s.Write(wire.AppendReply(nil, wire.ReplyHeader{Xid: xid}, nil))
			}
		}
	})
	return &conn{Conn: zkconn.New(ours), timeout: 9 * time.Second}, s
}

// stop closes the server's side.
func (s *heldServer) stop() {
	_ = s.Close()
	close(s.replies)
	s.ended.Wait()
}

// A line sends requests in order, at most a window of them without a reply, and pings when it is
// idle. When the connection breaks, the requests in flight fail, and the others go to the next one.
func TestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRun(1, 1)
		r.open.start = time.Now()
		r.WarmUp = 0
		o := &line{pipeline: &pipeline{rng: rand.New(rand.NewPCG(1, 1)), data: make([]byte, 10)}}
		send := func(n int) {
			for range n {
				r.open.pending.Add(1)
				o.send(request{r.open, 0})
			}
			synctest.Wait()
		}
		see := func(when string, s *heldServer, requests, inFlight, waiting int, replies int64) {
			t.Helper()
			synctest.Wait()
			if len(s.requests) != requests || len(o.inFlight) != inFlight || len(o.waiting) != waiting ||
				r.ops.Load() != replies {
				t.Errorf("%s: %d requests came, %d in flight, %d wait, %d replies; want %d, %d, %d, %d", when,
					len(s.requests), len(o.inFlight), len(o.waiting), r.ops.Load(), requests, inFlight, waiting, replies)
			}
		}
		send(2) // before there is a connection
		c, server := pipe()
		var working sync.WaitGroup
		working.Go(func() { o.work(t.Context(), c) })
		see("connected", server, 2, 2, 0, 0)
		server.replies <- struct{}{}
		server.replies <- struct{}{}
		see("answered", server, 2, 0, 0, 2)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if server.pings != 3 {
			t.Errorf("%d pings in 10 s, with a session timeout of 9 s", server.pings)
		}
		send(pipelineWindow + 5)
		see("more than a window", server, 2+pipelineWindow, pipelineWindow, 5, 2)
		for range 3 {
			server.replies <- struct{}{}
		}
		see("three answered", server, 5+pipelineWindow, pipelineWindow, 2, 5)
		server.stop()
		working.Wait()
		see("broken", server, 5+pipelineWindow, 0, 2, 5)
		if n := r.errors["connection lost"]; n != pipelineWindow {
			t.Errorf("%d requests failed, want %d: %v", n, pipelineWindow, r.errors)
		}
		_ = c.Close()

		ctx, cancel := context.WithCancel(t.Context())
		c, server = pipe()
		working.Go(func() { o.work(ctx, c) })
		see("connected again", server, 2, 2, 0, 5)
		cancel()
		_ = c.SetReadDeadline(time.Unix(1, 0)) // as again does
		working.Wait()
		_ = c.Close()
		server.stop()
		o.end()
		send(1) // after the end
		r.open.pending.Wait()
		if r.open.unanswered != 3 {
			t.Errorf("%d requests without a reply, want 3", r.open.unanswered)
		}
	})
}
