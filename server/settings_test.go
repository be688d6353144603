package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/simnet"
	"lockkeeper/wire"
)

// TestThrottleKeys: the keys of a file take effect.
func TestThrottleKeys(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "zoo.cfg")
	text := "clientPort=2181\ndataDir=" + filepath.Join(dir, "data") + `
globalOutstandingLimit=300
zookeeper.request_throttle_max_requests=20
throttled_op_wait_time=1500
largeRequestThreshold=-1
largeRequestMaxBytes=4096
connection_throttle_tokens=7
connection_throttle_fill_count=2
connection_throttle_fill_time=50
closeSessionTxn.enabled=false
DigestAuthenticationProvider.digestAlg=sha-512
enforce.auth.enabled=true
enforce.auth.schemes=digest, ip
`
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := LoadConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	l := c.Limits
	if l.Outstanding != 300 || l.Requests != 20 || l.Wait != 1500*time.Millisecond || l.LargeRequest != 0 || l.LargeBytes != 4096 ||
		c.Client.ConnectTokens != 7 || c.Client.ConnectFillCount != 2 || c.Client.ConnectFillTime != 50*time.Millisecond ||
		c.Auth.DigestAlgorithm != "sha-512" || strings.Join(c.Auth.RequiredSchemes, " ") != "digest ip" {
		t.Errorf("%+v", c)
	}
	for members, want := range map[int]int{0: 300, 2: 300, 3: 150, 5: 75} {
		if got := limitsOf(&c, members).Outstanding; got != want {
			t.Errorf("%d members: each takes %d, want %d", members, got, want)
		}
	}
}

// TestConnectionThrottle: a limited number of handshakes at once, and more as time goes by.
func TestConnectionThrottle(t *testing.T) {
	throttled := func(c *Config) {
		c.Client.ConnectTokens, c.Client.ConnectFillCount, c.Client.ConnectFillTime = 3, 2, time.Second
	}
	inBubble(t, simnet.Config{}, throttled, func(t *testing.T, s *Server, h *simnet.Host) {
		round := func(want int) {
			t.Helper()
			served := 0
			for range 6 {
				c := dialSim(t, h)
				c.req.TimeoutMs = 10_000
				c.put(wire.AppendFrame(nil, c.req)...)
				if _, err := wire.ReadFrame(c, nil, 1<<20); err == nil {
					served++
				}
			}
			if served != want {
				t.Errorf("%d of 6 handshakes were answered, want %d", served, want)
			}
		}
		round(3)
		time.Sleep(1100 * time.Millisecond)
		round(2)
		time.Sleep(time.Minute)
		round(3)
		if got := s.port.counters.rejected.Load(); got != 10 {
			t.Errorf("%d rejected connections were counted", got)
		}
	})
}

// TestACLSchemes: which schemes ACLs may name.
func TestACLSchemes(t *testing.T) {
	for _, x := range []struct {
		name   string
		change func(*Config)
		want   map[string]wire.Code
	}{
		{"default", nil, map[string]wire.Code{"x509": wire.CodeInvalidACL, "sasl": wire.CodeInvalidACL, "digest": wire.CodeOK}},
		{"no digest", func(c *Config) { c.Auth.NoDigest = true }, map[string]wire.Code{"digest": wire.CodeInvalidACL}},
	} {
		inBubble(t, simnet.Config{}, x.change, func(t *testing.T, _ *Server, h *simnet.Host) {
			c := dialSim(t, h)
			c.connect(10 * time.Second)
			ids := map[string]string{"x509": "CN=client,O=example", "sasl": "bob@EXAMPLE.ORG", "digest": "u:h"}
			for scheme, want := range x.want {
				req := create("/"+scheme, nil, wire.ModePersistent)
				req.ACL = []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: scheme, ID: ids[scheme]}}}
				c.put(c.request(wire.OpCreate, req)...)
				if h, _ := c.reply(); h.Err != want {
					t.Errorf("%s: an ACL with %s: %v, want %v", x.name, scheme, h.Err, want)
				}
			}
		})
	}
}
