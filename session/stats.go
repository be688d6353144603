package session

import (
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// stats counts what all connections of a member have in common.
type stats struct {
	received atomic.Int64
	sent     atomic.Int64
	latency  latencies
	// answers beyond Limits.Response, MultiReadOps or MultiReadBytes, which were not made
	tooLong           atomic.Int64
	identitiesRefused atomic.Int64 // by Limits.Identities and IdentityBytes
	undeliverable     atomic.Int64 // requests that could not be handed over to the leader
	aclsRefused       atomic.Int64
	costlyRefused     atomic.Int64
	ephemeralsRefused atomic.Int64
}

func (s *stats) replied(l time.Duration) {
	s.sent.Add(1)
	s.latency.add(l)
}

// latencies gathers how long requests took, from their last byte to the making of the reply.
type latencies struct {
	mu                 sync.Mutex
	count              int64
	sumMs, minMs, lmax int64
}

func (l *latencies) add(d time.Duration) {
	ms := d.Milliseconds()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count == 0 || ms < l.minMs {
		l.minMs = ms
	}
	l.lmax = max(l.lmax, ms)
	l.sumMs += ms
	l.count++
}

// Latency sums up how long requests took, in milliseconds.
type Latency struct {
	MinMs, MaxMs int64
	AvgMs        float64
	Count        int64
}

func (l *latencies) sum() Latency {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := Latency{MinMs: l.minMs, MaxMs: l.lmax, Count: l.count}
	if l.count > 0 {
		r.AvgMs = float64(l.sumMs) / float64(l.count)
	}
	return r
}

func (l *latencies) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count, l.sumMs, l.minMs, l.lmax = 0, 0, 0, 0
}

// Stats is what a Manager knows of the work of this member.
type Stats struct {
	PacketsReceived, PacketsSent int64
	Latency                      Latency
	Outstanding                  int // requests that are not answered
	Connections                  int // that hold a session
	Sessions                     int // of the whole cluster
	Ephemerals                   int
	Watches                      WatchCounts
	Throttled                    int64 // requests that got ThrottledOp
	TooLarge                     int64 // requests beyond Limits.LargeBytes
	// answers that were not made: beyond Limits.Response, MultiReadOps or MultiReadBytes
	TooLong int64
	Held    int64 // bytes of unsent output and unanswered requests
	// connections that were ended because they, or all of them, held too much
	EndedForMemory    int64
	WatchBytes        int64 // memory of the watches, as it is counted
	WatchesRefused    int64 // beyond Limits.WatchBytes
	IdentitiesRefused int64 // beyond Limits.Identities or IdentityBytes
	StrangersMet      int64 // nodes of locks made beside those of another library
	// requests that could not be delivered to the leader; their connections were closed
	Undeliverable     int64
	ACLsRefused       int64 // requests beyond Limits.ACLEntries or ACLBytes
	CostlyRefused     int64 // requests beyond Limits.Cost
	EphemeralsRefused int64 // requests beyond Limits.Ephemerals
}

// Stats reports how things stand.
func (m *Manager) Stats() Stats {
	s := Stats{
		PacketsReceived: m.stats.received.Load(),
		PacketsSent:     m.stats.sent.Load(),
		Latency:         m.stats.latency.sum(),
		Watches:         m.watches.counts(),
		Throttled:       m.throttle.throttled.Load(),
		TooLarge:        m.throttle.tooLarge.Load(),

		TooLong:           m.stats.tooLong.Load(),
		Held:              m.memory.held.Load(),
		EndedForMemory:    m.memory.ended.Load(),
		WatchBytes:        m.watches.held(),
		WatchesRefused:    m.watches.refused.Load(),
		IdentitiesRefused: m.stats.identitiesRefused.Load(),
		Undeliverable:     m.stats.undeliverable.Load(),
		ACLsRefused:       m.stats.aclsRefused.Load(),
		CostlyRefused:     m.stats.costlyRefused.Load(),
		EphemeralsRefused: m.stats.ephemeralsRefused.Load(),
		StrangersMet:      m.strangers.met.Load(),
	}
	m.replica.View(func(store *znode.Store) {
		c := store.Counts()
		s.Sessions, s.Ephemerals = c.Sessions, c.Ephemerals
	})
	for _, c := range m.all() {
		s.Connections++
		s.Outstanding += c.queued()
	}
	return s
}

// ResetStats sets counters and latencies to zero (the four-letter word srst).
func (m *Manager) ResetStats() {
	m.stats.received.Store(0)
	m.stats.sent.Store(0)
	m.stats.latency.reset()
	m.throttle.throttled.Store(0)
	m.throttle.tooLarge.Store(0)
	m.stats.tooLong.Store(0)
	m.memory.ended.Store(0)
	m.watches.refused.Store(0)
	m.stats.identitiesRefused.Store(0)
	m.stats.undeliverable.Store(0)
	m.stats.aclsRefused.Store(0)
	m.stats.costlyRefused.Store(0)
	m.stats.ephemeralsRefused.Store(0)
	m.strangers.met.Store(0)
}

// ResetStats forgets what was counted on the connection (the four-letter word crst).
func (s *Session) ResetStats() { s.stats.reset() }

// connStats counts for one connection.
type connStats struct {
	established time.Time

	mu          sync.Mutex
	heard       time.Time // when the newest request came
	recv, out   int64
	lastOp      wire.Op
	lastXid     wire.Xid
	lastZxid    wire.Zxid
	lastReply   time.Time
	lastLatency time.Duration
	latency     latencies
}

func (c *connStats) init(now time.Time) {
	c.established, c.heard = now, time.Now()
	c.recv, c.out = 1, 1 // the handshake
	c.lastOp = wire.OpCreateSession
	c.lastXid = -1
}

// reset forgets everything but when the connection came and was heard from.
func (c *connStats) reset() {
	c.mu.Lock()
	c.recv, c.out = 0, 0
	c.lastOp, c.lastXid, c.lastZxid = 0, -1, -1
	c.lastReply, c.lastLatency = time.Time{}, 0
	c.mu.Unlock()
	c.latency.reset()
}

func (c *connStats) received(r wire.Request, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = now
	c.recv++
	c.lastOp, c.lastXid = r.Op, r.Xid
}

func (c *connStats) sent(h wire.ReplyHeader, latency time.Duration) {
	c.mu.Lock()
	c.out++
	c.lastZxid, c.lastReply, c.lastLatency = h.Zxid, time.Now(), latency
	c.mu.Unlock()
	c.latency.add(latency)
}

// ConnStats describes one connection, as the four-letter words stat and cons show it.
type ConnStats struct {
	Session        wire.SessionID
	Timeout        time.Duration
	Queued         int
	Unsent         int   // bytes of output
	Received, Sent int64 // the handshake counts
	LastOp         wire.Op
	Established    time.Time
	LastHeard      time.Time // when the newest request came, or the handshake
	LastXid        wire.Xid
	LastZxid       wire.Zxid
	LastReply      time.Time
	LastLatencyMs  int64
	Latency        Latency
}

// Stats reports how the connection stands.
func (s *Session) Stats() ConnStats {
	unsent, _ := s.out.holds()
	queued := s.queued() // Lock: before that of the statistics, which is taken inside it
	c := &s.stats
	c.mu.Lock()
	defer c.mu.Unlock()
	return ConnStats{
		Session:       s.id,
		Timeout:       s.timeout,
		Queued:        queued,
		Unsent:        unsent,
		Received:      c.recv,
		Sent:          c.out,
		LastOp:        c.lastOp,
		Established:   c.established,
		LastHeard:     c.heard,
		LastXid:       c.lastXid,
		LastZxid:      c.lastZxid,
		LastReply:     c.lastReply,
		LastLatencyMs: c.lastLatency.Milliseconds(),
		Latency:       c.latency.sum(),
	}
}

func (s *Session) queued() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue)
}
