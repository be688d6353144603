package session

import (
	"context"
	"log/slog"
	"time"

	"lockkeeper/internal/clock"
	"lockkeeper/session/admission"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Limits bound the work that a member takes on; RateQuota bounds the requests of a tenant.
type (
	Limits    = admission.Limits
	RateQuota = admission.RateQuota
)

// Replica is the replication that sessions need: quorum.Replica.
type Replica interface {
	// View calls f with the state as it is after some entry.
	View(f func(*znode.Store))
	// Propose sends a command to the leader, again if necessary, until this member has applied
	// it. It may block until ctx ends. When it fails, the command is not proposed.
	Propose(ctx context.Context, c *znode.Command) error
	// ProposeOnce proposes a command if this member leads. The command may be lost.
	ProposeOnce(ctx context.Context, c *znode.Command) error
	// Touch reports sessions that this member heard from to the leader. It returns the sessions
	// with an extended lease, and a moment from which on they have their full timeout, under any
	// leader.
	Touch(ctx context.Context, heard []wire.SessionID) (extended []wire.SessionID, from time.Time, err error)
	// MayExist asks the leader whether the sessions of claims exist, with those passwords; at
	// most MaxClaims. False is certain: one did not at some moment during the call. An error
	// means that nothing is known.
	MayExist(ctx context.Context, claims []znode.Claim) ([]bool, error)
	// ClockMs is the cluster's clock, by which containers and TTL nodes count.
	ClockMs() int64
	// LeaderKnown reports whether this member knows a leader, and the time since which it does, or
	// does not.
	LeaderKnown() (since time.Time, ok bool)
	// CaughtUp is closed when this member has applied, for the first time since it started, the
	// commit index of a leader.
	CaughtUp() <-chan struct{}
}

// Config describes a Manager. Zero values of durations and limits are replaced by ZooKeeper's
// defaults.
type Config struct {
	Member     uint8         // this member's number, which the ids of sessions created here carry
	Tick       time.Duration // 0 means 3 s
	MinTimeout time.Duration // of a session; 0 means 2 ticks
	MaxTimeout time.Duration // 0 means 20 ticks
	Auth       Auth
	// KeepQuotas keeps the nodes below /zookeeper/quota for super users: other clients do not
	// change them, and see the quotas of nodes that they may read. The replica has the same
	// setting.
	KeepQuotas bool
	// QuotaError is the answer to a request beyond a quota; 0 means BadArguments.
	QuotaError wire.Code
	// ReadOnly lets this member serve, without a leader, clients that accept that.
	ReadOnly bool
	Logger   *slog.Logger // nil means slog.Default
	Reap     Reap
	// ZooKeeperPasswords gives new sessions the passwords that ZooKeeper computes of their ids,
	// so that they can go on there: whoever knows an id knows the password.
	ZooKeeperPasswords bool
	Limits             Limits
	// RateQuotas bound the requests of each tenant to this member. The first that fits counts.
	RateQuotas []RateQuota
	Audit      Auditor // nil: there is no audit log
	// Report makes the report with a name (see reportPrefix) for a client with these
	// identities. It may take long; nil: there are none.
	Report func(ctx context.Context, name string, ids []znode.Identity) ([]byte, wire.Code)
	// Now is the wall clock, used for session ids and statistics only. nil means time.Now.
	Now func() time.Time
	// Clock is the clock of leases and of the expiry of sessions; nil means Go's monotonic
	// clock, which may not count suspends.
	Clock *clock.Clock
}

// Reap paces the deletion of containers that have become empty and of TTL nodes that have expired.
// Only the leader reaps.
type Reap struct {
	Interval  time.Duration // from one look for such nodes to the next; 0 means 60 s
	PerMinute int           // bounds the deletions; 0 means 10 000
	// NeverUsed is the age at which a container that never had a child is reaped too; 0 means
	// never.
	NeverUsed time.Duration
}

const (
	// sessionQueueMax bounds the requests of one session that are not answered; beyond it the
	// connection is not read.
	sessionQueueMax = 1000
	// outputPauseBytes is the unsent output that stops a connection from being read.
	outputPauseBytes = 4 << 20
	// queuePauseBytes is the size of the unanswered requests of one session that stops its
	// connection from being read.
	queuePauseBytes = 4 << 20
)
