package session

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"lockkeeper/internal/loglimit"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// RateQuota bounds the requests of a tenant to this member: an identity, or all who write to a
// subtree. Zero switches a bound off. Each bound per second allows a burst of one second's worth.
type RateQuota struct {
	// Key is the configuration's name for the quota.
	Key string
	// Identity is the tenant if it has a scheme. The id "*" makes a tenant of each identity of that
	// scheme; of ip, of each NetworkOf an address.
	Identity znode.Identity
	// Path is the tenant otherwise. With a last component "*" each child of its parent is one.
	Path string

	// Requests, of an identity only, are requests of all kinds a second; Writes those that enter
	// the log, of a multi each of its operations. Bytes are those of requests, and for an identity
	// also of replies, a second.
	Requests, Writes, Bytes int
	// Watches are the paths that connections watch, each of them counted for itself.
	Watches int
	// Sessions, of an identity only, are the connections with a session.
	Sessions int
}

// anyID is the id of RateQuota.Identity that stands for each.
const anyID = "*"

// errRateQuota says that a tenant has as many sessions as it may have, or opens them too fast.
var errRateQuota = errors.New("session: the tenant's rate quota is used up (rateQuota)")

// tenant is what a quota bounds. rateQuotas.mu guards it.
type tenant struct {
	name  string
	quota *RateQuota

	requests, writes, bytes debt
	sessions, watches       int
}

// debt is a token bucket that may be overdrawn.
type debt struct {
	owed float64 // below zero: what may still be taken at once
	at   time.Time
}

// charge takes n of what has come in at rate per second until now. At most the amount of a second
// is saved up, and at most that of longest owed.
func (d *debt) charge(n, rate int, longest time.Duration, now time.Time) {
	saved := float64(-rate)
	if !d.at.IsZero() {
		saved = max(d.owed-float64(rate)*now.Sub(d.at).Seconds(), saved)
	}
	d.owed, d.at = min(saved+float64(n), float64(rate)*longest.Seconds()), now
}

// delay is how long it takes until nothing is owed.
func (d *debt) delay(rate int) time.Duration {
	if rate <= 0 || d.owed <= 0 {
		return 0
	}
	return time.Duration(d.owed / float64(rate) * float64(time.Second))
}

// amount is what a request takes of a tenant's quota.
type amount struct{ requests, writes, bytes int }

// chargeLocked takes an amount, and returns how long the tenant has to pause until it owes nothing.
func (r *rateQuotas) chargeLocked(t *tenant, a amount, now time.Time) (pause time.Duration) {
	q := t.quota
	t.requests.charge(a.requests, q.Requests, r.maxPause, now)
	t.writes.charge(a.writes, q.Writes, r.maxPause, now)
	t.bytes.charge(a.bytes, q.Bytes, r.maxPause, now)
	return max(t.requests.delay(q.Requests), t.writes.delay(q.Writes), t.bytes.delay(q.Bytes))
}

// idle reports whether a new tenant would be the same as t.
func (t *tenant) idle(now time.Time) bool {
	const burst = time.Second // that fills up within it
	return t.sessions == 0 && t.watches == 0 && now.Sub(t.requests.at) > burst+
		max(t.requests.delay(t.quota.Requests), t.writes.delay(t.quota.Writes), t.bytes.delay(t.quota.Bytes))
}

// rateQuotas holds the tenants of this member. Of the quotas for identities the first that fits an
// identity of a connection counts for it, and of those for subtrees the first that fits the path;
// super users have none.
type rateQuotas struct {
	identities, paths []RateQuota
	maxPause          time.Duration // of any session
	stats             *stats
	refusals          *loglimit.Limiter

	mu      sync.Mutex
	tenants map[string]*tenant
	sweepAt int // how many of them there are when those that are idle are dropped
}

// tenantsKept is how many tenants there are before it is asked whether some of them are idle.
const tenantsKept = 1024

func (r *rateQuotas) init(quotas []RateQuota, maxTimeout time.Duration, s *stats, refusals *loglimit.Limiter) {
	for _, q := range quotas {
		if q.Identity.Scheme != "" {
			r.identities = append(r.identities, q)
		} else {
			r.paths = append(r.paths, q)
		}
	}
	r.maxPause, r.stats, r.refusals = pauseLimit(maxTimeout), s, refusals
	r.tenants, r.sweepAt = map[string]*tenant{}, tenantsKept
}

// ofIdentitiesLocked returns the tenant of a connection from addr with these identities; nil: no
// quota.
func (r *rateQuotas) ofIdentitiesLocked(addr netip.Addr, ids []znode.Identity) *tenant {
	if len(r.identities) == 0 || znode.IsSuper(ids) {
		return nil
	}
	for i := range r.identities {
		q := &r.identities[i]
		at := slices.IndexFunc(ids, func(id znode.Identity) bool {
			return id.Scheme == q.Identity.Scheme && (q.Identity.ID == anyID || id.ID == q.Identity.ID)
		})
		switch {
		case at < 0:
		case q.Identity == znode.Identity{Scheme: "ip", ID: anyID}:
			return r.tenantLocked("ip:"+NetworkOf(addr).String(), q)
		default:
			return r.tenantLocked(ids[at].Scheme+":"+ids[at].ID, q)
		}
	}
	return nil
}

// ofPathLocked returns the tenant to whose subtree a path belongs; nil: no quota.
func (r *rateQuotas) ofPathLocked(path string) *tenant {
	for i := range r.paths {
		q := &r.paths[i]
		if root, ok := subtree(q.Path, path); ok {
			return r.tenantLocked(root, q)
		}
	}
	return nil
}

// subtree returns the root of the subtree of a quota with that pattern that path is in.
func subtree(pattern, path string) (root string, ok bool) {
	parent, each := strings.CutSuffix(pattern, "/"+anyID)
	rest, below := strings.CutPrefix(path, parent)
	switch {
	case !below:
		return "", false
	case !each:
		return pattern, rest == "" || rest[0] == '/'
	case len(rest) < 2 || rest[0] != '/':
		return "", false
	}
	child, _, _ := strings.Cut(rest[1:], "/")
	return path[:len(parent)+1+len(child)], true
}

func (r *rateQuotas) tenantLocked(name string, q *RateQuota) *tenant {
	t := r.tenants[name]
	if t != nil && t.quota == q {
		return t
	}
	if len(r.tenants) >= r.sweepAt {
		r.sweepLocked(time.Now())
	}
	t = &tenant{name: name, quota: q}
	r.tenants[name] = t
	return t
}

// sweepLocked drops the tenants that are idle. The time that it takes is paid for by those who have
// doubled their number.
func (r *rateQuotas) sweepLocked(now time.Time) {
	for name, t := range r.tenants {
		if t.idle(now) {
			delete(r.tenants, name)
		}
	}
	r.sweepAt = max(2*len(r.tenants), tenantsKept)
}

// open charges the tenant of an address for a session that is about to be opened or attached. It
// returns how long the client has to wait for that, or errRateQuota.
func (r *rateQuotas) open(addr netip.Addr) (pause time.Duration, err error) {
	if len(r.identities) == 0 {
		return 0, nil
	}
	r.mu.Lock()
	t := r.ofIdentitiesLocked(addr, []znode.Identity{AddrIdentity(addr)})
	full := t != nil && t.full()
	if t != nil && !full {
		pause = r.chargeLocked(t, amount{requests: 1, writes: 1}, time.Now())
	}
	r.mu.Unlock()
	if full {
		r.refused(t, "client refused: its tenant has as many sessions as its quota allows")
		return 0, errRateQuota
	}
	return pause, nil
}

// full reports whether the tenant has as many sessions as it may have.
func (t *tenant) full() bool { return t.quota.Sessions > 0 && t.sessions >= t.quota.Sessions }

// begin counts a session for the tenant of its address. A handshake that began beside others may
// exceed the quota by their number.
func (r *rateQuotas) begin(s *Session) {
	if len(r.identities) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.tenant = r.ofIdentitiesLocked(s.addr, *s.ids.Load()); s.tenant != nil {
		s.tenant.sessions++
	}
}

// end takes a session out of the count. Its watches leave it one by one.
func (r *rateQuotas) end(s *Session) {
	if len(r.identities) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.tenant != nil && !s.left {
		s.tenant.sessions--
	}
	s.left = true
}

// identified counts a session, with its watches, for the tenant that its identities make it one of;
// false if that has as many sessions as it may have.
func (r *rateQuotas) identified(s *Session, ids []znode.Identity) bool {
	if len(r.identities) == 0 {
		return true
	}
	t, ok := r.move(s, ids)
	if !ok {
		r.refused(t, "authentication refused: the tenant has as many sessions as its quota allows")
	}
	return ok
}

// move is identified; t is the tenant.
func (r *rateQuotas) move(s *Session, ids []znode.Identity) (t *tenant, ok bool) {
	s.m.watches.mu.Lock() // the watches move with the session
	defer s.m.watches.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	old := s.tenant
	t = r.ofIdentitiesLocked(s.addr, ids)
	if t == old || s.left {
		return t, true
	}
	if t != nil && t.full() {
		return t, false
	}
	if old != nil {
		old.sessions--
		old.watches -= len(s.watched)
	}
	if t != nil {
		t.sessions++
		t.watches += len(s.watched)
	}
	s.tenant = t
	return t, true
}

// charge takes what a request needs of the quotas of its session, and of the subtrees that it
// writes to. It returns how long the connection has to pause before its next request.
func (r *rateQuotas) charge(s *Session, p *pending, record wire.Record) (pause time.Duration) {
	if len(r.identities) == 0 && len(r.paths) == 0 || znode.IsSuper(p.ids) {
		return 0
	}
	writes := 0
	if isWrite(p.req.Op) {
		writes = 1
		if multi, ok := record.(*wire.MultiRequest); ok {
			writes = max(1, len(multi.Ops))
		}
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.tenant != nil {
		pause = r.chargeLocked(s.tenant, amount{requests: 1, writes: writes, bytes: p.size}, now)
	}
	if len(r.paths) > 0 {
		for path := range znode.WrittenPaths(record) {
			if t := r.ofPathLocked(path); t != nil {
				pause = max(pause, r.chargeLocked(t, amount{writes: 1, bytes: p.size / max(1, writes)}, now))
			}
		}
	}
	if pause > 0 {
		r.stats.inc(&r.stats.RateQuotaPauses)
	}
	return min(pause, pauseLimit(s.timeout))
}

// pauseLimit is how long a connection may pause before each request: so long that the lease of its
// session, confirmed when the request came, allows the answer to be sent (lease.go).
func pauseLimit(timeout time.Duration) time.Duration { return timeout / 6 }

// replied takes the bytes of a reply.
func (r *rateQuotas) replied(s *Session, bytes int) {
	if len(r.identities) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.tenant != nil {
		r.chargeLocked(s.tenant, amount{bytes: bytes}, time.Now())
	}
}

// refused counts and logs a refusal. No lock is held: the state waits for that of the quotas when
// watches fire, and a log may be slow.
func (r *rateQuotas) refused(t *tenant, why string) {
	r.stats.inc(&r.stats.RateQuotaRefused)
	r.refusals.Warn("rate quota "+t.name, why, "tenant", t.name, "quota", t.quota.Key)
}

// admitWatch counts one more path that s watches; false if it or the subtree has as many as it may
// have. The watch table's lock is held.
func (r *rateQuotas) admitWatch(s *Session, path string) bool {
	if len(r.identities) == 0 && len(r.paths) == 0 {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	tenants := [...]*tenant{s.tenant, r.ofPathLocked(path)}
	super := znode.IsSuper(*s.ids.Load())
	for _, t := range tenants {
		if t != nil && !super && t.quota.Watches > 0 && t.watches >= t.quota.Watches {
			r.stats.inc(&r.stats.RateQuotaRefused)
			return false
		}
	}
	for _, t := range tenants {
		if t != nil {
			t.watches++
		}
	}
	return true
}

// forgetWatch ends what admitWatch began.
func (r *rateQuotas) forgetWatch(s *Session, path string) {
	if len(r.identities) == 0 && len(r.paths) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range [...]*tenant{s.tenant, r.ofPathLocked(path)} {
		if t != nil {
			t.watches--
		}
	}
}

// pause waits until the quotas of the session allow one more request.
func (s *Session) pause() {
	if s.pausedUntil.IsZero() {
		return
	}
	if d := time.Until(s.pausedUntil); d > 0 {
		s.out.wake()
		s.mu.Lock()
		defer s.mu.Unlock()
		timer := time.AfterFunc(d, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.dequeued.Broadcast()
		})
		defer timer.Stop()
		for !s.ended.Load() && time.Now().Before(s.pausedUntil) {
			s.dequeued.Wait()
		}
	}
	s.pausedUntil = time.Time{}
}

// awaitQuota waits until the tenant of a client that opens or attaches a session may do that.
func (m *Manager) awaitQuota(ctx context.Context, addr netip.Addr) error {
	pause, err := m.rates.open(addr)
	if pause == 0 || err != nil {
		return err
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errRateQuota
	}
}
