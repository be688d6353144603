package session

import (
	"cmp"
	"context"
	"crypto/sha1"
	"errors"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"lockkeeper/internal/loglimit"
	"lockkeeper/session/admission"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Manager owns the sessions whose connections are on this member, and, while this member leads, the
// leases of all sessions of the cluster.
type Manager struct {
	cfg     Config
	log     *slog.Logger
	replica Replica
	// refusals logs what clients are refused.
	refusals *loglimit.Limiter
	instants

	watches watchTable
	tracker *tracker
	stats   stats

	gate      *admission.Gate
	answering longAnswers // 1: see executeLong
	readOnly  readOnly
	syncs     syncs
	claims    claims
	guesses   guesses
	restores  restores
	numbers

	life
	connected
}

// life is the end of a Manager, and the goroutines that it owns.
type life struct {
	ctx      context.Context // ends with Close
	stop     context.CancelFunc
	wg       sync.WaitGroup
	leaseNow signal // a session waits for a confirmation
}

// connected are the sessions with a connection to this member, and those that come and go.
type connected struct {
	mu         sync.Mutex
	sessions   map[wire.SessionID]*Session
	handshakes map[znode.Key]*handshake
	heard      []*Session // heard from since their last confirmation
	// behind are the handshakes of clients that have seen more than this member has applied.
	behind map[chan struct{}]wire.Zxid
	// unanswered, with Audit, has the newest connection of each session that ended with writes that
	// were not applied yet. An entry goes with the last of them, or with the session.
	unanswered map[wire.SessionID]unanswered
}

// NewManager returns a Manager that can be given to a Replica as its listener. It serves no client
// before Start.
func NewManager(cfg Config) *Manager {
	cfg.Tick = cmp.Or(cfg.Tick, 3*time.Second)
	cfg.MinTimeout = cmp.Or(cfg.MinTimeout, 2*cfg.Tick)
	cfg.MaxTimeout = cmp.Or(cfg.MaxTimeout, 20*cfg.Tick)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	cfg.Reap.Interval = cmp.Or(cfg.Reap.Interval, time.Minute)
	cfg.Reap.PerMinute = cmp.Or(cfg.Reap.PerMinute, 10_000)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Auth.DigestHash == nil {
		cfg.Auth.DigestHash = sha1.New
	}
	cfg.QuotaError = cmp.Or(cfg.QuotaError, wire.CodeBadArguments)
	m := &Manager{
		cfg:      cfg,
		log:      cfg.Logger,
		instants: instants{cfg.Clock, cfg.Clock.Now()},
		life:     life{leaseNow: newSignal()},
		connected: connected{
			sessions:   map[wire.SessionID]*Session{},
			handshakes: map[znode.Key]*handshake{},
			behind:     map[chan struct{}]wire.Zxid{},
			unanswered: map[wire.SessionID]unanswered{},
		},
	}
	m.refusals = loglimit.New(cfg.Logger)
	m.gate = admission.New(admission.Config{Limits: cfg.Limits, RateQuotas: cfg.RateQuotas, MaxTimeout: cfg.MaxTimeout,
		KeepQuotas: cfg.KeepQuotas, Refusals: m.refusals})
	m.cfg.Limits = *m.gate.Limits()
	m.answering.Weighted = semaphore.NewWeighted(1)
	m.watches.init(m.gate, &m.stats)
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
	m.answering.ctx = m.ctx
	loops := []func(context.Context){m.memoryLoop, m.leaseLoop, m.expiryLoop, m.reapLoop, m.syncLoop,
		m.claimsLoop, m.watches.sweep}
	if m.cfg.ReadOnly {
		loops = append(loops, m.readOnlyLoop)
	}
	for _, loop := range loops {
		m.wg.Go(func() { loop(m.ctx) })
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
	m.watches.abandon(&s.connection)
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
	m.watches.fire(res.Events)
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

const (
	// shedStep is the longest time between two connections that are shed: few are done soon.
	shedStep = 50 * time.Millisecond
	// shedPatience is for how long, after its time is over, shedding waits for requests under way.
	shedPatience = time.Second
	// stalledAfter is the time after which a client that receives nothing of its output counts as
	// one that does not read.
	stalledAfter = time.Second
	// shedPause is the time between two calls of shed: the memory of the connections that the first
	// has ended is free when their writes have failed.
	shedPause = 500 * time.Millisecond
)

// Shed moves the clients of a share of the sessions to other members: it ends their connections,
// one after the other within about that time, each when none of its requests is under way. The
// sessions stay. It returns the number of connections that it has ended, when all are or when ctx
// ends. A client may come back to this member, if that still accepts connections.
func (m *Manager) Shed(ctx context.Context, percent int, over time.Duration) (ended int) {
	var left []*Session
	for _, s := range m.all() {
		if !s.local {
			left = append(left, s)
		}
	}
	rand.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
	left = left[:(len(left)*min(max(percent, 0), 100)+99)/100]
	if len(left) == 0 {
		return 0
	}
	step := min(over/time.Duration(len(left)), shedStep)
	for until := time.Now().Add(over + shedPatience); len(left) > 0; {
		late := time.Now().After(until)
		s := left[0]
		left = left[1:]
		switch {
		case s.ended.Load():
			continue
		case late || s.quiet():
			s.end("this member sheds its clients: they go to others")
			ended++
		default:
			left = append(left, s) // it has its turn again
		}
		if late || len(left) == 0 {
			continue
		}
		select {
		case <-time.After(step):
		case <-ctx.Done():
			return ended
		}
	}
	return ended
}

// quiet reports whether no request of the session is under way, and no output unsent.
func (s *Session) quiet() bool {
	unsent, _, _ := s.out.holds()
	return unsent == 0 && s.queued() == 0
}

// memoryLoop ends connections when all together hold too much.
func (m *Manager) memoryLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.gate.Memory.High():
		}
		m.shed()
		select {
		case <-ctx.Done():
			return
		case <-time.After(shedPause):
		}
	}
}

// holding is what the output of a connection holds.
type holding struct {
	s       *Session
	bytes   int
	stalled bool
}

// shed ends connections until the others hold less than the mark. It ignores connections that have
// ended before, even if their last write has not failed yet.
func (m *Manager) shed() {
	now := time.Now()
	var list []holding
	excess := m.gate.Memory.Shared() - m.gate.Memory.Mark()
	for _, s := range m.all() {
		bytes, shared, since := s.out.holds()
		excess += int64(bytes - shared)
		if bytes > 0 {
			list = append(list, holding{s, bytes, now.Sub(since) >= stalledAfter})
		}
	}
	slices.SortFunc(list, func(a, b holding) int {
		if a.stalled != b.stalled {
			if a.stalled {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.bytes, a.bytes)
	})
	for _, h := range list {
		if excess <= 0 {
			return
		}
		excess -= int64(h.bytes)
		m.gate.Memory.Ended()
		m.log.Warn("connection ended: the connections of this member hold too much that is not sent (maxClientMemory)",
			"session", h.s.id, "client", h.s.addr, "bytes", h.bytes, "reads", !h.stalled)
		h.s.end("the connections of this member hold too much that is not sent")
	}
}

// reapLoop deletes containers that have become empty and TTL nodes that have expired, while this
// member leads (docs/protocol/semantics.md 5.2). It only proposes: each node is checked again when
// the command is applied.
func (m *Manager) reapLoop(ctx context.Context) {
	every(ctx, m.cfg.Reap.Interval, func() {
		if m.tracker.leads() {
			m.reap(ctx)
		}
	})
}

// reapRows is how many nodes are read under one lock.
const reapRows = 20_000

// reap proposes the deletion of what is perishable now, at the pace that the configuration allows.
// Proposals that are lost with the leadership are made again by the next leader. If nothing is
// written, it brings the cluster's clock into the log: after a restart, containers and TTL nodes
// count from there.
func (m *Manager) reap(ctx context.Context) {
	neverUsedMs := int32(min(m.cfg.Reap.NeverUsed.Milliseconds(), math.MaxInt32))
	var paths []string
	now, behind := m.replica.ClockMs(), int64(0)
	for row := uint32(0); ; {
		var found []string
		m.replica.View(func(s *znode.Store) {
			found, row = s.Perishable(now, neverUsedMs, row, reapRows)
			if s.HasPerishables() {
				behind = now - s.ClockMs()
			}
		})
		if paths = append(paths, found...); row == 0 {
			break
		}
	}
	slices.Sort(paths)
	if len(paths) == 0 && behind < m.cfg.Reap.Interval.Milliseconds()/2 {
		return
	}
	if len(paths) == 0 {
		paths = []string{""} // no node: its entry brings the clock into the log
	}
	m.log.Debug("reaping containers and TTL nodes", "nodes", len(paths))
	pace := time.NewTicker(max(time.Minute/time.Duration(m.cfg.Reap.PerMinute), 1))
	defer pace.Stop()
	for _, path := range paths {
		c := &znode.Command{Body: &znode.Reap{Path: path, NeverUsedMs: neverUsedMs}}
		if m.replica.ProposeOnce(ctx, c) != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
	}
}
