package server

import (
	"bufio"
	"context"
	"crypto/sha1"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/simnet"
	"lockkeeper/server/httplock"
	"lockkeeper/server/zoocfg"
	"lockkeeper/session"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// lockLine is an answer of a lock over HTTP, or a line of its stream.
type lockLine struct {
	Event, Lock, Mode, Node, Session, Secret, Reason, Error, Behind string
	Token, TimeoutMs, ValidMs, WaitedMs                             int64
	Status, Ahead, HasYielded                                       int
	Holders                                                         []lockOther
	Next                                                            *lockOther
}

// lockOther is a contender of which a user of HTTP is told.
type lockOther struct {
	Node, Mode, Library, QueuedAt, Note, Who string
	Held, MayHold, Yielded                   bool
	Token                                    int64
	Priority                                 int
}

// httpLock is a request for a lock over HTTP, and its answer.
type httpLock struct {
	t      *testing.T
	resp   *http.Response
	reader *bufio.Scanner
	first  lockLine
}

// lockClient is a client whose connections are of one request each.
func lockClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
}

// askLock sends a request for a lock to a member and returns its first line.
func askLock(t *testing.T, s *Server, method, path string, change ...func(*http.Request)) *httpLock {
	t.Helper()
	r, err := http.NewRequest(method, "http://"+s.HTTPAddr().String()+"/v1/locks"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(r)
	}
	l := &httpLock{t: t}
	if l.resp, err = lockClient().Do(r); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.resp.Body.Close() })
	l.reader = bufio.NewScanner(l.resp.Body)
	l.first, _ = l.next()
	return l
}

// next reads a line; false at the end.
func (l *httpLock) next() (line lockLine, ok bool) {
	l.t.Helper()
	if !l.reader.Scan() {
		return line, false
	}
	if err := json.Unmarshal(l.reader.Bytes(), &line); err != nil {
		l.t.Fatalf("%q: %v", l.reader.Text(), err)
	}
	return line, true
}

// last reads the stream up to its last line, and returns it with the error of the end.
func (l *httpLock) last() (last lockLine, err error) {
	for line, ok := l.next(); ok; line, ok = l.next() {
		last = line
	}
	return last, l.reader.Err()
}

// want fails unless the request was answered with that status.
func (l *httpLock) want(status int) *httpLock {
	l.t.Helper()
	if l.resp.StatusCode != status {
		l.t.Fatalf("status %d, want %d: %+v", l.resp.StatusCode, status, l.first)
	}
	return l
}

func withSecret(secret string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(httplock.SecretHeader, secret) }
}

func httpLocks(c *Config) {
	c.HTTP.Addr = "127.0.0.1:0"
	c.Sessions.TickTime = 500 * time.Millisecond
}

func TestLockOverHTTP(t *testing.T) {
	checkGoroutines(t)
	s := startReal(t, httpLocks)
	a := askLock(t, s, "PUT", "/jobs/nightly?timeout=3s&name=billing&note=monthly").want(http.StatusOK)
	g := a.first
	if g.Event != "granted" || g.Lock != "/jobs/nightly" || g.Mode != "mutex" || g.TimeoutMs != 3000 || g.ValidMs != 2000 ||
		a.resp.Header.Get(httplock.TokenHeader) != strconv.FormatInt(g.Token, 10) || a.resp.Header.Get(httplock.SecretHeader) != g.Secret {
		t.Fatalf("%+v %v", g, a.resp.Header)
	}
	var view struct {
		Queue []struct{ Who, Note, Library string }
	}
	if _, body := askAdmin(t, "GET", s.HTTPAddr().String(), "/api/v1/lock?path=/jobs/nightly", ""); json.Unmarshal([]byte(body), &view) != nil ||
		len(view.Queue) != 1 || view.Queue[0].Who != "billing@127.0.0.1" || view.Queue[0].Note != "monthly" {
		t.Errorf("the console shows %s", body)
	}
	if status, f, _ := askFence(t, s, about("/jobs/nightly", g.Token), ""); status != http.StatusOK || f.Session != g.Session {
		t.Errorf("fence: %d %+v", status, f)
	}
	b := askLock(t, s, "PUT", "/jobs/nightly").want(http.StatusConflict)
	if b.first.Behind != g.Node {
		t.Errorf("%+v", b.first)
	}
	began := time.Now()
	askLock(t, s, "PUT", "/jobs/nightly?wait=300ms").want(http.StatusConflict)
	if time.Since(began) < 300*time.Millisecond {
		t.Errorf("the wait ended after %v", time.Since(began))
	}
	if line, ok := a.next(); !ok || line.Event != "held" || line.ValidMs != 2000 {
		t.Errorf("%+v", line)
	}
	// The next one waits, until the first one is released.
	granted := make(chan *httpLock)
	go func() { granted <- askLock(t, s, "PUT", "/jobs/nightly?wait=10s&hold=renew") }()
	await(t, "a contender", func() bool { return s.surfaces.locks.Counts().Waiting == 1 })
	askLock(t, s, "DELETE", "/jobs/nightly", withSecret(g.Secret)).want(http.StatusOK)
	if last, err := a.last(); last.Event != "released" || err != nil {
		t.Errorf("%+v, %v", last, err)
	}
	c := (<-granted).want(http.StatusOK)
	if c.first.Token <= g.Token {
		t.Errorf("token %d after %d", c.first.Token, g.Token)
	}
	r := askLock(t, s, "POST", "/jobs/nightly", withSecret(c.first.Secret)).want(http.StatusOK)
	if r.first.Event != "held" || r.first.Token != c.first.Token {
		t.Errorf("%+v", r.first)
	}
	for _, secret := range []string{g.Secret, strings.Repeat("0", 48), c.first.Secret[:47] + "x"} {
		for _, method := range []string{"POST", "DELETE"} {
			if l := askLock(t, s, method, "/jobs/nightly", withSecret(secret)); l.resp.StatusCode == http.StatusOK {
				t.Errorf("%s with %s: %+v", method, secret, l.first)
			}
		}
	}
	askLock(t, s, "POST", "/jobs", withSecret(c.first.Secret)).want(http.StatusGone)
	askLock(t, s, "DELETE", "/jobs/nightly", withSecret(c.first.Secret)).want(http.StatusOK)
	askLock(t, s, "POST", "/jobs/nightly", withSecret(c.first.Secret)).want(http.StatusGone)
	d := askLock(t, s, "PUT", "/jobs/nightly").want(http.StatusOK)
	_ = d.resp.Body.Close()
	await(t, "the end of the lock", func() bool { return s.surfaces.locks.Counts().Held == 0 })
	z := dialReal(t, s)
	z.connect(5 * time.Second)
	await(t, "the end of the session", func() bool {
		var list wire.GetChildrenResponse
		if err := wire.Decode(z.call(wire.OpGetChildren, &wire.PathWatchRequest{Path: "/jobs/nightly"}), &list); err != nil {
			t.Fatal(err)
		}
		return len(list.Children) == 0
	})
}

// children lists a lock's contenders.
func children(c *rawClient, path string) []string {
	c.t.Helper()
	var list wire.GetChildrenResponse
	if err := wire.Decode(c.call(wire.OpGetChildren, &wire.PathWatchRequest{Path: path}), &list); err != nil {
		c.t.Fatal(err)
	}
	return list.Children
}

// simLock sends a request for a lock in a simulation.
func simLock(t *testing.T, h *simnet.Host, request string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := h.Dial(context.Background(), "tcp", "server:8080")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, request+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

func simLocks(c *Config) { c.HTTP.Addr = "server:8080" }

// skipTo reads lines until one has a text, and returns it.
func skipTo(t *testing.T, r *bufio.Reader, text string) string {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("%v before %q", err, text)
		}
		if strings.Contains(line, text) {
			return line
		}
	}
}

// TestWaitingClientLeaves: the contender of a client that disconnects while it waits goes at once.
func TestWaitingClientLeaves(t *testing.T) {
	inBubble(t, simnet.Config{}, simLocks, func(t *testing.T, s *Server, host *simnet.Host) {
		z := dialSim(t, host)
		z.connect(30 * time.Second)
		a, ar := simLock(t, host, "PUT /v1/locks/a")
		defer a.Close()
		skipTo(t, ar, "granted")
		b, _ := simLock(t, host, "PUT /v1/locks/a?wait=1h&timeout=30s")
		time.Sleep(time.Second)
		if n := len(children(z, "/a")); n != 2 {
			t.Fatalf("%d contenders", n)
		}
		_ = b.Close()
		time.Sleep(100 * time.Millisecond)
		if n := len(children(z, "/a")); n != 1 {
			t.Errorf("%d contenders after one has left", n)
		}
		go func() { _, _ = io.Copy(io.Discard, ar) }()
		for range 6 { // the holder's session is pinged
			time.Sleep(10 * time.Second)
			z.call(wire.OpPing, nil)
		}
		if n := len(children(z, "/a")); n != 1 {
			t.Errorf("%d contenders after a minute", n)
		}
		_ = a.Close()
		time.Sleep(time.Second)
		if n, c := len(children(z, "/a")), s.surfaces.locks.Counts(); n != 0 || c.Waiting+c.Held != 0 {
			t.Errorf("%d contenders after the holder has left: %+v", n, c)
		}
		_ = z.Close()
	})
}

// TestStuckClient: a holder that reads nothing loses its connection when nothing more can be sent
// to it. Its session is left to its lease: nobody else gets the lock before it can know.
//
// Defends: C6.
func TestStuckClient(t *testing.T) {
	inBubble(t, simnet.Config{}, simLocks, func(t *testing.T, s *Server, host *simnet.Host) {
		z := dialSim(t, host)
		z.connect(30 * time.Second)
		a, ar := simLock(t, host, "PUT /v1/locks/a?timeout=6s")
		defer a.Close()
		skipTo(t, ar, "granted")
		for began := time.Now(); s.surfaces.locks.Counts().Held > 0; time.Sleep(100 * time.Millisecond) {
			if time.Since(began) > 24*time.Hour {
				t.Fatal("a client that does not read holds its lock")
			}
			z.call(wire.OpPing, nil)
		}
		ended := time.Now()
		for len(children(z, "/a")) > 0 {
			time.Sleep(10 * time.Millisecond)
		}
		if left := time.Since(ended); left < 2*time.Second || left > 8*time.Second {
			t.Errorf("the session ended %v after the connection", left)
		}
		_ = z.Close()
	})
}

// TestHalfClosedClient: a client that ends its direction of the connection, and goes on reading,
// reads the end of the stream before anybody else gets the lock.
//
// Defends: C6.
func TestHalfClosedClient(t *testing.T) {
	inBubble(t, simnet.Config{}, simLocks, func(t *testing.T, s *Server, host *simnet.Host) {
		z := dialSim(t, host)
		z.connect(30 * time.Second)
		a, ar := simLock(t, host, "PUT /v1/locks/a?timeout=6s")
		defer a.Close()
		skipTo(t, ar, "granted")
		if err := a.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		skipTo(t, ar, "lost")
		time.Sleep(2 * time.Second) // the line may be on its way for long
		if n := len(children(z, "/a")); n != 1 {
			t.Errorf("%d contenders after the end of the stream", n)
		}
		time.Sleep(10 * time.Second)
		if n := len(children(z, "/a")); n != 0 {
			t.Errorf("%d contenders when the session has expired", n)
		}
		_ = z.Close()
	})
}

// TestUnrenewedLock: a lock that nobody renews is lost with its session, and one that is renewed is
// not.
func TestUnrenewedLock(t *testing.T) {
	inBubble(t, simnet.Config{}, simLocks, func(t *testing.T, s *Server, host *simnet.Host) {
		z := dialSim(t, host)
		z.connect(30 * time.Second)
		a, ar := simLock(t, host, "PUT /v1/locks/a?timeout=6s&hold=renew")
		var line lockLine
		if err := json.Unmarshal([]byte(skipTo(t, ar, "granted")), &line); err != nil {
			t.Fatal(err)
		}
		_ = a.Close()
		renew := func(method string) string {
			c, r := simLock(t, host, method+" /v1/locks/a HTTP/1.1\r\nLock-Secret: "+line.Secret+"\r\nX: ")
			defer c.Close()
			status, err := r.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			return strings.TrimSpace(status)
		}
		for range 10 {
			time.Sleep(4 * time.Second)
			if status := renew("POST"); status != "HTTP/1.1 200 OK" {
				t.Fatal(status)
			}
			z.call(wire.OpPing, nil)
		}
		if n := len(children(z, "/a")); n != 1 {
			t.Errorf("%d contenders", n)
		}
		time.Sleep(8 * time.Second)
		if n := len(children(z, "/a")); n != 0 {
			t.Errorf("%d contenders after the session", n)
		}
		if status := renew("POST"); status != "HTTP/1.1 410 Gone" {
			t.Error(status)
		}
		if c := s.surfaces.locks.Counts(); c.Held != 0 || c.Lost != 1 {
			t.Errorf("%+v", c)
		}
		_ = z.Close()
	})
}

// TestLockModes: readers share, a writer waits for them, and a semaphore has as many holders as it
// has leases. A mutex on the path of a semaphore waits for its leases.
func TestLockModes(t *testing.T) {
	s := startReal(t, func(c *Config) {
		httpLocks(c)
		c.HTTP.ConnsPerAddr = 32
	})
	put := func(query string, status int) lockLine {
		t.Helper()
		l := askLock(t, s, "PUT", query).want(status)
		if l.first.Mode != "" {
			_ = l.resp.Body.Close() // of a lock that is renewed
		}
		return l.first
	}
	free := func(path string, line lockLine) {
		t.Helper()
		askLock(t, s, "DELETE", path, withSecret(line.Secret)).want(http.StatusOK)
	}
	r1 := put("/rw?mode=read&hold=renew", http.StatusOK)
	r2 := put("/rw?mode=read&hold=renew", http.StatusOK)
	put("/rw?mode=write", http.StatusConflict)
	put("/rw", http.StatusConflict)
	free("/rw", r1)
	put("/rw?mode=write", http.StatusConflict)
	free("/rw", r2)
	w := put("/rw?mode=write&hold=renew", http.StatusOK)
	put("/rw?mode=read", http.StatusConflict)
	free("/rw", w)

	var leases []lockLine
	for range 3 {
		leases = append(leases, put("/sem?mode=semaphore&leases=3&hold=renew", http.StatusOK))
	}
	put("/sem?mode=semaphore&leases=3", http.StatusConflict)
	put("/sem", http.StatusConflict)
	if status, f, _ := askFence(t, s, about("/sem", leases[1].Token), ""); status != http.StatusOK {
		t.Errorf("fence: %d %+v", status, f)
	}
	r := askLock(t, s, "POST", "/sem", withSecret(leases[2].Secret)).want(http.StatusOK)
	if r.first.Token != leases[2].Token {
		t.Errorf("%+v", r.first)
	}
	free("/sem", leases[0])
	leases[0] = put("/sem?mode=semaphore&leases=3&hold=renew&wait=1s", http.StatusOK)
	for _, l := range leases {
		free("/sem", l)
	}
	m := put("/sem?hold=renew", http.StatusOK)
	put("/sem?mode=semaphore&leases=3", http.StatusConflict)
	free("/sem", m)
	if c := s.surfaces.locks.Counts(); c.Lost != 0 || c.Granted != 8 {
		t.Errorf("%+v", c)
	}
}

// TestLockLimits: locks over HTTP are bounded for a member, an address and an identity, and those
// with a connection leave half of the connections to others.
//
// Defends: C9.
func TestLockLimits(t *testing.T) {
	s := startReal(t, func(c *Config) {
		httpLocks(c)
		c.HTTP.Conns, c.HTTP.ConnsPerAddr = 16, 16
		c.HTTP.Locks, c.HTTP.LocksPerAddr, c.HTTP.LocksPerUser = 6, 5, 2
	})
	as := func(user string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", "digest "+user+":pw") }
	}
	refused := func(l *httpLock, why string) {
		t.Helper()
		if l.want(http.StatusTooManyRequests); !strings.Contains(l.first.Error, why) || l.resp.Header.Get("Retry-After") == "" {
			t.Errorf("%+v", l.first)
		}
	}
	var held []lockLine
	put := func(change ...func(*http.Request)) *httpLock {
		t.Helper()
		l := askLock(t, s, "PUT", "/limit/"+strconv.Itoa(len(held))+"?hold=renew", change...)
		if l.resp.StatusCode == http.StatusOK {
			held = append(held, l.first)
		}
		return l
	}
	put(as("a")).want(http.StatusOK)
	put(as("a")).want(http.StatusOK)
	refused(put(as("a")), "admin.maxLocksPerUser")
	put(as("b")).want(http.StatusOK)
	put().want(http.StatusOK)
	put().want(http.StatusOK)
	refused(put(), "admin.maxLocksPerAddress")
	refused(askLock(t, s, "PUT", "/x?wait=1s"), "admin.maxLocksPerAddress")
	for i, l := range held {
		askLock(t, s, "DELETE", "/limit/"+strconv.Itoa(i), withSecret(l.Secret)).want(http.StatusOK)
	}
	await(t, "all places", func() bool { c := s.surfaces.locks.Counts(); return c.Waiting+c.Held == 0 })
	s.cfg.HTTP.Locks, s.cfg.HTTP.LocksPerAddr, s.cfg.HTTP.LocksPerUser = 100, 100, 100
	for i := range 8 {
		askLock(t, s, "PUT", "/stream/"+strconv.Itoa(i)).want(http.StatusOK)
	}
	refused(askLock(t, s, "PUT", "/stream/8"), "admin.maxCnxns")
	l := askLock(t, s, "PUT", "/stream/8?hold=renew").want(http.StatusOK)
	askLock(t, s, "DELETE", "/stream/8", withSecret(l.first.Secret)).want(http.StatusOK)
	c := s.surfaces.locks.Counts()
	if mntr := metricsPage(t, s.surfaces.prometheusMetrics()); c.Refused != 4 || c.Held != 8 || !strings.Contains(string(mntr), "http_locks_refused") {
		t.Errorf("%+v", c)
	}
}

// TestLockRights: the ACLs of nodes hold for requests over HTTP, and so do the door's checks.
//
// Defends: C9.
func TestLockRights(t *testing.T) {
	s := startReal(t, httpLocks)
	z := dialReal(t, s)
	z.connect(10 * time.Second)
	acl := []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "digest", ID: session.DigestID(sha1.New, "lo:ck")}}}
	z.call(wire.OpCreate, &wire.CreateRequest{Path: "/private", ACL: acl, Mode: wire.ModePersistent})
	as := func(auth string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", "digest "+auth) }
	}
	for _, path := range []string{"/private", "/private/below", "/private?mode=semaphore&leases=2"} {
		askLock(t, s, "PUT", path).want(http.StatusForbidden)
		askLock(t, s, "PUT", path, as("lo:cker")).want(http.StatusForbidden)
	}
	l := askLock(t, s, "PUT", "/private", as("lo:ck")).want(http.StatusOK)
	// The secret is enough to release it, and nothing else is.
	askLock(t, s, "DELETE", "/private", as("lo:ck")).want(http.StatusBadRequest)
	wrong := l.first.Secret[:47] + string('a'+(l.first.Secret[47]-'a'+1)%6)
	askLock(t, s, "DELETE", "/private", as("lo:ck"), withSecret(wrong)).want(http.StatusGone)
	askLock(t, s, "DELETE", "/private", withSecret(l.first.Secret)).want(http.StatusOK)
	if s.sessions.Stats().WrongPasswords == 0 {
		t.Error("the wrong secret has not been counted")
	}
	// The secret of another session, which is no lock's, releases nothing, and the session lives.
	id := z.id
	stranger := fmt.Sprintf("%016x%x", uint64(id.SessionID), id.Password)
	askLock(t, s, "DELETE", "/private", withSecret(stranger)).want(http.StatusGone)
	z2 := dialReal(t, s)
	z2.req = wire.ConnectRequest{SessionID: id.SessionID, Password: id.Password}
	if z2.connect(10 * time.Second); z2.id.SessionID != id.SessionID {
		t.Errorf("the session of a stranger's secret has ended: %+v", z2.id)
	}
	for header, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "http://evil.example"} {
		askLock(t, s, "PUT", "/a", func(r *http.Request) { r.Header.Set(header, value) }).want(http.StatusForbidden)
	}
	askLock(t, s, "PUT", "/a", func(r *http.Request) { r.Host = "evil.example" }).want(http.StatusMisdirectedRequest)
	if n := s.surfaces.locks.Counts(); n.Held != 0 {
		t.Errorf("%+v", n)
	}
}

// TestLockOverTLS: a stream over TLS, with the identity of a certificate, which an ACL wants.
func TestLockOverTLS(t *testing.T) {
	lab := newCertLab(t)
	s := startReal(t, func(c *Config) {
		httpLocks(c)
		c.HTTP.TLS = zoocfg.TLSOnly
		lab.secure(c)
		c.Client.TLS = zoocfg.TLSAlso
	})
	z := dialReal(t, s)
	z.connect(10 * time.Second)
	config := lab.client("bob")
	owner := "CN=bob,O=Example"
	z.call(wire.OpCreate, &wire.CreateRequest{Path: "/bob", Mode: wire.ModePersistent,
		ACL: []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "x509", ID: owner}}}})
	put := func(config *tls.Config) (*http.Response, *bufio.Reader) {
		t.Helper()
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: config}}
		r, err := http.NewRequest("PUT", "https://"+s.HTTPAddr().String()+"/v1/locks/bob?timeout=3s", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp, bufio.NewReader(resp.Body)
	}
	if resp, _ := put(lab.client("eve")); resp.StatusCode != http.StatusForbidden {
		t.Errorf("another one gets status %d", resp.StatusCode)
	}
	resp, lines := put(config)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the owner gets status %d", resp.StatusCode)
	}
	skipTo(t, lines, "granted")
	for range 8 { // for longer than a timeout
		skipTo(t, lines, "held")
	}
	_ = resp.Body.Close()
	await(t, "the end of the lock", func() bool { c := s.surfaces.locks.Counts(); return c.Held+c.Waiting == 0 })
	await(t, "the end of the session", func() bool {
		var sessions int
		s.View(func(store *znode.Store) { sessions, _ = store.Sessions().Counts("") })
		return sessions == 1
	})
}

// TestLocksNeedLogin: with admin.requireLogin a request for a lock needs one, and with
// admin.locks=false there are none.
//
// Defends: C9.
func TestLocksNeedLogin(t *testing.T) {
	s := startReal(t, func(c *Config) {
		httpLocks(c)
		superSettings(c)
		c.HTTP.Login = true
	})
	askLock(t, s, "PUT", "/a").want(http.StatusUnauthorized)
	askLock(t, s, "PUT", "/a", func(r *http.Request) { r.Header.Set("Authorization", "digest some:body") }).want(http.StatusForbidden)
	none := startReal(t, func(c *Config) {
		httpLocks(c)
		c.HTTP.NoLocks = true
	})
	if status := askDoor(t, none, "PUT", "/v1/locks/a", func(*http.Request) {}); status < 400 || none.surfaces.locks.Counts().Granted > 0 {
		t.Errorf("status %d with admin.locks=false", status)
	}
}

// TestGarbageForLocks: requests that make no sense are refused, and leave nothing behind.
//
// Defends: C9.
func TestGarbageForLocks(t *testing.T) {
	checkGoroutines(t)
	s := startReal(t, httpLocks)
	for _, request := range []string{
		"PUT /v1/locks/a%00b", "PUT /v1/locks/%ff", "PUT /v1/locks/a?wait=x", "PUT /v1/locks/a?%zz", "PUT /v1/locks/zookeeper/config",
		"POST /v1/locks/a", "DELETE /v1/locks/a?secret=1", "PUT /v1/locks/" + strings.Repeat("a", 2000),
		"PUT /v1/locks/a?mode=semaphore&leases=99999999999999999999", "PUT /v1/locks/", "GET /v1/locks/a", "PATCH /v1/locks/a", "PUT /v1/locks/a%2f%2fb",
	} {
		c := dialRaw(t, s.HTTPAddr().String())
		if _, err := io.WriteString(c, request+" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, _ := io.ReadAll(c)
		if !strings.HasPrefix(string(answer), "HTTP/1.1 40") {
			t.Errorf("%s: %.100q", request, answer)
		}
	}
	c := dialRaw(t, s.HTTPAddr().String())
	if _, err := io.WriteString(c, "PUT /v1/locks/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc"); err != nil {
		t.Fatal(err)
	}
	if answer, _ := io.ReadAll(c); !strings.HasPrefix(string(answer), "HTTP/1.1 400") {
		t.Errorf("with a body: %.100q", answer)
	}
	var sessions int
	s.View(func(store *znode.Store) { sessions, _ = store.Sessions().Counts("") })
	if n := s.surfaces.locks.Counts(); sessions != 0 || n.Waiting+n.Held+int(n.Granted) != 0 {
		t.Errorf("%d sessions, %+v", sessions, n)
	}
}

// TestDrainedLocks: a member that is drained tells its holders that it stops, and refuses who
// waits and who comes.
func TestDrainedLocks(t *testing.T) {
	s := startReal(t, httpLocks)
	a := askLock(t, s, "PUT", "/a?timeout=5s").want(http.StatusOK)
	waits := make(chan *httpLock)
	go func() { waits <- askLock(t, s, "PUT", "/a?wait=1m") }()
	await(t, "a contender", func() bool { return s.surfaces.locks.Counts().Waiting == 1 })
	s.surfaces.locks.Drain()
	if last, err := a.last(); last.Event != "lost" || !strings.Contains(last.Reason, "this member stops") || err == nil {
		t.Errorf("%+v, %v", last, err)
	}
	b := (<-waits).want(http.StatusServiceUnavailable)
	if !strings.Contains(b.first.Error, "about to stop") {
		t.Errorf("%+v", b.first)
	}
	askLock(t, s, "PUT", "/b").want(http.StatusServiceUnavailable)
}

// TestBrokenLock: an operator deletes the node of a holder, or ends its session. The stream ends.
func TestBrokenLock(t *testing.T) {
	s := startReal(t, httpLocks)
	z := dialReal(t, s)
	z.connect(10 * time.Second)
	a := askLock(t, s, "PUT", "/a").want(http.StatusOK)
	z.call(wire.OpDelete, &wire.DeleteRequest{Path: "/a/" + a.first.Node, Version: -1})
	if last, err := a.last(); last.Event != "lost" || !strings.Contains(last.Reason, "deleted") || err == nil {
		t.Errorf("%+v, %v", last, err)
	}
	b := askLock(t, s, "PUT", "/a?wait=5s").want(http.StatusOK)
	id, err := strconv.ParseUint(strings.TrimPrefix(b.first.Session, "0x"), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.sessions.EndSession(t.Context(), netip.MustParseAddr("127.0.0.1"), wire.SessionID(id)); err != nil {
		t.Fatal(err)
	}
	if last, err := b.last(); last.Event != "lost" || last.Reason == "" || err == nil {
		t.Errorf("%+v, %v", last, err)
	}
}
