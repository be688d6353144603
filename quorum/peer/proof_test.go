package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/simnet"
)

var (
	oldSecret = []byte("0123456789abcdef0123456789abcdef")
	newSecret = []byte("fedcba9876543210fedcba9876543210")
)

// knows is an Auth with these secrets.
func knows(secrets ...[]byte) Auth { return Auth{Secrets: func() [][]byte { return secrets }} }

// pair is two members, on a network in memory.
type pair struct {
	t      *testing.T
	net    *simnet.Network
	ports  [2]*Port
	served [2]atomic.Int32 // streams
}

const pairCluster = 7

// newPair starts members 1 and 2, at 10.0.0.1 and 10.0.0.2.
func newPair(t *testing.T, auth ...Auth) *pair {
	p := &pair{t: t, net: simnet.New(simnet.Config{Seed: 1})}
	members := []Member{{ID: 1, Addr: "10.0.0.1:2888"}, {ID: 2, Addr: "10.0.0.2:2888"}}
	for i := range p.ports {
		host := p.net.Host([]string{"10.0.0.1", "10.0.0.2"}[i])
		local := fakeLocal{}
		roster := NewRoster(members, false, local)
		roster.SetCluster(pairCluster)
		cfg := Config{ID: members[i].ID, Disk: DiskID(i + 1), Members: members, Logger: slog.New(slog.DiscardHandler), Listen: host.Listen, Dial: host.Dial, Auth: auth[i]}
		port, err := Listen(cfg, roster, local)
		if err != nil {
			t.Fatal(err)
		}
		count := func(_ Identity, s *Stream) error {
			p.served[i].Add(1)
			_, _ = io.Copy(s, s) // until it ends
			return nil
		}
		port.Start(Handlers{Join: func(ClusterID) error { return nil }, Hello: func(Identity) Hello { p.served[i].Add(1); return Hello{State: Used} },
			Streams: map[StreamKind]func(Identity, *Stream) error{
				StreamRaft: func(Identity, *Stream) error { p.served[i].Add(1); return nil }, StreamForward: count, StreamLease: count, StreamTransfer: count}})
		p.ports[i] = port
		t.Cleanup(port.Close)
	}
	return p
}

// echoes opens a stream from one member to the other and has something come back over it.
func (p *pair) echoes(from, to int) (*Stream, error) {
	s, err := p.ports[from].Dial(p.t.Context(), MemberID(to+1), StreamForward)
	if err != nil {
		return nil, err
	}
	p.t.Cleanup(func() { s.Close() })
	b := make([]byte, 5)
	if _, err := s.Write([]byte("hello")); err != nil {
		return s, err
	}
	_, err = io.ReadFull(s, b)
	return s, err
}

// connect opens a connection to member 1 from some host, without a preface.
func (p *pair) connect(host string) net.Conn {
	p.t.Helper()
	c, err := p.net.Host(host).Dial(p.t.Context(), "tcp", "10.0.0.1:2888")
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	return c
}

func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// TestMembersProveTheSecret: whom two members with these secrets let in, in both directions.
func TestMembersProveTheSecret(t *testing.T) {
	optional := func(a Auth) Auth { a.SecretOptional = true; return a }
	for name, test := range map[string]struct {
		one, two Auth
		ok       bool
	}{
		"the same":                                  {knows(oldSecret), knows(oldSecret), true},
		"another":                                   {knows(oldSecret), knows(newSecret), false},
		"none and one":                              {Auth{}, knows(oldSecret), false},
		"the old one, and the new one is added":     {knows(oldSecret), knows(oldSecret, newSecret), true},
		"the new one is added, and comes first":     {knows(oldSecret, newSecret), knows(newSecret, oldSecret), true},
		"the new one comes first, and is alone":     {knows(newSecret, oldSecret), knows(newSecret), true},
		"none, and one that is optional":            {Auth{}, optional(knows(oldSecret)), true},
		"one that is optional, and one that is not": {optional(knows(oldSecret)), knows(oldSecret), true},
		"both optional":                             {optional(knows(oldSecret)), optional(knows(oldSecret)), true},
		"optional, and another":                     {optional(knows(oldSecret)), knows(newSecret), false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				p := newPair(t, test.one, test.two)
				for _, from := range []int{0, 1} {
					if _, err := p.echoes(from, 1-from); (err == nil) != test.ok {
						t.Errorf("member %d dials: %v", from+1, err)
					}
					if h := p.ports[from].Hello(t.Context(), []MemberID{MemberID(2 - from)}); (len(h) == 1) != test.ok {
						t.Errorf("member %d queries: %v", from+1, h)
					}
				}
				if n := p.served[0].Load() + p.served[1].Load(); (n > 0) != test.ok {
					t.Errorf("%d streams were served", n)
				}
			})
		})
	}
}

// TestWithoutTheSecretNothingIsAnswered: whatever is sent before the proof is answered with the
// version and a nonce at most, and no stream of any kind is served.
func TestWithoutTheSecretNothingIsAnswered(t *testing.T) {
	proving := func(kind StreamKind, from, to MemberID) []byte {
		return preface{proves: true, version: NewestVersion, kind: kind, from: from, fromDisk: DiskID(from), to: to, cluster: pairCluster}.append(nil)
	}
	for _, kind := range []StreamKind{StreamRaft, StreamForward, StreamLease, StreamHello, StreamTransfer} {
		plain := preface{version: NewestVersion, kind: kind, from: 2, fromDisk: 2, to: 1, cluster: pairCluster}
		for name, test := range map[string]struct {
			sends  []byte
			answer int // bytes
		}{
			"no proof":                  {plain.append(nil), 0},
			"zeros for a proof":         {append(proving(kind, 2, 1), make([]byte, nonceLen+proofLen)...), 1 + nonceLen},
			"more than a proof":         {append(proving(kind, 2, 1), make([]byte, 1<<16)...), 1 + nonceLen},
			"in the name of the member": {append(proving(kind, 1, 1), make([]byte, nonceLen+proofLen)...), 1 + nonceLen},
			"TLS":                       {append([]byte{tlsHandshake}, make([]byte, 1000)...), 0},
		} {
			inBubble(t, func(t *testing.T) {
				p := newPair(t, knows(oldSecret), knows(oldSecret))
				c := p.connect("10.0.0.2")
				_, _ = c.Write(test.sends)
				_ = c.SetReadDeadline(time.Now().Add(time.Second))
				b, err := io.ReadAll(c)
				if len(b) > test.answer || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%c, %s: answered with %d bytes, %v", kind, name, len(b), err)
				}
				if p.served[0].Load() != 0 {
					t.Errorf("%c, %s: served", kind, name)
				}
				if s := p.ports[0].Stats(); s.Rejected != 1 || name != "TLS" && s.Auth.Refused != 1 {
					t.Errorf("%c, %s: %+v", kind, name, s)
				}
			})
		}
	}
}

// tap records what one member sends to the other, and may change it.
type tap struct {
	net.Conn
	change func(b []byte) []byte

	mu   sync.Mutex
	sent []byte
}

func (r *tap) Write(b []byte) (int, error) {
	out := bytes.Clone(b)
	if r.change != nil {
		out = r.change(out)
	}
	r.mu.Lock()
	r.sent = append(r.sent, out...)
	r.mu.Unlock()
	_, err := r.Conn.Write(out)
	return len(b), err
}

// TestOldProofsAreWorthNothing: what a member has sent to prove who it is proves nothing on another
// connection.
func TestOldProofsAreWorthNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newPair(t, knows(oldSecret), knows(oldSecret))
		var recorded *tap
		dial := p.ports[1].cfg.Dial
		p.ports[1].cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			recorded = &tap{Conn: c}
			return recorded, err
		}
		if _, err := p.echoes(1, 0); err != nil {
			t.Fatal(err)
		}
		before := p.served[0].Load()
		c := p.connect("10.0.0.2")
		_, _ = c.Write(recorded.sent)
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		if b, _ := io.ReadAll(c); len(b) > 1+nonceLen || p.served[0].Load() != before {
			t.Errorf("a repeated proof: answered with %d bytes, %d streams served", len(b), p.served[0].Load()-before)
		}
	})
}

// TestProofsAreNotSentBack: a machine between a member that dials it and the same member's port
// cannot answer the one with what the other says.
func TestProofsAreNotSentBack(t *testing.T) {
	ch := challenge{said: []byte("said"), dialer: newNonce(), acceptor: newNonce()}
	if bytes.Equal(ch.proof(byDialer, oldSecret), ch.proof(byAcceptor, oldSecret)) {
		t.Error("both directions have the same proof")
	}
	inBubble(t, func(t *testing.T) {
		p := newPair(t, knows(oldSecret), knows(oldSecret))
		// It takes the place of member 2, and answers with what it has been sent.
		p.ports[1].Close()
		l, err := p.net.Host("10.0.0.2").Listen("tcp", "10.0.0.2:2888")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			hello := make([]byte, prefaceLen+nonceLen)
			_, _ = io.ReadFull(c, hello)
			_, _ = c.Write(append([]byte{NewestVersion}, hello[prefaceLen:]...))
			_, _ = io.Copy(c, io.LimitReader(c, proofLen))
			_, _ = io.Copy(io.Discard, c)
		}()
		if _, err := p.ports[0].Dial(t.Context(), 2, StreamForward); !errors.Is(err, errProof) {
			t.Errorf("a proof that is sent back: %v", err)
		}
	})
}

// TestNothingInThePrefaceCanBeChanged: each byte of what is said before the proof is part of it.
func TestNothingInThePrefaceCanBeChanged(t *testing.T) {
	for at := 4; at < prefaceLen+nonceLen; at++ {
		inBubble(t, func(t *testing.T) {
			p := newPair(t, knows(oldSecret), knows(oldSecret))
			dial := p.ports[1].cfg.Dial
			p.ports[1].cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := dial(ctx, network, addr)
				return &tap{Conn: c, change: func(b []byte) []byte {
					if len(b) == prefaceLen+nonceLen {
						b[at] ^= 1
					}
					return b
				}}, err
			}
			if _, err := p.echoes(1, 0); err == nil || p.served[0].Load() != 0 {
				t.Errorf("byte %d is changed: %v", at, err)
			}
		})
	}
}

// TestSlowProofsEnd: who does not say and prove in time who it is, is cut off, however it spreads
// its bytes.
func TestSlowProofsEnd(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newPair(t, knows(oldSecret), knows(oldSecret))
		c := p.connect("10.0.0.9")
		began := time.Now()
		b := append(preface{proves: true, version: NewestVersion, kind: StreamRaft, from: 2, to: 1}.append(nil), make([]byte, nonceLen)...)
		for _, one := range b {
			if _, err := c.Write([]byte{one}); err != nil {
				break
			}
			time.Sleep(time.Second)
		}
		if _, err := io.ReadAll(c); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Fatal(err)
		}
		if s := p.ports[0].Stats(); s.Auth.Late != 1 || s.Auth.Unproved != 0 || s.Connections != 0 {
			t.Errorf("after %v: %+v", time.Since(began), s)
		}
	})
}

// TestUnprovedConnectionsAreBounded: those that have proved nothing are a quarter of the
// connections, and those of a few addresses do not take the places of others.
func TestUnprovedConnectionsAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newPair(t, knows(oldSecret), knows(oldSecret))
		port := p.ports[0]
		member := p.connect("10.0.0.2") // in the middle of its proof
		synctest.Wait()
		for i := range 300 {
			p.connect([]string{"10.0.1.1", "10.0.1.2", "10.0.1.3"}[i%3])
		}
		time.Sleep(time.Second)
		if n := port.Stats().Auth.Unproved; n > port.admission.unnamed() {
			t.Errorf("%d connections are open that have proved nothing", n)
		}
		if _, err := p.echoes(1, 0); err != nil {
			t.Errorf("a member connects meanwhile: %v", err)
		}
		_ = member.SetReadDeadline(time.Now())
		if _, err := member.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
			t.Error("the connection of the member was closed for those that have proved nothing")
		}
	})
}

// TestDroppedSecretEndsItsConnections: connections that were proved with a secret end when it does
// not count any more, and no others.
func TestDroppedSecretEndsItsConnections(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var first, second atomic.Pointer[[][]byte]
		set := func(at *atomic.Pointer[[][]byte], secrets ...[]byte) { at.Store(&secrets) }
		set(&first, oldSecret)
		set(&second, oldSecret)
		p := newPair(t, Auth{Secrets: func() [][]byte { return *first.Load() }}, Auth{Secrets: func() [][]byte { return *second.Load() }})
		open := func(from int) *Stream {
			s, err := p.echoes(from, 1-from)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		ended := func(s *Stream) bool {
			_ = s.SetReadDeadline(time.Now().Add(2 * secretPeriod))
			_, err := s.Read(make([]byte, 1))
			var timeout net.Error
			return !errors.As(err, &timeout) || !timeout.Timeout()
		}
		withOld := []*Stream{open(0), open(1)}
		set(&first, oldSecret, newSecret)
		set(&second, oldSecret, newSecret)
		set(&first, newSecret, oldSecret)
		set(&second, newSecret, oldSecret)
		withNew := []*Stream{open(0), open(1)}
		if ended(withOld[0]) || ended(withOld[1]) {
			t.Error("a connection ends while its secret counts")
		}
		set(&first, newSecret)
		set(&second, newSecret)
		if !ended(withOld[0]) || !ended(withOld[1]) {
			t.Error("a connection goes on with a secret that does not count any more")
		}
		if ended(withNew[0]) || ended(withNew[1]) {
			t.Error("a connection with the new secret has ended")
		}
	})
}

// fixedConn is a connection on which something has arrived, and nothing more will.
type fixedConn struct {
	net.Conn
	in  bytes.Reader
	out bytes.Buffer
}

func (c *fixedConn) Read(b []byte) (int, error)  { return c.in.Read(b) }
func (c *fixedConn) Write(b []byte) (int, error) { return c.out.Write(b) }
func (c *fixedConn) Close() error                { return nil }
func (c *fixedConn) SetDeadline(time.Time) error { return nil }
func (c *fixedConn) RemoteAddr() net.Addr        { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 9), Port: 9} }

// FuzzBeforeProof sends anything to ports with a secret, with TLS, and without both. Nobody is let
// in who has not proved who it is, no more is read than a proof is long, and what is let in without
// a secret is a preface.
func FuzzBeforeProof(f *testing.F) {
	plain := preface{version: NewestVersion, kind: StreamRaft, from: 2, to: 1, cluster: 7}
	f.Add(plain.append(nil))
	proving := plain
	proving.proves = true
	f.Add(append(proving.append(nil), make([]byte, nonceLen+proofLen)...))
	f.Add([]byte{tlsHandshake, 3, 1, 0, 5, 1, 0, 0, 1, 3})
	members := []Member{{ID: 1, Addr: "10.0.0.1:1"}, {ID: 2, Addr: "10.0.0.2:1"}}
	server := &tls.Config{ClientAuth: tls.RequireAnyClientCert, Certificates: []tls.Certificate{selfSigned(f, "10.0.0.1")}}
	auths := []Auth{{}, knows(oldSecret), {TLS: &TLS{Server: func() *tls.Config { return server }, Certificates: true, VerifyHost: true}}}
	f.Fuzz(func(t *testing.T, b []byte) {
		for i, auth := range auths {
			cfg := Config{ID: 1, Members: members, Auth: auth, Logger: slog.New(slog.DiscardHandler), Listen: func(string, string) (net.Listener, error) { return nil, nil }}
			port, err := Listen(cfg, NewRoster(members, false, fakeLocal{}), fakeLocal{})
			if err != nil {
				t.Fatal(err)
			}
			c := &fixedConn{in: *bytes.NewReader(b)}
			_, said, err := port.welcome(newInbound(c))
			if i > 0 && err == nil {
				t.Fatalf("%x is let in without a proof", b)
			}
			if i == 0 && err == nil && !slices.Equal(said.append(nil), b[:prefaceLen]) {
				t.Errorf("%x is taken for %+v", b, said)
			}
			if read := len(b) - c.in.Len(); read > prefaceLen+nonceLen+proofLen+i/2*maxHandshakeBytes {
				t.Errorf("%d bytes were read", read)
			}
			if i == 1 && c.out.Len() > 1+nonceLen {
				t.Errorf("%d bytes were answered", c.out.Len())
			}
		}
	})
}

// TestLittleMemoryBeforeProof: a connection costs a few KiB at most before its sender has proved
// who it is.
func TestLittleMemoryBeforeProof(t *testing.T) {
	members := []Member{{ID: 1, Addr: "10.0.0.1:1"}, {ID: 2, Addr: "10.0.0.2:1"}}
	cfg := Config{ID: 1, Members: members, Auth: knows(oldSecret), Logger: slog.New(slog.DiscardHandler),
		Listen: func(string, string) (net.Listener, error) { return nil, nil }}
	port, err := Listen(cfg, NewRoster(members, false, fakeLocal{}), fakeLocal{})
	if err != nil {
		t.Fatal(err)
	}
	b := append(preface{proves: true, version: NewestVersion, kind: StreamRaft, from: 2, to: 1}.append(nil), make([]byte, 1<<20)...)
	const connections = 1000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range connections {
		if _, _, err := port.welcome(newInbound(&fixedConn{in: *bytes.NewReader(b)})); err == nil {
			t.Fatal("let in without a proof")
		}
	}
	runtime.ReadMemStats(&after)
	if got := (after.TotalAlloc - before.TotalAlloc) / connections; got > 4<<10 {
		t.Errorf("%d bytes are allocated for each", got)
	}
}
