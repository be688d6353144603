package session

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// replica applies commands at once, on one member that leads, unless told to hold them.
type replica struct {
	m *Manager

	mu     sync.RWMutex
	store  *znode.Store
	events []znode.Event

	ctl     sync.Mutex
	held    []*znode.Command
	hold    bool
	busy    chan struct{} // Propose waits for it; nil: it does not
	cut     bool          // Touch fails
	began   time.Time     // its ClockMs was 0
	lag     time.Duration // of the proof of leadership
	leader  bool
	changed time.Time
	flags   znode.Flags // of the entries
	viewed  func()      // called after each View, if it is not nil
	asked   atomic.Int64
	// mayBe answers MayExist; nil: the state does.
	mayBe func(ctx context.Context, claims []znode.Claim) ([]bool, error)
}

func (r *replica) View(f func(*znode.Store)) {
	r.mu.RLock()
	f(r.store)
	r.mu.RUnlock()
	if r.viewed != nil {
		r.viewed()
	}
}

func (r *replica) Propose(_ context.Context, c *znode.Command) error {
	r.ctl.Lock()
	if busy := r.busy; busy != nil {
		r.ctl.Unlock()
		<-busy
		r.ctl.Lock()
	}
	if r.hold {
		r.held = append(r.held, c)
		r.ctl.Unlock()
		return nil
	}
	r.ctl.Unlock()
	r.apply(c)
	return nil
}

func (r *replica) ProposeOnce(ctx context.Context, c *znode.Command) error {
	return r.Propose(ctx, c)
}

// apply applies commands as one entry.
func (r *replica) apply(cmds ...*znode.Command) {
	var encoded [][]byte
	for _, c := range cmds {
		encoded = append(encoded, c.Append(nil))
	}
	e, err := znode.DecodeEntry(znode.AppendEntry(nil, znode.Stamp{TimeMs: time.Now().UnixMilli(), ClockMs: r.ClockMs(), Flags: r.flags}, encoded))
	if err != nil {
		panic(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.store.Apply(1, e, func(c *znode.Command, res *znode.Result) {
		r.events = append(r.events, res.Events...)
		r.m.Applied(r.store, c, res)
	})
	if err := r.store.Check(); err != nil {
		panic(err)
	}
}

func (r *replica) setHold(hold bool) {
	r.ctl.Lock()
	r.hold = hold
	held := r.held
	if !hold {
		r.held = nil
	}
	r.ctl.Unlock()
	if !hold && len(held) > 0 {
		r.apply(held...)
	}
}

func (r *replica) setCut(cut bool) {
	r.ctl.Lock()
	defer r.ctl.Unlock()
	r.cut = cut
}

var errCut = errors.New("cut off")

func (r *replica) Touch(_ context.Context, heard []wire.SessionID) ([]wire.SessionID, time.Time, error) {
	r.ctl.Lock()
	cut, lag := r.cut, r.lag
	r.ctl.Unlock()
	if cut {
		return nil, time.Time{}, errCut
	}
	start := r.m.cfg.Clock.Now()
	return r.m.Touch(heard), start.Add(-lag), nil
}

func (r *replica) MayExist(ctx context.Context, claims []znode.Claim) (exist []bool, err error) {
	r.asked.Add(1)
	if r.mayBe != nil {
		return r.mayBe(ctx, claims)
	}
	r.View(func(s *znode.Store) {
		for i := range claims {
			exist = append(exist, s.Sessions().Holds(&claims[i]))
		}
	})
	return exist, nil
}

func (r *replica) ClockMs() int64 { return time.Since(r.began).Milliseconds() }

// CaughtUp implements Replica.
func (r *replica) CaughtUp() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func (r *replica) LeaderKnown() (time.Time, bool) {
	r.ctl.Lock()
	defer r.ctl.Unlock()
	return r.changed, r.leader
}

const tick = 2 * time.Second

func testLogger() *slog.Logger {
	out := io.Discard
	if os.Getenv("LOG") != "" {
		out = os.Stderr
	}
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// newMember starts a manager over a replica. Call it inside a bubble.
func newMember(t *testing.T, cfg Config) (*Manager, *replica) {
	t.Helper()
	cfg.Member, cfg.Tick, cfg.Logger = 1, tick, testLogger()
	m := NewManager(cfg)
	r := &replica{m: m, store: znode.New(), leader: true, changed: time.Now(), began: time.Now()}
	m.Lead(r.store)
	m.Start(r)
	t.Cleanup(m.Close)
	return m, r
}

// client is the client's side of one connection, and the Conn of its session.
type client struct {
	t    *testing.T
	m    *Manager
	s    *Session
	resp *wire.ConnectResponse
	xid  wire.Xid

	sending sync.Mutex // a connection has one reader

	writing sync.WaitGroup // goroutines that Wake has started

	mu      sync.Mutex
	part    []byte // of a frame that has not come to its end
	frames  [][]byte
	more    chan struct{}
	pieces  int // in which the frames came
	writers int // that were started for them
	err     error
	heard   time.Time // when the last bytes came
	over    chan struct{}
}

func connect(t *testing.T, m *Manager, req *wire.ConnectRequest) (*client, error) {
	t.Helper()
	s, resp, err := m.Connect(context.Background(), req, netip.MustParseAddr("127.0.0.1"))
	if err != nil || s == nil {
		return &client{t: t, m: m, resp: resp}, err
	}
	c := &client{t: t, m: m, s: s, resp: resp, more: make(chan struct{}, 1), over: make(chan struct{}), heard: time.Now()}
	s.Open(c, wire.AppendFrame(nil, resp))
	c.flush()
	c.mu.Lock()
	c.frames, c.pieces, c.writers = nil, 0, 0
	c.mu.Unlock()
	t.Cleanup(func() { c.detach(); c.writing.Wait() })
	return c, nil
}

func mustConnect(t *testing.T, m *Manager, timeout time.Duration) *client {
	t.Helper()
	c, err := connect(t, m, &wire.ConnectRequest{TimeoutMs: int32(timeout.Milliseconds())})
	if err != nil || c.s == nil {
		t.Fatalf("connect: %v", err)
	}
	return c
}

func (c *client) reattach() *wire.ConnectRequest {
	return &wire.ConnectRequest{TimeoutMs: c.resp.TimeoutMs, SessionID: c.resp.SessionID, Password: c.resp.Password}
}

// WriteUntil implements Conn: the client takes everything at once.
func (c *client) WriteUntil(b []byte, until time.Time) (int, error) {
	if !time.Now().Before(until) {
		return 0, os.ErrDeadlineExceeded
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pieces++
	c.heard = time.Now()
	c.part = append(c.part, b...)
	for len(c.part) >= 4 {
		n := 4 + int(binary.BigEndian.Uint32(c.part))
		if len(c.part) < n {
			break
		}
		c.frames = append(c.frames, bytes.Clone(c.part[4:n]))
		c.part = c.part[n:]
	}
	c.wakeLocked()
	return len(b), nil
}

// Wake implements Conn.
func (c *client) Wake() {
	c.writing.Go(func() {
		c.mu.Lock()
		c.writers++
		c.mu.Unlock()
		c.flushed(c.s.Flush(FlushAlone))
	})
}

// Delegate implements Conn.
func (c *client) Delegate() { c.Wake() }

// Abort implements Conn.
func (c *client) Abort() { c.end(errEnded) }

// flush is the call of Submit's caller before it waits for the client.
func (c *client) flush() { c.flushed(c.s.Flush(FlushReader)) }

func (c *client) flushed(err error) {
	if err != nil {
		c.end(err)
	}
}

// end tells the client the end of the connection.
func (c *client) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		close(c.over)
		c.wakeLocked()
	}
}

// detach loses the connection.
func (c *client) detach() {
	c.s.Detach()
	c.end(errEnded)
}

func (c *client) wakeLocked() {
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// send submits a request without waiting for its reply.
func (c *client) send(op wire.Op, body wire.Record) wire.Xid {
	c.t.Helper()
	c.xid++
	xid := c.xid
	if op == wire.OpPing {
		xid = wire.XidPing
	}
	if err := c.submit(wire.AppendRequest(nil, xid, op, body)[4:]); err != nil && !errors.Is(err, errEnded) {
		c.t.Fatalf("submit: %v", err)
	}
	return xid
}

func (c *client) submit(frame []byte) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	defer c.flush()
	return c.s.Submit(frame)
}

// next waits for the next frame, up to a virtual hour.
func (c *client) next() (wire.ReplyHeader, []byte, error) {
	timeout := time.After(time.Hour)
	for {
		c.mu.Lock()
		if len(c.frames) > 0 {
			f := c.frames[0]
			c.frames = c.frames[1:]
			c.mu.Unlock()
			h, body, err := wire.DecodeReply(f)
			if err != nil {
				c.t.Fatal(err)
			}
			return h, body, nil
		}
		err := c.err
		c.mu.Unlock()
		if err != nil {
			return wire.ReplyHeader{}, nil, err
		}
		select {
		case <-c.more:
		case <-timeout:
			return wire.ReplyHeader{}, nil, errors.New("nothing came for an hour")
		}
	}
}

// expect checks the next frames, each written as "xid code" for a reply and "event path" for a
// notification.
func (c *client) expect(want ...string) {
	c.t.Helper()
	for i, w := range want {
		h, body, err := c.next()
		got := ""
		switch {
		case err != nil:
			got = err.Error()
		case h.Xid == wire.XidNotification:
			var e wire.WatcherEvent
			if err := wire.Decode(body, &e); err != nil {
				c.t.Fatal(err)
			}
			got = fmt.Sprintf("%v %s", e.Type, e.Path)
		default:
			got = fmt.Sprintf("%d %v", h.Xid, h.Err)
		}
		if got != w {
			c.t.Fatalf("frame %d: got %q, want %q", i, got, w)
		}
	}
}

func create(path string, mode wire.CreateMode) wire.CreateRequest {
	return wire.CreateRequest{Path: path, Data: []byte("x"), ACL: wire.OpenACL, Mode: mode}
}
