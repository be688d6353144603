package session

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/internal/histogram"
	"lockkeeper/session/admission"
	"lockkeeper/wire"
)

// stats are the counters of a member. mu is taken last of all locks.
type stats struct {
	Measures

	mu sync.Mutex
	Counters
}

// Measures are counts and times that a Manager takes without a lock, since its start or since
// ResetStats. They may be read at any time.
type Measures struct {
	// Reads and Updates are the latencies of requests, in nanoseconds: from the receipt of the last
	// byte to the making of the reply. Pings are among the reads, and handshakes among the updates,
	// as in ZooKeeper.
	Reads, Updates histogram.Histogram
	// ReplyBytes and NotificationBytes count the frames that were put into the output, without the
	// lengths in front of them, as in ZooKeeper.
	ReplyBytes, NotificationBytes atomic.Int64
	// Replies are the sizes of replies, in the same way.
	Replies Sizes
	// LeaseMargin, on the leader, is the rest of a session's timeout each time that the lease was
	// extended, in parts of LeaseMarginUnit. A session that expires counts as 0.
	LeaseMargin histogram.Histogram
	// Handoff is the time from the end of a lock's holder, as this member has applied it, to the
	// first request, pings aside, of the next holder's client, in nanoseconds. Only clients that
	// are connected to this member count: see Manager.Granted.
	Handoff histogram.Histogram
	// Expired counts sessions that expired while this member led.
	Expired atomic.Int64
}

// Sizes are the newest, the smallest and the largest of the sizes that were added. The zero value
// has none. It may be used by several goroutines.
type Sizes struct {
	last, max atomic.Int64 // one more than the size; 0: none
	least     atomic.Int64 // math.MaxInt64 minus the smallest size; 0: none
}

func (s *Sizes) add(n int64) {
	s.last.Store(n + 1)
	raise(&s.max, n+1)
	raise(&s.least, math.MaxInt64-n)
}

// raise sets a to v, if v is larger.
func raise(a *atomic.Int64, v int64) {
	for old := a.Load(); v > old; old = a.Load() {
		if a.CompareAndSwap(old, v) {
			return
		}
	}
}

func (s *Sizes) reset() {
	for _, n := range []*atomic.Int64{&s.last, &s.max, &s.least} {
		n.Store(0)
	}
}

// Get returns the sizes, in bytes; -1 if there are none.
func (s *Sizes) Get() (last, least, most int64) {
	if least = -1; s.least.Load() > 0 {
		least = math.MaxInt64 - s.least.Load()
	}
	return s.last.Load() - 1, least, s.max.Load() - 1
}

// LeaseMarginUnit is a whole session timeout in Measures.LeaseMargin.
const LeaseMarginUnit = 1024

func (m *Measures) reset() {
	for _, h := range []*histogram.Histogram{&m.Reads, &m.Updates, &m.LeaseMargin, &m.Handoff} {
		h.Reset()
	}
	for _, n := range []*atomic.Int64{&m.ReplyBytes, &m.NotificationBytes, &m.Expired} {
		n.Store(0)
	}
	m.Replies.reset()
}

// inc adds one to a counter of s.
func (s *stats) inc(counter *int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*counter++
}

// notified counts notifications that were encoded when they were sent, with the bytes of their
// frames.
func (s *stats) notified(n, bytes int) {
	s.NotificationBytes.Add(int64(bytes - n*frameHead))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.PacketsSent += int64(n)
}

func (s *stats) replied(update bool, l time.Duration) {
	if update {
		s.Updates.Observe(int64(l))
	} else {
		s.Reads.Observe(int64(l))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.PacketsSent++
	s.Latency.add(l)
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

// Counters are the statistics of a member that ResetStats sets to zero.
type Counters struct {
	PacketsReceived, PacketsSent int64
	Latency                      Latency
	admission.Refused

	TooLong           int64 // answers beyond Limits.Response, MultiReadOps or MultiReadBytes
	WatchesRefused    int64 // beyond Limits.WatchBytes
	IdentitiesRefused int64 // beyond Limits.Identities or IdentityBytes
	LoginsRefused     int64 // by a scheme that is not there, or without the proof that it wants
	OtherEnsemble     int64 // connections closed because their clients expected another ensemble
	Undeliverable     int64 // requests that could not be delivered to the leader
	AttachesRefused   int64 // beyond claimsMax or claimsPerAddr
	QuotaExceeded     int64 // requests beyond a quota
	// SuperLoginsRefused are logins under the name of a super user without the proof.
	SuperLoginsRefused int64
	WrongPasswords     int64 // attaches with a password that is not the session's
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

// connStats are the statistics of one connection: a ConnStats in less memory, without the fields
// that others know.
type connStats struct {
	mu             sync.Mutex
	received, sent int64
	lastOp         wire.Op
	lastXid        wire.Xid
	lastZxid       wire.Zxid
	establishedMs  int64 // by the wall clock
	lastHeard      moment
	lastReply      moment // 0: there was none
	lastLatencyMs  int64
	latency        Latency
}

func (c *connStats) init(established time.Time, now moment) {
	c.establishedMs, c.lastHeard = established.UnixMilli(), now
	c.received, c.sent, c.lastOp, c.lastXid = 1, 1, wire.OpCreateSession, -1 // the handshake
}

func (c *connStats) hear(r wire.Request, now moment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastHeard = now
	c.received++
	c.lastOp, c.lastXid = r.Op, r.Xid
}

func (c *connStats) reply(h wire.ReplyHeader, now moment, latency time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent++
	c.lastZxid, c.lastReply, c.lastLatencyMs = h.Zxid, now, latency.Milliseconds()
	c.latency.add(latency)
}

// reset sets the counters to zero.
func (c *connStats) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.received, c.sent, c.lastOp, c.lastXid, c.lastZxid = 0, 0, 0, -1, -1
	c.lastReply, c.lastLatencyMs, c.latency = 0, 0, Latency{}
}

// read returns the statistics without Session, Timeout, Queued and Unsent.
func (c *connStats) read(at moments) ConnStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return ConnStats{Received: c.received, Sent: c.sent, LastOp: c.lastOp, LastXid: c.lastXid, LastZxid: c.lastZxid,
		Established: time.UnixMilli(c.establishedMs), LastHeard: at.time(c.lastHeard), LastReply: at.time(c.lastReply),
		LastLatencyMs: c.lastLatencyMs, Latency: c.latency}
}

// WatchCounts are the sizes of the watch tables.
type WatchCounts struct {
	Connections int // that watch anything
	Paths       int // watched in the data table
	DataWatches int // entries of the data table
	Watches     int // entries of both tables
}

// frameHead is the length in front of a frame.
const frameHead = 4
