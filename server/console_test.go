package server

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"lockkeeper/server/ops/door"
	"lockkeeper/wire"
)

// consoleTest is a member with a console, and its HTTP client.
type consoleTest struct {
	t *testing.T
	s *Server
}

func newConsoleTest(t *testing.T) *consoleTest {
	return &consoleTest{t, startReal(t, func(c *Config) {
		c.HTTP.Addr = "127.0.0.1:0"
		c.Auth.SuperDigest = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=" // super:test
	})}
}

const asSuper = "digest super:test"

// get returns the status and the answer of a GET.
func (c *consoleTest) get(path, auth string) (int, map[string]any) {
	c.t.Helper()
	r, err := http.NewRequest("GET", "http://"+c.s.HTTPAddr().String()+"/api/v1/"+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Authorization", auth)
	return c.do(r)
}

func (c *consoleTest) do(r *http.Request) (int, map[string]any) {
	c.t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	var a map[string]any
	if err := json.Unmarshal(b, &a); err != nil {
		c.t.Fatalf("%s: %q", r.URL, b)
	}
	return resp.StatusCode, a
}

// act posts an act.
func (c *consoleTest) act(body, auth string, change func(*http.Request)) (int, map[string]any) {
	c.t.Helper()
	r, err := http.NewRequest("POST", "http://"+c.s.HTTPAddr().String()+"/api/v1/act", strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if auth != "" {
		r.Header.Set("Authorization", auth)
	}
	if change != nil {
		change(r)
	}
	return c.do(r)
}

// client connects.
func (c *consoleTest) client() *rawClient {
	z := dialReal(c.t, c.s)
	z.connect(10 * time.Second)
	return z
}

const lockPrefix = "_c_34c73d33-a364-4285-8dd6-8b05f149fed9-lock-"

// queueUp makes a contender's node.
func queueUp(z *rawClient, path string) {
	z.call(wire.OpCreate, create(path+"/"+lockPrefix, nil, wire.ModeEphemeralSequential))
}

// TestActs: who may act, from where, and the results.
func TestActs(t *testing.T) {
	c := newConsoleTest(t)
	a, b := c.client(), c.client()
	a.call(wire.OpCreate, create("/l", nil, wire.ModePersistent))
	queueUp(a, "/l")
	queueUp(b, "/l")
	breakIt := `{"act":"break","path":"/l","confirm":"/l"}`
	for _, tt := range []struct {
		about  string
		body   string
		auth   string
		change func(*http.Request)
		status int
	}{
		{"nobody", breakIt, "", nil, 403},
		{"a wrong password", breakIt, "digest super:no", nil, 403},
		{"a form", breakIt, asSuper, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 415},
		{"another site", breakIt, asSuper, func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }, 403},
		{"another site, says the browser", breakIt, asSuper, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		{"a name that points here", breakIt, asSuper, func(r *http.Request) { r.Host = "evil.example:80" }, 421},
		{"no confirmation", `{"act":"break","path":"/l"}`, asSuper, nil, 400},
		{"another token", `{"act":"break","path":"/l","confirm":"/l","token":1}`, asSuper, nil, 409},
		{"no lock", `{"act":"break","path":"/x","confirm":"/x"}`, asSuper, nil, 404},
		{"no act", `{"act":"sing","confirm":"x"}`, asSuper, nil, 400},
		{"no JSON", `{`, asSuper, nil, 400},
		{"alone", `{"act":"transfer","confirm":"0"}`, asSuper, nil, 409},
	} {
		if status, answer := c.act(tt.body, tt.auth, tt.change); status != tt.status || answer["error"] == "" {
			t.Errorf("%s: %d %v, want %d", tt.about, status, answer, tt.status)
		}
	}
	if _, l := c.get("lock?path=/l", ""); l["lock"].(map[string]any)["waiting"] != 1.0 {
		t.Fatalf("a refused act did something: %v", l)
	}

	status, answer := c.act(breakIt, asSuper, nil)
	if status != 200 || answer["done"] != true || !strings.Contains(fmt.Sprint(answer["says"]), "Curator") {
		t.Fatalf("%d %v", status, answer)
	}
	_, h := c.get("history?path=/l", "")
	first := h["holds"].([]any)[0].(map[string]any)
	if first["end"] != "deleted" || first["endedBy"] == first["session"] {
		t.Errorf("history %v", first)
	}
	_, l := c.get("lock?path=/l", "")
	holder := l["queue"].([]any)[0].(map[string]any)["session"].(string)
	if l["lock"].(map[string]any)["waiting"] != 0.0 {
		t.Errorf("%v", l)
	}
	if status, answer = c.act(fmt.Sprintf(`{"act":"end","session":%q,"confirm":%q}`, holder, holder), asSuper, nil); status != 200 || answer["ephemerals"] != 1.0 {
		t.Errorf("%d %v", status, answer)
	}
	b.expectClosed()
	if status, _ = c.get("session?id="+holder, ""); status != 404 {
		t.Errorf("the ended session: status %d", status)
	}
	if status, answer = c.act(`{"act":"snapshot","confirm":"snapshot"}`, asSuper, nil); status != 200 || answer["index"].(float64) == 0 {
		t.Errorf("%d %v", status, answer)
	}
}

// TestConsoleObeysACLs: an answer has only nodes that its caller may read.
func TestConsoleObeysACLs(t *testing.T) {
	c := newConsoleTest(t)
	z := c.client()
	nobody := []wire.ACL{{Perms: wire.PermAll &^ wire.PermRead, ID: wire.OpenACL[0].ID}}
	r := create("/secret", []byte("data"), wire.ModePersistent)
	r.ACL = nobody
	z.call(wire.OpCreate, r)
	z.call(wire.OpCreate, create("/open", nil, wire.ModePersistent))
	queueUp(z, "/secret")
	node := create("/open/"+lockPrefix, []byte("from web-3"), wire.ModeEphemeralSequential)
	node.ACL = nobody
	z.call(wire.OpCreate, node)
	for _, path := range []string{"children?path=/secret", "history?path=/secret"} {
		if status, _ := c.get(path, ""); status != 403 {
			t.Errorf("%s: status %d", path, status)
		}
		if status, _ := c.get(path, asSuper); status != 200 {
			t.Errorf("%s: status %d for super", path, status)
		}
	}
	if status, _ := c.get("lock?path=/secret", ""); status != 404 {
		t.Errorf("status %d", status)
	}
	_, n := c.get("node?path=/secret", "") // ADMIN lets see the ACL
	if n["dataRefused"] != true || n["data"] != nil {
		t.Errorf("%v", n)
	}
	for auth, want := range map[string]float64{"": 1, asSuper: 2} {
		if _, locks := c.get("locks", auth); locks["total"] != want || locks["matched"] != want || len(locks["locks"].([]any)) != int(want) {
			t.Errorf("%q: %v", auth, locks)
		}
		if _, locks := c.get("locks?search=secret&limit=0", auth); locks["matched"] != want-1 {
			t.Errorf("%q searches the name of a hidden lock: %v", auth, locks)
		}
	}
	_, l := c.get("lock?path=/open", "")
	if data := l["queue"].([]any)[0].(map[string]any)["data"]; data != nil {
		t.Errorf("data that may not be read: %v", data)
	}
	if _, l = c.get("lock?path=/open", asSuper); l["queue"].([]any)[0].(map[string]any)["data"] == nil {
		t.Error("super does not see the data")
	}
}

// TestDeadlockComesAndGoes: it is found when it is there, and not any more afterwards.
func TestDeadlockComesAndGoes(t *testing.T) {
	c := newConsoleTest(t)
	a, b := c.client(), c.client()
	for _, path := range []string{"/a", "/b"} {
		a.call(wire.OpCreate, create(path, nil, wire.ModePersistent))
	}
	queueUp(a, "/a")
	queueUp(b, "/b")
	queueUp(a, "/b")
	deadlocks := func() []any {
		_, answer := c.get("trouble", "")
		return answer["deadlocks"].([]any)
	}
	if d := deadlocks(); len(d) != 0 {
		t.Fatalf("too early: %v", d)
	}
	queueUp(b, "/a")
	d := deadlocks()
	if len(d) != 1 || len(d[0].(map[string]any)["sessions"].([]any)) != 2 || len(d[0].(map[string]any)["edges"].([]any)) != 2 {
		t.Fatalf("%v", d)
	}
	b.call(wire.OpDelete, wire.DeleteRequest{Path: "/a/" + lockPrefix + "0000000001", Version: -1})
	if d := deadlocks(); len(d) != 0 {
		t.Errorf("it has not gone: %v", d)
	}
}

// TestLargeDirectoriesAreBounded: a page of children is a page, however many there are, and so is a
// page of locks.
func TestLargeDirectoriesAreBounded(t *testing.T) {
	c := newConsoleTest(t)
	z := c.client()
	z.call(wire.OpCreate, create("/d", nil, wire.ModePersistent))
	const n = 2500
	for i := range n {
		z.call(wire.OpCreate, create(fmt.Sprintf("/d/n%05d", i), nil, wire.ModeEphemeral))
	}
	seen, after := 0, ""
	for {
		_, a := c.get("children?limit=1000&path=/d&after="+url.QueryEscape(after), "")
		seen += len(a["children"].([]any))
		if a["total"] != float64(n) || len(a["children"].([]any)) > 1000 {
			t.Fatalf("%v of %v", len(a["children"].([]any)), a["total"])
		}
		if a["next"] == nil {
			break
		}
		after = a["next"].(string)
	}
	if seen != n {
		t.Errorf("%d children, want %d", seen, n)
	}
	_, a := c.get("locks?limit=100000", "")
	if len(a["locks"].([]any)) != 200 || a["total"] != float64(n) {
		t.Errorf("%d locks of %v", len(a["locks"].([]any)), a["total"])
	}
}

// TestEventStreams: a stream has the changes, no unchanged answers, and bounds.
func TestEventStreams(t *testing.T) {
	checkGoroutines(t)
	c := newConsoleTest(t)
	z := c.client()
	z.call(wire.OpCreate, create("/l", nil, wire.ModePersistent))
	queueUp(z, "/l")
	watch := func() (*http.Response, *bufio.Reader) {
		resp, err := http.Get("http://" + c.s.HTTPAddr().String() + "/api/v1/events?view=locks")
		if err != nil {
			t.Fatal(err)
		}
		return resp, bufio.NewReader(resp.Body)
	}
	next := func(r *bufio.Reader, want string) string {
		t.Helper()
		event := ""
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatalf("waiting for %s: %v", want, err)
			}
			if name, ok := strings.CutPrefix(line, "event: "); ok {
				event = strings.TrimSpace(name)
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok && event == want {
				return data
			}
		}
	}
	resp, r := watch()
	defer resp.Body.Close()
	next(r, "hello")
	if data := next(r, "view"); !strings.Contains(data, `"waiting":0`) {
		t.Errorf("%s", data)
	}
	queueUp(z, "/l")
	for data := next(r, "view"); !strings.Contains(data, `"waiting":1`); data = next(r, "view") {
	}
	// One address has admin.maxCnxnsPerAddress connections at the most, and some are for probes.
	var open []io.Closer
	for range c.s.cfg.HTTP.ConnsPerAddr - door.ProbeConnsPerAddr - 1 {
		resp, r := watch()
		open = append(open, resp.Body)
		next(r, "view")
	}
	if resp, err := http.Get("http://" + c.s.HTTPAddr().String() + "/members"); err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable {
			t.Error("one more connection is served")
		}
	}
	for _, o := range open {
		_ = o.Close()
	}
	go func() { _ = c.s.Close() }()
	if data := next(r, "bye"); !bytes.Contains([]byte(data), []byte("stops")) {
		t.Error(data)
	}
}

// TestClusterDisk: the view of the cluster says how long writes of the log take, once there was
// one.
func TestClusterDisk(t *testing.T) {
	c := newConsoleTest(t)
	z := c.client()
	for i := range 5 {
		z.call(wire.OpCreate, create(fmt.Sprintf("/n%d", i), nil, wire.ModePersistent))
	}
	await(t, "a report", func() bool { // it is made once a second
		_, a := c.get("cluster", "")
		m := a["members"].([]any)[0].(map[string]any)
		mean, ok := m["fsyncMs"].(float64)
		longest, ok2 := m["fsyncMaxMs"].(float64)
		if ok && ok2 && (mean <= 0 || longest < mean || longest > 60_000) {
			t.Fatalf("fsync takes %v ms, at most %v", mean, longest)
		}
		return ok && ok2
	})
}

// TestTrouble: each kind of trouble that clients can make is found, with who is in it, and nothing
// is before it is there.
func TestTrouble(t *testing.T) {
	t.Parallel()
	c := &consoleTest{t, startReal(t, func(c *Config) {
		c.HTTP.Addr, c.Sessions.MinTimeout, c.Client.MaxCnxnsPerAddr = "127.0.0.1:0", time.Second, Unlimited
	})}
	list := func(kind string) []any {
		_, a := c.get("trouble", "")
		if n := a["counts"].(map[string]any)[map[string]string{"orphans": "orphan", "herds": "herd"}[kind]]; n != nil && n != float64(len(a[kind].([]any))) {
			t.Errorf("%v %s are counted, and there are %v", n, kind, a[kind])
		}
		return a[kind].([]any)
	}
	kinds := []string{"orphans", "herds", "hot", "expiring", "reconnecting", "twoHolders", "long"}
	a := c.client()
	for _, path := range []string{"/herd", "/hot", "/orphan", "/two"} {
		a.call(wire.OpCreate, create(path, nil, wire.ModePersistent))
	}
	for _, kind := range kinds {
		if got := list(kind); len(got) != 0 {
			t.Fatalf("%s, too early: %v", kind, got)
		}
	}
	id := func(z *rawClient) string { return fmt.Sprintf("0x%x", uint64(z.id.SessionID)) }
	one := func(kind string, want map[string]any) {
		t.Helper()
		got := list(kind)
		if len(got) != 1 {
			t.Errorf("%s: %v", kind, got)
			return
		}
		for key, value := range want {
			if is := got[0].(map[string]any)[key]; fmt.Sprint(is) != fmt.Sprint(value) {
				t.Errorf("%s: %s is %v, want %v", kind, key, is, value)
			}
		}
	}

	queueUp(a, "/orphan")
	queueUp(a, "/orphan")
	one("orphans", map[string]any{"path": "/orphan", "session": id(a), "address": a.LocalAddr(),
		"nodes": []string{lockPrefix + "0000000000", lockPrefix + "0000000001"}})

	const many = 100
	for range many {
		c.client().call(wire.OpGetData, &wire.PathWatchRequest{Path: "/herd", Watch: true})
	}
	one("herds", map[string]any{"path": "/herd", "watches": many})

	queueUp(a, "/hot")
	for range 10 {
		queueUp(c.client(), "/hot")
	}
	one("hot", map[string]any{"path": "/hot", "waiting": 10, "holder": id(a)})

	b := c.client()
	// Curator's, and kazoo's.
	a.call(wire.OpCreate, create("/two/"+lockPrefix, nil, wire.ModeEphemeralSequential))
	b.call(wire.OpCreate, create("/two/0123456789abcdef0123456789abcdef__lock__", nil, wire.ModeEphemeralSequential))
	if two := list("twoHolders"); len(two) != 2 || two[0].(map[string]any)["path"] != "/two" || two[1].(map[string]any)["path"] != "/two" {
		t.Errorf("neither waits for the other: %v", two)
	}

	// A session that moves from connection to connection.
	r := c.client()
	list("reconnecting") // from here on it is counted
	for range 5 {
		again := dialReal(t, c.s)
		again.req.SessionID, again.req.Password = r.id.SessionID, r.id.Password
		again.connect(10 * time.Second)
		r = again
	}
	one("reconnecting", map[string]any{"session": id(r), "reconnects": 5, "address": r.LocalAddr()})

	// A client that says nothing for two thirds of its timeout.
	silent := dialReal(t, c.s)
	silent.connect(3 * time.Second)
	silent.call(wire.OpCreate, create("/silent", nil, wire.ModeEphemeral))
	found := map[string]any{}
	await(t, "a session that is about to expire", func() bool {
		for _, e := range list("expiring") {
			if e := e.(map[string]any); e["session"] == id(silent) {
				found = e
			}
		}
		return len(found) > 0
	})
	if left := found["leftMs"].(float64); left > 1000 || found["timeoutMs"] != 3000.0 || found["ephemerals"] != 1.0 {
		t.Errorf("%v", found)
	}
	silent.call(wire.OpPing, nil)
	await(t, "that it is not any more", func() bool {
		for _, e := range list("expiring") {
			if e.(map[string]any)["session"] == id(silent) {
				return false
			}
		}
		return true
	})
}

// TestActsThroughAProxy: behind a proxy with a name and a path of its own, an act is taken if
// console.hosts has the name, from a page of that name only.
func TestActsThroughAProxy(t *testing.T) {
	for _, known := range []bool{false, true} {
		c := &consoleTest{t, startReal(t, func(c *Config) {
			superSettings(c)
			if known {
				c.Console.Hosts = []string{"ops.example"}
			}
		})}
		member := &url.URL{Scheme: "http", Host: c.s.HTTPAddr().String()}
		proxy := httptest.NewServer(http.StripPrefix("/locks/m1", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(member)
			r.Out.Host = r.In.Host
		}}))
		for origin, want := range map[string]int{"http://ops.example": 200, "http://evil.example": 403} {
			if !known {
				want = 421
			}
			r, err := http.NewRequest("POST", proxy.URL+"/locks/m1/api/v1/act", strings.NewReader(`{"act":"snapshot","confirm":"snapshot"}`))
			if err != nil {
				t.Fatal(err)
			}
			r.Host = "ops.example"
			r.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {asSuper}, "Origin": {origin}}
			if status, answer := c.do(r); status != want {
				t.Errorf("known %t, from a page of %s: %d %v, want %d", known, origin, status, answer, want)
			}
		}
		proxy.Close()
	}
}
