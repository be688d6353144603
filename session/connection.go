package session

import (
	"net/netip"
	"sync/atomic"
	"time"

	"lockkeeper/session/admission"
	"lockkeeper/session/sasl"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// connection is a client's connection to this member: its output, its lease, its identities and
// its watches. It knows neither the order of requests (Session) nor other connections.
//
// A member has tens of thousands of them, most of them idle: so a part that an idle connection does
// not need is behind a pointer, which is nil until the part is needed (TestSessionMemory).
type connection struct {
	generation uint64
	account    admission.Account // with the session's id and the client's address

	out   output
	lease lease
	stats connStats
	watching

	// ids are the identities that the connection has authenticated as, its address first. The list
	// is replaced and never modified.
	ids  atomic.Pointer[[]znode.Identity]
	sasl *sasl.Server // the login with SASL, once it has begun

	local *local      // of read-only mode; nil: one of the cluster's sessions
	ended atomic.Bool // set under requests.mu
}

func (c *connection) id() wire.SessionID { return c.account.Session }

func (c *connection) addr() netip.Addr { return c.account.Addr }

func (c *connection) timeout() time.Duration { return time.Duration(c.lease.timeout) }

// local is a session of read-only mode, with or without a connection.
type local struct {
	password wire.Password
	timeout  time.Duration
	heard    int64       // the instant at which its connection was last seen alive
	closed   atomic.Bool // by its client
}

// watching is the share of a connection in the watch table. The lock of the table guards it.
type watching struct {
	// watched are the paths that the connection watches, in either table; nil if none
	watched    map[string]struct{}
	watchBytes int   // the bytes of these watches
	reachedAt  int32 // position in fanout.reached, plus 1, while a command fires
	unwatched  bool  // no watch is set any more
}

// notify queues a notification. It is called inside the critical section.
func (c *connection) notify(zxid wire.Zxid, t wire.EventType, path string) {
	event := wire.WatcherEvent{Type: t, State: wire.StateSyncConnected, Path: path}
	if c.notice(notice{zxid: zxid, event: event}) {
		c.out.stats.inc(&c.out.stats.PacketsSent)
	}
}

// notifyLater queues notifications that are encoded, and counted, when they are sent. It is called
// inside the critical section.
func (c *connection) notifyLater(b *backlog) { c.notice(notice{zxid: b.zxid(), backlog: b}) }

func (c *connection) notice(n notice) bool {
	if !c.out.notify(n) {
		c.out.log.Warn("client does not read its notifications, connection closed",
			"session", c.id(), "client", c.addr())
		return false
	}
	return true
}
