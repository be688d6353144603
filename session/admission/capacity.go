package admission

import (
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"

	"lockkeeper/internal/loglimit"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// capacity bounds the replicated state: nodes, bytes and sessions. A member refuses a request that
// would exceed its limits before it is proposed, so it never enters the log, and members with
// different limits do not diverge. A member counts its own requests in flight; it learns of the
// requests of other members when they are applied. So the state may exceed a limit by the requests
// that other members have in flight.
type capacity struct {
	limits   *Limits
	refused  *refusals
	refusals *loglimit.Limiter

	// Of the state as of the newest command that was applied here.
	nodes, bytes atomic.Int64
	// The most that the writes in the queues of connections add.
	addingNodes, addingBytes atomic.Int64

	mu      sync.Mutex
	opening map[netip.Addr]int // handshakes in flight that create a session, by address
	openAll int
}

// ErrSessions says that the limit of sessions is reached.
var ErrSessions = errors.New("session: too many sessions (maxSessions, maxSessionsPerAddress)")

func (c *capacity) init(l *Limits, r *refusals, refusals *loglimit.Limiter) {
	c.limits, c.refused, c.refusals = l, r, refusals
	c.opening = map[netip.Addr]int{}
}

// applied records the size of the state.
func (c *capacity) applied(store *znode.Store) {
	size := store.Size()
	c.nodes.Store(size.Nodes)
	c.bytes.Store(size.Bytes)
}

// adding counts the size of a write that enters (sign 1) or leaves (-1) a queue.
func (c *capacity) adding(size znode.Size, sign int64) {
	if size != (znode.Size{}) {
		c.addingNodes.Add(sign * size.Nodes)
		c.addingBytes.Add(sign * size.Bytes)
	}
}

// full returns the key of the limit that the state would exceed with so much more, or "".
func (c *capacity) full(more znode.Size) string {
	switch {
	case c.limits.Nodes > 0 && more.Nodes > 0 &&
		c.nodes.Load()+c.addingNodes.Load()+more.Nodes > int64(c.limits.Nodes):
		return "maxNodes"
	case c.limits.DataBytes > 0 && more.Bytes > 0 &&
		c.bytes.Load()+c.addingBytes.Load()+more.Bytes > int64(c.limits.DataBytes):
		return "maxDataBytes"
	}
	return ""
}

// admits reports whether the state has room for a write that adds at most more to it.
func (c *capacity) admits(view func(func(*znode.Store)), a *Account, record wire.Record, more znode.Size) bool {
	key := c.full(more)
	if key == "" {
		return true
	}
	view(func(store *znode.Store) { more.Bytes -= store.Replaced(record) })
	if key = c.full(more); key == "" {
		return true
	}
	c.refused.inc(&c.refused.StateFull)
	c.refusals.Warn(key, "request refused: the state of the cluster is as large as it may be ("+key+")",
		"client", a.Addr, "session", a.Session, "nodes", c.nodes.Load(), "bytes", c.bytes.Load())
	return false
}

// open counts a handshake that is to create a session; the caller calls opened when it has been
// answered. The error is ErrSessions.
func (c *capacity) open(view func(func(*znode.Store)), addr netip.Addr) error {
	l := c.limits
	if l.Sessions <= 0 && l.SessionsPerAddr <= 0 {
		return nil
	}
	var all, there int
	view(func(store *znode.Store) { all, there = store.Sessions().Counts(znode.AddrText(addr)) })
	c.mu.Lock()
	defer c.mu.Unlock()
	key, limit := "", 0
	switch {
	case l.Sessions > 0 && all+c.openAll >= l.Sessions:
		key, limit = "maxSessions", l.Sessions
	case l.SessionsPerAddr > 0 && there+c.opening[addr] >= l.SessionsPerAddr:
		key, limit = "maxSessionsPerAddress", l.SessionsPerAddr
	default:
		c.openAll++
		c.opening[addr]++
		return nil
	}
	c.refused.inc(&c.refused.SessionsRefused)
	c.refusals.Warn(key+" "+addr.String(), "client refused: too many sessions ("+key+")", "client", addr, "limit",
		limit)
	return ErrSessions
}

func (c *capacity) opened(addr netip.Addr) {
	if c.limits.Sessions <= 0 && c.limits.SessionsPerAddr <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.openAll--
	if c.opening[addr]--; c.opening[addr] == 0 {
		delete(c.opening, addr)
	}
}
