package fenceproxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"lockkeeper/recipes/fence"
)

// Header is the header of a request that has its token, in decimal digits.
const Header = "Fencing-Token"

// Config is the configuration of a Proxy. All fields are needed, but Transport and Log.
type Config struct {
	Target *url.URL
	Lock   string // the resource's name in Memory
	Memory *fence.File

	Requests  int           // at once, those that wait among them
	BodyBytes int64         // of a request
	Timeout   time.Duration // of a request, from its first byte to the last one of the answer
	Wait      time.Duration // for older requests in flight
	Settle    time.Duration // after a request that was cut off

	Transport http.RoundTripper // to the target
	Log       *slog.Logger
}

// Proxy is an http.Handler that forwards requests to a target, in the order of their tokens.
type Proxy struct {
	Config
	turn  *turn
	slots chan struct{}
	proxy *httputil.ReverseProxy
}

// New returns the proxy. It fails if the memory is damaged.
func New(c Config) (*Proxy, error) {
	newest, err := c.Memory.Newest(c.Lock)
	if err != nil {
		return nil, err
	}
	if c.Transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.Proxy, t.MaxIdleConnsPerHost = nil, c.Requests
		c.Transport = t
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	p := &Proxy{Config: c, turn: newTurn(c.Lock, newest, c.Settle), slots: make(chan struct{}, c.Requests)}
	p.proxy = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(c.Target)
			r.SetXForwarded()
		},
		Transport:    watched{c.Transport},
		ErrorHandler: p.unreachable,
		ErrorLog:     slog.NewLogLogger(c.Log.Handler(), slog.LevelWarn),
	}
	return p, nil
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, err := tokenOf(r)
	if err != nil {
		refuse(w, err, 0)
		return
	}
	// Order: the token is durable before the request can have an effect, and refused requests never
	// take a place.
	if err := p.Memory.Check(p.Lock, token); err != nil {
		p.Log.Info("request is refused", "token", token, "error", err)
		refuse(w, err, token)
		return
	}
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	default:
		refuse(w, fmt.Errorf("%d requests are in flight", p.Requests), token)
		return
	}
	wait, cancel := context.WithTimeout(r.Context(), p.Wait)
	err = p.turn.begin(wait, token)
	cancel()
	if err != nil {
		p.Log.Info("request is refused", "token", token, "error", err)
		refuse(w, err, token)
		return
	}
	p.forward(w, r)
}

// flight is a request that is in flight.
type flight struct {
	sent  atomic.Bool // there is a connection to the target, which it may have reached
	ended bool        // the target's answer has ended
}

// flightKey is the key of the context's *flight.
type flightKey struct{}

// forward forwards a request whose turn it is, and ends the turn.
func (p *Proxy) forward(w http.ResponseWriter, r *http.Request) {
	f := new(flight)
	defer func() {
		if f.ended || !f.sent.Load() || p.Settle <= 0 {
			p.turn.end()
			return
		}
		p.Log.Warn("request was cut off, and may still be at work", "settle", p.Settle)
		time.AfterFunc(p.Settle, p.turn.end)
	}()
	// The client may leave; the request goes on, until it is known to have ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), p.Timeout)
	defer cancel()
	r = r.WithContext(context.WithValue(ctx, flightKey{}, f))
	r.Body = http.MaxBytesReader(w, r.Body, p.BodyBytes)
	r.Header.Del("Upgrade") // see offersHTTP2
	p.proxy.ServeHTTP(w, r)
}

// watched is a transport that notes in a request's flight how far it got.
type watched struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t watched) RoundTrip(r *http.Request) (*http.Response, error) {
	f := r.Context().Value(flightKey{}).(*flight)
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { f.sent.Store(true) }}
	resp, err := t.RoundTripper.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	if err == nil {
		resp.Body = &watchedBody{resp.Body, f}
	}
	return resp, err
}

// watchedBody is the body of an answer.
type watchedBody struct {
	io.ReadCloser
	flight *flight
}

// Read implements io.Reader.
func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.flight.ended = b.flight.ended || err == io.EOF
	return n, err
}

// leftoverBytes bounds the rest of an answer that is read for a client that has left.
const leftoverBytes = 1 << 20

// Close implements io.Closer. The rest of a short answer is read, since its end is worth knowing.
func (b *watchedBody) Close() error {
	if !b.flight.ended {
		_, _ = io.CopyN(io.Discard, b, leftoverBytes)
	}
	return b.ReadCloser.Close()
}

func (p *Proxy) unreachable(w http.ResponseWriter, r *http.Request, err error) {
	p.Log.Warn("request failed", "error", err)
	status := http.StatusBadGateway
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		status = http.StatusRequestEntityTooLarge
	case errors.Is(err, context.DeadlineExceeded):
		status = http.StatusGatewayTimeout
	}
	answer(w, status, refusal{Error: "the request was cut off: " + err.Error()})
}

// Errors of a request without a token that counts.
var (
	errMissing   = errors.New("the header " + Header + " is missing")
	errMalformed = errors.New("the header " + Header + " is not one number from 1 to 9223372036854775807, in " +
		"decimal digits")
	errUpgrade = errors.New("the protocol of a connection cannot be changed: its end would be unknown")
)

// tokenOf returns the token of a request that may be forwarded.
func tokenOf(r *http.Request) (int64, error) {
	values := r.Header[Header]
	if len(values) == 0 {
		return 0, errMissing
	}
	token, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil || len(values) > 1 || token < 1 || strconv.FormatInt(token, 10) != values[0] {
		return 0, errMalformed
	}
	if r.Method == http.MethodConnect || r.Header.Get("Upgrade") != "" && !offersHTTP2(r) {
		return 0, errUpgrade
	}
	return token, nil
}

// offersHTTP2 says whether the request only offers to go on with HTTP/2, as the client of Java's
// library does with each. Nobody has to take the offer, and the proxy does not pass it on.
func offersHTTP2(r *http.Request) bool {
	values := r.Header["Upgrade"]
	return len(values) == 1 && strings.EqualFold(values[0], "h2c")
}

// refusal is the body of an answer of the proxy's own.
type refusal struct {
	Error  string `json:"error"`
	Token  int64  `json:"token,omitempty"`
	Newest int64  `json:"newest,omitempty"`
}

// refuse answers a request that was not forwarded. Only a status of 503 may be tried again.
func refuse(w http.ResponseWriter, err error, token int64) {
	status, body := http.StatusServiceUnavailable, refusal{Error: err.Error(), Token: token}
	var stale *fence.StaleError
	switch {
	case errors.As(err, &stale):
		status, body.Newest = http.StatusConflict, stale.Newest
	case errors.Is(err, errMissing):
		status = http.StatusPreconditionRequired
	case errors.Is(err, errMalformed), errors.Is(err, errUpgrade):
		status = http.StatusBadRequest
	default:
		w.Header().Set("Retry-After", "1")
	}
	answer(w, status, body)
}

func answer(w http.ResponseWriter, status int, body refusal) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
