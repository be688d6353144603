package admission

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"lockkeeper/internal/loglimit"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Config describes a Gate.
type Config struct {
	Limits     Limits
	RateQuotas []RateQuota
	MaxTimeout time.Duration // of any session
	// KeepQuotas keeps the nodes below /zookeeper/quota for super users.
	KeepQuotas bool
	Refusals   *loglimit.Limiter // for refusals
}

// Gate admits the requests of all connections of a member.
type Gate struct {
	Memory   Memory
	limits   Limits
	keep     bool // Config.KeepQuotas
	refused  refusals
	throttle throttle
	capacity capacity
	rates    rateQuotas
}

// New returns a Gate.
func New(cfg Config) *Gate {
	cfg.Limits.setDefaults()
	g := &Gate{limits: cfg.Limits, keep: cfg.KeepQuotas}
	g.Memory.init(int64(cfg.Limits.Memory), &g.refused)
	g.throttle.init(&g.limits, &g.refused)
	g.capacity.init(&g.limits, &g.refused, cfg.Refusals)
	g.rates.init(cfg.RateQuotas, cfg.MaxTimeout, &g.refused, cfg.Refusals)
	return g
}

// Limits returns the limits of the Gate, with their defaults.
func (g *Gate) Limits() *Limits { return &g.limits }

// Refused counts the refusals and delays of a Gate.
type Refused struct {
	Throttled         int64 // requests that got ThrottledOp
	TooLarge          int64 // requests beyond Limits.LargeBytes
	EndedForMemory    int64 // connections that ended because they, or all together, held too much
	ACLsRefused       int64 // requests beyond Limits.ACLEntries or ACLBytes
	CostlyRefused     int64 // requests beyond Limits.Cost
	EphemeralsRefused int64 // requests beyond Limits.Ephemerals
	StateFull         int64 // requests beyond Limits.Nodes or DataBytes
	SessionsRefused   int64 // beyond Limits.Sessions or SessionsPerAddr
	QuotasKept        int64 // requests that would have changed quotas, with Config.KeepQuotas
	RateQuotaPauses   int64 // requests after which a rate quota had the connection pause
	RateQuotaRefused  int64 // sessions, logins and watches beyond a rate quota
}

type refusals struct {
	mu sync.Mutex
	Refused
}

func (r *refusals) inc(counter *int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*counter++
}

// Refused returns the counts since the start, or since ResetRefused.
func (g *Gate) Refused() Refused {
	g.refused.mu.Lock()
	defer g.refused.mu.Unlock()
	return g.refused.Refused
}

// ResetRefused sets the counts to zero.
func (g *Gate) ResetRefused() {
	g.refused.mu.Lock()
	defer g.refused.mu.Unlock()
	g.refused.Refused = Refused{}
}

// Ticket is how much a request uses, or several do. The zero value uses nothing.
type Ticket struct {
	Bytes      int // of memory, in the queue
	Ephemerals int // that it may create

	requests     int        // in process
	large, heavy int        // bytes: see admitLarge and takeTurn
	adds         znode.Size // to the state, at the most
}

// Empty reports whether there is nothing to release.
func (t *Ticket) Empty() bool { return *t == Ticket{} }

// Add makes t the sum of both.
func (t *Ticket) Add(o Ticket) { t.sum(o, 1) }

// Sub takes o out of the sum.
func (t *Ticket) Sub(o Ticket) { t.sum(o, -1) }

func (t *Ticket) sum(o Ticket, sign int) {
	t.Bytes += sign * o.Bytes
	t.Ephemerals += sign * o.Ephemerals
	t.requests += sign * o.requests
	t.large += sign * o.large
	t.heavy += sign * o.heavy
	t.adds.Nodes += int64(sign) * o.adds.Nodes
	t.adds.Bytes += int64(sign) * o.adds.Bytes
}

// Conn is a connection with a goroutine that waits for its turn.
type Conn interface {
	// Wake has the unsent output sent by another goroutine.
	Wake()
	// Over reports whether the connection has ended. Release wakes a wait when it has.
	Over() bool
}

// Begin counts a request of size bytes if it is large. The error is ErrLarge.
func (g *Gate) Begin(size int) (t Ticket, err error) {
	t.large, err = g.throttle.admitLarge(size)
	return t, err
}

// Wait waits until one more request may be taken of all connections. throttled says that the
// request has waited for too long and must be answered with ThrottledOp.
func (g *Gate) Wait(c Conn, op wire.Op) (throttled bool) { return g.throttle.wait(c, op) }

// Turn waits until a request of size bytes has its turn among the heavy ones. The error is from
// ctx.
func (g *Gate) Turn(ctx context.Context, c Conn, t *Ticket, size int) (err error) {
	t.heavy, err = g.throttle.takeTurn(ctx, c, size)
	return err
}

// Queue counts a request that waits for its answer in a queue and holds bytes of memory there.
func (g *Gate) Queue(t *Ticket, p Price, bytes int) {
	t.requests, t.Bytes, t.Ephemerals, t.adds = 1, bytes, p.ephemerals, p.adds
	g.capacity.adding(t.adds, 1)
	g.Memory.Add(bytes)
	g.throttle.enter()
}

// Release gives back all that a ticket, or the sum of several, uses: the requests are answered, or
// their connection has ended, of which it wakes a wait.
func (g *Gate) Release(t Ticket) {
	g.capacity.adding(t.adds, -1)
	g.Memory.Add(-t.Bytes)
	g.throttle.leave(t.requests, t.large, t.heavy)
}

// Crowded reports whether connections that have a request outstanding must not be read.
func (g *Gate) Crowded() bool { return g.throttle.crowded() || g.Memory.Crowded() }

// SetOutstanding changes Limits.Outstanding.
func (g *Gate) SetOutstanding(n int) { g.throttle.setOutstanding(n) }

// Applied records the size of the state. The state's lock is held.
func (g *Gate) Applied(store *znode.Store) { g.capacity.applied(store) }

// StateBytes is the size of the state as of the last Applied.
func (g *Gate) StateBytes() int64 { return g.capacity.bytes.Load() }

// Idle reports whether every ticket has been released: tests ask that at their end.
func (g *Gate) Idle() bool {
	t := &g.throttle
	t.mu.Lock()
	defer t.mu.Unlock()
	idle := t.inProcess == 0 && t.large == 0 && g.capacity.addingNodes.Load() == 0 &&
		g.capacity.addingBytes.Load() == 0 &&
		t.heavy.TryAcquire(HeavyTogether)
	if idle {
		t.heavy.Release(HeavyTogether)
	}
	return idle
}

// OpenSession counts a handshake that is to create a session; SessionOpened ends that when it has
// been answered. The error is ErrSessions.
func (g *Gate) OpenSession(view func(func(*znode.Store)), addr netip.Addr) error {
	return g.capacity.open(view, addr)
}

// SessionOpened ends a handshake of OpenSession.
func (g *Gate) SessionOpened(addr netip.Addr) { g.capacity.opened(addr) }
