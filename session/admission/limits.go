package admission

import (
	"cmp"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Limits bound the work that this member takes on (docs/protocol/sessions.md section 14), and the
// memory that clients can make it use. Zero switches a limit off, unless its comment says
// otherwise.
type Limits struct {
	// Identities bounds the identities of a connection besides its address, and IdentityBytes the
	// bytes of their schemes and ids. More is answered with AuthFailed, and the connection ends. 0
	// means the default.
	Identities, IdentityBytes int
	// Response bounds the bytes of the answer to a request. A longer one is not made: the answer is
	// BadArguments. A connection that holds more than twice as much unsent ends. 0 means the
	// default.
	Response int
	// MultiReadOps bounds the reads of a multiRead, and MultiReadBytes the bytes of its answer
	// (multiRead.maxOps, multiRead.maxResponseBytes). More is answered with BadArguments.
	MultiReadOps, MultiReadBytes int
	// Memory bounds the bytes of unsent output and unanswered requests of all connections of this
	// member together (type Memory). 0 means the default.
	Memory int
	// WatchBytes bounds the memory of the watches of all connections of this member; one connection
	// may have a quarter of it. More is answered with BadArguments; setWatches ends the connection.
	// 0 means the default.
	WatchBytes int
	// Outstanding is the number of unanswered requests from which on connections with an unanswered
	// request are not read any more (ZooKeeper's globalOutstandingLimit, divided as there).
	Outstanding int
	// Requests bounds the unanswered requests: beyond it none is taken
	// (request_throttle_max_requests).
	Requests int
	// Wait bounds the wait of a request for that; after it, the request gets ThrottledOp
	// (throttled_op_wait_time).
	Wait time.Duration
	// LargeRequest is the length in bytes from which on a request counts as large, and LargeBytes
	// bounds the bytes of such requests that are unanswered (largeRequestThreshold,
	// largeRequestMaxBytes). A connection that exceeds it is closed.
	LargeRequest, LargeBytes int

	// Bounds of the state of the cluster (type capacity):

	// Nodes bounds the number of nodes, and DataBytes their size together (znode.Store.Size). A
	// request that may exceed them is answered with BadArguments.
	Nodes, DataBytes int
	// Sessions bounds the number of sessions, and SessionsPerAddr those of one client address. The
	// connection of one more is closed.
	Sessions, SessionsPerAddr int

	// Bounds of the cost of one request for the members. Zero means the default of the same name:

	// ACLEntries and ACLBytes bound the ACL that a request may give a node, in entries and in bytes
	// of their schemes and ids (maxACLEntries, maxACLBytes).
	ACLEntries, ACLBytes int
	// Cost bounds the time of applying a request, by znode.CostOf (maxRequestCost).
	Cost time.Duration
	// Ephemerals bounds the ephemeral nodes of a session: they vanish together
	// (maxSessionEphemerals).
	Ephemerals int
}

// Defaults of the limits that are never off.
const (
	DefaultIdentities    = 100
	DefaultIdentityBytes = 16 << 10

	DefaultACLEntries = 1000
	DefaultACLBytes   = 64 << 10
	DefaultCost       = 30 * time.Millisecond
	DefaultEphemerals = 15_000
	DefaultResponse   = 64 << 20 // as of ZooKeeper's multiRead.maxResponseBytes
	DefaultMemory     = 256 << 20
	DefaultWatchBytes = 256 << 20
)

func (l *Limits) setDefaults() {
	l.Identities = cmp.Or(l.Identities, DefaultIdentities)
	l.IdentityBytes = cmp.Or(l.IdentityBytes, DefaultIdentityBytes)
	l.ACLEntries = cmp.Or(l.ACLEntries, DefaultACLEntries)
	l.ACLBytes = cmp.Or(l.ACLBytes, DefaultACLBytes)
	l.Cost = cmp.Or(l.Cost, DefaultCost)
	l.Ephemerals = cmp.Or(l.Ephemerals, DefaultEphemerals)
	l.Response = cmp.Or(l.Response, DefaultResponse)
	l.Memory = cmp.Or(l.Memory, DefaultMemory)
	l.WatchBytes = cmp.Or(l.WatchBytes, DefaultWatchBytes)
}

// maxQuotaLimitsBytes bounds the data of the node that holds the limits of a quota. Clients write
// 100 bytes there.
const maxQuotaLimitsBytes = 4096

// Price is the cost of a request: it may create ephemeral nodes, and adds to the state.
type Price struct {
	ephemerals int
	adds       znode.Size
}

// Payer is the session that a request is priced for.
type Payer interface {
	// View calls f with the state of the replica.
	View(f func(*znode.Store))
	// EphemeralCount is the number of ephemeral nodes that the session has in the state or that its
	// requests in flight may create.
	EphemeralCount() int
}

// Price returns the cost of a request of these identities, or the code for one that must not enter
// the log: it would cost the members more than the limits allow, or they are certain to refuse it.
// Its reply keeps its place in the session's order, as the reply to a read does.
func (g *Gate) Price(payer Payer, a *Account, record wire.Record, ids []znode.Identity) (Price, wire.Code) {
	limits, refused := &g.limits, &g.refused
	cost := znode.CostOf(record, ids)
	switch {
	case g.keep && znode.WritesQuota(record) && !znode.IsSuper(ids):
		refused.inc(&refused.QuotasKept)
		return Price{}, wire.CodeNoAuth
	case cost.ACLEntries > limits.ACLEntries || cost.ACLBytes > limits.ACLBytes ||
		cost.ACLPrefixes > znode.MaxACLPrefixes:
		refused.inc(&refused.ACLsRefused)
		return Price{}, wire.CodeInvalidACL
	case time.Duration(cost.Nanoseconds) > limits.Cost || cost.LimitsBytes > maxQuotaLimitsBytes:
		refused.inc(&refused.CostlyRefused)
		return Price{}, wire.CodeBadArguments
	}
	if code := znode.Refusal(record, ids); code != wire.CodeOK {
		return Price{}, code
	}
	if cost.Ephemerals > 0 && cost.Ephemerals+payer.EphemeralCount() > limits.Ephemerals {
		refused.inc(&refused.EphemeralsRefused)
		return Price{}, wire.CodeBadArguments
	}
	if !g.capacity.admits(payer.View, a, record, cost.Size) {
		return Price{}, wire.CodeBadArguments
	}
	return Price{cost.Ephemerals, cost.Size}, wire.CodeOK
}
