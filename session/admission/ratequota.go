package admission

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"lockkeeper/internal/connlimit"
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
	// scheme; of ip, of each connlimit.NetworkOf an address.
	Identity znode.Identity
	// Path is the tenant otherwise. With a last component "*" each child of its parent is one.
	Path string

	// Requests, of an identity only, are requests of all kinds a second; Writes those that enter
	// the log, of a multi each of its operations. Bytes counts requests, and for an identity also
	// replies, a second.
	Requests, Writes, Bytes int
	// Watches are the paths that connections watch, each of them counted for itself.
	Watches int
	// Sessions, of an identity only, are the connections with a session.
	Sessions int
}

// anyID is the id of RateQuota.Identity that stands for each.
const anyID = "*"

// ErrRateQuota says that a tenant has as many sessions as it may have, or opens them too fast.
var ErrRateQuota = errors.New("session: the tenant's rate quota is used up (rateQuota)")

// tenant is the client, or the subtree, that a quota bounds. rateQuotas.mu guards it.
type tenant struct {
	name  string
	quota *RateQuota

	requests, writes, bytes debt
	sessions, watches       int
}

// debt is a token bucket that may be overdrawn.
type debt struct {
	owed float64 // below zero: the tokens left
	at   time.Time
}

// charge takes n tokens, which come in at rate per second until now. At most the tokens of a second
// are saved up, and at most those of longest are owed.
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

// amount is the share of a request in a tenant's quota.
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
	refused           *refusals
	refusals          *loglimit.Limiter

	mu      sync.Mutex
	tenants map[string]*tenant
	sweepAt int // the number of tenants at which the idle ones are dropped
}

// tenantsKept is the number of tenants below which idle ones are kept.
const tenantsKept = 1024

func (r *rateQuotas) init(quotas []RateQuota, maxTimeout time.Duration, counts *refusals, refusals *loglimit.Limiter) {
	for _, q := range quotas {
		if q.Identity.Scheme != "" {
			r.identities = append(r.identities, q)
		} else {
			r.paths = append(r.paths, q)
		}
	}
	r.maxPause, r.refused, r.refusals = PauseLimit(maxTimeout), counts, refusals
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
			return r.tenantLocked("ip:"+connlimit.NetworkOf(addr).String(), q)
		default:
			return r.tenantLocked(ids[at].Scheme+":"+ids[at].ID, q)
		}
	}
	return nil
}

// ofPathLocked returns the tenant with the subtree of a path; nil: no quota.
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
// returns how long the client has to wait for that, or ErrRateQuota.
func (r *rateQuotas) open(addr netip.Addr) (pause time.Duration, err error) {
	if len(r.identities) == 0 {
		return 0, nil
	}
	r.mu.Lock()
	t := r.ofIdentitiesLocked(addr, []znode.Identity{{Scheme: "ip", ID: znode.AddrText(addr)}})
	full := t != nil && t.full()
	if t != nil && !full {
		pause = r.chargeLocked(t, amount{requests: 1, writes: 1}, time.Now())
	}
	r.mu.Unlock()
	if full {
		r.refuse(t, "client refused: its tenant has as many sessions as its quota allows")
		return 0, ErrRateQuota
	}
	return pause, nil
}

// full reports whether the tenant has as many sessions as it may have.
func (t *tenant) full() bool { return t.quota.Sessions > 0 && t.sessions >= t.quota.Sessions }

// Account is the share of a connection with a session in a Gate.
type Account struct {
	Session wire.SessionID
	Addr    netip.Addr

	// These are guarded by rateQuotas.mu.
	tenant  *tenant // nil: no quota
	watched int32   // paths that the connection watches
	left    bool    // the tenant does not count the session any more
}

// Open counts a connection with these identities, and a session for its tenant. A handshake that
// began beside others may exceed the quota by their number.
func (g *Gate) Open(a *Account, ids []znode.Identity) {
	g.Memory.conns.Add(1)
	r := &g.rates
	if len(r.identities) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.tenant = r.ofIdentitiesLocked(a.Addr, ids); a.tenant != nil {
		a.tenant.sessions++
	}
}

// Close takes a connection out of the count. Its watches leave it one by one.
func (g *Gate) Close(a *Account) {
	g.Memory.conns.Add(-1)
	r := &g.rates
	if len(r.identities) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.tenant != nil && !a.left {
		a.tenant.sessions--
	}
	a.left = true
}

// Identify counts a session, with its watches, for the tenant of its new identities; false if that
// has as many sessions as it may have.
func (g *Gate) Identify(a *Account, ids []znode.Identity) bool {
	r := &g.rates
	if len(r.identities) == 0 {
		return true
	}
	t, ok := r.move(a, ids)
	if !ok {
		r.refuse(t, "authentication refused: the tenant has as many sessions as its quota allows")
	}
	return ok
}

// move is Identify; t is the tenant.
func (r *rateQuotas) move(a *Account, ids []znode.Identity) (t *tenant, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := a.tenant
	t = r.ofIdentitiesLocked(a.Addr, ids)
	if t == old || a.left {
		return t, true
	}
	if t != nil && t.full() {
		return t, false
	}
	if old != nil {
		old.sessions--
		old.watches -= int(a.watched)
	}
	if t != nil {
		t.sessions++
		t.watches += int(a.watched)
	}
	a.tenant = t
	return t, true
}

// Charge takes a request of size bytes out of the quotas of its session, and of the subtrees that
// it writes to. The connection has to pause for the returned time before its next request, for
// PauseLimit at the most.
func (g *Gate) Charge(a *Account, record wire.Record, ids []znode.Identity, size int,
	write bool) (pause time.Duration) {
	r := &g.rates
	if len(r.identities) == 0 && len(r.paths) == 0 || znode.IsSuper(ids) {
		return 0
	}
	writes := 0
	if write {
		writes = 1
		if multi, ok := record.(*wire.MultiRequest); ok {
			writes = max(1, len(multi.Ops))
		}
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.tenant != nil {
		pause = r.chargeLocked(a.tenant, amount{requests: 1, writes: writes, bytes: size}, now)
	}
	if len(r.paths) > 0 {
		for path := range znode.WrittenPaths(record) {
			if t := r.ofPathLocked(path); t != nil {
				pause = max(pause, r.chargeLocked(t, amount{writes: 1, bytes: size / max(1, writes)}, now))
			}
		}
	}
	if pause > 0 {
		r.refused.inc(&r.refused.RateQuotaPauses)
	}
	return pause
}

// PauseLimit is the longest pause of a connection before a request: the lease of its session,
// confirmed when the request came, still allows the answer to be sent (session/lease.go).
func PauseLimit(timeout time.Duration) time.Duration { return timeout / 6 }

// Replied takes the bytes of a reply.
func (g *Gate) Replied(a *Account, bytes int) {
	r := &g.rates
	if len(r.identities) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.tenant != nil {
		r.chargeLocked(a.tenant, amount{bytes: bytes}, time.Now())
	}
}

// refuse counts and logs a refusal. No lock is held: the state waits for the lock of the quotas
// when watches fire, and a log may be slow.
func (r *rateQuotas) refuse(t *tenant, why string) {
	r.refused.inc(&r.refused.RateQuotaRefused)
	r.refusals.Warn("rate quota "+t.name, why, "tenant", t.name, "quota", t.quota.Key)
}

// AdmitWatch counts one more path that a connection of these identities watches; false if it or the
// subtree has as many as it may have. ForgetWatch ends it.
func (g *Gate) AdmitWatch(a *Account, ids []znode.Identity, path string) bool {
	r := &g.rates
	if len(r.identities) == 0 && len(r.paths) == 0 {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	tenants := [...]*tenant{a.tenant, r.ofPathLocked(path)}
	super := znode.IsSuper(ids)
	for _, t := range tenants {
		if t != nil && !super && t.quota.Watches > 0 && t.watches >= t.quota.Watches {
			r.refused.inc(&r.refused.RateQuotaRefused)
			return false
		}
	}
	a.count(tenants, 1)
	return true
}

// ForgetWatch takes a path of AdmitWatch out of the count.
func (g *Gate) ForgetWatch(a *Account, path string) {
	r := &g.rates
	if len(r.identities) == 0 && len(r.paths) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a.count([...]*tenant{a.tenant, r.ofPathLocked(path)}, -1)
}

// count adds n watched paths to the account and its tenants.
func (a *Account) count(tenants [2]*tenant, n int) {
	a.watched += int32(n)
	for _, t := range tenants {
		if t != nil {
			t.watches += n
		}
	}
}

// AwaitQuota waits until the tenant of a client that opens or attaches a session may do that. The
// error is ErrRateQuota.
func (g *Gate) AwaitQuota(ctx context.Context, addr netip.Addr) error {
	pause, err := g.rates.open(addr)
	if pause == 0 || err != nil {
		return err
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ErrRateQuota
	}
}
