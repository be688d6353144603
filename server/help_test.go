package server

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/freeport"
	"lockkeeper/internal/simdisk"
	"lockkeeper/internal/simnet"
	"lockkeeper/quorum/store"
	"lockkeeper/server/zoocfg"
	"lockkeeper/wire"
)

// patience bounds every wait in real time.
const patience = 20 * time.Second

// TestMain has parallel tests, which mostly wait for elections, outnumber the processors.
func TestMain(m *testing.M) {
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		_ = flag.Set("test.parallel", "4")
	}
	os.Exit(m.Run())
}

// testLogger discards the log unless LOG is set.
func testLogger() *slog.Logger {
	if os.Getenv("LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// startReal starts a member that stands alone on a loopback port and with real files, and stops it
// when the test ends. Nothing of it may be left then.
func startReal(t *testing.T, change func(*Config)) *Server {
	t.Helper()
	cfg := Config{Client: zoocfg.Client{Addr: "127.0.0.1:0"}, Data: zoocfg.Data{Dir: t.TempDir()}, Logger: testLogger()}
	if change != nil {
		change(&cfg)
	}
	s, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	awaitServing(t, s)
	return s
}

func awaitServing(t *testing.T, s *Server) {
	t.Helper()
	await(t, "a leader", s.Serving)
}

// await waits until cond is true: it polls, for conditions without an event.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// checkGoroutines fails the test when, at its end, goroutines of this module are left that were not
// there before. Call it first.
func checkGoroutines(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		var left []string
		for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			// A goroutine that has called its last Done may still be seen for a moment.
			if left = ourGoroutines(); len(left) == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d goroutines are left:\n%s", len(left), strings.Join(left, "\n\n"))
			}
		}
	})
}

func ourGoroutines() (ours []string) {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	for g := range strings.SplitSeq(string(buf), "\n\n") {
		own := strings.Contains(g, "lockkeeper/") || strings.Contains(g, "hashicorp/raft")
		if own && !strings.Contains(g, "testing.tRunner") && !strings.Contains(g, "testing.(*T).Run") {
			ours = append(ours, g)
		}
	}
	return ours
}

// inBubble runs f in virtual time, on a network with one member, that stands alone, on host
// "server".
func inBubble(t *testing.T, net simnet.Config, change func(*Config), f func(t *testing.T, s *Server, client *simnet.Host)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(net)
		cfg := Config{
			Machine: zoocfg.Machine{Listen: n.Host("server").Listen, Stores: diskStores(simdisk.New())},
			Logger:  testLogger(),
		}
		if change != nil {
			change(&cfg)
		}
		s, err := Start(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		time.Sleep(time.Second) // virtual: it has elected itself by then
		if !s.Serving() {
			t.Fatal("not serving after a second")
		}
		f(t, s, n.Host("client"))
	})
}

// startLoneMember starts, in a bubble, one member of three that do not exist.
func startLoneMember(t *testing.T, n *simnet.Network) *Server {
	t.Helper()
	h := n.Host("server")
	s, err := Start(Config{
		Machine: zoocfg.Machine{Listen: h.Listen, Dial: h.Dial, Stores: diskStores(simdisk.New())},
		Logger:  testLogger(),
		Client:  zoocfg.Client{FourLetterWords: []string{"*"}},
		Cluster: zoocfg.Cluster{ID: 1, Members: []Member{
			{ID: 1, Host: "server", PeerPort: 2888, ElectionPort: 3888},
			{ID: 2, Host: "other", PeerPort: 2888, ElectionPort: 3888},
			{ID: 3, Host: "third", PeerPort: 2888, ElectionPort: 3888}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func diskStores(d *simdisk.Disk) *store.Stores {
	s, err := store.OpenOn(d.Files(), 64<<10, d, d)
	if err != nil {
		panic(err) // the disk is without faults
	}
	return &s
}

const simAddr = "server:2181"

// rawClient is a client that sends given bytes.
type rawClient struct {
	net.Conn
	t   *testing.T
	xid wire.Xid
	req wire.ConnectRequest
	id  wire.ConnectResponse
}

func dialReal(t *testing.T, s *Server) *rawClient {
	t.Helper()
	c, err := net.Dial("tcp", s.ClientAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return &rawClient{Conn: c, t: t}
}

func dialSim(t *testing.T, h *simnet.Host) *rawClient {
	t.Helper()
	c, err := h.Dial(context.Background(), "tcp", simAddr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Hour)) // virtual
	return &rawClient{Conn: c, t: t}
}

// put writes bytes.
func (c *rawClient) put(b ...byte) {
	c.t.Helper()
	if _, err := c.Write(b); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

// connect makes the handshake.
func (c *rawClient) connect(timeout time.Duration) {
	c.t.Helper()
	c.req.TimeoutMs = int32(timeout.Milliseconds())
	c.put(wire.AppendFrame(nil, c.req)...)
	c.response()
}

// response reads the answer to the handshake.
func (c *rawClient) response() {
	c.t.Helper()
	frame, err := wire.ReadFrame(c, nil, 1<<20)
	if err != nil {
		c.t.Fatalf("no connect response: %v", err)
	}
	if err := wire.Decode(frame, &c.id); err != nil {
		c.t.Fatal(err)
	}
}

// request is the frame of the next request.
func (c *rawClient) request(op wire.Op, body wire.Record) []byte {
	c.xid++
	xid := c.xid
	if op == wire.OpPing {
		xid = wire.XidPing
	}
	return wire.AppendRequest(nil, xid, op, body)
}

// reply reads the next frame.
func (c *rawClient) reply() (wire.ReplyHeader, []byte) {
	c.t.Helper()
	frame, err := wire.ReadFrame(c, nil, 64<<20)
	if err != nil {
		c.t.Fatalf("no reply: %v", err)
	}
	h, body, err := wire.DecodeReply(frame)
	if err != nil {
		c.t.Fatal(err)
	}
	return h, body
}

// call sends a request and checks that its reply is the next one.
func (c *rawClient) call(op wire.Op, body wire.Record) []byte {
	c.t.Helper()
	c.put(c.request(op, body)...)
	h, b := c.reply()
	if want := c.xid; op != wire.OpPing && h.Xid != want || h.Err != wire.CodeOK {
		c.t.Fatalf("%v: reply %+v to xid %d", op, h, want)
	}
	return b
}

// expectEnd checks that nothing more comes, and that the connection ends in an orderly way: a reset
// might have destroyed an answer.
func (c *rawClient) expectEnd() {
	c.t.Helper()
	b, err := io.ReadAll(c)
	if err != nil || len(b) > 0 {
		c.t.Errorf("got %q, %v; want the end of the connection", b, err)
	}
}

// expectClosed is expectEnd for a connection that ends because of the client's bytes: that may be a
// reset when bytes were left unread.
func (c *rawClient) expectClosed() {
	c.t.Helper()
	b, err := io.ReadAll(c)
	if len(b) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("got %q, %v; want a closed connection", b, err)
	}
}

// word sends a four-letter word, returns the answer and closes the connection, as nc does: a member
// keeps the turn of a listing until then.
func (c *rawClient) word(w string) string {
	c.t.Helper()
	defer func() { _ = c.Close() }()
	c.put([]byte(w)...)
	b, err := io.ReadAll(c)
	if err != nil {
		c.t.Errorf("%s: %v after %q", w, err, b)
	}
	return string(b)
}

func create(path string, data []byte, mode wire.CreateMode) *wire.CreateRequest {
	return &wire.CreateRequest{Path: path, Data: data, ACL: wire.OpenACL, Mode: mode}
}

func allWords(cfg *Config) { cfg.Client.FourLetterWords = []string{"*"} }

// freePort returns the first of two loopback ports in a row that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	port, err := freeport.Block(2)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func mustLoad(t *testing.T, file, format string, args ...any) Config {
	t.Helper()
	writeFile(t, file, fmt.Sprintf(format, args...))
	cfg, err := LoadConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Logger = testLogger()
	return cfg
}

func writeFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
