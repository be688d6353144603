package attack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/wire"
)

// The outcomes that an attacker sees, beside the names of the protocol's codes.
const (
	ok      = "Ok"
	closed  = "closed"  // the connection was ended, after it had been taken
	refused = "refused" // the connection was not taken
	silence = "silence" // no answer came for patience
	held    = "held"    // the connection was kept to the end, as a client's is that is slow
)

const (
	// patience is how long an attacker waits for an answer.
	patience = 10 * time.Second
)

// A Play is one attack under way. Its methods may be called from several goroutines.
type Play struct {
	cluster  *jepsen.Cluster
	attacked *jepsen.Member
	leader   *jepsen.Member
	number   int // of the play, in the order of all
	seed     uint64
	// tool is lockkeeper's command line program.
	tool func(args ...string) *exec.Cmd

	// version, disk, of the attacked member, other, the disk of the member as which the attacker
	// comes, and clusterID are the fields of a preface on the peer port; see learnPeerPort.
	version                byte
	disk, other, clusterID uint64

	mu        sync.Mutex
	seen      map[string]int
	sentBytes int64
}

// saw notes an outcome.
func (p *Play) saw(outcome string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[outcome]++
}

// sent notes bytes that the member's host has taken.
func (p *Play) sent(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sentBytes += int64(n)
}

// rng is the randomness of one goroutine of the attack.
func (p *Play) rng(goroutine int) *rand.Rand {
	return rand.New(rand.NewPCG(p.seed, uint64(goroutine)))
}

// noise is n random bytes.
func noise(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// host is an address of the attackers', the n-th of this play. No two plays share one, since the
// connections of one may count for a moment longer. The members and the lock users are at
// 127.0.0.1.
func (p *Play) host(n int) string { return fmt.Sprintf("127.%d.%d.%d", 1+p.number, n/250, 1+n%250) }

// path is the path of a node for this play.
func (p *Play) path(name string) string { return fmt.Sprintf("/attack%d-%s", p.number, name) }

// dial connects to a port of the attacked member from an address. It counts the sent bytes.
func (p *Play) dial(addr, from string) (net.Conn, error) {
	d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("attack: %w", err)
	}
	return &countedConn{Conn: c, play: p}, nil
}

// countedConn counts the sent bytes.
type countedConn struct {
	net.Conn
	play *Play
}

// Write implements net.Conn.
func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.play.sent(n)
	return n, err
}

// outcome is the name of an answer to a request, or of its absence.
func outcome(err error) string {
	var code wire.Code
	switch {
	case err == nil:
		return ok
	case errors.As(err, &code):
		return code.Error()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return silence
	}
	return closed
}

// isEnd says whether an error is the end of a connection.
func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE)
}

// hold keeps connections until ctx ends, and notes which of them the member has kept: it has sent
// nothing that ends them.
func (p *Play) hold(ctx context.Context, conns []net.Conn) {
	<-ctx.Done()
	for _, c := range conns {
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
		_, err := io.Copy(io.Discard, c)
		if err == nil || isEnd(err) {
			p.saw(closed)
		} else {
			p.saw(held)
		}
		_ = c.Close()
	}
}

// each runs f side by side, n times, as attackers, and returns the errors.
func each(n int, f func(i int) error) error {
	errs := make([]error, n)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			lowerPriority()
			errs[i] = f(i)
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// rounds calls round until ctx ends, and at least once.
func rounds(ctx context.Context, round func() error) error {
	for {
		if err := round(); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// openMany opens n connections, and notes those that are refused.
func (p *Play) openMany(n int, open func(i int) (net.Conn, error)) (conns []net.Conn) {
	for i := range n {
		if c, err := open(i); err != nil {
			p.saw(refused)
		} else {
			conns = append(conns, c)
		}
	}
	return conns
}

// clients does something with n sessions, side by side, which are closed afterwards.
func (p *Play) clients(n int, do func(i int, c *client) error) error {
	return each(n, func(i int) error {
		c, err := p.connect()
		if err != nil {
			return err
		}
		defer c.leave()
		return do(i, c)
	})
}

// fresh does something again and again with a session of its own, n times side by side.
func (p *Play) fresh(ctx context.Context, n int, do func(c *client) error) error {
	return each(n, func(int) error {
		return rounds(ctx, func() error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			defer c.leave()
			return do(c)
		})
	})
}

// asks does a request, notes its outcome, and connects anew when it has ended the connection.
func (p *Play) asks(c *client, op wire.Op, body wire.Record) error {
	err := c.do(op, body)
	p.saw(outcome(err))
	if endOnly(err) == nil {
		return nil
	}
	_ = c.Close()
	next, err := p.connect()
	if err == nil {
		*c = *next
	}
	return err
}

// outcomes formats the attackers' outcomes.
func outcomes(seen map[string]int) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d %s", seen[name], name)
	}
	return b.String()
}
