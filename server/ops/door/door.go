package door

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/internal/connlimit"
	"lockkeeper/server/ops/audit"
	"lockkeeper/server/zoocfg"
	"lockkeeper/session"
	"lockkeeper/znode"
)

// Config are the parts of a member that a Door uses.
type Config struct {
	Settings *zoocfg.Config
	Sessions *session.Manager                // it verifies passwords, and accounts for memory
	Members  func() []zoocfg.Member          // of the cluster: their hosts may be names of this one
	Holder   func(net.Conn) []znode.Identity // of the certificate that was shown on a connection
	UsesTLS  func(net.Conn) bool
	Audit    *audit.Log       // nil: there is none
	Now      func() time.Time // the wall clock
	Log      *slog.Logger
}

// Door is the chain that every request to the HTTP port and to the port for metrics passes before a
// handler sees it: the host, the page that a browser sends it for, the login, the right, and the
// turn. It is safe for concurrent use.
type Door struct {
	cfg     Config
	origins http.CrossOriginProtection
	guesses guesses
	pace    *Pace

	mu    sync.Mutex
	ports []*Port

	// auditFailures limits the lines of the audit log that everybody can cause.
	auditFailures session.PerMinute

	held atomic.Int64 // bytes of answers, see Hold

	hosts, pages, logins, rights, memory atomic.Int64 // requests refused, see Counts
}

// New returns a Door without a port.
func New(cfg Config) *Door { return &Door{cfg: cfg, pace: NewPace(1)} }

// Counts are the requests, connections and answers that all ports of a Door have refused.
type Counts struct {
	Refused, Displaced int64 // connections
	Late               int64 // requests that did not arrive in time
	// Requests by the check that refused them, and answers without memory.
	Hosts, Pages, Logins, Rights, Crowded, Memory int64
}

// Counts adds up the ports; false if there is no port.
func (d *Door) Counts() (Counts, bool) {
	c := Counts{Hosts: d.hosts.Load(), Pages: d.pages.Load(), Logins: d.logins.Load(), Rights: d.rights.Load(),
		Crowded: d.pace.crowded.Load(), Memory: d.memory.Load()}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.ports {
		c.Refused += p.slots.refused.Load()
		c.Displaced += p.slots.displaced.Load()
		c.Late += p.slots.late.Load()
	}
	return c, len(d.ports) > 0
}

// Hold reserves memory for an answer, false if there is not enough; Release frees it. All answers
// together may take a quarter of maxClientMemory.
func (d *Door) Hold(bytes int) bool {
	if d.held.Add(int64(bytes)) <= int64(d.cfg.Settings.Limits.Memory/4) && d.cfg.Sessions.Memory().Hold(bytes) {
		return true
	}
	d.held.Add(int64(-bytes))
	d.memory.Add(1)
	return false
}

// Release frees the bytes that Hold has reserved.
func (d *Door) Release(bytes int) {
	d.held.Add(int64(-bytes))
	d.cfg.Sessions.Memory().Add(-bytes)
}

// Mux is a http.ServeMux, or notes the addresses that are added to it.
type Mux interface {
	Handle(pattern string, h http.Handler)
	HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request))
}

// right is who may ask for something.
type right int

const (
	rightOfReaders right = iota // the state of the member and the cluster
	rightOfAll                  // health, and a fencing token: a probe and a resource have no login
	rightOfPage                 // the files of the page, which contain nothing of the state
)

func rightTo(r *http.Request, base string) right {
	path := r.URL.Path
	switch {
	case isProbe(r), r.URL.Path == "/stoppable":
		return rightOfAll
	case path == "/metrics", path == "/members", path == "/leader", strings.HasPrefix(path, "/api/"),
		strings.HasPrefix(path, "/v1/"),
		path == base, strings.HasPrefix(path, base+"/"):
		return rightOfReaders
	}
	return rightOfPage
}

// isProbe reports whether a request is one of those that have connections of their own.
func isProbe(r *http.Request) bool {
	switch r.URL.Path {
	case "/live", "/ready", "/fence":
		return true
	case "/stoppable": // which may wait
		return !r.URL.Query().Has("wait")
	}
	return false
}

// Caller is the sender of a request, as the Door has found.
type Caller struct {
	Identities []znode.Identity
	Addr       netip.Addr
	Secure     bool // the request came over TLS, or from this machine
}

// CallerOf returns the sender of a request that has passed a Door. Of any other request it has no
// identity.
func CallerOf(r *http.Request) Caller {
	c, _ := r.Context().Value(callerKey{}).(Caller)
	return c
}

// IsSuper reports whether the caller is a super user.
func (c Caller) IsSuper() bool { return znode.IsSuper(c.Identities) }

// IsLocal reports whether the request comes from this machine.
func (c Caller) IsLocal() bool { return c.Addr.IsLoopback() }

// callerKey is the key of the Caller in the context of a request.
type callerKey struct{}

// withCaller returns r with its Caller.
func (d *Door) withCaller(r *http.Request, ids []znode.Identity) *http.Request {
	c := Caller{Identities: ids, Addr: clientAddr(r)}
	c.Secure = c.IsLocal()
	if conn, ok := r.Context().Value(connKey{}).(*conn); ok && d.cfg.UsesTLS(conn.Conn) {
		c.Secure = true
	}
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, c))
}

// clientAddr is the address from which a request came.
func clientAddr(r *http.Request) netip.Addr {
	at, _ := netip.ParseAddrPort(r.RemoteAddr)
	return at.Addr().Unmap()
}

// guard returns a handler that calls next for the requests that pass. With login
// readers need one.
func (d *Door) guard(next http.Handler, login bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, ok := r.Context().Value(connKey{}).(*conn); ok && conn.framing.isLast() {
			w.Header().Set("Connection", "close")
		}
		need := rightTo(r, d.cfg.Settings.HTTP.AdminBase)
		if need != rightOfAll && !d.isOwnHost(r.Host) {
			d.hosts.Add(1)
			WriteError(w, http.StatusMisdirectedRequest,
				"the request's Host is no name of this member; use an address, or list the name in console.hosts")
			return
		}
		if !d.isOfOwnPage(r, need) {
			d.pages.Add(1)
			WriteError(w, http.StatusForbidden, "the request comes from a page of another site")
			return
		}
		ids, ok := d.login(r)
		if !ok {
			d.logins.Add(1)
			w.Header().Set("Retry-After", "1")
			WriteError(w, http.StatusTooManyRequests, "too many wrong passwords came from this address")
			return
		}
		if need == rightOfReaders && login && !d.mayView(ids) {
			d.rights.Add(1)
			status := http.StatusForbidden
			if r.Header.Get("Authorization") == "" {
				status = http.StatusUnauthorized
			}
			WriteError(w, status, "reading needs a certificate, or the login of the super user or of "+
				"admin.viewerDigest (admin.requireLogin)")
			return
		}
		next.ServeHTTP(w, d.withCaller(r, ids))
	})
}

// isOfOwnPage reports whether a browser sends the request for a page of this member, or a program
// does. Reading counts like writing: some commands of AdminServer change something with GET, and
// event streams occupy connections. A link of another site may lead to the page.
func (d *Door) isOfOwnPage(r *http.Request, need right) bool {
	if need == rightOfPage && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		return true
	}
	asked := *r
	asked.Method = http.MethodPost // of GET and HEAD Check asks nothing
	return d.origins.Check(&asked) == nil
}

// mayView reports whether identities are of somebody who has proved to be a viewer. Anybody can
// have a digest identity.
func (d *Door) mayView(ids []znode.Identity) bool {
	return d.isViewer(ids) || slices.ContainsFunc(ids, func(id znode.Identity) bool { return id.Scheme == "x509" })
}

// isViewer reports whether identities prove the password of the super user or of the viewer.
func (d *Door) isViewer(ids []znode.Identity) bool {
	return znode.IsSuper(ids) || slices.Contains(ids,
		znode.Identity{Scheme: "digest", ID: d.cfg.Settings.HTTP.ViewerDigest})
}

// login returns the identities of a request; false if its address has to wait because it has sent
// too many wrong passwords. A password is not even looked at then.
func (d *Door) login(r *http.Request) ([]znode.Identity, bool) {
	scheme, auth, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	user, _, _ := strings.Cut(auth, ":")
	s := d.cfg.Settings
	kept := scheme == "digest" && user != "" && (isOf(user, s.Auth.SuperDigest) || isOf(user, s.HTTP.ViewerDigest))
	from := clientAddr(r)
	if kept && d.guesses.waits(from, time.Now()) {
		return nil, false
	}
	ids := d.provedBy(r)
	if kept && !d.isViewer(ids) {
		d.wrong(auth, from)
	}
	return ids, true
}

func isOf(user, digest string) bool {
	name, _, ok := strings.Cut(digest, ":")
	return ok && name == user
}

// wrong records a wrong password, in lines that are bounded.
func (d *Door) wrong(auth string, from netip.Addr) {
	d.logins.Add(1)
	d.guesses.add(from, time.Now())
	if d.cfg.Sessions.SuperLoginRefused(auth, from) {
		return
	}
	d.cfg.Log.Warn("login of the viewer refused over HTTP: wrong password", "client", from)
}

const (
	GuessesAtOnce = 10          // wrong passwords that an address may send without waiting
	guessEvery    = time.Second // after those, the time for another
	guessersMost  = 4096        // addresses that are remembered
)

// guesses are the wrong passwords by connlimit.NetworkOf the address.
type guesses struct {
	mu    sync.Mutex
	until map[netip.Prefix]time.Time // by when all of an address's wrong passwords are forgiven
}

// waits reports whether an address has to wait.
func (g *guesses) waits(a netip.Addr, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	until, ok := g.until[connlimit.NetworkOf(a)]
	if !ok && len(g.until) >= guessersMost {
		g.forgetLocked(now)
		return len(g.until) >= guessersMost
	}
	return until.Sub(now) >= GuessesAtOnce*guessEvery
}

func (g *guesses) forgetLocked(now time.Time) {
	for p, until := range g.until {
		if !until.After(now) {
			delete(g.until, p)
		}
	}
}

// add counts a wrong password of an address.
func (g *guesses) add(a netip.Addr, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.until == nil {
		g.until = map[netip.Prefix]time.Time{}
	}
	until := g.until[connlimit.NetworkOf(a)]
	if until.Before(now) {
		until = now
	}
	g.until[connlimit.NetworkOf(a)] = until.Add(guessEvery)
}

// isOwnHost reports whether host, as in a Host header, is one of this member's names. A page of
// another site with a name that points at this member (DNS rebinding) has that name there. An
// address cannot be pointed anywhere.
func (d *Door) isOwnHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if _, err := netip.ParseAddr(host); err == nil || host == "localhost" || host == "" {
		return true
	}
	if own, err := os.Hostname(); err == nil {
		short, _, _ := strings.Cut(own, ".")
		if host == strings.ToLower(own) || host == strings.ToLower(short) {
			return true
		}
	}
	if slices.Contains(d.cfg.Settings.Console.Hosts, host) {
		return true
	}
	return slices.ContainsFunc(d.cfg.Members(), func(o zoocfg.Member) bool {
		name, _, _ := net.SplitHostPort(o.ClientAddr)
		return host == strings.ToLower(o.Host) || host == strings.ToLower(name)
	})
}
