package attack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// others are attacks on the HTTP port, and troubles of a member without anybody's request.
func others() []Attack {
	return []Attack{
		{
			Name: "http-slow", Port: HTTPPort,
			Sends: "100 requests that come one byte at a time, while somebody asks /fence",
			May:   []string{held, closed, refused}, Least: 100, LeastBytes: 1000,
			play: slowRequests,
		},
		{
			Name: "http-requests", Port: HTTPPort,
			Sends: "requests as fast as they are taken, 50 to a connection, whose answers nobody reads, while somebody asks /fence",
			May:   []string{ok, closed, refused}, Least: 100, LeastBytes: 100_000,
			play: manyRequests,
		},
		{
			Name: "stopped-member", Port: Process, Stops: true,
			Sends: "SIGSTOP to one member, while six programs run `lockkeeper lock -session 4s` with all addresses",
			May:   []string{ok}, Least: 6,
			play: stoppedMember,
		},
	}
}

// fencePatience bounds the latency of /fence, at the 99th percentile.
const fencePatience = 500 * time.Millisecond

// slowRequests holds connections with half of a header or of a body, and asks /fence from another
// address meanwhile.
func slowRequests(ctx context.Context, p *Play) error {
	halves := []string{
		"GET /fence?lock=/a&token=1 HTTP/1.1\r\nHost: a\r\nX-Slow: ",
		"POST /leader HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n",
		"G",
	}
	conns := p.openMany(100, func(i int) (net.Conn, error) {
		c, err := p.dial(p.attacked.HTTPAddr, p.host(0))
		if err == nil {
			_, _ = io.WriteString(c, halves[i%len(halves)])
		}
		return c, err
	})
	drip := func() {
		for _, c := range conns {
			_ = c.SetWriteDeadline(time.Now().Add(time.Millisecond))
			_, _ = io.WriteString(c, "x")
		}
	}
	err := p.askFence(ctx, drip)
	p.hold(ctx, conns)
	return err
}

// manyRequests sends whole requests and takes no answer, and asks /fence from another address
// meanwhile.
func manyRequests(ctx context.Context, p *Play) error {
	requests := strings.Repeat("GET /fence?lock=/attack-none&token=1 HTTP/1.1\r\nHost: a\r\n\r\n", 50)
	flooding, end := context.WithCancel(context.Background())
	flooded := make(chan error, 1)
	go func() {
		flooded <- each(20, func(int) error {
			return rounds(flooding, func() error {
				c, err := p.dial(p.attacked.HTTPAddr, p.host(0))
				if err != nil {
					p.saw(refused)
					return nil
				}
				_ = c.SetWriteDeadline(time.Now().Add(time.Second))
				if _, err = io.WriteString(c, requests); err != nil {
					p.saw(closed)
				} else {
					p.saw(ok)
				}
				return c.Close()
			})
		})
	}()
	err := p.askFence(ctx, func() {})
	end()
	return errors.Join(err, <-flooded)
}

// askFence asks /fence every 20 ms until ctx ends, 20 times at least, and calls before each time.
// The error is a harm.
func (p *Play) askFence(ctx context.Context, before func()) error {
	var took []time.Duration
	var failed error
	for len(took) < 20 || ctx.Err() == nil {
		before()
		began := time.Now()
		if err := p.fence(); err != nil {
			failed = errors.Join(failed, err)
		}
		took = append(took, time.Since(began))
		time.Sleep(20 * time.Millisecond)
	}
	slices.Sort(took)
	if p99 := took[len(took)*99/100]; failed != nil || p99 > fencePatience {
		return &harm{fmt.Sprintf("/fence took %d ms (p99 of %d)", p99.Milliseconds(), len(took)), failed}
	}
	return nil
}

// A harm is the harm of an attack to somebody whom only the attack itself has watched.
type harm struct {
	what  string
	cause error
}

// Error implements error.
func (h *harm) Error() string {
	if h.cause != nil {
		return fmt.Sprintf("%s: %v", h.what, h.cause)
	}
	return h.what
}

// fence asks the HTTP port about a lock that nobody holds.
func (p *Play) fence() error {
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + p.attacked.HTTPAddr + "/fence?lock=/attack-none&token=1")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusConflict {
		return fmt.Errorf("GET /fence: %s", resp.Status)
	}
	return nil
}

const (
	// lockers is the number of programs that come while a member is stopped, lockerSession their
	// session timeout, and lockerPatience how long each may take: the member that hangs is found
	// out twice (handshake and request) within a third of the session's timeout each, and starting
	// the program and taking the lock takes its time.
	lockers        = 6
	lockerSession  = 4 * time.Second
	lockerPatience = lockerSession
)

// stoppedMember stops the member, has programs take locks, and lets it go on.
func stoppedMember(ctx context.Context, p *Play) error {
	if p.tool == nil {
		return errors.New("there is no lockkeeper program")
	}
	if err := p.attacked.Pause(ctx); err != nil {
		return err
	}
	took := make([]time.Duration, lockers)
	err := each(lockers, func(i int) error {
		began := time.Now()
		// Beyond 30 s it makes no difference any more.
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		cmd := p.tool("lock", "-servers", p.cluster.Servers(), "-session", lockerSession.String(),
			p.path(fmt.Sprint("lock", i)), "true")
		out, err := exec.CommandContext(bounded, cmd.Path, cmd.Args[1:]...).CombinedOutput()
		took[i] = time.Since(began)
		if err != nil {
			return fmt.Errorf("lockkeeper lock: %w: %s", err, out)
		}
		p.saw(ok)
		return nil
	})
	err = errors.Join(err, p.attacked.Resume())
	if slowest := slices.Max(took); err != nil || slowest > lockerPatience {
		return &harm{fmt.Sprintf("the slowest of %d programs took %.1f s to take its lock", lockers, slowest.Seconds()),
			err}
	}
	return nil
}
