package console

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"lockkeeper/session"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Member is what the console sees of the member that it is part of. Its methods may be called by
// several goroutines.
type Member interface {
	// ID is the member's number, Version the program's version.
	ID() int
	Version() string
	// View calls f with the state; f must be short.
	View(f func(*znode.Store))
	// LeaderKnown says since when the member has known a leader, or has known none.
	LeaderKnown() (since time.Time, ok bool)
	// Leader is the number of the leader, 0 while none is known, and of a member alone.
	Leader() int
	// Cluster is how the cluster is, as the members have reported within the last second or two.
	Cluster() Cluster
	// Connections are the sessions that are connected to this member.
	Connections() []session.Connection
	// Remotes are the addresses and ports of the clients that are connected to this member.
	Remotes() map[wire.SessionID]netip.AddrPort
	// Watches is how many connections of this member watch a node; WatchedBy what one session does.
	Watches(path string) int
	WatchedBy(id wire.SessionID) []string
	// Herds are the nodes that a hundred connections or more watch, at most n of them.
	Herds(n int) []Herd
	// Deadlines are when sessions expire; false on members that do not lead.
	Deadlines() ([]session.Deadline, bool)

	// Identities are those of a request; IsSuper whether they may do everything.
	Identities(r *http.Request) []znode.Identity
	IsSuper(ids []znode.Identity) bool
	// IsSecure says whether a request came over TLS or from this machine.
	IsSecure(r *http.Request) bool

	// Hold reserves memory for an answer, false if there is not enough; Release ends that.
	Hold(bytes int) bool
	Release(bytes int)

	// Delete deletes a node if its czxid is still that one, 0 for any, and returns the zxid.
	Delete(ctx context.Context, r *http.Request, path string, czxid wire.Zxid) (wire.Zxid, error)
	// EndSession ends a session and returns how many ephemerals it had.
	EndSession(ctx context.Context, r *http.Request, id wire.SessionID) (ephemerals int, err error)
	// Transfer transfers the leadership to a member, -1 for any, and returns the new leader.
	Transfer(ctx context.Context, r *http.Request, to int) (leader int, err error)
	// TakeSnapshot has the member write a snapshot, and returns its index and size.
	TakeSnapshot(ctx context.Context) (index uint64, bytes int64, err error)
	// Audit writes a line about an act to the audit log.
	Audit(r *http.Request, operation, target, what string, ok bool)
}

// Herd is a node that many watch.
type Herd struct {
	Path    string `json:"path"`
	Watches int    `json:"watches"`
}

// Cluster is how the cluster is: see docs/api.md.
type Cluster struct {
	Standalone bool   `json:"standalone"`
	Leader     int    `json:"leader"`
	Term       string `json:"term"`
	Version    string `json:"version"`
	Voters     int    `json:"voters"`
	Majority   int    `json:"majority"`
	VotersUp   int    `json:"votersUp"`
	// VotersReady are those that do not say that they are behind.
	VotersReady int            `json:"votersReady"`
	MayFail     int            `json:"mayFail"`
	Members     []MemberReport `json:"members"`
	State       StateCounts    `json:"state"`
	Changes     []LeaderChange `json:"changes"`
}

// StateCounts is how large the state is.
type StateCounts struct {
	Nodes      int   `json:"nodes"`
	Ephemerals int   `json:"ephemerals"`
	Sessions   int   `json:"sessions"`
	DataBytes  int64 `json:"dataBytes"`
}

// MemberReport is how a member is, as it reports. What is nil is not known.
type MemberReport struct {
	ID       int    `json:"id"`
	Self     bool   `json:"self"`
	Role     string `json:"role"`
	State    string `json:"state"`
	Up       bool   `json:"up"`
	Peers    string `json:"peers"`
	Clients  string `json:"clients"`
	HTTP     string `json:"http"`
	Protocol int    `json:"protocol"`
	PeerAuth string `json:"peerAuth"`
	// Readiness is that of server.ListedMember.
	Readiness string `json:"readiness"`
	*Health
}

// Health are the figures of a member.
type Health struct {
	Term          string     `json:"term"`
	AppliedIndex  uint64     `json:"appliedIndex"`
	CommitIndex   uint64     `json:"commitIndex"`
	LastIndex     uint64     `json:"lastIndex"`
	LagEntries    uint64     `json:"lagEntries"`
	Zxid          string     `json:"zxid"`
	LogBytes      int64      `json:"logBytes"`
	SnapshotBytes int64      `json:"snapshotBytes"`
	SnapshotAt    *time.Time `json:"snapshotAt"`
	StateBytes    int64      `json:"stateBytes"`
	Nodes         int        `json:"nodes"`
	FsyncMs       *float64   `json:"fsyncMs"`
	FsyncMaxMs    *float64   `json:"fsyncMaxMs"`
	// LeaderHeardMs is how long ago a follower has heard of its leader.
	LeaderHeardMs *int64 `json:"leaderHeardMs"`
	// PausedPart is during what part of the last minutes the process did not run, PauseMaxMs for
	// how long at most.
	PausedPart  *float64 `json:"pausedPart"`
	PauseMaxMs  *float64 `json:"pauseMaxMs"`
	Connections int      `json:"connections"`
	Leases      *int     `json:"leases"`
	Outstanding int      `json:"outstanding"`
	UptimeMs    int64    `json:"uptimeMs"`
	Build       string   `json:"build"`
	// Cluster is empty while the member belongs to none. Joining says that the cluster does not
	// count the member's disk, or not yet. DisksReplaced counts those that the member has begun to
	// replace as the leader.
	Cluster       string `json:"cluster"`
	Disk          string `json:"disk"`
	Joining       bool   `json:"joining"`
	DisksReplaced int64  `json:"disksReplaced"`
}

// LeaderChange is a change of the leader, as this member saw it.
type LeaderChange struct {
	At     time.Time `json:"at"`
	Term   string    `json:"term"`
	Leader int       `json:"leader"`
	Before int       `json:"before"`
	Cause  string    `json:"cause"`
	Detail string    `json:"detail"`
	GapMs  int64     `json:"gapMs"`
}
