package server

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/loglimit"
	"lockkeeper/internal/simnet"
	"lockkeeper/internal/testcert"
	"lockkeeper/server/secure"
	"lockkeeper/server/zoocfg"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// certLab is a directory with the certificates of a server, and an authority for more.
type certLab struct {
	*testing.T
	dir string
	ca  *testcert.CA
}

func newCertLab(t *testing.T) *certLab {
	l := &certLab{T: t, dir: t.TempDir(), ca: testcert.NewCA(t, "authority")}
	l.issue("server")
	return l
}

func (l *certLab) issue(name string) testcert.Pair {
	l.Helper()
	pair := l.ca.Issue(l, testcert.Request{Subject: pkix.Name{CommonName: name}, Hosts: []string{"localhost", "127.0.0.1"}})
	pair.Write(l, l.dir, name)
	return pair
}

// secure has a member speak TLS on its one port for clients.
func (l *certLab) secure(cfg *Config) {
	at := func(suffix string) string { return filepath.Join(l.dir, "server"+suffix) }
	cfg.Client.TLS = zoocfg.TLSOnly
	cfg.TLS.Clients = secure.Settings{
		KeyStore:   secure.Store{File: at(".pem"), KeyFile: at(".key"), Type: secure.PEM, Key: "tls.cert", KeyFileKey: "tls.key"},
		TrustStore: secure.Store{File: at(".ca"), Type: secure.PEM, Key: "tls.ca"},
		Reload:     true,
	}
}

// client is the configuration of the holder of a new certificate.
func (l *certLab) client(name string) *tls.Config {
	l.Helper()
	pair := l.ca.Issue(l, testcert.Request{Subject: pkix.Name{CommonName: name, Organization: []string{"Example"}}})
	cert, err := tls.X509KeyPair(pair.PEM, pair.KeyPEM)
	if err != nil {
		l.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(l.ca.Cert)
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots, ServerName: "localhost"}
}

// over has a client speak TLS from now on.
func (c *rawClient) over(config *tls.Config) *rawClient {
	c.Conn = tls.Client(c.Conn, config)
	return c
}

// whoAmI are the identities of the connection, but its address.
func (c *rawClient) whoAmI() string {
	c.t.Helper()
	body := c.call(wire.OpWhoAmI, nil)
	text := func() string {
		n := binary.BigEndian.Uint32(body)
		t := string(body[4 : 4+n])
		body = body[4+n:]
		return t
	}
	n := binary.BigEndian.Uint32(body)
	body = body[4:]
	var ids []string
	for range n {
		if scheme, user := text(), text(); scheme != "ip" {
			ids = append(ids, scheme+":"+user)
		}
	}
	return strings.Join(ids, " ")
}

// TestTLSClients: a client with a certificate gets a session and the identity of its holder, for
// its writes and for the ACLs of its nodes.
func TestTLSClients(t *testing.T) {
	checkGoroutines(t)
	l := newCertLab(t)
	s := startReal(t, func(cfg *Config) {
		l.secure(cfg)
		cfg.Auth.X509SuperUser = "CN=root,O=Example"
		cfg.Client.FourLetterWords = []string{"*"}
	})
	bob := dialReal(t, s).over(l.client("bob"))
	bob.connect(10 * time.Second)
	if got := bob.whoAmI(); got != "x509:CN=bob,O=Example" {
		t.Errorf("bob is %q", got)
	}
	own := create("/bob", []byte("x"), 0)
	own.ACL = []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "auth"}}}
	bob.call(wire.OpCreate, own)
	bob.call(wire.OpSetData, &wire.SetDataRequest{Path: "/bob", Data: []byte("y"), Version: -1})
	s.View(func(store *znode.Store) {
		acl, _, _ := store.GetACL("/bob", []znode.Identity{{Scheme: "super"}})
		if len(acl) != 1 || acl[0].ID.Scheme != "x509" || acl[0].ID.ID != "CN=bob,O=Example" {
			t.Errorf("bob's node has the ACL %v", acl)
		}
	})

	eve := dialReal(t, s).over(l.client("eve"))
	eve.connect(10 * time.Second)
	eve.put(eve.request(wire.OpSetData, &wire.SetDataRequest{Path: "/bob", Version: -1})...)
	eve.put(eve.request(wire.OpGetData, &wire.PathWatchRequest{Path: "/bob"})...)
	for range 2 {
		if h, _ := eve.reply(); h.Err != wire.CodeNoAuth {
			t.Errorf("eve: %v", h.Err)
		}
	}

	root := dialReal(t, s).over(l.client("root"))
	root.connect(10 * time.Second)
	if got := root.whoAmI(); !strings.HasPrefix(got, "x509:CN=root,O=Example super") {
		t.Errorf("root is %q", got)
	}
	root.call(wire.OpGetData, &wire.PathWatchRequest{Path: "/bob"})

	mntr := dialReal(t, s).over(l.client("bob")).word("mntr")
	for _, want := range []string{"zk_tls_handshakes\t4\n", "zk_tls_handshakes_failed\t0\n", "zk_outstanding_tls_handshake\t0\n", "zk_tls_reloads\t0\n"} {
		if !strings.Contains(mntr, want) {
			t.Errorf("mntr lacks %q:\n%s", want, mntr)
		}
	}
	if conf := dialReal(t, s).over(l.client("bob")).word("conf"); !strings.Contains(conf, "clientPort=-1\nsecureClientPort=") {
		t.Errorf("conf: %s", conf)
	}
}

// lines collects the log.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.b.String(), text)
}

// TestTLSRefusals: a client that is refused has a line in the log that says why.
func TestTLSRefusals(t *testing.T) {
	l := newCertLab(t)
	var log lines
	pair := l.ca.Issue(t, testcert.Request{Subject: pkix.Name{CommonName: "expired"}, NotAfter: time.Now().Add(-time.Minute)})
	expired, err := tls.X509KeyPair(pair.PEM, pair.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(*tls.Config)) *tls.Config {
		c := l.client("bob")
		change(c)
		return c
	}
	other := (&certLab{T: t, ca: testcert.NewCA(t, "authority")}).client("bob")
	other.RootCAs = l.client("bob").RootCAs
	s := startReal(t, func(cfg *Config) {
		l.secure(cfg)
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	for name, c := range map[string]struct {
		client *tls.Config // nil: no TLS
		want   string
	}{
		"no certificate":  {with(func(c *tls.Config) { c.Certificates = nil }), "client didn't provide a certificate"},
		"expired":         {with(func(c *tls.Config) { c.Certificates[0] = expired }), "certificate has expired"},
		"wrong authority": {other, "unknown authority"},
		"TLS 1.1":         {with(func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }), "unsupported versions"},
		"wrong host":      {with(func(c *tls.Config) { c.ServerName = "elsewhere" }), "bad certificate"},
		"without TLS":     {nil, "it does not use TLS, and this port is for TLS only"},
	} {
		t.Run(name, func(t *testing.T) {
			s.tls.Refusals = loglimit.New(s.log)
			client := dialReal(t, s)
			if c.client != nil {
				client.over(c.client)
			}
			_, _ = client.Write(wire.AppendFrame(nil, wire.ConnectRequest{TimeoutMs: 10000}))
			// An alert has 7 bytes.
			if b, err := io.ReadAll(client); errors.Is(err, os.ErrDeadlineExceeded) || len(b) > 7 {
				t.Errorf("%q, %v", b, err)
			}
			await(t, "a line in the log", func() bool { return log.has(c.want) })
		})
	}
	if n := s.tls.Failed.Load(); n != 6 {
		t.Errorf("%d failed handshakes", n)
	}
}

// TestOnePortForBoth: the first byte decides.
func TestOnePortForBoth(t *testing.T) {
	l := newCertLab(t)
	s := startReal(t, func(cfg *Config) {
		l.secure(cfg)
		cfg.Client.TLS, cfg.Client.SecureAddr = zoocfg.TLSAlso, "127.0.0.1:0"
	})
	plain := dialReal(t, s)
	plain.connect(10 * time.Second)
	if got := plain.whoAmI(); got != "" {
		t.Errorf("without TLS the client is %q", got)
	}
	secure := dialReal(t, s).over(l.client("bob"))
	secure.connect(10 * time.Second)
	if got := secure.whoAmI(); got != "x509:CN=bob,O=Example" {
		t.Errorf("with TLS the client is %q", got)
	}
	if got := dialReal(t, s).word("srvr"); !strings.Contains(got, "Mode: standalone") {
		t.Errorf("srvr: %q", got)
	}
	other, err := net.Dial("tcp", s.SecureClientAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	only := (&rawClient{Conn: other, t: t}).over(l.client("bob"))
	only.connect(10 * time.Second)
	only.call(wire.OpCreate, create("/x", nil, 0))
}

// TestTLSHandshakesAreBounded: silent clients take neither a handshake's place for long, nor more
// places than there are.
func TestTLSHandshakesAreBounded(t *testing.T) {
	l := newCertLab(t)
	inBubble(t, simnet.Config{}, func(cfg *Config) {
		l.secure(cfg)
		cfg.Client.TLS, cfg.TLS.MaxHandshakes, cfg.TLS.DetectTimeout = zoocfg.TLSAlso, 2, 300*time.Millisecond
	}, func(t *testing.T, s *Server, h *simnet.Host) {
		hello := []byte{secure.HandshakeByte, 3, 1, 1, 0}
		undecided := dialSim(t, h)
		var silent []*rawClient
		for range 2 {
			c := dialSim(t, h)
			c.put(hello...)
			silent = append(silent, c)
		}
		time.Sleep(200 * time.Millisecond)
		if n := s.tls.Shaking(); n != 2 {
			t.Errorf("%d handshakes", n)
		}
		third := dialSim(t, h)
		third.put(hello...)
		silent[0].expectClosed() // the oldest makes room
		silent[0] = third
		synctest.Wait()
		if n := s.tls.Exceeded.Load(); n != 1 {
			t.Errorf("%d connections were too many", n)
		}
		time.Sleep(200 * time.Millisecond)
		undecided.expectClosed()
		plain := dialSim(t, h)
		plain.connect(10 * time.Second) // those without TLS are let in all the while
		time.Sleep(s.cfg.Client.HandshakeTimeout)
		for _, c := range silent {
			c.expectClosed()
		}
		if n := s.tls.Shaking(); n != 0 {
			t.Errorf("%d handshakes are left", n)
		}
		if n := s.port.count(); n != 1 {
			t.Errorf("%d connections are left", n)
		}
		if n := s.port.counters.sessionlessExpired.Load(); n != 1 {
			t.Errorf("%d connections were silent", n)
		}
	})
}

// TestLongHandshakesEnd: a port reads no more than the length of a few certificates from a client
// that has not finished its handshake, for clients and for HTTP. A shorter chain is taken.
func TestLongHandshakesEnd(t *testing.T) {
	l := newCertLab(t)
	var log lines
	s := startReal(t, func(cfg *Config) {
		l.secure(cfg)
		cfg.HTTP.Addr, cfg.HTTP.TLS = "127.0.0.1:0", zoocfg.TLSOnly
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	for name, want := range map[string]bool{"short": true, "long": false} {
		config := l.client("bob")
		chain := &config.Certificates[0].Certificate
		for size := len((*chain)[0]); size < map[bool]int{true: secure.HandshakeBytes / 2, false: 4 * secure.HandshakeBytes}[want]; {
			*chain = append(*chain, l.ca.Cert.Raw)
			size += len(l.ca.Cert.Raw)
		}
		for _, addr := range []string{s.HTTPAddr().String(), s.ClientAddr().String()} {
			nc, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			c := tls.Client(nc, config)
			_ = c.SetDeadline(time.Now().Add(patience))
			_, err = c.Write([]byte("GET /live HTTP/1.0\r\n\r\n"))
			if err == nil && want && addr == s.HTTPAddr().String() {
				_, err = c.Read(make([]byte, 1))
			} else if err == nil && !want {
				_, err = c.Read(make([]byte, 1))
			}
			if got := err == nil; got != want {
				t.Errorf("%s, %s: %v", name, addr, err)
			}
			_ = c.Close()
		}
	}
	if failed := s.tls.Failed.Load(); failed != 2 || !log.has(secure.ErrLongHandshake.Error()) {
		t.Errorf("%d handshakes failed", failed)
	}
}

// TestSlowReadersOverTLS: bytes that a client does not take in time are sent later, all of them, as
// without TLS, though a deadline within a write ends a connection of crypto/tls.
func TestSlowReadersOverTLS(t *testing.T) {
	l := newCertLab(t)
	inBubble(t, simnet.Config{}, l.secure, func(t *testing.T, s *Server, h *simnet.Host) {
		c := dialSim(t, h).over(l.client("bob"))
		c.connect(10 * time.Second)
		data := make([]byte, 900<<10)
		for i := range data {
			data[i] = byte(i * i >> 7)
		}
		c.call(wire.OpCreate, create("/large", data, 0))
		const reads = 3
		for range reads {
			c.put(c.request(wire.OpGetData, &wire.PathWatchRequest{Path: "/large"})...)
		}
		time.Sleep(5 * time.Second)
		c.put(c.request(wire.OpPing, nil)...)
		for range reads {
			if _, body := c.reply(); !bytes.Equal(body[4:4+len(data)], data) {
				t.Fatal("the data has changed on its way")
			}
			time.Sleep(time.Second)
		}
		if h, _ := c.reply(); h.Xid != wire.XidPing {
			t.Errorf("%+v is no answer to a ping", h)
		}
		c.call(wire.OpExists, &wire.PathWatchRequest{Path: "/large"})
		c.put(c.request(wire.OpCloseSession, nil)...)
		c.reply()
		c.expectEnd()
	})
}

// TestCertificatesChange: a session lives on while the certificates change, and later clients see
// the new one.
func TestCertificatesChange(t *testing.T) {
	l := newCertLab(t)
	inBubble(t, simnet.Config{}, l.secure, func(t *testing.T, s *Server, h *simnet.Host) {
		c := dialSim(t, h).over(l.client("bob"))
		c.connect(30 * time.Second)
		synctest.Wait() // no look at the files is under way
		next := l.issue("server")
		time.Sleep(2 * secure.ReloadEvery)
		c.call(wire.OpCreate, create("/x", nil, 0))
		config := l.client("bob")
		config.VerifyConnection = func(cs tls.ConnectionState) error {
			if !cs.PeerCertificates[0].Equal(next.Cert) {
				t.Error("the old certificate is shown")
			}
			return nil
		}
		dialSim(t, h).over(config).connect(10 * time.Second)
		synctest.Wait()
		testcert.Write(t, filepath.Join(l.dir, "server.pem"), []byte("nonsense"))
		time.Sleep(3 * secure.ReloadEvery)
		if n, bad := s.tls.Keeper.Reloads.Load(), s.tls.Keeper.ReloadFailures.Load(); n != 1 || bad != 1 {
			t.Errorf("%d reloads, %d failures", n, bad)
		}
		dialSim(t, h).over(config).connect(10 * time.Second)
		c.call(wire.OpDelete, &wire.DeleteRequest{Path: "/x", Version: -1})
	})
}

// TestHTTPS: the HTTP port knows the holder of a certificate.
func TestHTTPS(t *testing.T) {
	l := newCertLab(t)
	for name, c := range map[string]struct {
		mode     zoocfg.TLSMode
		needCert bool
		want     map[string]int // by scheme and client, the status; 0 is a refusal
	}{
		"both": {zoocfg.TLSAlso, false, map[string]int{"http ": 403, "https ": 403, "https bob": 409}},
		"only": {zoocfg.TLSOnly, false, map[string]int{"http ": 400, "https ": 403, "https bob": 409}},
		"need": {zoocfg.TLSOnly, true, map[string]int{"http ": 400, "https ": 0, "https bob": 409}},
	} {
		t.Run(name, func(t *testing.T) {
			s := startReal(t, func(cfg *Config) {
				l.secure(cfg)
				cfg.HTTP.Addr, cfg.HTTP.TLS, cfg.HTTP.NeedCert = "127.0.0.1:0", c.mode, c.needCert
			})
			bob := dialReal(t, s).over(l.client("bob"))
			bob.connect(10 * time.Second)
			own := create("/lock", nil, 0)
			own.ACL = []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "x509", ID: "CN=bob,O=Example"}}}
			bob.call(wire.OpCreate, own)
			for who, want := range c.want {
				scheme, name, _ := strings.Cut(who, " ")
				config := l.client("bob")
				if name == "" {
					config.Certificates = nil
				}
				transport := &http.Transport{TLSClientConfig: config}
				client := &http.Client{Transport: transport, Timeout: patience}
				resp, err := client.Get(fmt.Sprintf("%s://%s/fence?lock=/lock&token=1", scheme, s.HTTPAddr()))
				got := 0
				if err == nil {
					got = resp.StatusCode
					_ = resp.Body.Close()
				}
				transport.CloseIdleConnections()
				if got != want {
					t.Errorf("%s: %d, want %d (%v)", who, got, want, err)
				}
			}
		})
	}
}

// TestBadCertificatesStopTheStart: with file, line and key.
func TestBadCertificatesStopTheStart(t *testing.T) {
	l := newCertLab(t)
	l.ca.Issue(t, testcert.Request{Subject: pkix.Name{CommonName: "old"}, NotAfter: time.Now().Add(-time.Minute)}).Write(t, l.dir, "old")
	jks, err := os.ReadFile("secure/testdata/key.jks")
	if err != nil {
		t.Fatal(err)
	}
	testcert.Write(t, filepath.Join(l.dir, "key.jks"), jks)
	for name, c := range map[string]struct{ text, want string }{
		"missing":        {"tls.cert=%D/nothing.pem\ntls.ca=%D/server.ca", "4: tls.cert: %D/nothing.pem: no such file or directory"},
		"no key":         {"tls.cert=%D/server.pem\ntls.ca=%D/server.ca", "4: tls.cert: %D/server.pem: has no private key"},
		"expired":        {"tls.cert=%D/old.pem\ntls.key=%D/old.key\ntls.ca=%D/old.ca", "4: tls.cert: %D/old.pem: the certificate of CN=old expired on "},
		"another's key":  {"tls.cert=%D/server.pem\ntls.key=%D/old.key\ntls.ca=%D/old.ca", "4: tls.cert: %D/server.pem: the private key belongs to none of the certificates"},
		"wrong password": {"ssl.keyStore.location=%D/key.jks\nssl.keyStore.password=guess\ntls.ca=%D/server.ca", "5: ssl.keyStore.password: %D/key.jks: the password is wrong, or the store is damaged"},
		"empty list":     {"tls.cert=%D/server.pem\ntls.key=%D/server.key\ntls.ca=%D/server.ca\ntls.crl=%D/server.ca", "7: tls.crl: %D/server.ca: line 1: has a CERTIFICATE, and this is a file of revocation lists"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(l.dir, "zoo.cfg")
			cfg := mustLoad(t, file, "%s", strings.ReplaceAll("dataDir=%D/data\nclientPort=1\nsecureClientPort=2\n"+c.text, "%D", l.dir))
			s, err := Start(cfg)
			if err == nil {
				_ = s.Close()
				t.Fatal("the member starts")
			}
			if want := file + ":" + strings.ReplaceAll(c.want, "%D", l.dir); !strings.HasPrefix(err.Error(), want) {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		})
	}
}
