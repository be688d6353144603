package play

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/jepsen/locklab/ledger"
	"lockkeeper/jepsen/locklab/lock"
	"lockkeeper/jepsen/locklab/system"
)

// The test program is also the clients' program.
func TestMain(m *testing.M) {
	if os.Getenv("LOCKLAB_CLIENT") != "" {
		if err := Client(fakeWays, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Setenv("LOCKLAB_CLIENT", "yes") // for child processes
	os.Exit(m.Run())
}

// fakeWays are ways to use a fake server: with leases that a client renews.
var fakeWays = []lock.Way{
	{Name: "sound", System: "fake", Fenced: true, Open: openFake("")},
	// It lets everybody in.
	{Name: "open", System: "fake", Broken: true, Open: openFake("open")},
	// It gives the lock back without looking at its holder.
	{Name: "blind-unlock", System: "fake", Broken: true, Open: openFake("blind")},
	// Its leases never end.
	{Name: "forever", System: "fake", Broken: true, Open: openFake("forever")},
}

// fakeRequest is a line to the fake server, which answers "true TOKEN" or "false 0".
type fakeRequest struct {
	Do, Resource, Node, Mode string
	Lease                    time.Duration
}

type fakeClient struct {
	cfg  lock.Config
	mode string

	mu   sync.Mutex
	conn net.Conn
	in   *bufio.Reader
}

func openFake(mode string) func(context.Context, lock.Config) (lock.Client, error) {
	return func(_ context.Context, cfg lock.Config) (lock.Client, error) {
		conn, err := net.Dial("tcp", cfg.Servers[0])
		return &fakeClient{cfg: cfg, mode: mode, conn: conn, in: bufio.NewReader(conn)}, err
	}
}

func (c *fakeClient) Close() error { return c.conn.Close() }

func (c *fakeClient) call(do, resource string) (ok bool, token uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = json.NewEncoder(c.conn).Encode(fakeRequest{do, resource, c.cfg.Node, c.mode, c.cfg.Lease})
	line, _ := c.in.ReadString('\n')
	_, _ = fmt.Sscan(line, &ok, &token)
	return ok, token
}

func (c *fakeClient) Lock(ctx context.Context, resource string) (lock.Held, error) {
	for ctx.Err() == nil {
		asked := time.Now()
		if ok, token := c.call("lock", resource); ok {
			h := &fakeHeld{c: c, resource: resource, token: token, lost: make(chan struct{}), done: make(chan struct{})}
			go h.renew(asked)
			return h, nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil, ctx.Err()
}

type fakeHeld struct {
	c          *fakeClient
	resource   string
	token      uint64
	lost, done chan struct{}
}

// renew renews the lease, and says that it is lost when nothing has come for two thirds of it.
func (h *fakeHeld) renew(asked time.Time) {
	lease := h.c.cfg.Lease
	answers := make(chan time.Time, 1)
	for {
		go func(at time.Time) {
			if ok, _ := h.c.call("renew", h.resource); ok {
				answers <- at
			}
		}(time.Now())
		deadline := time.After(time.Until(asked.Add(2 * lease / 3)))
		select {
		case asked = <-answers:
		case <-deadline:
			close(h.lost)
			return
		case <-h.done:
			return
		}
		time.Sleep(lease / 6)
	}
}

func (h *fakeHeld) Token() uint64         { return h.token }
func (h *fakeHeld) Lost() <-chan struct{} { return h.lost }

func (h *fakeHeld) Unlock(context.Context) error {
	close(h.done)
	if ok, _ := h.c.call("unlock", h.resource); !ok {
		return errors.New("not held")
	}
	return nil
}

// fakeSystem is a server of locks in this process.
type fakeSystem struct {
	listener net.Listener
	mu       sync.Mutex
	locks    map[string]*fakeLock
	tokens   uint64
	requests int64
}

type fakeLock struct {
	node string
	ends time.Time
}

var fakeKind = system.Kind{Name: "fake", Needs: func() error { return nil },
	Start: func(context.Context, system.Site) (system.System, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		f := &fakeSystem{listener: l, locks: map[string]*fakeLock{}}
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go f.serve(conn)
			}
		}()
		return f, err
	}}

func (f *fakeSystem) serve(conn net.Conn) {
	defer conn.Close()
	for lines := json.NewDecoder(conn); ; {
		var r fakeRequest
		if lines.Decode(&r) != nil {
			return
		}
		ok, token := f.do(r)
		fmt.Fprintln(conn, ok, token)
	}
}

func (f *fakeSystem) do(r fakeRequest) (ok bool, token uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	held := f.locks[r.Resource]
	if held != nil && time.Now().After(held.ends) && r.Mode != "forever" {
		delete(f.locks, r.Resource)
		held = nil
	}
	mine := held != nil && held.node == r.Node
	switch r.Do {
	case "lock":
		if held != nil && r.Mode != "open" {
			return false, 0
		}
		f.tokens++
		f.locks[r.Resource] = &fakeLock{r.Node, time.Now().Add(r.Lease)}
		return true, f.tokens
	case "renew":
		if mine {
			held.ends = time.Now().Add(r.Lease)
		}
		return mine, 0
	}
	if mine || held != nil && r.Mode == "blind" {
		delete(f.locks, r.Resource)
	}
	return mine, 0
}

func (f *fakeSystem) Servers() []system.Server             { return []system.Server{fakeServer{f}} }
func (f *fakeSystem) Primary(context.Context) (int, error) { return 0, nil }
func (f *fakeSystem) Failover(context.Context) error       { return nil }
func (f *fakeSystem) Close() error                         { return f.listener.Close() }
func (f *fakeSystem) Requests(context.Context) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests
}

type fakeServer struct{ f *fakeSystem }

func (s fakeServer) Name() string                 { return "fake-1" }
func (s fakeServer) Addr() string                 { return s.f.listener.Addr().String() }
func (s fakeServer) Data() string                 { return "" }
func (s fakeServer) Pause() error                 { return nil }
func (s fakeServer) Resume() error                { return nil }
func (s fakeServer) Kill() error                  { return nil }
func (s fakeServer) Start(context.Context) error  { return nil }
func (s fakeServer) SetClock(time.Duration) error { return system.ErrClock }

// played plays one round of a story with a fake way.
func played(t *testing.T, way, fault string) Round {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Client: []string{self}, Lease: 800 * time.Millisecond, Rounds: 1, Seed: 1,
		Cost: 300 * time.Millisecond, Dir: t.TempDir()}
	s, err := NewStage(t.Context(), cfg, fakeKind)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f, err := FindFault(fault)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(fakeWays, func(w lock.Way) bool { return w.Name == way })
	c, err := s.Play(t.Context(), fakeWays[i], f, 0, 1)
	if err != nil || c.Skipped != "" || len(c.Rounds) != 1 || c.Rounds[0].Broken != "" {
		t.Fatalf("%+v: %v", c, err)
	}
	if fault == None && c.Requests < 2 {
		t.Errorf("%v requests for an acquisition", c.Requests)
	}
	if t.Failed() || testing.Verbose() {
		for _, e := range c.Rounds[0].Events {
			if fault != None {
				t.Logf("%8.3f %-3s %s %d %s", (e.At - c.Rounds[0].Events[0].At).Seconds(), e.Who, e.What, e.Token, e.Text)
			}
		}
	}
	return c.Rounds[0]
}

// TestShare: rounds that share processes are stopped and killed at the same moment, each of them at
// the place of its story, and others are not.
func TestShare(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Client: []string{self}, Lease: 800 * time.Millisecond, Rounds: 5, Share: 3, Seed: 1, Dir: t.TempDir(),
		Places: []lock.Place{{Kind: "file", At: t.TempDir()}}}
	s, err := NewStage(t.Context(), cfg, fakeKind)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for fault, act := range map[string]string{"pause-writing": Paused, "pause-in-write": Resumed, "crash-held": Killed} {
		f, err := FindFault(fault)
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.Play(t.Context(), fakeWays[0], f, 0, 5)
		if err != nil || len(c.Rounds) != 5 {
			t.Fatalf("%+v: %v", c, err)
		}
		var at []time.Duration
		for i, r := range c.Rounds {
			counted := int64(strings.Count(line(r), Counted))
			for _, e := range r.Events {
				if e.What == Counted && e.Entry.Refused != "" {
					counted--
				}
			}
			at = append(at, first(r, "A", act))
			if r.Broken != "" || at[i] < 0 || first(r, "B", Unlock) < 0 || first(r, "C", Unlock) < 0 || r.Place != "file" ||
				r.Count != counted || counted < 2 {
				t.Errorf("%s, round %d: %s, %d writes accepted, the counter is %d; %s", fault, i, r.Broken, counted, r.Count, line(r))
			}
		}
		if at[0] != at[1] || at[1] != at[2] || at[2] == at[3] || at[3] != at[4] {
			t.Errorf("%s: %s at %v", fault, act, at)
		}
	}
	// A lock without tokens has nothing to show to a fence.
	if place := newTrio(s, &Case{}, Faults[1], 0, 1, nil).place; place != nil {
		t.Errorf("without tokens, a counter in %s", place.Kind)
	}
}

// line is the history as one line, without the lab's acts on others than clients. Of B and C, the
// one that got the lock first is called next, the other one last.
func line(r Round) string {
	names := map[string]string{"A": "A", "B": "last", "C": "next"}
	if b, c := first(r, "B", Locked), first(r, "C", Locked); c < 0 || b >= 0 && b < c {
		names["B"], names["C"] = "next", "last"
	}
	var words []string
	for _, e := range r.Events {
		if e.Who != "lab" {
			words = append(words, names[e.Who]+" "+e.What)
		}
	}
	return strings.Join(words, ", ")
}

// first is the time of the first such event of a client, or -1.
func first(r Round, who, what string) time.Duration {
	for _, e := range r.Events {
		if e.Who == who && e.What == what {
			return e.At
		}
	}
	return -1
}

// TestStories sees that each story with the fake server takes the course that it is meant to take.
func TestStories(t *testing.T) {
	for _, c := range []struct {
		way, fault string
		// course are events that come in this order.
		course []string
		never  []string
	}{
		{"sound", "pause-short", []string{"A locked", "A read", "A paused", "A resumed", "A checked", "A written", "A unlock",
			"next locked", "next unlock", "last locked", "last unlock"}, []string{"A lost"}},
		{"sound", "pause-long", []string{"A locked", "A paused", "next locked", "A resumed", "A unlock", "next unlock", "last locked"},
			nil},
		{"sound", "pause-writing", []string{"A locked", "A checked", "A paused", "next locked", "next read", "A resumed",
			"A write", "A written", "next written", "last locked"}, []string{"A gave up"}},
		{"sound", "net-delay", []string{"A locked", "A fault", "A checked", "A written", "A healed", "A unlock", "next locked"}, []string{"A lost"}},
		{"sound", "cut-both", []string{"A locked", "A fault", "A lost", "next locked", "A gave up", "A healed", "A unlock", "last locked"}, nil},
		{"sound", "cut-in", []string{"A fault", "A lost", "A gave up"}, nil},
		{"sound", "cut-out", []string{"A fault", "A lost", "next locked", "A gave up"}, nil},
		{"sound", "late-reply", []string{"A fault", "A lock", "next locked", "A healed"}, nil},
		{"sound", "late-write", []string{"A locked", "A sent", "A killed", "next locked", "next written"}, nil},
		{"sound", "crash-held", []string{"A locked", "A killed", "next locked", "last locked"}, nil},
		{"sound", "crash-in-lock", []string{"A lock", "A killed", "next locked", "last locked"}, []string{"A read"}},
		{"sound", "crash-in-unlock", []string{"A locked", "A written", "A unlock", "A killed", "last locked"}, nil},
		{"sound", "server-pause", []string{"A locked", "A checked", "A written", "next locked"}, nil},
		{"open", "pause-short", []string{"A locked", "next locked", "last locked", "A written"}, nil},
		{"blind-unlock", "pause-long", []string{"A paused", "next locked", "A resumed", "A unlock", "last locked", "next unlock"}, nil},
		{"forever", "crash-held", []string{"A locked", "A killed", "next refused"}, []string{"next locked", "last locked"}},
	} {
		t.Run(c.way+"/"+c.fault, func(t *testing.T) {
			t.Parallel()
			r := played(t, c.way, c.fault)
			rest := line(r)
			for _, want := range c.course {
				_, after, found := strings.Cut(rest, want)
				if !found {
					t.Fatalf("no %q in %s\nin all: %s", want, rest, line(r))
				}
				rest = after
			}
			for _, never := range c.never {
				if slices.Contains(strings.Split(line(r), ", "), never) {
					t.Errorf("%q in %s", never, line(r))
				}
			}
		})
	}
}

// A late write arrives while its sender is dead and another holds the lock.
func TestLateWriteArrives(t *testing.T) {
	r := played(t, "sound", "late-write")
	dead, next := first(r, "A", Killed), min(first(r, "B", Locked), first(r, "C", Locked))
	i := slices.IndexFunc(r.Ledger, func(e ledger.Entry) bool { return e.Write && e.Holder == "A" && e.Rule == ledger.Open })
	if i < 0 || r.Ledger[i].At < dead || r.Ledger[i].At < next {
		t.Errorf("dead at %v, the next in at %v: %+v", dead, next, r.Ledger)
	}
}

// Without a fault each client takes the lock often.
func TestCost(t *testing.T) {
	r := played(t, "sound", None)
	for _, who := range []string{"A", "B", "C"} {
		n := 0
		for _, e := range r.Events {
			if e.Who == who && e.What == Unlocked && e.Text == "" {
				n++
			}
		}
		if n < 3 {
			t.Errorf("%s took the lock %d times", who, n)
		}
	}
}

// A way without servers with clocks that can be set is not played under faults of clocks, and one
// server has no failover.
func TestSkipped(t *testing.T) {
	s, err := NewStage(t.Context(), Config{Lease: time.Second, Dir: t.TempDir()}, fakeKind)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, name := range []string{"clock-one", "failover"} {
		f, err := FindFault(name)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := s.Play(t.Context(), fakeWays[0], f, 0, 1); err != nil || c.Skipped == "" {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}

// TestPlan: the same seed is the same plan, another seed another one, and the plan fits the faults.
func TestPlan(t *testing.T) {
	const lease = 2 * time.Second
	for _, f := range Faults {
		plans := map[Plan]bool{}
		for round := range 5 {
			p := NewPlan(7, f, lease, round, 5)
			if !reflect.DeepEqual(p, NewPlan(7, f, lease, round, 5)) {
				t.Errorf("%s: two plans of one seed", f.Name)
			}
			if p == NewPlan(8, f, lease, round, 5) {
				t.Errorf("%s: two seeds have one plan", f.Name)
			}
			plans[p] = true
			if low, high := 0.89*f.hold, 1.11*f.hold; p.Hold.Seconds()/2 < low || p.Hold.Seconds()/2 > high {
				t.Errorf("%s: held for %v", f.Name, p.Hold)
			}
			if p.Crash < 0 || p.Crash > lease*5*4/100 {
				t.Errorf("%s: dies after %v", f.Name, p.Crash)
			}
		}
		if len(plans) != 5 {
			t.Errorf("%s: %d plans for 5 rounds", f.Name, len(plans))
		}
	}
	if _, err := FindFault("none-such"); err == nil {
		t.Error("a fault that does not exist was found")
	}
}
