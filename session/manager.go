package session

import (
	"cmp"
	"context"
	"crypto/sha1"
	"errors"
	"hash"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"lockkeeper/internal/clock"
	"lockkeeper/internal/loglimit"
	"lockkeeper/session/admission"
	"lockkeeper/session/sasl"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Limits bound the work that a member takes on; RateQuota bounds the requests of a tenant.
type (
	Limits    = admission.Limits
	RateQuota = admission.RateQuota
)

// Replica is what sessions need of replication: quorum.Replica.
type Replica interface {
	// View calls f with the state as it is after some entry.
	View(f func(*znode.Store))
	// Propose sends a command to the leader, again if necessary, until this member has applied it.
	// It may block until ctx ends. When it fails, the command is not proposed.
	Propose(ctx context.Context, c *znode.Command) error
	// ProposeOnce proposes a command if this member leads. The command may be lost.
	ProposeOnce(ctx context.Context, c *znode.Command) error
	// Touch reports sessions that this member heard from to the leader. It returns those whose
	// lease was extended, and a moment from which on they have their full timeout, under any
	// leader.
	Touch(ctx context.Context, heard []wire.SessionID) (extended []wire.SessionID, from time.Time, err error)
	// MayExist asks the leader whether the sessions of claims exist, with those passwords; at most
	// MaxClaims. False is certain: one did not at some moment during the call. An error means that
	// nothing is known.
	MayExist(ctx context.Context, claims []znode.Claim) ([]bool, error)
	// ClockMs is the cluster's clock, by which containers and TTL nodes count.
	ClockMs() int64
	// LeaderKnown reports whether this member knows a leader, and since when that has been so.
	LeaderKnown() (since time.Time, ok bool)
	// CaughtUp is closed when this member has applied, for the first time since it started, all
	// that a leader has said to be committed.
	CaughtUp() <-chan struct{}
}

// Config describes a Manager. Zero values of durations and limits are replaced by ZooKeeper's
// defaults.
type Config struct {
	Member     uint8         // this member's number, which the ids of sessions created here carry
	Tick       time.Duration // 0 means 3 s
	MinTimeout time.Duration // of a session; 0 means 2 ticks
	MaxTimeout time.Duration // 0 means 20 ticks
	// SuperDigest is "user:base64(sha1(user:password))" of the super user; empty: there is none.
	SuperDigest string
	SkipACL     bool // every client passes every access check
	// KeepQuotas keeps the nodes below /zookeeper/quota for super users: others do not change them,
	// and see those of what they may read. The replica has the same setting.
	KeepQuotas bool
	// QuotaError is what a request beyond a quota is answered with; 0 means BadArguments.
	QuotaError wire.Code
	// ReadOnly lets this member serve, without a leader, clients that accept that.
	ReadOnly bool
	Logger   *slog.Logger // nil means slog.Default
	// ReapInterval is how often the leader looks for containers and TTL nodes to reap; 0 means 60
	// s.
	ReapInterval time.Duration
	// ReapPerMinute bounds how many are deleted in a minute; 0 means 10 000.
	ReapPerMinute int
	// ReapNeverUsed is after how long a container that never had a child is reaped too; 0 means
	// never.
	ReapNeverUsed time.Duration
	// ZooKeeperPasswords gives new sessions the passwords that ZooKeeper computes of their ids, so
	// that they can go on there: whoever knows an id knows the password.
	ZooKeeperPasswords bool
	// DigestHash is the hash of scheme digest; nil means SHA-1. With NoDigest there is no such
	// scheme.
	DigestHash func() hash.Hash
	NoDigest   bool
	// SASLUsers are the users who may log in with SASL; nil: this member has no SASL. SuperUsers
	// are those of them who are super users. With SASLOptional a client whose login fails goes on
	// without it, unless RequiredSchemes has sasl.
	SASLUsers    sasl.Users
	SuperUsers   []string
	SASLOptional bool
	// AnySASLUser is the name of every user who has logged in with SASL, in the ACLs of nodes;
	// empty: there is none.
	AnySASLUser string
	// Ensembles are the names that a client may have for this cluster (scheme ensemble): with
	// another one its connection is closed. nil: there is no such scheme; empty: any name will do.
	Ensembles []string
	// KeyScheme is that there is the scheme key.
	KeyScheme bool
	// RequiredSchemes are those of which a connection must have proved one before it may do
	// anything but that; nil means none.
	RequiredSchemes []string
	Limits          Limits
	// RateQuotas bound what each tenant may ask of this member. The first that fits counts.
	RateQuotas []RateQuota
	Audit      Auditor // nil: there is no audit log
	// Report makes the report with a name (see reportPrefix) for a client with these identities. It
	// may take long; nil: there are none.
	Report func(ctx context.Context, name string, ids []znode.Identity) ([]byte, wire.Code)
	// Now is the wall clock, used for session ids and statistics only. nil means time.Now.
	Now func() time.Time
	// Clock is what leases and the expiry of sessions count by; nil means Go's monotonic clock,
	// which may not count suspends.
	Clock *clock.Clock
}

const (
	// sessionQueueMax bounds the requests of one session that are not answered; beyond it the
	// connection is not read.
	sessionQueueMax = 1000
	// outputPauseBytes is how much unsent output stops a connection from being read.
	outputPauseBytes = 4 << 20
	// outputCollectBytes is how much output Submit's goroutine may collect before another goroutine
	// is started to send it.
	outputCollectBytes = 64 << 10
	// queuePauseBytes is how many bytes of requests of one session that are not answered stop its
	// connection from being read.
	queuePauseBytes = 4 << 20
)

// Manager owns the sessions whose connections are on this member, and, while this member leads, the
// leases of all sessions of the cluster.
type Manager struct {
	cfg     Config
	log     *slog.Logger
	replica Replica
	// refusals logs what clients are refused.
	refusals *loglimit.Limiter
	base     time.Time // origin of the instants of since, by Config.Clock

	watches watchTable
	tracker *tracker
	stats   stats

	gate      *admission.Gate
	answering *semaphore.Weighted // 1: see executeLong
	readOnly  readOnly
	syncs     syncs
	claims    claims
	guesses   guesses
	// superLogins bounds the records of refused logins.
	superLogins PerMinute
	restores    restores

	nextID    atomic.Uint64
	nextNonce atomic.Uint64

	ctx      context.Context // ends with Close
	stop     context.CancelFunc
	wg       sync.WaitGroup
	leaseNow signal // a session waits for a confirmation
	sweepNow signal // connections with many watches have ended

	mu         sync.Mutex
	abandoned  []*Session // ended, with watches that are not forgotten yet
	sessions   map[wire.SessionID]*Session
	handshakes map[znode.Key]*handshake
	heard      []*Session // heard from since their last confirmation
	// behind are the handshakes of clients that have seen more than this member has applied.
	behind map[chan struct{}]wire.Zxid
	// unanswered, with Audit, has the newest connection of each session that ended with writes that
	// were not applied yet. An entry goes with the last of them, or with the session.
	unanswered map[wire.SessionID]unanswered
}

// signal wakes the goroutine that receives from it. What is signalled while that goroutine is busy
// wakes it once more.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) set() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// NewManager returns a Manager that can be given to a Replica as its listener. It serves no client
// before Start.
func NewManager(cfg Config) *Manager {
	cfg.Tick = cmp.Or(cfg.Tick, 3*time.Second)
	cfg.MinTimeout = cmp.Or(cfg.MinTimeout, 2*cfg.Tick)
	cfg.MaxTimeout = cmp.Or(cfg.MaxTimeout, 20*cfg.Tick)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	cfg.ReapInterval = cmp.Or(cfg.ReapInterval, time.Minute)
	cfg.ReapPerMinute = cmp.Or(cfg.ReapPerMinute, 10_000)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.DigestHash == nil {
		cfg.DigestHash = sha1.New
	}
	cfg.QuotaError = cmp.Or(cfg.QuotaError, wire.CodeBadArguments)
	m := &Manager{
		cfg:        cfg,
		log:        cfg.Logger,
		base:       cfg.Clock.Now(),
		leaseNow:   newSignal(),
		sweepNow:   newSignal(),
		sessions:   map[wire.SessionID]*Session{},
		handshakes: map[znode.Key]*handshake{},
		behind:     map[chan struct{}]wire.Zxid{},
		unanswered: map[wire.SessionID]unanswered{},
	}
	m.refusals = loglimit.New(cfg.Logger)
	m.gate = admission.New(admission.Config{Limits: cfg.Limits, RateQuotas: cfg.RateQuotas, MaxTimeout: cfg.MaxTimeout,
		KeepQuotas: cfg.KeepQuotas, Refusals: m.refusals})
	m.cfg.Limits = *m.gate.Limits()
	m.answering = semaphore.NewWeighted(1)
	m.watches.init(m.gate.Limits().WatchBytes, &m.stats, &m.gate.Memory)
	m.syncs.wake = newSignal()
	m.claims.init()
	m.tracker = newTracker(cfg.Tick, cfg.Clock, &m.stats.LeaseMargin)
	m.readOnly.init(cfg.Member, cfg.Now())
	m.nextID.Store(firstID(cfg.Member, cfg.Now()))
	m.nextNonce.Store(uint64(cfg.Now().UnixNano()))
	return m
}

// Start begins to serve, on that replica.
func (m *Manager) Start(r Replica) {
	m.replica = r
	r.View(m.gate.Applied)
	m.ctx, m.stop = context.WithCancel(context.Background())
	loops := []func(context.Context){m.memoryLoop, m.leaseLoop, m.expiryLoop, m.reapLoop, m.syncLoop,
		m.claimsLoop, m.sweepLoop}
	if m.cfg.ReadOnly {
		loops = append(loops, m.readOnlyLoop)
	}
	for _, loop := range loops {
		m.wg.Go(func() { loop(m.ctx) })
	}
}

// every calls f once in each interval until ctx ends.
func every(ctx context.Context, interval time.Duration, f func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f()
		}
	}
}

// Close ends all connections, though no session, and the Manager's goroutines. The replica must not
// be closed before.
func (m *Manager) Close() {
	m.endAll("member stops")
	if m.stop != nil {
		m.stop()
	}
	m.wg.Wait()
}

// Hold counts n bytes that a member holds for somebody who is no client of it, in the account of
// the connections; false if these hold so much that there is no room. Release ends it.
func (m *Manager) Hold(n int) bool { return m.gate.Memory.Hold(n) }

// Release ends what Hold began.
func (m *Manager) Release(n int) { m.gate.Memory.Add(-n) }

// SetOutstanding replaces Limits.Outstanding.
func (m *Manager) SetOutstanding(n int) { m.gate.SetOutstanding(n) }

// Serving reports whether this member serves clients: it knows a leader, and has caught up with one
// since it started.
func (m *Manager) Serving() bool {
	_, ok := m.replica.LeaderKnown()
	return ok && m.joined()
}

// joined reports whether this member has caught up with a leader since it started.
func (m *Manager) joined() bool {
	select {
	case <-m.replica.CaughtUp():
		return true
	default:
		return false
	}
}

// since is the present instant in nanoseconds on the clock that counts suspends; never 0.
func (m *Manager) since() int64 {
	return m.instant(m.cfg.Clock.Now())
}

// recent is since for what may overlook a suspend that nobody has noticed yet. It costs less.
func (m *Manager) recent() int64 {
	return m.instant(m.cfg.Clock.Recent())
}

func (m *Manager) instant(t time.Time) int64 { return int64(t.Sub(m.base)) + 1 }

// session returns the connection of a session on this member, nil if there is none.
func (m *Manager) session(id wire.SessionID) *Session {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sessions[id]
}

// ClientAddr returns the address of a session's client, if it is connected to this member.
func (m *Manager) ClientAddr(id wire.SessionID) (addr netip.Addr, connected bool) {
	s := m.session(id)
	if s == nil {
		return addr, false
	}
	return s.addr, true
}

// forget removes s, whose connection has ended. last is the seq of the last of its writes that are
// not applied, 0 if there is none.
func (m *Manager) forget(s *Session, last uint64) {
	m.mu.Lock()
	if last != 0 && m.cfg.Audit != nil {
		m.unanswered[s.id] = unanswered{generation: s.generation, last: last}
	}
	if m.sessions[s.id] == s {
		delete(m.sessions, s.id)
	}
	m.mu.Unlock()
	if !m.watches.removeSome(s, removeStep) {
		m.mu.Lock()
		m.abandoned = append(m.abandoned, s)
		m.mu.Unlock()
		m.sweepNow.set()
	}
}

func (m *Manager) all() []*Session {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.sessions))
}

func (m *Manager) endAll(why string) {
	for _, s := range m.all() {
		s.end(why)
	}
}

// Applied implements the replica's listener: a command has just been applied on this member.
func (m *Manager) Applied(store *znode.Store, c *znode.Command, res *znode.Result) {
	m.fire(res.Events)
	m.caughtUp(res.Zxid)
	m.gate.Applied(store)
	if m.cfg.Audit != nil {
		m.auditApplied(store, c, res)
	}
	switch b := c.Body.(type) {
	case *znode.Request:
		if s := m.session(c.Session); s != nil && s.generation == c.Generation {
			s.writeApplied(store, c, res)
		}
		if b.Op == wire.OpCloseSession && res.Status == znode.Done {
			m.sessionClosed(c.Session, "closed")
		}
	case *znode.CreateSession:
		m.handshakeApplied(store, c, &b.Connection, res)
		m.restoreOpened(c, res)
	case *znode.Attach:
		m.handshakeApplied(store, c, &b.Connection, res)
	case *znode.RestoreStep:
		m.restoreApplied(store, c, res)
	case *znode.Sync:
		m.syncs.finish(c.Seq, true)
	case *znode.Reconfigured:
		if s := m.session(c.Session); s != nil && s.generation == c.Generation && res.Status == znode.Done {
			s.reconfigured(store, c, res)
		}
	case *znode.Expire:
		if res.Status == znode.Done {
			if m.tracker.leads() {
				m.stats.Expired.Add(1)
			}
			m.log.Debug("session expired", "session", c.Session, "zxid", res.Zxid)
			m.sessionClosed(c.Session, "expired")
		}
	}
}

// fire sends the notifications that the events of a command cause.
func (m *Manager) fire(events []znode.Event) {
	if m.watches.fire(events) {
		m.sweepNow.set()
	}
}

// sessionClosed is called when a session, not only its connection, has ended.
func (m *Manager) sessionClosed(id wire.SessionID, why string) {
	m.tracker.remove(id)
	if s := m.session(id); s != nil {
		s.markEnded()
		if s.out.abort(false) { // not if the client has closed the session: it gets the reply
			m.log.Info("connection ended", "session", id, "client", s.addr, "why", why)
		}
	}
}

// Restored implements the replica's listener: a snapshot from the leader has replaced the state.
// The results and events of the commands in between are missing on this member, so every client has
// to connect again, and says then which zxid it has seen.
func (m *Manager) Restored(store *znode.Store) {
	m.endAll("state replaced by a snapshot")
	m.mu.Lock()
	clear(m.unanswered) // their results are missing
	m.mu.Unlock()
	m.restores.stateReplaced(store)
	m.syncs.finish(0, false) // what is in flight may have been applied before the snapshot
	m.caughtUp(store.Zxid())
	m.gate.Applied(store)
}

// Lead implements the replica's listener: this member leads now, and gives every session its full
// timeout from now.
func (m *Manager) Lead(store *znode.Store) { m.tracker.lead(store) }

// Follow implements the replica's listener: this member leads no longer.
func (m *Manager) Follow() { m.tracker.follow() }

// Granted records that the contender of a session is the first in the queue of a lock now: with its
// next request its client shows that it knows (Measures.Handoff).
func (m *Manager) Granted(id wire.SessionID) {
	if s := m.session(id); s != nil {
		s.granted.CompareAndSwap(0, m.recent())
	}
}

// reacted is called with each request of a session that has been granted a lock.
func (s *Session) reacted() {
	if at := s.granted.Swap(0); at != 0 {
		s.m.stats.Handoff.Observe(int64(s.m.recent() - at))
	}
}

// Undeliverable implements the replica's listener: a command of this member cannot be delivered to
// the leader, and is dropped. Later requests of the connection cannot take effect either, so the
// connection ends; the session does not.
func (m *Manager) Undeliverable(k znode.Key) {
	m.stats.inc(&m.stats.Undeliverable)
	m.restores.fail(k.Session, errors.New("session: restore: the leader refused a step: are all members of this version?"))
	if s := m.session(k.Session); s != nil && k.Kind == znode.KindRequest && s.generation == k.Generation {
		s.end("a request could not be delivered to the leader")
	}
}

// Touch implements the replica's listener: a member, perhaps this one, heard from these sessions.
func (m *Manager) Touch(heard []wire.SessionID) []wire.SessionID { return m.tracker.touch(heard) }
