package recipes

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
)

// readConn is a net.Conn that only reads.
type readConn struct {
	net.Conn
	r io.Reader
}

func (c readConn) Read(b []byte) (int, error)      { return c.r.Read(b) }
func (c readConn) SetDeadline(time.Time) error     { return nil }
func (c readConn) SetReadDeadline(time.Time) error { return nil }
func (c readConn) Close() error                    { return nil }

// answer is a server's answer to a handshake.
func answer(timeoutMs int32, sessionID uint64) []byte {
	b := binary.BigEndian.AppendUint32(nil, 36)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(timeoutMs))
	b = binary.BigEndian.AppendUint64(b, sessionID)
	b = binary.BigEndian.AppendUint32(b, 16)
	return append(b, make([]byte, 16)...)
}

// noDial is the Dial of tests that have their connection.
func noDial(string, string, time.Duration) (net.Conn, error) { return nil, net.ErrClosed }

func TestHandshakeTimeout(t *testing.T) {
	const asked = 10 * time.Second
	for _, tt := range []struct {
		about  string
		answer []byte
		want   time.Duration
		err    error
	}{
		{"shortened", answer(4000, 7), 4 * time.Second, nil},
		{"lengthened", answer(12000, 7), 12 * time.Second, nil},
		{"expired", answer(0, 0), asked, nil},
		{"cut short", answer(4000, 7)[:19], asked, io.ErrUnexpectedEOF},
		{"nothing", nil, asked, nil},
		{"only the first frame counts", append(answer(4000, 7), answer(5000, 8)...), 4 * time.Second, nil},
	} {
		for _, whole := range []bool{true, false} {
			d := &dialer{granted: newGranted(asked), hosts: newHosts(nil), open: noDial}
			var r io.Reader = bytes.NewReader(tt.answer)
			if !whole {
				r = iotest.OneByteReader(r)
			}
			c, err := newServerConn(readConn{r: r}, d, "a", time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(c)
			if err != tt.err || err == nil && string(got) != string(tt.answer) {
				t.Errorf("%s: read %x, %v, want %x, %v", tt.about, got, err, tt.answer, tt.err)
			}
			if d.granted.timeout() != tt.want {
				t.Errorf("%s: timeout %v, want %v", tt.about, d.granted.timeout(), tt.want)
			}
		}
	}
	d := &dialer{granted: newGranted(asked), hosts: newHosts(nil), open: noDial}
	c, _ := newServerConn(readConn{r: bytes.NewReader([]byte{0x7f, 0, 0, 0, 0})}, d, "a", time.Time{})
	if _, err := c.Read(make([]byte, 4)); err == nil || !strings.Contains(err.Error(), "2130706432 bytes") {
		t.Errorf("an answer of 2 GB: %v", err)
	}
}

// TestTimeout: Timeout is the one that was asked for until a server has granted another.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFakeMembers(4*time.Second, "a")
		m.set("a", refuses)
		s := m.connect(t, Config{SessionTimeout: time.Minute})
		if got := s.Timeout(); got != time.Minute {
			t.Errorf("before an answer: %v, want a minute", got)
		}
		m.set("a", serves)
		if _, err := s.link.ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := s.Timeout(); got != 4*time.Second {
			t.Errorf("granted 4 s: Timeout = %v", got)
		}
		s.Close()
		if got := s.Timeout(); got != 4*time.Second {
			t.Errorf("after Close: Timeout = %v", got)
		}
	})
}

func TestConnectConfig(t *testing.T) {
	for _, c := range []Config{
		{},
		{Servers: []string{"localhost:1"}, SessionTimeout: -1},
		{Servers: []string{"a:b:c"}},
		{Servers: []string{"localhost:1"}, Auth: []Auth{{Secret: []byte("x")}}},
	} {
		if s, err := Connect(c); err == nil {
			s.Close()
			t.Errorf("Connect(%+v) = nil", c)
		}
	}
	if text := fmt.Sprint(Auth{"digest", []byte("me:pw")}.LogValue()); strings.Contains(text, "pw") {
		t.Errorf("the log has %q", text)
	}
}

// orderedHosts goes round its servers in the order of their names, without a
// pause. It counts how often it was asked.
type orderedHosts struct {
	servers []string
	next    int
}

func (h *orderedHosts) Init(servers []string) error {
	h.servers = slices.Sorted(slices.Values(servers))
	return nil
}
func (h *orderedHosts) Len() int   { return len(h.servers) }
func (h *orderedHosts) Connected() {}
func (h *orderedHosts) Next() (string, bool) {
	h.next++
	return h.servers[(h.next-1)%len(h.servers)], false
}

// memberState is the behaviour of a fakeMember on a connection.
type memberState int

const (
	serves  memberState = iota
	hangs               // reads nothing more, writes nothing more, as a stopped process does
	refuses             // nothing listens
)

// fakeMembers are servers over net.Pipe, in a synctest bubble. They know no
// nodes: they answer handshakes, pings, syncs and authentications.
type fakeMembers struct {
	timeoutMs   int32
	pingLatency time.Duration             // of the answer to a ping
	authCode    int32                     // the answer to an authentication
	watchCode   int32                     // the answer to addWatch
	listCode    int32                     // the answer to getEphemerals
	nodes       []string                  // of a session
	seen        func(name string)         // is called for each request, if it is not nil
	asked       []uint64                  // the sessions in the handshakes; 0: a new one
	around      func(reply []byte) []byte // frames sent for the reply to addWatch; nil: the reply

	mu      sync.Mutex
	latency time.Duration // of the answer to a sync
	states  map[string]memberState
	dials   []string            // addresses, in order
	frames  map[string][]string // by address: the requests that arrived, by name
	changed chan struct{}
}

func newFakeMembers(timeout time.Duration, names ...string) *fakeMembers {
	m := &fakeMembers{
		timeoutMs: int32(timeout.Milliseconds()),
		states:    make(map[string]memberState),
		frames:    make(map[string][]string),
		changed:   make(chan struct{}),
	}
	for _, n := range names {
		m.states[n+":1"] = serves
	}
	return m
}

func (m *fakeMembers) set(name string, state memberState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.states[name+":1"] = state
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *fakeMembers) state(address string) (memberState, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.states[address], m.changed
}

func (m *fakeMembers) dialed() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.dials)
}

func (m *fakeMembers) dial(_, address string, _ time.Duration) (net.Conn, error) {
	m.mu.Lock()
	m.dials = append(m.dials, address)
	m.mu.Unlock()
	if state, _ := m.state(address); state == refuses {
		return nil, errors.New(address + " refuses")
	}
	client, server := net.Pipe()
	go m.serve(address, server)
	return client, nil
}

// slowReconfig is how long a reconfig takes while other requests are answered.
const slowReconfig = time.Minute

func (m *fakeMembers) serve(address string, conn net.Conn) {
	defer conn.Close()
	for first := true; ; first = false {
		frame, err := readFrame(conn)
		if err != nil {
			return
		}
		// A member that hangs has the frame in its socket, and that is all.
		for {
			state, changed := m.state(address)
			if state == serves {
				break
			}
			<-changed
		}
		reply := m.reply(address, first, frame)
		op := uint32(0)
		if !first {
			op = operation(frame)
		}
		m.mu.Lock()
		latency := map[uint32]time.Duration{9: m.latency, 11: m.pingLatency}[op]
		m.mu.Unlock()
		time.Sleep(latency)
		if op == opReconfig {
			time.AfterFunc(slowReconfig, func() { _, _ = conn.Write(reply) })
			continue
		}
		if _, err := conn.Write(reply); err != nil {
			return
		}
	}
}

func (m *fakeMembers) reply(address string, first bool, frame []byte) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if first {
		m.note(address, "handshake")
		m.asked = append(m.asked, binary.BigEndian.Uint64(frame[20:]))
		return answer(m.timeoutMs, 7)
	}
	xid, op := frame[4:8], int32(binary.BigEndian.Uint32(frame[8:]))
	code, body := int32(0), []byte(nil)
	name := map[int32]string{4: "getData", 11: "ping", 9: "sync", opReconfig: "reconfig", 100: "auth",
		106: "addWatch", -11: "close", 14: "multi", getEphemeralsOp: "getEphemerals"}[op]
	switch op {
	case 100:
		name += " " + string(frame[16:])
		code = m.authCode
	case 106:
		name += " " + string(frame[12:])
		code = m.watchCode
	case 4:
		code = -101 // no such node
	case 9:
		body = frame[12:] // the path
	case getEphemeralsOp:
		code = m.listCode
		body = binary.BigEndian.AppendUint32(nil, uint32(len(m.nodes)))
		for _, n := range m.nodes {
			body = append(binary.BigEndian.AppendUint32(body, uint32(len(n))), n...)
		}
	case opReconfig:
		body = make([]byte, 4+68) // the data, empty, and a Stat
	}
	m.note(address, name)
	b := binary.BigEndian.AppendUint32(nil, uint32(16+len(body)))
	b = append(b, xid...)
	b = binary.BigEndian.AppendUint64(b, 1)
	b = binary.BigEndian.AppendUint32(b, uint32(code))
	b = append(b, body...)
	if op == 106 && m.around != nil {
		b = m.around(b)
	}
	return b
}

// note notes a request.
func (m *fakeMembers) note(address, name string) {
	m.frames[address] = append(m.frames[address], name)
	if m.seen != nil {
		m.seen(name)
	}
}

// requests returns the requests of a member, and the sessions in the handshakes of all.
func (m *fakeMembers) requests(address string) (names []string, asked []uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.frames[address]), slices.Clone(m.asked)
}

// connect begins a session with all members, which are tried in the order of
// their names.
func (m *fakeMembers) connect(t *testing.T, c Config) *Session {
	t.Helper()
	for address := range m.states {
		c.Servers = append(c.Servers, address)
	}
	c.Dial, c.HostProvider = m.dial, &orderedHosts{}
	if c.SessionTimeout == 0 {
		c.SessionTimeout = time.Duration(m.timeoutMs) * time.Millisecond
	}
	s, err := Connect(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestMemberThatHangsAtTheHandshake: another one is tried within a third of the
// session timeout, and the one that hung comes last.
func TestMemberThatHangsAtTheHandshake(t *testing.T) {
	for _, tt := range []struct {
		timeout time.Duration
		members []string
		hang    []string
		within  time.Duration
	}{
		{4 * time.Second, []string{"a", "b", "c"}, []string{"a"}, 4 * time.Second / 3},
		{10 * time.Second, []string{"a", "b", "c"}, []string{"a"}, maxPatience},
		{time.Minute, []string{"a", "b", "c"}, []string{"a"}, maxPatience},
		{5 * time.Second, []string{"a", "b", "c", "d", "e"}, []string{"a", "b"}, 2 * time.Second},
	} {
		t.Run(fmt.Sprint(tt.timeout, tt.hang), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newFakeMembers(tt.timeout, tt.members...)
				for _, name := range tt.hang {
					m.set(name, hangs)
				}
				began := time.Now()
				s := m.connect(t, Config{})
				if err := s.Reach(t.Context()); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took > tt.within+time.Millisecond {
					t.Errorf("connected after %v, want at most %v", took, tt.within)
				}
				for _, name := range tt.members {
					m.set(name, serves)
				}
				s.Close()
			})
		})
	}
}

// TestMemberThatHangsWhileItServes: a request that is not answered for a third of
// the session timeout moves the session to another member, and without requests a
// ping does.
func TestMemberThatHangsWhileItServes(t *testing.T) {
	const timeout = 6 * time.Second
	for _, request := range []bool{true, false} {
		t.Run(fmt.Sprint(request), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newFakeMembers(timeout, "a", "b", "c")
				s := m.connect(t, Config{})
				if err := s.Reach(t.Context()); err != nil {
					t.Fatal(err)
				}
				// An idle connection is left alone. Not at the moment of a ping: its reply would
				// be taken for a sign of life behind the request.
				time.Sleep(time.Minute + time.Second/2)
				if d := m.dialed(); len(d) != 1 {
					t.Fatalf("dialed %v", d)
				}
				m.set("a", hangs)
				began := time.Now()
				within := timeout * 2 / 3 // a third until the next ping
				if request {
					within = timeout / 3
					_, err := s.Conn().Sync("/")
					if err == nil {
						t.Error("a member that hangs has answered")
					}
				}
				// The reconnect may be under way.
				for s.Conn().State() != zk.StateHasSession || len(m.dialed()) < 2 {
					time.Sleep(time.Millisecond)
				}
				if took := time.Since(began); took > within+10*time.Millisecond {
					t.Errorf("connected again after %v, want at most %v", took, within)
				}
				// The next one to fail sends the session on, past the one that hung.
				m.set("c", refuses)
				m.set("b", hangs)
				if _, err := s.Conn().Sync("/"); err == nil {
					t.Error("a member that hangs has answered")
				}
				m.set("b", serves)
				if err := s.Reach(t.Context()); err != nil {
					t.Error(err)
				}
				if d, want := m.dialed(), []string{"a:1", "b:1", "c:1"}; !slices.Equal(d[:3], want) {
					t.Errorf("dialed %v, want %v first", d, want)
				}
				m.set("a", serves)
				s.Close()
			})
		})
	}
}

// TestSlowMemberIsLeftAlone: replies that take their time, but less than a third
// of the session timeout, are no reason to go, nor are frames that arrive beside them.
func TestSlowMemberIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 6 * time.Second
		m := newFakeMembers(timeout, "a", "b", "c")
		s := m.connect(t, Config{})
		if err := s.Reach(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			m.set("a", hangs)
			time.AfterFunc(timeout/3-time.Millisecond, func() { m.set("a", serves) })
			if _, err := s.Conn().Sync("/"); err != nil {
				t.Error(err)
			}
		}
		if d := m.dialed(); len(d) != 1 {
			t.Errorf("dialed %v", d)
		}
		s.Close()
	})
}

// TestReconfigMayTakeLong: a change of the members takes as long as a new member
// needs for the data, while pings are answered. A member that hangs then is left
// like any other.
func TestReconfigMayTakeLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 6 * time.Second
		m := newFakeMembers(timeout, "a", "b", "c")
		m.pingLatency = 50 * time.Millisecond
		s := m.connect(t, Config{})
		if err := s.Reach(t.Context()); err != nil {
			t.Fatal(err)
		}
		conn := s.Conn().(*zk.Conn)
		if _, err := conn.IncrementalReconfig([]string{"server.4=d:1:2;3"}, nil, -1); err != nil || len(m.dialed()) != 1 {
			t.Errorf("%v, dialed %v", err, m.dialed())
		}
		time.AfterFunc(slowReconfig/2, func() { m.set("a", hangs) })
		began := time.Now()
		if _, err := conn.IncrementalReconfig([]string{"server.4=d:1:2;3"}, nil, -1); err == nil {
			t.Error("a member that hangs has answered")
		}
		if took, within := time.Since(began), slowReconfig/2+timeout*2/3; took > within {
			t.Errorf("given up after %v, want at most %v", took, within)
		}
		m.set("a", serves)
		s.Close()
		time.Sleep(m.pingLatency) // the members' answers
	})
}

// TestNamesThatDoNotResolve are left out, unless there is no other; one that takes until
// the deadline costs the others nothing.
func TestNamesThatDoNotResolve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("no such host")
		lookup := func(ctx context.Context, host string) ([]string, error) {
			switch host {
			case "well":
				return []string{"10.0.0.1", "10.0.0.2"}, nil
			case "slow":
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, gone
		}
		for _, tt := range []struct {
			servers   []string
			addresses int
			err       error
		}{
			{[]string{"gone:1", "well:1"}, 2, nil},
			{[]string{"slow:1", "slow:2", "well:1", "gone:1"}, 2, nil},
			{[]string{"gone:1", "slow:1"}, 0, gone},
			{[]string{"gone:1", "slow:1"}, 0, context.DeadlineExceeded},
		} {
			inner := &orderedHosts{}
			h := newHosts(inner)
			h.lookup = lookup
			began := time.Now()
			if err := h.Init(tt.servers); !errors.Is(err, tt.err) {
				t.Errorf("Init(%q) = %v, want %v", tt.servers, err, tt.err)
			}
			if took := time.Since(began); took > lookupTimeout {
				t.Errorf("Init(%q) took %v", tt.servers, took)
			}
			if len(inner.servers) != tt.addresses {
				t.Errorf("Init(%q): addresses %q", tt.servers, inner.servers)
			}
		}
	})
}

// TestAddressOfSeveralNames counts once, so that Reach tells when no address is left.
func TestAddressOfSeveralNames(t *testing.T) {
	inner := &orderedHosts{}
	h := newHosts(inner)
	h.lookup = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
	if err := h.Init([]string{"localhost:1", "127.0.0.1:1", "localhost:1"}); err != nil {
		t.Fatal(err)
	}
	const address = "127.0.0.1:1"
	if !slices.Equal(inner.servers, []string{address}) || h.name(address) != "localhost" {
		t.Errorf("addresses %q, name %q", inner.servers, h.name(address))
	}
	h.dialed(address, errors.New("refused"))
	if _, err := h.unreachable(); !errors.Is(err, ErrUnreachable) {
		t.Errorf("unreachable = %v", err)
	}
}

// TestSlowCluster: where writes take longer than a third of the session timeout at every
// member, they get as long as a grant may last; and when the cluster is fast again, a
// member that hangs is left after a third as before. That reads are answered soon changes
// nothing.
func TestSlowCluster(t *testing.T) {
	const timeout = 6 * time.Second
	for _, members := range [][]string{{"a"}, {"a", "b", "c"}} {
		synctest.Test(t, func(t *testing.T) {
			m := newFakeMembers(timeout, members...)
			s := m.connect(t, Config{})
			setLatency := func(d time.Duration) {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.latency = d
			}
			sync := func() error {
				if _, err := s.link.ready(t.Context()); err != nil {
					t.Fatal(err)
				}
				if _, _, err := s.Conn().Get("/x"); !errors.Is(err, zk.ErrNoNode) {
					t.Errorf("a read: %v", err)
				}
				_, err := s.Conn().Sync("/")
				return err
			}
			setLatency(timeout / 2)
			for n := range members {
				began := time.Now()
				if sync() == nil {
					t.Errorf("write %d was waited for %v", n, time.Since(began))
				}
			}
			for n := range 5 {
				if err := sync(); err != nil {
					t.Errorf("write %d after every member was slow: %v", n, err)
				}
				// The last answer came some time ago, or was one to a ping.
				time.Sleep(timeout / 4 * time.Duration(n))
			}
			setLatency(time.Millisecond)
			time.Sleep(time.Millisecond) // the answer to a ping of this instant would be the first
			if err := sync(); err != nil {
				t.Error(err)
			}
			setLatency(timeout)
			began := time.Now()
			if sync() == nil || time.Since(began) > timeout/3+time.Millisecond {
				t.Errorf("a member that hangs was waited for %v", time.Since(began))
			}
			setLatency(time.Millisecond)
			if err := sync(); err != nil {
				t.Error(err)
			}
			s.Close()
			time.Sleep(timeout) // the members end
		})
	}
}

func TestHostsThatHungComeLast(t *testing.T) {
	h := newHosts(&orderedHosts{})
	if err := h.Init([]string{"a:1", "b:1", "c:1"}); err != nil {
		t.Fatal(err)
	}
	var got []string
	next := func() {
		address, _ := h.Next()
		got = append(got, address[:1])
	}
	next()
	h.isHung("a:1")
	for range 5 {
		next()
	}
	for _, all := range []string{"a:1", "b:1", "c:1"} {
		h.isHung(all)
	}
	next()
	if text, want := strings.Join(got, ""), "abcbca"+"b"; text != want {
		t.Errorf("order %s, want %s", text, want)
	}
}

func TestPatience(t *testing.T) {
	for _, tt := range []struct {
		servers, hangs int
		timeout, want  time.Duration
	}{
		{1, 0, 3 * time.Second, time.Second},
		{3, 0, 3 * time.Second, time.Second},
		{5, 0, 5 * time.Second, time.Second},
		{3, 0, time.Minute, 2 * time.Second},
		{3, 2, 3 * time.Second, time.Second},
		{3, 3, 3 * time.Second, 2 * time.Second}, // all have hung, and the session is over
		{3, 7, 3 * time.Second, 4 * time.Second},
		{3, 1000, 3 * time.Second, 16 * time.Second},
	} {
		h := newHosts(&orderedHosts{servers: make([]string, tt.servers)})
		h.hangs = tt.hangs
		if got := h.patience(tt.timeout); got != tt.want {
			t.Errorf("%d servers, %d hangs, timeout %v: %v, want %v", tt.servers, tt.hangs, tt.timeout, got, tt.want)
		}
	}
}

// TestReach: that nothing listens anywhere is told at once, that somebody does
// not answer is not.
func TestReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFakeMembers(4*time.Second, "a", "b", "c")
		for _, name := range []string{"a", "b", "c"} {
			m.set(name, refuses)
		}
		s := m.connect(t, Config{})
		began := time.Now()
		err := s.Reach(t.Context())
		if !errors.Is(err, ErrUnreachable) || !strings.HasSuffix(err.Error(), ": a:1 refuses; b:1 refuses; c:1 refuses") {
			t.Errorf("Reach = %v", err)
		}
		if took := time.Since(began); took > time.Millisecond {
			t.Errorf("told after %v", took)
		}
		m.set("b", hangs)
		time.Sleep(10 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.Reach(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with one that hangs: Reach = %v", err)
		}
		m.set("b", serves)
		if err := s.Reach(t.Context()); err != nil {
			t.Errorf("with one that serves: Reach = %v", err)
		}
		s.Close()
		if err := s.Reach(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: Reach = %v", err)
		}
	})
}

// TestAuthComesFirst: each connection shows the identities before anything else.
func TestAuthComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFakeMembers(6*time.Second, "a", "b")
		s := m.connect(t, Config{Auth: []Auth{{"digest", []byte("me:pw")}, {"x", []byte("y")}}})
		if _, err := s.Conn().Sync("/"); err != nil {
			t.Fatal(err)
		}
		m.set("a", hangs)
		if _, err := s.Conn().Sync("/"); err == nil {
			t.Fatal("a member that hangs has answered")
		}
		if _, err := s.Conn().Sync("/"); err != nil {
			t.Fatal(err)
		}
		m.mu.Lock()
		for _, address := range []string{"a:1", "b:1"} {
			want := []string{"handshake", "auth \x00\x00\x00\x06digest\x00\x00\x00\x05me:pw", "auth \x00\x00\x00\x01x\x00\x00\x00\x01y", "sync"}
			if got := m.frames[address]; len(got) < 4 || !slices.Equal(got[:4], want) {
				t.Errorf("%s got %q, want %q first", address, got, want)
			}
		}
		m.mu.Unlock()
		m.set("a", serves)
		s.Close()
	})
}

func TestAuthRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFakeMembers(6*time.Second, "a", "b")
		m.authCode = authFailed
		s := m.connect(t, Config{Auth: []Auth{{"no-such", []byte("x")}}})
		_, err := NewMutex(s, testPath, MutexOptions{}).Lock(t.Context())
		if !errors.Is(err, zk.ErrAuthFailed) || !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), `"no-such"`) {
			t.Errorf("Lock = %v", err)
		}
		if err := s.Reach(t.Context()); !errors.Is(err, zk.ErrAuthFailed) {
			t.Errorf("Reach = %v", err)
		}
		// two calls of zk.Conn.Close wait for each other with a mutex, which stops a bubble
		time.Sleep(time.Minute)
		s.Close()
	})
}

// TestTreeWatch: each connection sets the watch; events that come before the reply
// to it, and after, arrive in order, and a server that has no such watches is told of.
func TestTreeWatch(t *testing.T) {
	event := func(path string) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(16+12+len(path)))
		b = append(b, 0xff, 0xff, 0xff, 0xff) // xid
		b = binary.BigEndian.AppendUint64(b, ^uint64(0))
		b = append(b, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 3) // no error; created; connected
		b = binary.BigEndian.AppendUint32(b, uint32(len(path)))
		return append(b, path...)
	}
	synctest.Test(t, func(t *testing.T) {
		m := newFakeMembers(6*time.Second, "a", "b")
		m.around = func(reply []byte) []byte { return slices.Concat(event("/l/1"), event("/l/2"), reply, event("/l/3")) }
		var seen []string
		s := m.connect(t, Config{Tree: &TreeWatch{Path: "/l", Notify: func(e zk.Event) {
			if e.Type != zk.EventSession {
				seen = append(seen, fmt.Sprint(int(e.Type), e.Path))
			}
		}}})
		sync := func() {
			t.Helper()
			if _, err := s.Conn().Sync("/"); err != nil {
				t.Error(err)
			}
		}
		sync()
		if want := []string{"1/l/1", "1/l/2", "1/l/3"}; !slices.Equal(seen, want) {
			t.Errorf("seen %q, want %q", seen, want)
		}
		seen, m.watchCode, m.around = nil, -6, nil
		m.set("a", hangs)
		s.Conn().Sync("/")
		sync()
		if want := []string{fmt.Sprint(int(zk.EventNotWatching), "/l")}; !slices.Equal(seen, want) {
			t.Errorf("seen %q, want %q", seen, want)
		}
		if got := m.frames["b:1"]; len(got) < 3 || got[1] != "addWatch \x00\x00\x00\x02/l\x00\x00\x00\x01" || got[2] != "sync" {
			t.Errorf("b got %q", got)
		}
		m.set("a", serves)
		s.Close()
	})
}
