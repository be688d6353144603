package server

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"lockkeeper/server/ops/door"
	"lockkeeper/server/zoocfg"
)

// Requests that do not come as a whole make nobody else wait, be it their headers or their bodies
// that are late, and are given up when their time is over.
func TestSlowRequestsHoldUpNobody(t *testing.T) {
	checkGoroutines(t)
	s := startReal(t, func(c *Config) {
		c.HTTP.Addr, c.HTTP.RequestTimeout = "127.0.0.1:0", time.Second
		allWords(c)
	})
	begin := time.Now()
	var open []net.Conn
	for i := range 2 * zoocfg.DefaultHTTPConns {
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
	if took := time.Since(begin); took > s.cfg.HTTP.RequestTimeout {
		t.Errorf("others were served after %v", took)
	}
	for _, c := range open {
		_ = c.SetReadDeadline(time.Now().Add(patience))
		if b, err := io.ReadAll(c); len(b) > 0 && !strings.HasPrefix(string(b), "HTTP/1.1 413 ") || err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("a slow request ended with %q, %v", b, err)
		}
	}
	mntr := dialReal(t, s).word("mntr")
	c, _ := s.surfaces.shared.Door.Counts()
	if c.Displaced == 0 || c.Late == 0 || c.Late > int64(s.cfg.HTTP.ConnsPerAddr) {
		t.Errorf("%d connections were displaced, and %d requests too late", c.Displaced, c.Late)
	}
	if want := fmt.Sprintf("zk_http_connections_refused\t%d\nzk_http_connections_displaced\t%d\nzk_http_requests_late\t%d\n", c.Refused, c.Displaced, c.Late); !strings.Contains(mntr, want) {
		t.Errorf("mntr lacks\n%s", want)
	}
}

// An optional port that is in use is replaced by another one of its host; without a host that this
// machine has, the member starts without HTTP.
func TestOptionalHTTPPort(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s := startReal(t, func(c *Config) { c.HTTP.Addr, c.HTTP.Optional = taken.Addr().String(), true })
	at, ok := s.HTTPAddr().(*net.TCPAddr)
	if !ok || !at.IP.IsLoopback() || at.String() == taken.Addr().String() {
		t.Errorf("HTTP is at %v", s.HTTPAddr())
	}
	s = startReal(t, func(c *Config) { c.HTTP.Addr, c.HTTP.Optional = "192.0.2.1:8080", true })
	if s.HTTPAddr() != nil {
		t.Errorf("HTTP is at %v", s.HTTPAddr())
	}
}

// The body of a request may be small.
func TestHTTPBodies(t *testing.T) {
	s := startReal(t, func(c *Config) { c.HTTP.Addr = "127.0.0.1:0" })
	for size, want := range map[int]int{0: http.StatusConflict, 100: http.StatusConflict, door.BodyBytes + 1: http.StatusRequestEntityTooLarge, 10 << 20: http.StatusRequestEntityTooLarge} {
		resp, err := http.Post("http://"+s.HTTPAddr().String()+"/leader", "text/plain", strings.NewReader(strings.Repeat("x", size)))
		if err != nil {
			if size > door.BodyBytes+1 {
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
