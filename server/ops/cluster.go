package ops

import (
	"net"
	"net/netip"
	"strings"
	"time"

	"lockkeeper/quorum"
	"lockkeeper/quorum/peer"
	"lockkeeper/server/zoocfg"
)

// Cluster is the cluster as its members have reported (docs/api.md).
type Cluster struct {
	Standalone bool   `json:"standalone"`
	Leader     int    `json:"leader"`
	Term       string `json:"term"`
	Version    string `json:"version"`
	Voters     int    `json:"voters"`
	Majority   int    `json:"majority"`
	VotersUp   int    `json:"votersUp"`
	// VotersReady counts the voters that do not report that they are behind.
	VotersReady int             `json:"votersReady"`
	MayFail     int             `json:"mayFail"`
	Members     []ClusterMember `json:"members"`
	State       StateCounts     `json:"state"`
	Changes     []LeaderChange  `json:"changes"`
}

// StateCounts is the size of the state.
type StateCounts struct {
	Nodes      int   `json:"nodes"`
	Ephemerals int   `json:"ephemerals"`
	Sessions   int   `json:"sessions"`
	DataBytes  int64 `json:"dataBytes"`
}

// ClusterMember is a member as it has reported, and as the member that shows it sees it. Fields
// that are nil are not known.
type ClusterMember struct {
	ListedMember
	Self bool   `json:"self"`
	Up   bool   `json:"up"`
	HTTP string `json:"http"` // host:port for HTTP, as others reach it; empty if there is none
	*Health
	// Term is Health.Term, which ListedMember.Term would hide.
	Term string `json:"term,omitempty"`
}

// ListedMember is one member of a cluster as another one sees it.
type ListedMember struct {
	ID   uint8  `json:"id"`
	Role string `json:"role"` // as agreed: participant or observer
	// State is the role that the member reports: leader, follower, observer or looking; "no
	// answer"; or "incompatible", if it has no version of the protocol between members in common
	// with the one that reports.
	State string `json:"state"`
	Peers string `json:"peers"` // host:port for its peers
	// Clients is where clients connect, as the member reports it. If it does not answer, it is its
	// last report, or its server line; empty if that is not known.
	Clients string `json:"clients"`
	// Protocol is the newest version of the protocol between members that it speaks; 0 if that is
	// not known.
	Protocol uint8 `json:"protocol"`
	// PeerAuth is how others prove to the member who they are: tls, secret, tls+secret; loopback if
	// they need not and no other host reaches its peer port; open if they need not and may be
	// anybody. Empty if that is not known.
	PeerAuth string `json:"peerAuth"`
	// Readiness is ReadyText if the member counts, so that another one may be stopped; else
	// NotReadyText and the reason; empty if that is not known.
	Readiness string `json:"readiness"`
	// Term is the term that the member is in; 0 if that is not known.
	Term uint64 `json:"term"`
}

// NoAnswer is the State of a member without a report.
const NoAnswer = "no answer"

// Answers reports whether the member has answered the one that reports.
func (l ListedMember) Answers() bool {
	switch l.State {
	case NoAnswer, "unknown", quorum.RoleApart:
		return false
	}
	return true
}

// Listed is a member as its server line describes it, with the state "no answer".
func Listed(m zoocfg.Member) ListedMember {
	l := ListedMember{ID: m.ID, Role: "participant", State: NoAnswer, Peers: m.PeerAddr(),
		Clients: reachable(m, m.ClientAddr)}
	if m.Observer {
		l.Role = "observer"
	}
	return l
}

// reachable is an address of m; a wildcard in it is replaced by m's host.
func reachable(m zoocfg.Member, addr string) string {
	at, err := netip.ParseAddrPort(addr)
	if err != nil || !at.Addr().IsUnspecified() {
		return addr
	}
	_, port, _ := net.SplitHostPort(addr)
	return net.JoinHostPort(m.Host, port)
}

// Values of ListedMember.Readiness: for a member that counts, and the prefix, before the reason,
// for one that does not.
const (
	ReadyText    = "ready"
	NotReadyText = "not ready: "
)

// readinessText is the readiness in a report, in one line.
func readinessText(r quorum.Report) string {
	switch r.Ready {
	case peer.IsReady:
		return ReadyText
	case peer.IsNotReady:
		return NotReadyText + strings.NewReplacer("\n", " ", "\t", " ").Replace(r.NotReady)
	}
	return ""
}

// MemberStatus is the answer to the four-letter word mbrs, in JSON: a member's report about itself
// and, in a cluster, about the members.
type MemberStatus struct {
	MemberFigures
	Term    uint64         `json:"term"`
	Members []ListedMember `json:"members"`
}

// MemberFigures are the figures of one member that its client port shows to everybody.
type MemberFigures struct {
	ID *uint8 `json:"id,omitempty"` // nil of a member that stands alone
	// Role is leader, follower, observer, standalone or read-only; empty while it serves no client.
	Role        string     `json:"role,omitempty"`
	Zxid        string     `json:"zxid,omitempty"`
	Connections int        `json:"connections"`
	Outstanding int        `json:"outstanding"`
	Nodes       int        `json:"nodes"`
	Sessions    *int       `json:"sessions,omitempty"` // of the whole cluster
	Latency     *LatencyMs `json:"latencyMs,omitempty"`
	Version     string     `json:"version,omitempty"`
}

// LatencyMs are the latencies of requests since the start, in milliseconds.
type LatencyMs struct {
	Min int     `json:"min"`
	Avg float64 `json:"avg"`
	Max int     `json:"max"`
}

// Status makes the MemberStatus of a member.
func Status(m Member) MemberStatus {
	f := m.Figures()
	s := MemberStatus{Term: f.Replica.Term, Members: m.Cluster().Listed()}
	if !f.Alone {
		s.ID = &f.ID
	}
	s.Version, _, _ = strings.Cut(f.Build, ",")
	if !f.Serving && !f.ReadOnly {
		return s
	}
	l := f.Work.Latency
	s.Role, s.Zxid, s.Connections, s.Outstanding = f.Mode(), Hex(f.Zxid), f.Connections, f.Work.Outstanding
	s.Nodes, s.Sessions = f.State.Nodes, &f.State.Sessions
	s.Latency = &LatencyMs{Min: int(l.MinMs), Avg: l.AvgMs(), Max: int(l.MaxMs)}
	return s
}

// Listed lists the members, in ascending order; none of a member that stands alone.
func (c *Cluster) Listed() []ListedMember {
	list := []ListedMember{}
	if !c.Standalone {
		for _, m := range c.Members {
			list = append(list, m.ListedMember)
		}
	}
	return list
}

// LogHealth is how far a member is, and how long its log is.
type LogHealth struct {
	Term          string     `json:"term"`
	AppliedIndex  uint64     `json:"appliedIndex"`
	CommitIndex   uint64     `json:"commitIndex"`
	LastIndex     uint64     `json:"lastIndex"`
	LagEntries    uint64     `json:"lagEntries"`
	Zxid          string     `json:"zxid"`
	LogBytes      int64      `json:"logBytes"`
	SnapshotBytes int64      `json:"snapshotBytes"`
	SnapshotAt    *time.Time `json:"snapshotAt"`
}

// Health are the figures that a member reports to the others.
type Health struct {
	LogHealth
	StateBytes int64    `json:"stateBytes"`
	Nodes      int      `json:"nodes"`
	FsyncMs    *float64 `json:"fsyncMs"`
	FsyncMaxMs *float64 `json:"fsyncMaxMs"`
	// LeaderHeardMs is how long ago a follower has heard of its leader.
	LeaderHeardMs *int64 `json:"leaderHeardMs"`
	// PausedPart is the part of the last minutes during which the process did not run, PauseMaxMs
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
