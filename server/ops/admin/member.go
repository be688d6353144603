package admin

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"time"

	"lockkeeper/session"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Member is what the commands need of the member that they are about. All methods may be called
// from several goroutines.
type Member interface {
	// Serving reports whether clients are served, if only those of read-only mode.
	Serving() bool
	// IsSuper reports whether a request comes from a super user.
	IsSuper(*http.Request) bool
	// IsLocal reports whether a request comes from this machine.
	IsLocal(*http.Request) bool
	// For returns the member as the sender of a request may see it: paths that ACLs hide from him
	// are not in Sessions and Watches.
	For(*http.Request) Member

	Stats() Stats
	Settings() Settings
	Environment() iter.Seq2[string, string]
	// Connections lists the connections of clients, in the order in which they were accepted.
	Connections() []Connection
	// Sessions says when the sessions of the cluster expire, on the leader, and what ephemerals
	// they have.
	Sessions() Sessions
	Watches() []session.Watch // sorted by session and path
	WatchCounts() session.WatchCounts
	// Metrics are the names and values of monitor, behind the version and the state. A value is a
	// number, or a text that is one.
	Metrics() iter.Seq2[string, any]
	Cluster() Cluster
	// Digest is that of the tree, as of a zxid.
	Digest() (wire.Zxid, uint64)
	// LastSnapshot is the newest snapshot on the member's disk; 0 and the zero time without one.
	LastSnapshot() (wire.Zxid, time.Time)

	TraceMask() int64
	SetTraceMask(int64)
	ResetStats()
	ResetConnectionStats()

	// Shed moves the clients of that share of the sessions to other members, and returns their
	// number.
	Shed(ctx context.Context, percent int) int
	// Snapshot returns the state as of one zxid, with all that was committed before the call.
	Snapshot(context.Context) (Snapshot, error)
	// SaveSnapshot writes a snapshot to the member's disk, and returns its zxid.
	SaveSnapshot(context.Context) (wire.Zxid, error)
	// Spool returns an empty file for a snapshot that is being received. It is gone when it has
	// been closed.
	Spool() (Spool, error)
	// Restore replaces the state of the cluster by a snapshot: session.Manager.Restore, with its
	// errors, and ErrTooLarge.
	Restore(context.Context, *znode.SnapshotScanner) (wire.Zxid, error)
	// Audit records a request for a command that is for super users, and why it was not carried
	// out, or nil.
	Audit(r *http.Request, operation string, err error)
	// ClusterID is the cluster that the member belongs to; 0 while it is in none.
	ClusterID() znode.ClusterID
	// MaxRestoreBytes is how long a snapshot may be; 0: there is no limit.
	MaxRestoreBytes() int64
}

// ErrTooLarge says that the state of a snapshot is beyond maxNodes or maxDataBytes.
var ErrTooLarge = errors.New("the state of the snapshot is larger than this cluster allows (maxNodes, maxDataBytes)")

// Snapshot is the state at one moment. It has to be released.
type Snapshot interface {
	io.WriterTo // the same bytes each time
	Zxid() wire.Zxid
	Release()
}

// Spool is a file that is written once and then read.
type Spool interface {
	io.ReadWriteSeeker
	io.Closer
}

// Stats are the figures of a member at one moment.
type Stats struct {
	Version             string
	Mode                string // standalone, leader, follower, observer, looking or read-only
	ReadOnly            bool
	Received, Sent      int64 // packets
	DataBytes, LogBytes int64 // on disk
	Zxid                wire.Zxid
	Outstanding         int
	Latency             session.Latency
	Connections         int
	Uptime              time.Duration
	AuthFailed          int64
	Nodes               int
	SlowFsyncs          int64 // that took fsync.warningthresholdms or longer
	Responses           Sizes // of answers to clients
	Proposals           Sizes // of proposals, on the leader
}

// Sizes are in bytes; -1 before the first.
type Sizes struct{ Last, Min, Max int64 }

// Settings are those of the configuration that is in force.
type Settings struct {
	ClientPort                           int // -1 if there is none without TLS
	DataDir, DataLogDir                  string
	Tick                                 time.Duration
	MaxClientCnxns                       int
	MinSessionTimeout, MaxSessionTimeout time.Duration
	ID                                   int // 0 for a member alone
	Backlog                              int
	// Text is the configuration file, and Properties are its settings by the name that ZooKeeper's
	// system property would have; both without what is secret.
	Text       string
	Properties iter.Seq2[string, string]
}

// Connection is a client's connection.
type Connection struct {
	Remote   string // host:port
	Interest int    // as in the four-letter word cons
	Secure   bool   // with TLS
	// HasSession says that it has a session, and Stats are then of it.
	HasSession bool
	Stats      session.ConnStats
	LastOp     string // the short name of Stats.LastOp
}

// Sessions are the sessions of the cluster.
type Sessions struct {
	Deadlines  []session.Deadline // on the leader, the earliest first
	Ephemerals iter.Seq2[wire.SessionID, []string]
}

// Cluster is what a member knows of the cluster that it belongs to. Alone says that it belongs to
// none, and nothing else is set then.
type Cluster struct {
	Alone    bool
	ID       uint8
	Leader   int // the leader's number; -1 if it is not known
	State    string
	Observed int // observers that have, as far as the leader knows, all that is committed
	Members  []ClusterMember
}

// ClusterMember is a member of the cluster.
type ClusterMember struct {
	ID                             uint8
	PeerAddr, ElectionAddr, Client string // host:port; Client may be empty
	Observer                       bool
}
