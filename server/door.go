package server

import (
	"context"
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
	"lockkeeper/znode"
)

// door is the chain that every request to the HTTP port and to the port for metrics passes before a
// handler sees it: the host, the page that a browser sends it for, the login, and the right.
type door struct {
	s       *Server
	origins http.CrossOriginProtection
	guesses guesses

	held atomic.Int64 // bytes of answers, see consoleMember.Hold

	hosts, pages, logins, rights, memory atomic.Int64 // requests refused, see metrics
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

// callerKey is the key of the identities in the context of a request.
type callerKey struct{}

// guard returns a handler that calls next for the requests that pass. With login
// readers need one.
func (d *door) guard(next http.Handler, login bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, ok := r.Context().Value(httpConnKey{}).(*httpConn); ok && conn.framing.isLast() {
			w.Header().Set("Connection", "close")
		}
		need := rightTo(r, d.s.cfg.AdminBase)
		if need != rightOfAll && !d.s.isOwnHost(r.Host) {
			d.hosts.Add(1)
			writeError(w, http.StatusMisdirectedRequest,
				"the request's Host is no name of this member; use an address, or list the name in console.hosts")
			return
		}
		if !d.isOfOwnPage(r, need) {
			d.pages.Add(1)
			writeError(w, http.StatusForbidden, "the request comes from a page of another site")
			return
		}
		ids, ok := d.login(r)
		if !ok {
			d.logins.Add(1)
			w.Header().Set("Retry-After", "1")
			writeError(w, http.StatusTooManyRequests, "too many wrong passwords came from this address")
			return
		}
		if need == rightOfReaders && login && !d.s.mayView(ids) {
			d.rights.Add(1)
			status := http.StatusForbidden
			if r.Header.Get("Authorization") == "" {
				status = http.StatusUnauthorized
			}
			writeError(w, status, "reading needs a certificate, or the login of the super user or of admin.viewerDigest (admin.requireLogin)")
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, ids)))
	})
}

// isOfOwnPage reports whether a browser sends the request for a page of this member, or a program
// does. Reading counts like writing: some commands of AdminServer change something with GET, and
// event streams occupy connections. A link of another site may lead to the page.
func (d *door) isOfOwnPage(r *http.Request, need right) bool {
	if need == rightOfPage && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		return true
	}
	asked := *r
	asked.Method = http.MethodPost // of GET and HEAD Check asks nothing
	return d.origins.Check(&asked) == nil
}

// mayView reports whether identities are of somebody who has proved to be a viewer. Anybody can
// have a digest identity.
func (s *Server) mayView(ids []znode.Identity) bool {
	return s.isViewer(ids) || slices.ContainsFunc(ids, func(id znode.Identity) bool { return id.Scheme == "x509" })
}

// isViewer reports whether identities prove the password of the super user or of the viewer.
func (s *Server) isViewer(ids []znode.Identity) bool {
	return znode.IsSuper(ids) || slices.Contains(ids, znode.Identity{Scheme: "digest", ID: s.cfg.ViewerDigest})
}

// login returns the identities of a request; false if its address has to wait because it has sent
// too many wrong passwords. A password is not even looked at then.
func (d *door) login(r *http.Request) ([]znode.Identity, bool) {
	scheme, auth, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	user, _, _ := strings.Cut(auth, ":")
	kept := scheme == "digest" && user != "" && (isOf(user, d.s.cfg.SuperDigest) || isOf(user, d.s.cfg.ViewerDigest))
	from := clientAddr(r)
	if kept && d.guesses.waits(from, time.Now()) {
		return nil, false
	}
	ids := d.s.provedBy(r)
	if kept && !d.s.isViewer(ids) {
		d.wrong(auth, from)
	}
	return ids, true
}

func isOf(user, digest string) bool {
	name, _, ok := strings.Cut(digest, ":")
	return ok && name == user
}

// wrong records a wrong password, in lines that are bounded.
func (d *door) wrong(auth string, from netip.Addr) {
	d.logins.Add(1)
	d.guesses.add(from, time.Now())
	if d.s.sessions.ClaimsSuper(auth) {
		d.s.sessions.SuperLoginRefused(0, from.String(), "digest over HTTP")
		return
	}
	d.s.log.Warn("login of the viewer refused over HTTP: wrong password", "client", from)
}

const (
	guessesAtOnce = 10          // wrong passwords that an address may send without waiting
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
	return until.Sub(now) >= guessesAtOnce*guessEvery
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
// another site whose name has been pointed at this member (DNS rebinding) has that name there. An
// address cannot be pointed anywhere.
func (s *Server) isOwnHost(host string) bool {
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
	if slices.Contains(s.cfg.ConsoleHosts, host) {
		return true
	}
	return slices.ContainsFunc(s.membership().members, func(o Member) bool {
		name, _, _ := net.SplitHostPort(o.ClientAddr)
		return host == strings.ToLower(o.Host) || host == strings.ToLower(name)
	})
}
