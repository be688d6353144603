package session

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"lockkeeper/session/admission"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Manager owns the sessions that are connected to this member, and, while this member leads, the
// leases of all sessions of the cluster.
type Manager struct {
	member
	connected connected
	tracker   *tracker
	guesses   guesses
	readOnly  readOnly
	arriving  handshakes
	syncs     syncs
	restores  restores

	stop context.CancelFunc
	wg   sync.WaitGroup
}

// NewManager returns a Manager that can be given to a Replica as its listener. It serves no client
// before Start.
func NewManager(cfg Config) *Manager {
	m := new(Manager)
	m.member.init(cfg)
	m.connected.sessions = map[wire.SessionID]*Session{}
	m.tracker = newTracker(m.cfg.Tick, m.cfg.Clock, &m.stats.LeaseMargin)
	m.guesses.stats, m.guesses.refusals = &m.stats, m.refusals
	m.readOnly.init(&m.member, &m.connected, &m.guesses)
	m.arriving.init(&m.member, &m.connected, m.tracker, &m.readOnly, &m.guesses)
	m.syncs.m, m.syncs.wake, m.restores.m = &m.member, newSignal(), &m.member
	return m
}

// Start begins to serve, on that replica.
func (m *Manager) Start(r Replica) {
	m.replica = r
	r.View(m.gate.Applied)
	m.ctx, m.stop = context.WithCancel(context.Background())
	m.answering.ctx = m.ctx
	loops := []func(context.Context){m.memoryLoop, m.leaseLoop, m.syncs.run, m.arriving.claims.run, m.watches.sweep,
		func(ctx context.Context) { m.tracker.expire(ctx, &m.member) },
		func(ctx context.Context) { m.tracker.reap(ctx, &m.member) }}
	if m.cfg.ReadOnly {
		loops = append(loops, m.readOnly.run)
	}
	for _, loop := range loops {
		m.wg.Go(func() { loop(m.ctx) })
	}
}

// Close ends all connections, though no session, and the Manager's goroutines. The replica must not
// be closed before.
func (m *Manager) Close() {
	m.connected.endAll("member stops")
	if m.stop != nil {
		m.stop()
	}
	m.wg.Wait()
}

// Memory is the account of the bytes that this member holds for its connections.
func (m *Manager) Memory() *admission.Memory { return &m.gate.Memory }

// SetOutstanding replaces Limits.Outstanding.
func (m *Manager) SetOutstanding(n int) { m.gate.SetOutstanding(n) }

// Serving reports whether this member serves clients: it knows a leader, and has caught up with one
// since it started.
func (m *Manager) Serving() bool {
	_, ok := m.replica.LeaderKnown()
	return ok && m.joined()
}

// ReadOnly reports whether this member serves without a leader, clients that accept it.
func (m *Manager) ReadOnly() bool { return m.readOnly.on.Load() }

// Connect answers a connect request from a client at addr. Three outcomes:
//
//   - a Session and the response to send before anything else;
//   - no Session and a response that says "expired" (timeout 0): send it, then close;
//   - an error: close without a byte, so that the client tries another member.
//
// The caller must Detach a Session that it was given. Connect waits for a commit; ctx ends that.
func (m *Manager) Connect(ctx context.Context, req *wire.ConnectRequest, addr netip.Addr,
) (*Session, *wire.ConnectResponse, error) {
	return m.arriving.connect(ctx, req, addr.Unmap())
}

// Sync returns when this member has applied everything that had been committed when it was called:
// a View that follows is linearizable. It waits for a leader if there is none, until ctx ends.
func (m *Manager) Sync(ctx context.Context) error { return m.syncs.sync(ctx) }

// Restore replaces the state of the whole cluster by the snapshot that sc reads, without the
// sessions and ephemeral nodes in it, and ends all sessions; see znode.RestoreStep. It returns the
// zxid of the change on this member. admit decides about the size of the state, before anything
// has been changed. When ctx ends before the last step has been proposed, the restore is given up;
// afterwards Restore returns when the outcome is known. Errors: ErrRestoreBusy, ErrRestoreRefused,
// ErrRestoreUnknown, or the errors of admit, sc and ctx.
func (m *Manager) Restore(ctx context.Context, sc *znode.SnapshotScanner,
	admit func(znode.Size) error) (wire.Zxid, error) {
	return m.restores.restore(ctx, sc, admit)
}

// ClientAddr returns the address of a session's client, if it is connected to this member.
func (m *Manager) ClientAddr(id wire.SessionID) (addr netip.Addr, connected bool) {
	s := m.connected.get(id)
	if s == nil {
		return addr, false
	}
	return s.addr(), true
}

// Applied implements the replica's listener: a command has just been applied on this member.
func (m *Manager) Applied(store *znode.Store, c *znode.Command, res *znode.Result) {
	m.watches.fire(res.Events)
	m.arriving.caughtUp(res.Zxid)
	m.gate.Applied(store)
	s := m.connected.get(c.Session)
	here := s != nil && s.generation == c.Generation
	m.audit.applied(store, c, res, here)
	switch b := c.Body.(type) {
	case *znode.Request:
		if here {
			s.writeApplied(store, c, res)
		}
		if b.Op == wire.OpCloseSession && res.Status == znode.Done {
			m.sessionClosed(c.Session, "closed")
		}
	case *znode.CreateSession:
		m.arriving.applied(store, c, &b.Connection, res)
		m.restores.created(c, res)
	case *znode.Attach:
		m.arriving.applied(store, c, &b.Connection, res)
	case *znode.RestoreStep:
		if m.restores.stepApplied(c, res); res.Restored {
			m.log.Warn("the state has been replaced by a snapshot, as a super user has requested; all sessions "+
				"have ended",
				"zxid", res.Zxid, "nodes", store.Counts().Nodes)
			m.Restored(store)
			m.tracker.restart(store)
		}
	case *znode.Sync:
		m.syncs.finish(c.Seq, true)
	case *znode.Reconfigured:
		if here && res.Status == znode.Done {
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
	if s := m.connected.get(id); s != nil {
		s.markEnded()
		if s.out.abort(false) { // not if the client has closed the session: it gets the reply
			m.log.Info("connection ended", "session", id, "client", s.addr(), "why", why)
		}
	}
}

// Restored implements the replica's listener: a snapshot from the leader has replaced the state.
// The results and events of the commands in between are missing on this member, so every client has
// to connect again, and says then which zxid it has seen.
func (m *Manager) Restored(store *znode.Store) {
	m.connected.endAll("state replaced by a snapshot")
	m.audit.stateReplaced()
	m.restores.stateReplaced(store)
	m.syncs.finish(0, false) // the sync in flight may have been applied before the snapshot
	m.arriving.caughtUp(store.Zxid())
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
	if s := m.connected.get(id); s != nil {
		s.granted.CompareAndSwap(0, m.recent())
	}
}

// Undeliverable implements the replica's listener: a command of this member cannot be delivered to
// the leader, and is dropped. Later requests of the connection cannot take effect either, so the
// connection ends; the session does not.
func (m *Manager) Undeliverable(k znode.Key) {
	m.stats.inc(&m.stats.Undeliverable)
	m.restores.fail(k.Session, errors.New("session: restore: the leader refused a step: are all members of "+
		"this version?"))
	if s := m.connected.get(k.Session); s != nil && k.Kind == znode.KindRequest && s.generation == k.Generation {
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
	for _, s := range m.connected.all() {
		if s.local == nil {
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
		if !pause(ctx, step) {
			break
		}
	}
	return ended
}

// memoryLoop ends connections when all together hold too much.
func (m *Manager) memoryLoop(ctx context.Context) {
	for received(ctx, m.gate.Memory.High()) {
		m.shed()
		pause(ctx, shedPause)
	}
}

// holding is the unsent output of a connection.
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
	for _, s := range m.connected.all() {
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
			"session", h.s.id(), "client", h.s.addr(), "bytes", h.bytes, "reads", !h.stalled)
		h.s.end("the connections of this member hold too much that is not sent")
	}
}

// leaseRetry is the pause after a report that did not reach the leader.
const leaseRetry = 30 * time.Millisecond

// leaseLoop reports to the leader several times within a third of the smallest timeout, and at once
// when a session's confirmation is older than a sixth of its timeout.
func (m *Manager) leaseLoop(ctx context.Context) {
	interval := max(m.cfg.MinTimeout/9, time.Millisecond)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			m.leaseTrouble(m.connected.endUnconfirmed(m.since()))
		case <-m.reports.now:
		}
		if !m.reports.send(ctx, m.replica) {
			if !pause(ctx, leaseRetry) {
				return
			}
			m.leaseTrouble(m.connected.endUnconfirmed(m.since()))
			m.reports.now.set()
		}
	}
}

// leaseTrouble warns of clients that are cut off because the leader does not confirm their leases.
func (m *Manager) leaseTrouble(ended, withheld int) {
	if withheld > 0 {
		m.refusals.Warn("leases withheld", "clients get no answers: the leader has not confirmed their leases within "+
			"a third of "+
			"their timeouts; look at the network to the leader, and at the load of the leader and of this member",
			"clients", withheld)
	}
	if ended > 0 {
		m.refusals.Warn("leases lost", "connections closed: their clients sent something, and the leader did not "+
			"confirm their leases; "+
			"clients go to other members and keep their sessions if they reach one in time", "connections", ended)
	}
}

// SuperLoginRefused reports whether "user:password", which was refused over HTTP, has the name of
// the super user of scheme digest. Such a login is counted, logged and recorded.
func (m *Manager) SuperLoginRefused(auth string, from netip.Addr) bool {
	if !m.cfg.Auth.claimsSuper(auth) {
		return false
	}
	m.superLoginRefused(0, from.String(), "digest over HTTP")
	return true
}

// DigestIdentities returns the identities that "user:password" proves with scheme digest.
func (m *Manager) DigestIdentities(auth string) []znode.Identity {
	return m.cfg.Auth.digestIdentities(auth)
}
