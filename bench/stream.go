package bench

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"lockkeeper/wire"
)

// Request makes request number i of a client.
type Request func(i int) (wire.Op, wire.Record)

// StreamConfig describes a Stream.
type StreamConfig struct {
	// Server is the host:port to which it connects.
	Server string
	// Every is the time from one intended moment to the next; 0: each request follows the reply to
	// the one before.
	Every time.Duration
	// Request makes the requests.
	Request Request
	// Session is the session timeout requested; 0 means 30 s.
	Session time.Duration
}

// Stream is a client that has one request in flight until it is closed. The time of a request
// counts from its intended moment, so a pause shows in all requests that were due in it. A request
// that gets no answer is sent again over a new connection, and the time for all of that is its own.
type Stream struct {
	cfg   StreamConfig
	stop  context.CancelFunc
	ask   chan chan taken // of Take
	ended chan struct{}
	err   error // the refusal that ended it; read after ended
}

// taken are the measurements since the last Take.
type taken struct {
	latency Histogram
	lost    int // connections
}

// StartStream connects, and begins to send. It ends with ctx at the latest. Errors: the server
// gives no session.
func StartStream(ctx context.Context, cfg StreamConfig) (*Stream, error) {
	cfg.Session = cmp.Or(cfg.Session, 30*time.Second)
	c, err := dial(ctx, route{}, cfg.Server, cfg.Session, patience)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	s := &Stream{cfg: cfg, stop: stop, ask: make(chan chan taken), ended: make(chan struct{})}
	go s.send(ctx, c)
	return s, nil
}

// Take returns the times since the last Take, and the number of connections that broke. It waits
// for the reply to the request in flight. Errors: the server has refused a request, or the Stream
// was closed.
func (s *Stream) Take() (latency Histogram, lost int, err error) {
	reply := make(chan taken, 1)
	select {
	case s.ask <- reply:
		t := <-reply
		return t.latency, t.lost, nil
	case <-s.ended:
		return latency, 0, fmt.Errorf("bench: a stream has ended: %w", cmp.Or(s.err, context.Canceled))
	}
}

// Close ends it, after the reply to the request in flight.
func (s *Stream) Close() {
	s.stop()
	<-s.ended
}

func (s *Stream) send(ctx context.Context, c *conn) {
	defer close(s.ended)
	defer func() {
		if c != nil {
			c.end()
		}
	}()
	var t taken
	due := time.Now()
	for i := 0; s.await(ctx, due, &t); i++ {
		if s.cfg.Every == 0 {
			due = time.Now()
		}
		if c, s.err = s.one(ctx, c, i, &t); s.err != nil || ctx.Err() != nil {
			return
		}
		t.latency.Add(time.Since(due))
		due = due.Add(s.cfg.Every)
	}
}

// await waits until a request is due, and answers Take meanwhile; false when ctx has ended.
func (s *Stream) await(ctx context.Context, due time.Time, t *taken) bool {
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case reply := <-s.ask:
			reply <- *t
			*t = taken{}
		case <-timer.C:
			return true
		case <-ctx.Done():
		}
	}
	return false
}

// one sends a request until it is answered, over as many connections as that takes. It returns the
// newest one. Errors: the server refuses the request.
func (s *Stream) one(ctx context.Context, c *conn, i int, t *taken) (*conn, error) {
	for {
		if c != nil {
			c.put(s.cfg.Request(i))
			err := c.flush()
			var h wire.ReplyHeader
			if err == nil {
				h, _, err = c.next()
			}
			if err == nil && h.Err != wire.CodeOK {
				return c, fmt.Errorf("request %d: %w", i, h.Err)
			}
			if err == nil {
				return c, nil
			}
			_ = c.Close()
			t.lost++
		}
		var err error
		if c, err = dial(ctx, route{}, s.cfg.Server, s.cfg.Session, time.Second); err != nil {
			c = nil
			pause(ctx, time.Millisecond)
		}
		if ctx.Err() != nil {
			return c, nil
		}
	}
}

// Send sends n requests over one connection, 256 in flight, and returns when all are answered. A
// code other than OK is an error.
func Send(ctx context.Context, server string, n int, request Request) error {
	c, err := dial(ctx, route{}, server, 30*time.Second, patience)
	if err != nil {
		return err
	}
	defer c.end()
	return c.pipeline(ctx, n, request, func(i int, code wire.Code) error {
		if code != wire.CodeOK {
			return fmt.Errorf("bench: request %d: %w", i, code)
		}
		return nil
	})
}
