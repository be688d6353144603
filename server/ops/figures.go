package ops

import (
	"strings"
	"time"

	"lockkeeper/internal/histogram"
	"lockkeeper/quorum"
	"lockkeeper/server/ops/audit"
	"lockkeeper/server/ops/door"
	"lockkeeper/server/ops/metrics"
	"lockkeeper/session"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Figures are all that a member counts and is, at one moment. Member.Figures makes them; each
// surface renders some of them.
type Figures struct {
	Program
	Standing
	ReplicaFigures
	ClientFigures

	HTTPAddr      string       // as it listens; empty without that port
	HTTP          *door.Counts // nil without a port for HTTP
	Locks         *LockCounts  // over HTTP; nil without them
	IndexRefused  int64        // answers of the console for which there was no memory
	Audit         *audit.Stats // nil without an audit log
	LinesDropped  int64        // from the log, beyond 60 a minute with one message
	LockStrangers int64        // nodes of locks beside another library's
	DiskFullStops int          // times that this member waited for space for its log
	Failures      int          // these, and the end that it is at

	Pauses  *histogram.Histogram // ns by which a look at the clock was late
	Recents *metrics.Recents     // of all distributions
}

// LockCounts are the locks that a member takes for requests over HTTP, and these requests.
type LockCounts struct {
	Waiting, Held int   // now
	Granted       int64 // locks
	Lost          int64 // locks that ended without a release
	Refused       int64 // requests beyond admin.maxLocks and its kin
}

// Program is the program that runs the member.
type Program struct {
	ID      uint8  // of the member
	Alone   bool   // it stands alone
	Version string // of the program
	Build   string // the same as srvr, stat, mntr and envi show it
	Uptime  time.Duration
}

// ReplicaFigures are about the member's copy of the data, and the members that have it too.
type ReplicaFigures struct {
	Replica    quorum.Status
	Membership Membership
	State      znode.Counts
	Zxid       wire.Zxid
	OfLog      *quorum.Measures // distributions, which go on being measured
	Peers      quorum.PeerStats
	PeerAuth   string              // how members prove to each other who they are
	PeerPort   func() metrics.List // of the certificates and secrets between members
	// CommonVersion is the newest version of the protocol that all members speak; 0 if there is
	// none, or a member has not been reached yet.
	CommonVersion uint8
}

// ClientFigures are about the member's clients.
type ClientFigures struct {
	ClientAddr             string // as the port listens
	ClientPort, SecurePort int    // the second one with TLS only; -1 if there is none
	Port                   PortCounts
	Connections            int
	Work                   session.Stats
	OfWork                 *session.Measures   // distributions, which go on being measured
	TLS                    func() metrics.List // of the certificates; nil without TLS
}

// PortCounts are the counters of the client port, since the start or the four-letter word srst.
type PortCounts struct {
	WordsReceived, WordsSent int64 // four-letter words: they count as packets
	ConnectRequests          int64
	RefusedHandshakes        int64 // no leader, or the client has seen later state
	BadHandshakes            int64 // first frames that were no connect request
	Expired                  int64 // connections without a first request in time
	Drops                    int64 // connections that clients ended without closing the session
	BadLengths               int64 // frames that were too long, or not as long as nothing
	BytesReceived            int64
	Rejected                 int64 // connections and handshakes beyond a limit
	Displaced                int64 // connections without a complete request, closed for a newer one
	Silent                   int   // connections without a complete first request
}

// Usage is the part of its machine that a member uses: files, disk.
type Usage struct {
	DataBytes, LogBytes int64 // of dataDir and dataLogDir; 0 with injected stores
	// DataDir and DataLogDir are absolute paths; empty with injected stores.
	DataDir, DataLogDir string
	RaftBytes           int64      // of the log's own files
	SnapshotAt          *time.Time // when the newest snapshot was written
	OpenFiles, MaxFiles int64      // -1 if the system does not say
	FreeBytes           int64      // where the log is; -1 if the system does not say
}

// Received counts the packets from clients. Handshakes and four-letter words are packets, too.
func (f *Figures) Received() int64 {
	return f.Work.PacketsReceived + f.Port.WordsReceived + f.Port.ConnectRequests
}

// Sent counts the packets to clients.
func (f *Figures) Sent() int64 {
	return f.Work.PacketsSent + f.Port.WordsSent + f.Port.ConnectRequests - f.Port.RefusedHandshakes
}

// ReadOnlyMode is the mode of a member that serves clients of read-only mode only.
const ReadOnlyMode = "read-only"

// Mode is the role as ZooKeeper names it.
func (f *Figures) Mode() string {
	if f.Replica.Role == "looking" && f.ReadOnly {
		return ReadOnlyMode
	}
	return f.Replica.Role
}

// PeerState is the role as mntr has it in a cluster.
func (f *Figures) PeerState() string {
	if state := peerStates[f.Mode()]; state != "" {
		return state
	}
	return "looking - election"
}

// ZabState is the second half of PeerState.
func (f *Figures) ZabState() string {
	_, state, _ := strings.Cut(f.PeerState(), " - ")
	return state
}

// A member that serves is past election, discovery and synchronization.
var peerStates = map[string]string{
	"leader": "leading - broadcast", "follower": "following - broadcast", "observer": "observing - broadcast",
}

func (f *Figures) inMs(h *histogram.Histogram) metrics.Distribution {
	return f.Recents.Distribution(h, inMs, nil)
}
