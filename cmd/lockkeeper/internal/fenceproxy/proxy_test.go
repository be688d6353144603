package fenceproxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/recipes/fence"
)

// resource is the server behind a proxy. It notes the tokens of its requests when they begin; those
// of the path /slow end when release is closed.
type resource struct {
	*httptest.Server
	mu      sync.Mutex
	tokens  []string
	began   chan string
	release chan struct{}
}

func newResource(t *testing.T) *resource {
	r := &resource{began: make(chan string, 100), release: make(chan struct{})}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		if q.URL.Path == "/upgrade" && q.Header.Get("Upgrade")+q.Header.Get("Connection") != "" {
			fmt.Fprint(w, "there is an offer: ")
		}
		if q.URL.Path == "/break" {
			panic(http.ErrAbortHandler)
		}
		token := q.Header.Get(Header)
		select {
		case r.began <- token:
		default: // nobody reads them
		}
		if q.URL.Path == "/slow" {
			<-r.release
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.tokens = append(r.tokens, token) // the effect
		fmt.Fprint(w, "done")
	}))
	t.Cleanup(r.Close)
	return r
}

// effects are the tokens of the requests in the order of their effects.
func (r *resource) effects() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.tokens, " ")
}

func config(t *testing.T, r *resource, path string) Config {
	t.Helper()
	target, err := url.Parse(r.URL)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := fence.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { memory.Close() })
	transport := new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	return Config{Target: target, Lock: "/locks/a", Memory: memory, Requests: 4, BodyBytes: 100, Timeout: time.Minute,
		Wait: time.Minute, Transport: transport}
}

func newProxy(t *testing.T, c Config) http.Handler {
	t.Helper()
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// send sends a request through a proxy.
func send(h http.Handler, path string, tokens ...string) (status int, body refusal) {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader("x"))
	for _, token := range tokens {
		r.Header.Add(Header, token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	_ = json.Unmarshal(w.Body.Bytes(), &body)
	return w.Code, body
}

func TestTokens(t *testing.T) {
	r := newResource(t)
	p := newProxy(t, config(t, r, filepath.Join(t.TempDir(), "state")))
	for i, step := range []struct {
		tokens []string
		status int
		newest int64
	}{
		{nil, http.StatusPreconditionRequired, 0},
		{[]string{""}, http.StatusBadRequest, 0},
		{[]string{"0"}, http.StatusBadRequest, 0},
		{[]string{"-1"}, http.StatusBadRequest, 0},
		{[]string{"+7"}, http.StatusBadRequest, 0},
		{[]string{"07"}, http.StatusBadRequest, 0},
		{[]string{"7 "}, http.StatusBadRequest, 0},
		{[]string{"7", "7"}, http.StatusBadRequest, 0},
		{[]string{"9223372036854775808"}, http.StatusBadRequest, 0},
		{[]string{"33"}, http.StatusOK, 0},
		{[]string{"34"}, http.StatusOK, 0},
		{[]string{"33"}, http.StatusConflict, 34},
		{[]string{"34"}, http.StatusOK, 0},
		{[]string{"9223372036854775807"}, http.StatusOK, 0},
		{[]string{"9223372036854775806"}, http.StatusConflict, 9223372036854775807},
	} {
		status, body := send(p, "/", step.tokens...)
		if status != step.status || body.Newest != step.newest || status >= 400 && body.Error == "" ||
			status == http.StatusConflict && fmt.Sprint(body.Token) != step.tokens[0] {
			t.Errorf("step %d: status %d, %+v", i, status, body)
		}
	}
	if got, want := r.effects(), "33 34 34 9223372036854775807"; got != want {
		t.Errorf("the resource got %s, want %s", got, want)
	}
}

// play plays the stories of holders with the handlers that open returns, and returns the faults.
// The second call of open is a restart.
func play(t *testing.T, open func(*resource) http.Handler) (faults []string) {
	r := newResource(t)
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	p := open(r)
	first := make(chan int)
	go func() { status, _ := send(p, "/slow", "33"); first <- status }()
	<-r.began
	second := make(chan int)
	go func() { status, _ := send(p, "/slow", "34"); second <- status }()
	// The newer one is known as soon as the refusal of an older one names it.
	for deadline := time.Now().Add(time.Second); ; {
		if status, body := send(p, "/", "32"); status == http.StatusConflict && body.Newest == 34 {
			break
		}
		if time.Now().After(deadline) {
			fault("34 is not known while it waits")
			break
		}
	}
	if status, _ := send(p, "/", "33"); status != http.StatusConflict {
		fault("33 is not refused while 34 waits: status %d", status)
	}
	select {
	case token := <-r.began:
		fault("%s begins while 33 is in flight", token)
	case <-time.After(20 * time.Millisecond): // nothing shows that it does not begin
	}
	close(r.release)
	if a, b := <-first, <-second; a != http.StatusOK || b != http.StatusOK {
		fault("answers %d and %d", a, b)
	}
	if got := r.effects(); got != "33 34" {
		fault("effects %s", got)
	}
	p = open(r)
	if status, body := send(p, "/", "33"); status != http.StatusConflict || body.Newest != 34 {
		fault("after a restart: status %d, %+v", status, body)
	}
	if status, _ := send(p, "/", "34"); status != http.StatusOK {
		fault("after a restart: status %d", status)
	}
	return faults
}

// TestOrder: a newer token waits for older requests in flight, also if its connection would be
// faster, and a restart forgets nothing. The same test finds proxies with a bug.
func TestOrder(t *testing.T) {
	opener := func(t *testing.T, path func() string, make func(Config) http.Handler) func(*resource) http.Handler {
		return func(r *resource) http.Handler { return make(config(t, r, path())) }
	}
	fixed := func(t *testing.T) func() string {
		path := filepath.Join(t.TempDir(), "state")
		return func() string { return path }
	}
	for _, fault := range play(t, opener(t, fixed(t), func(c Config) http.Handler { return newProxy(t, c) })) {
		t.Error(fault)
	}
	plain := func(c Config) *httputil.ReverseProxy {
		return &httputil.ReverseProxy{Transport: c.Transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(c.Target) }}
	}
	for name, open := range map[string]func(*resource) http.Handler{
		"forgets at restart": opener(t, func() string { return filepath.Join(t.TempDir(), "state") },
			func(c Config) http.Handler { return newProxy(t, c) }),
		"does not wait": opener(t, fixed(t), func(c Config) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				token, _ := tokenOf(r)
				if err := c.Memory.Check(c.Lock, token); err != nil {
					refuse(w, err, token)
					return
				}
				plain(c).ServeHTTP(w, r)
			})
		}),
		"accepts the token before": opener(t, fixed(t), func(c Config) http.Handler {
			p := newProxy(t, c)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				token, _ := tokenOf(r)
				if newest, err := c.Memory.Newest(c.Lock); err == nil && token == newest-1 {
					plain(c).ServeHTTP(w, r)
					return
				}
				p.ServeHTTP(w, r)
			})
		}),
		"compares after the write": opener(t, fixed(t), func(c Config) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				token, _ := tokenOf(r)
				held := httptest.NewRecorder()
				plain(c).ServeHTTP(held, r)
				if err := c.Memory.Check(c.Lock, token); err != nil {
					refuse(w, err, token)
					return
				}
				w.WriteHeader(held.Code)
			})
		}),
	} {
		if faults := play(t, open); len(faults) == 0 {
			t.Errorf("a proxy that %s is not found", name)
		} else {
			t.Logf("%s: %s", name, faults[0])
		}
	}
}

// TestCutOff: a request without an answer's end counts as in flight for Settle; one that never had
// a connection does not; and neither does the client's end change anything.
func TestCutOff(t *testing.T) {
	r := newResource(t)
	c := config(t, r, filepath.Join(t.TempDir(), "state"))
	c.Settle, c.Wait = time.Hour, time.Millisecond
	p := newProxy(t, c)
	if status, _ := send(p, "/break", "33"); status != http.StatusBadGateway {
		t.Errorf("status %d", status)
	}
	if status, _ := send(p, "/", "33"); status != http.StatusOK {
		t.Errorf("the same token: status %d", status)
	}
	if status, body := send(p, "/", "34"); status != http.StatusServiceUnavailable || body.Token != 34 {
		t.Errorf("a newer token: status %d, %+v", status, body)
	}
	if status, _ := send(newProxy(t, c), "/", "35"); status != http.StatusServiceUnavailable {
		t.Errorf("a newer token after a restart: status %d", status)
	}
	c.Settle = 0
	p = newProxy(t, c)
	if status, _ := send(p, "/", "36"); status != http.StatusOK {
		t.Errorf("without settle: status %d", status)
	}

	// The client leaves while the resource is at work.
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan bool)
	go func() {
		q := httptest.NewRequest(http.MethodPost, "/slow", nil).WithContext(ctx)
		q.Header.Set(Header, "36")
		p.ServeHTTP(httptest.NewRecorder(), q)
		close(done)
	}()
	for <-r.began != "36" {
	}
	<-r.began
	leave()
	if status, _ := send(p, "/", "37"); status != http.StatusServiceUnavailable {
		t.Errorf("beside a request without its client: status %d", status)
	}
	close(r.release)
	<-done
	if status, _ := send(p, "/", "37"); status != http.StatusOK {
		t.Errorf("after it: status %d", status)
	}

	r.Close()
	c.Settle = time.Hour
	c.Memory.Close()
	c = config(t, r, filepath.Join(t.TempDir(), "state"))
	c.Settle, c.Wait = time.Hour, time.Millisecond
	p = newProxy(t, c)
	for _, token := range []string{"33", "34"} {
		if status, _ := send(p, "/", token); status != http.StatusBadGateway {
			t.Errorf("token %s, without a resource: status %d", token, status)
		}
	}
}

// TestLimits: the number of requests, the size of a body and the time of a request are bounded, and
// the protocol of a connection stays.
func TestLimits(t *testing.T) {
	r := newResource(t)
	c := config(t, r, filepath.Join(t.TempDir(), "state"))
	c.Requests = 1
	p := newProxy(t, c)
	done := make(chan bool)
	go func() { send(p, "/slow", "5"); close(done) }()
	<-r.began
	if status, _ := send(p, "/", "5"); status != http.StatusServiceUnavailable {
		t.Errorf("a second request: status %d", status)
	}
	close(r.release)
	<-done
	q := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", 101)))
	q.Header.Set(Header, "5")
	w := httptest.NewRecorder()
	p.ServeHTTP(w, q)
	if w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a large body: status %d", w.Code)
	}
	q = httptest.NewRequest(http.MethodGet, "/", nil)
	q.Header.Set(Header, "5")
	q.Header.Set("Connection", "Upgrade")
	q.Header.Set("Upgrade", "websocket")
	w = httptest.NewRecorder()
	p.ServeHTTP(w, q)
	if w.Code != http.StatusBadRequest {
		t.Errorf("an upgrade: status %d", w.Code)
	}
	// Java's HttpClient offers HTTP/2 with each request: it is answered without.
	q = httptest.NewRequest(http.MethodGet, "/upgrade", nil)
	for name, value := range map[string]string{Header: "5", "Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c",
		"HTTP2-Settings": "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA"} {
		q.Header.Set(name, value)
	}
	w = httptest.NewRecorder()
	p.ServeHTTP(w, q)
	if w.Code != http.StatusOK || w.Body.String() != "done" {
		t.Errorf("an offer of HTTP/2: status %d, %s", w.Code, w.Body)
	}
}

// TestTurn: the waiting of tokens, in virtual time.
func TestTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTurn("/l", 10, time.Minute)
		if err := u.begin(t.Context(), 10); err != nil { // the remembered token does not wait
			t.Error(err)
		}
		u.end()
		began := time.Now()
		errs := make(chan error, 3)
		for _, token := range []int64{11, 12, 12} {
			go func() { errs <- u.begin(t.Context(), token) }()
			synctest.Wait()
		}
		var stale *fence.StaleError
		if err := <-errs; !errors.As(err, &stale) || *stale != (fence.StaleError{Resource: "/l", Token: 11, Newest: 12}) {
			t.Errorf("11 beside 12: %v", err)
		}
		for range 2 {
			if err := <-errs; err != nil || time.Since(began) != time.Minute {
				t.Errorf("12: %v after %v", err, time.Since(began))
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := u.begin(ctx, 13); !errors.Is(err, errWaits) {
			t.Errorf("13 beside 12: %v", err)
		}
		if err := u.begin(t.Context(), 12); !errors.As(err, &stale) {
			t.Errorf("12 after 13: %v", err)
		}
		u.end()
		u.end()
		if err := u.begin(t.Context(), 13); err != nil {
			t.Error(err)
		}
	})
}
