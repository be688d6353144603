package server

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"lockkeeper/server/zoocfg"
)

// Requests that do not come as a whole make nobody else wait, be it their headers or their bodies
// that are late, and are given up when their time is over.
func TestSlowRequestsHoldUpNobody(t *testing.T) {
	checkGoroutines(t)
	s := startReal(t, func(c *Config) {
		c.HTTPAddr, c.HTTPRequestTimeout = "127.0.0.1:0", time.Second
		allWords(c)
	})
	begin := time.Now()
	var open []net.Conn
	for i := range 2 * zoocfg.MaxHTTPConns {
		c, err := net.Dial("tcp", s.HTTPAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		request := "GET /fence?lock=/m&token=1 HTTP/1.1\r\nHost: localhost\r\n"
		if i%2 == 1 {
			request = "POST /leader HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n"
		}
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	for range 10 {
		if status, _, _ := askFence(t, s, about("/m", 1), ""); status != http.StatusConflict {
			t.Errorf("status %d", status)
		}
	}
	if took := time.Since(begin); took > s.cfg.HTTPRequestTimeout {
		t.Errorf("others were served after %v", took)
	}
	for _, c := range open {
		_ = c.SetReadDeadline(time.Now().Add(patience))
		if b, err := io.ReadAll(c); len(b) > 0 && !strings.HasPrefix(string(b), "HTTP/1.1 413 ") || err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("a slow request ended with %q, %v", b, err)
		}
	}
	mntr := dialReal(t, s).word("mntr")
	refused, displaced, late := s.http.slots.refused.Load(), s.http.slots.displaced.Load(), s.http.slots.late.Load()
	if displaced == 0 || late == 0 || late > int64(s.cfg.HTTPConnsPerAddr) {
		t.Errorf("%d connections were displaced, and %d requests too late", displaced, late)
	}
	if want := fmt.Sprintf("zk_http_connections_refused\t%d\nzk_http_connections_displaced\t%d\nzk_http_requests_late\t%d\n", refused, displaced, late); !strings.Contains(mntr, want) {
		t.Errorf("mntr lacks\n%s", want)
	}
}

// The body of a request may be small.
func TestHTTPBodies(t *testing.T) {
	s := startReal(t, func(c *Config) { c.HTTPAddr = "127.0.0.1:0" })
	for size, want := range map[int]int{0: http.StatusConflict, 100: http.StatusConflict, httpBodyBytes + 1: http.StatusRequestEntityTooLarge, 10 << 20: http.StatusRequestEntityTooLarge} {
		resp, err := http.Post("http://"+s.HTTPAddr().String()+"/leader", "text/plain", strings.NewReader(strings.Repeat("x", size)))
		if err != nil {
			if size > httpBodyBytes+1 {
				continue // closed before it was sent
			}
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("a body of %d bytes: status %d, want %d", size, resp.StatusCode, want)
		}
	}
}

// Which connection is displaced: the oldest one that is not being served, of the same address if
// that has its share; none that is.
func TestHTTPSlots(t *testing.T) {
	l := &httpSlots{maxConns: 3, maxPerAddr: 2}
	add := func(host string) (c, victim *httpConn, ok bool) {
		c = &httpConn{slots: l, host: host}
		victim, ok = l.admit(c)
		return c, victim, ok
	}
	a1, _, _ := add("a")
	b1, _, _ := add("b")
	a1.setState(httpServing)
	b1.setState(httpServing)
	a2, victim, ok := add("a")
	if victim != nil || !ok {
		t.Fatalf("with room: %v, %v", victim, ok)
	}
	a3, victim, ok := add("a")
	if victim != a2 || !ok {
		t.Errorf("a third of one address displaces %v, %v; want its second", victim, ok)
	}
	if a2.setState(httpServing) {
		t.Error("a displaced connection is served")
	}
	c1, victim, ok := add("c")
	if victim != a3 || !ok {
		t.Errorf("a fourth displaces %v, %v; want the only one that is not served", victim, ok)
	}
	c1.setState(httpServing)
	if _, victim, ok = add("d"); victim != nil || ok {
		t.Errorf("while all are served, another displaces %v, %v", victim, ok)
	}
	b1.setState(httpIdle)
	if _, victim, ok = add("d"); victim != b1 || !ok {
		t.Errorf("another displaces %v, %v; want the idle one", victim, ok)
	}
	if refused, displaced := l.refused.Load(), l.displaced.Load(); refused != 1 || displaced != 3 {
		t.Errorf("%d refused and %d displaced, want 1 and 3", refused, displaced)
	}
}
