package door

import (
	"bytes"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"lockkeeper/server/zoocfg"
	"lockkeeper/session"
	"lockkeeper/znode"
)

// startPort serves a handler at a port of a door.
func startPort(t *testing.T, h http.Handler) *Port {
	t.Helper()
	cfg := (&zoocfg.Config{}).WithDefaults()
	sessions := session.NewManager(session.Config{})
	d := New(Config{Settings: &cfg, Sessions: sessions, Members: func() []zoocfg.Member { return nil },
		Holder: func(net.Conn) []znode.Identity { return nil }, UsesTLS: func(net.Conn) bool { return false },
		Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := d.Open("test", l, h, false, nil)
	p.Start()
	t.Cleanup(p.Stop)
	return p
}

// The log lines of net/http are in the member's log.
func TestErrorLog(t *testing.T) {
	var out bytes.Buffer
	d := New(Config{Log: slog.New(slog.NewTextHandler(&out, nil))})
	d.errorLog().Printf("http: panic serving 127.0.0.1:%d: because", 1)
	if !strings.Contains(out.String(), `msg="HTTP server" text="http: panic serving 127.0.0.1:1: because"`) {
		t.Errorf("logged %q", out.String())
	}
}

func TestGuessesAreForgiven(t *testing.T) {
	var g guesses
	a, now := netip.MustParseAddr("2001:db8::1"), time.Now()
	for range GuessesAtOnce {
		if g.waits(a, now) {
			t.Fatal("it waits at once")
		}
		g.add(a, now)
	}
	if !g.waits(netip.MustParseAddr("2001:db8::2"), now) || g.waits(netip.MustParseAddr("10.0.0.1"), now) {
		t.Error("its network must wait, and no other")
	}
	if g.waits(a, now.Add(2*guessEvery)) {
		t.Error("it is not forgiven")
	}
}

// Which connection is displaced: the oldest one that is not being served, of the same address if
// that has its share; none that is.
func TestSlots(t *testing.T) {
	l := newSlots(nil, 3, 2)
	hosts := map[string]netip.Addr{}
	for i, host := range []string{"a", "b", "c", "d"} {
		hosts[host] = netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
	}
	add := func(host string) (c, victim *conn, ok bool) {
		c = &conn{slots: l, host: hosts[host]}
		victim, ok = l.admit(c)
		return c, victim, ok
	}
	a1, _, _ := add("a")
	b1, _, _ := add("b")
	a1.setState(isServing)
	b1.setState(isServing)
	a2, victim, ok := add("a")
	if victim != nil || !ok {
		t.Fatalf("with room: %v, %v", victim, ok)
	}
	a3, victim, ok := add("a")
	if victim != a2 || !ok {
		t.Errorf("a third of one address displaces %v, %v; want its second", victim, ok)
	}
	if a2.setState(isServing) {
		t.Error("a displaced connection is served")
	}
	c1, victim, ok := add("c")
	if victim != a3 || !ok {
		t.Errorf("a fourth displaces %v, %v; want the only one that is not served", victim, ok)
	}
	c1.setState(isServing)
	if _, victim, ok = add("d"); victim != nil || ok {
		t.Errorf("while all are served, another displaces %v, %v", victim, ok)
	}
	b1.setState(isIdle)
	if _, victim, ok = add("d"); victim != b1 || !ok {
		t.Errorf("another displaces %v, %v; want the idle one", victim, ok)
	}
	if refused, displaced := l.refused.Load(), l.displaced.Load(); refused != 1 || displaced != 3 {
		t.Errorf("%d refused and %d displaced, want 1 and 3", refused, displaced)
	}
}
