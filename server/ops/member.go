package ops

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/user"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"lockkeeper/quorum"
	"lockkeeper/server/ops/door"
	"lockkeeper/server/zoocfg"
	"lockkeeper/session"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Member is the running member that the surfaces show. Package server implements it. All methods
// may be called by several goroutines.
type Member interface {
	Config() *zoocfg.Config
	// View calls f with the applied state; f must be short, and must not keep it.
	View(f func(*znode.Store))
	// Standing is a part of Figures that costs nothing.
	Standing() Standing
	// Figures counts everything at one moment. It visits all connections, so a surface calls it
	// once for each request.
	Figures() *Figures
	// Usage measures files and disk, with system calls.
	Usage() Usage
	// Cluster is the cluster as its members have reported within the last second or two.
	Cluster() *Cluster
	// Connections lists the connections of clients, in the order in which they were accepted.
	Connections() []Connection
	// Sessions and Replica are for listings, and for acts: they end sessions, delete nodes, replace
	// the state, transfer the leadership, write snapshots.
	Sessions() *session.Manager
	Replica() *quorum.Replica
	// Stoppable asks the leader whether this member may be stopped now. With reserve a yes counts:
	// see Stoppable.HoldsMs.
	Stoppable(ctx context.Context, reserve bool) Stoppable
	// ResetStats sets the counters to zero (the four-letter word srst).
	ResetStats()
}

// Shared is the state that the surfaces of a member have in common.
type Shared struct {
	Member
	Door      *door.Door
	listings  chan struct{} // holds one element for each listing that is being made or sent
	TraceMask atomic.Int64  // of gtmk and stmk
}

const (
	// listingsAtOnce limits the listings at a time: each takes up to twice maxResponseBytes until
	// it has been sent.
	listingsAtOnce = 2
	// defaultTraceMask is ZooKeeper's, where the mask selects lines of the trace log. Here it has
	// no effect, and is kept for the tools that set it.
	defaultTraceMask = 306
)

// NewShared returns the shared state of the surfaces of m.
func NewShared(m Member, d *door.Door) *Shared {
	s := &Shared{Member: m, Door: d, listings: make(chan struct{}, listingsAtOnce)}
	s.TraceMask.Store(defaultTraceMask)
	return s
}

// BeginListing waits until a listing may be made and sent, at most for that time; false if others
// hold the turns all the while, because clients do not read theirs. end gives the turn back.
func (s *Shared) BeginListing(ctx context.Context, wait time.Duration) (end func(), ok bool) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case s.listings <- struct{}{}:
		return func() { <-s.listings }, true
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil, false
}

// Standing is how a member stands in its cluster.
type Standing struct {
	Leader     int       // its number; 0 if none is known, and on a member that stands alone
	LeaderSeen bool      // a leader is known, or the member stands alone
	Since      time.Time // of LeaderSeen

	Serving  bool // clients that write, too
	ReadOnly bool // it serves clients of read-only mode only
	Ready    bool // it counts: another member may be stopped
	NotReady string
}

// Connection is a client's connection.
type Connection struct {
	Remote   netip.AddrPort
	Secure   bool // with TLS
	Accepted time.Time
	Session  *session.Session // nil before the handshake
}

// Interest is the set of operations that ZooKeeper waits for on a connection, as a number: 1 = to
// read, 5 = to write as well.
func Interest(stats session.ConnStats) int {
	if stats.Unsent > 0 {
		return 5
	}
	return 1
}

// Hex is the id of a session, or a zxid, as people know it.
func Hex[T ~int64 | ~uint64](id T) string { return fmt.Sprintf("0x%x", uint64(id)) }

// OpName is ZooKeeper's short name of an operation, in cons; NA if it has none.
func OpName(op wire.Op) string {
	if name := opNames[op]; name != "" {
		return name
	}
	return "NA"
}

var opNames = map[wire.Op]string{
	wire.OpPing: "PING", wire.OpCreateSession: "SESS", wire.OpCloseSession: "CLOS", wire.OpSync: "SYNC",
	wire.OpCreate: "CREA", wire.OpCreate2: "CREA", wire.OpCreateContainer: "CREA", wire.OpCreateTTL: "CREA",
	wire.OpDelete: "DELE", wire.OpSetData: "SETD", wire.OpSetACL: "SETA", wire.OpReconfig: "RECO",
	wire.OpMulti: "MULT", wire.OpMultiRead: "MLTR", wire.OpCheck: "CHEC", wire.OpWhoAmI: "HOMI",
	wire.OpExists: "EXIS", wire.OpGetData: "GETD", wire.OpGetACL: "GETA", wire.OpGetEphemerals: "GETE",
	wire.OpGetChildren: "GETC", wire.OpGetChildren2: "GETC", wire.OpGetAllChildrenNumber: "GETACN",
	wire.OpSetWatches: "SETW", wire.OpSetWatches2: "STW2", wire.OpAddWatch: "ADDW",
	wire.OpCheckWatches: "CHKW", wire.OpRemoveWatches: "REMW",
}

// ResetConnectionStats resets the statistics of each connection (the four-letter word crst).
func ResetConnectionStats(m Member) {
	for _, c := range m.Connections() {
		if c.Session != nil {
			c.Session.ResetStats()
		}
	}
}

// sessionStep is the number of sessions that are visited under one lock of the state.
const sessionStep = 1000

// EachSession calls f with the sessions of the cluster, some at a time: one that is created or
// closed meanwhile may be missing, or come twice.
func EachSession(m Member, f func(znode.SessionInfo)) {
	for at := 0; at >= 0; {
		var some []znode.SessionInfo
		m.View(func(store *znode.Store) { some, at = store.Sessions().From(at, sessionStep) })
		for _, info := range some {
			f(info)
		}
	}
}

// Ephemerals are the paths of a session's ephemeral nodes.
func Ephemerals(m Member, id wire.SessionID) (paths []string) {
	m.View(func(store *znode.Store) { paths = store.Ephemerals(id) })
	return paths
}

// TreeDigest is the digest of the tree at the zxid that a member has applied: members that show the
// same zxid must show the same digest. It is computed of a snapshot, and takes a second for a
// million nodes.
func TreeDigest(m Member) (zxid wire.Zxid, digest uint64) {
	frozen := m.Replica().Freeze()
	defer frozen.Release()
	return frozen.Zxid(), frozen.TreeDigest()
}

// Membership are the members of the cluster as they have been agreed upon, with the version of the
// configuration.
type Membership struct {
	Members []zoocfg.Member
	Version wire.Zxid
}

// Member is the member with that number; false if there is none.
func (m Membership) Member(id uint8) (zoocfg.Member, bool) {
	if i := slices.IndexFunc(m.Members, func(o zoocfg.Member) bool { return o.ID == id }); i >= 0 {
		return m.Members[i], true
	}
	return zoocfg.Member{}, false
}

// Environment describes the process. ZooKeeper's facts about its JVM have no counterpart here.
func Environment(build string) [][2]string {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	mb := func(n uint64) string { return fmt.Sprintf("%dMB", n>>20) }
	orEmpty := func(text string, _ error) string { return text }
	name := ""
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return [][2]string{
		{"zookeeper.version", build},
		{"host.name", orEmpty(os.Hostname())},
		{"go.version", runtime.Version()},
		{"os.name", runtime.GOOS},
		{"os.arch", runtime.GOARCH},
		{"user.name", name},
		{"user.home", orEmpty(os.UserHomeDir())},
		{"user.dir", orEmpty(os.Getwd())},
		{"os.memory.free", mb(m.HeapIdle - m.HeapReleased)},
		{"os.memory.total", mb(m.Sys)},
	}
}
