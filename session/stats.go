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
	// answers beyond Limits.Response, MultiReadOps or MultiReadBytes, which were not made
	tooLong           atomic.Int64
	identitiesRefused atomic.Int64 // by Limits.Identities and IdentityBytes
	undeliverable     atomic.Int64 // requests that could not be delivered to the leader
	aclsRefused       atomic.Int64
	costlyRefused     atomic.Int64
	ephemeralsRefused atomic.Int64

	mu      sync.Mutex
	latency Latency
}

func (s *stats) replied(l time.Duration) {
	s.sent.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latency.add(l)
}

// Latency sums up how long requests took, in milliseconds: from the receipt of their last byte to
// the making of the reply.
type Latency struct {
	MinMs, MaxMs, SumMs int64
	Count               int64
}

// AvgMs is the mean, 0 without a request.
func (l Latency) AvgMs() float64 { return float64(l.SumMs) / float64(max(l.Count, 1)) }

func (l *Latency) add(d time.Duration) {
	ms := d.Milliseconds()
	if l.Count == 0 || ms < l.MinMs {
		l.MinMs = ms
	}
	l.MaxMs = max(l.MaxMs, ms)
	l.SumMs += ms
	l.Count++
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
	ForeignLocks      int64 // locks' nodes made on a path that has those of another library
	// requests that could not be delivered to the leader; their connections were closed
	Undeliverable     int64
	ACLsRefused       int64 // requests beyond Limits.ACLEntries or ACLBytes
	CostlyRefused     int64 // requests beyond Limits.Cost
	EphemeralsRefused int64 // requests beyond Limits.Ephemerals
}

// Stats returns the statistics of this member.
func (m *Manager) Stats() Stats {
	s := Stats{
		PacketsReceived: m.stats.received.Load(),
		PacketsSent:     m.stats.sent.Load(),
		Watches:         m.watches.counts(),

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
		ForeignLocks:      m.foreign.met.Load(),
	}
	s.Throttled, s.TooLarge = m.throttle.refused()
	m.stats.mu.Lock()
	s.Latency = m.stats.latency
	m.stats.mu.Unlock()
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
	m.stats.mu.Lock()
	m.stats.latency = Latency{}
	m.stats.mu.Unlock()
	m.throttle.resetStats()
	m.stats.tooLong.Store(0)
	m.memory.ended.Store(0)
	m.watches.refused.Store(0)
	m.stats.identitiesRefused.Store(0)
	m.stats.undeliverable.Store(0)
	m.stats.aclsRefused.Store(0)
	m.stats.costlyRefused.Store(0)
	m.stats.ephemeralsRefused.Store(0)
	m.foreign.met.Store(0)
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

// connStats are the statistics of one connection, without Queued and Unsent.
type connStats struct {
	mu    sync.Mutex
	stats ConnStats
}

func (c *connStats) init(s *Session, now time.Time) {
	c.stats = ConnStats{
		Session: s.id, Timeout: s.timeout, Established: now, LastHeard: time.Now(),
		Received: 1, Sent: 1, LastOp: wire.OpCreateSession, LastXid: -1, // the handshake
	}
}

func (c *connStats) received(r wire.Request, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.LastHeard = now
	c.stats.Received++
	c.stats.LastOp, c.stats.LastXid = r.Op, r.Xid
}

func (c *connStats) sent(h wire.ReplyHeader, latency time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Sent++
	c.stats.LastZxid, c.stats.LastReply, c.stats.LastLatencyMs = h.Zxid, time.Now(), latency.Milliseconds()
	c.stats.Latency.add(latency)
}

// ResetStats forgets what was counted on the connection, but not when it came and was heard from
// (the four-letter word crst).
func (s *Session) ResetStats() {
	c := &s.stats
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats = ConnStats{
		Session: s.id, Timeout: s.timeout, Established: c.stats.Established, LastHeard: c.stats.LastHeard,
		LastXid: -1, LastZxid: -1,
	}
}

// Stats returns the statistics of the connection.
func (s *Session) Stats() ConnStats {
	unsent, _ := s.out.holds()
	queued := s.queued() // Lock: before that of the statistics, which is taken inside it
	s.stats.mu.Lock()
	defer s.stats.mu.Unlock()
	st := s.stats.stats
	st.Queued, st.Unsent = queued, unsent
	return st
}

func (s *Session) queued() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue)
}
