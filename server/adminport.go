package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockkeeper/quorum"
	"lockkeeper/server/ops/admin"
	"lockkeeper/server/zoocfg"
	"lockkeeper/session"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// newAdmin returns the commands of the HTTP port.
func (s *Server) newAdmin() *admin.Server {
	m := adminMember{Server: s}
	if s.cfg.File != "" {
		if text, err := os.ReadFile(s.cfg.File); err == nil { // it has been read before
			m.text, m.properties = zoocfg.Redact(string(text))
		}
	}
	return admin.New(admin.Config{Base: s.cfg.AdminBase, MaxBytes: s.cfg.Limits.Response, Listings: s.listings, Member: m,
		NoSnapshot: s.cfg.NoSnapshotCommand, NoRestore: s.cfg.NoRestoreCommand, Interval: s.cfg.SnapshotInterval})
}

// adminMember is this member as package admin sees it.
type adminMember struct {
	*Server
	text       string // of the configuration file, without what is secret
	properties map[string]string
	viewer     []znode.Identity // who sees what ACLs let him
}

var _ admin.Member = adminMember{}

// Serving implements admin.Member.
// Shed implements admin.Member.
func (m adminMember) Shed(ctx context.Context, percent int) int {
	return m.sessions.Shed(ctx, percent, httpTimeout/2)
}

func (m adminMember) Serving() bool { return m.Server.Serving() || m.sessions.ReadOnly() }

// IsSuper implements admin.Member.
func (m adminMember) IsSuper(r *http.Request) bool {
	return znode.IsSuper(m.httpIdentities(r))
}

// IsLocal implements admin.Member.
func (m adminMember) IsLocal(r *http.Request) bool { return clientAddr(r).IsLoopback() }

// For implements admin.Member.
func (m adminMember) For(r *http.Request) admin.Member {
	m.viewer = m.httpIdentities(r)
	return m
}

// seenStepBytes is up to how many bytes of paths are judged under one lock of the state: each path
// is looked up some twenty times, and counts for seenPathBytes at least.
const (
	seenStepBytes = 64 << 10
	seenPathBytes = 128
)

// seenBy returns the elements of list with a path that the viewer of m may know of.
func seenBy[T any](m adminMember, list []T, path func(T) string) (seen []T) {
	for len(list) > 0 {
		m.replica.View(func(store *znode.Store) {
			for left := seenStepBytes; left > 0 && len(list) > 0; list = list[1:] {
				at := path(list[0])
				if left -= max(len(at), seenPathBytes); m.sees(store, at) {
					seen = append(seen, list[0])
				}
			}
		})
	}
	return seen
}

// sees reports whether the viewer may know of a path: READ on its parent, or on the nearest node
// above that there is.
func (m adminMember) sees(store *znode.Store, path string) bool {
	if m.cfg.SkipACL || znode.IsSuper(m.viewer) {
		return true
	}
	return store.AccessAbove(path).Allows(m.viewer, wire.PermRead)
}

// Stats implements admin.Member.
func (m adminMember) Stats() admin.Stats {
	o := m.overview()
	replies, proposals := admin.Sizes{}, admin.Sizes{Last: -1, Min: -1, Max: -1}
	replies.Last, replies.Min, replies.Max = m.sessions.Measures().Replies.Get()
	if sizes := m.replica.Measures().EntryBytes.Snapshot(); sizes.Count > 0 {
		proposals = admin.Sizes{Last: m.replica.Measures().LastEntryBytes.Load(), Min: sizes.Min, Max: sizes.Max}
	}
	s := admin.Stats{Version: m.build, Mode: m.mode(o), Received: o.received, Sent: o.sent, Zxid: o.zxid,
		Outstanding: o.work.Outstanding, Latency: o.work.Latency, Connections: o.connections,
		Uptime: time.Since(m.started), AuthFailed: o.work.LoginsRefused, Nodes: o.counts.Nodes,
		SlowFsyncs: m.replica.Measures().SlowFsyncs.Load(),
		Responses:  replies, Proposals: proposals}
	s.ReadOnly = s.Mode == readOnlyMode
	s.DataBytes, s.LogBytes = m.dirSizes()
	return s
}

// Settings implements admin.Member.
func (m adminMember) Settings() admin.Settings {
	c := &m.cfg
	port, _ := m.clientPorts()
	s := admin.Settings{ClientPort: port, Tick: c.TickTime, MaxClientCnxns: max(c.MaxClientCnxns, 0),
		MinSessionTimeout: c.MinSessionTimeout, MaxSessionTimeout: c.MaxSessionTimeout, Backlog: c.Backlog,
		Text: m.text, Properties: maps.All(m.properties)}
	s.DataDir, s.DataLogDir = m.absoluteDirs()
	if !c.Standalone() {
		s.ID = int(c.ID)
	}
	return s
}

// Environment implements admin.Member.
func (m adminMember) Environment() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, kv := range m.environment() {
			if !yield(kv[0], kv[1]) {
				return
			}
		}
	}
}

// Connections implements admin.Member.
func (m adminMember) Connections() []admin.Connection {
	conns := m.sortedConns()
	list := make([]admin.Connection, len(conns))
	for i, c := range conns {
		list[i] = admin.Connection{Remote: c.remote.String(), Interest: 1}
		if sess := c.session.Load(); sess != nil {
			stats := sess.Stats()
			sc, ok := c.Conn.(*secureConn)
			list[i] = admin.Connection{Remote: c.remote.String(), Interest: interest(stats), Secure: ok && sc.tls != nil,
				HasSession: true, Stats: stats, LastOp: cmp.Or(opNames[stats.LastOp], "NA")}
		}
	}
	return list
}

// Sessions implements admin.Member.
func (m adminMember) Sessions() (s admin.Sessions) {
	s.Deadlines, _ = m.sessions.Deadlines()
	var owners []wire.SessionID
	m.eachSession(func(info znode.SessionInfo) {
		if info.Ephemerals > 0 {
			owners = append(owners, info.ID)
		}
	})
	slices.Sort(owners)
	owners = slices.Compact(owners)
	s.Ephemerals = func(yield func(wire.SessionID, []string) bool) {
		for _, id := range owners { // one at a time: the state is locked for each
			if paths := seenBy(m, m.ephemerals(id), func(path string) string { return path }); len(paths) > 0 && !yield(id, paths) {
				return
			}
		}
	}
	return s
}

// Watches implements admin.Member.
func (m adminMember) Watches() []session.Watch {
	return seenBy(m, m.sessions.DataWatches(), func(w session.Watch) string { return w.Path })
}

// WatchCounts implements admin.Member.
func (m adminMember) WatchCounts() session.WatchCounts { return m.sessions.Stats().Watches }

// Metrics implements admin.Member.
func (m adminMember) Metrics() iter.Seq2[string, any] {
	return m.metrics(m.overview()).Lines()
}

// Cluster implements admin.Member.
func (m adminMember) Cluster() admin.Cluster {
	if m.cfg.Standalone() {
		return admin.Cluster{Alone: true}
	}
	o := m.overview()
	c := admin.Cluster{ID: m.cfg.ID, Leader: -1, State: "election", Observed: o.status.SyncedObservers}
	if o.status.Leader != quorum.NoMember {
		c.Leader = int(o.status.Leader)
	}
	if _, state, ok := strings.Cut(peerStates[m.mode(o)], " - "); ok {
		c.State = state
	}
	for _, other := range m.present().members {
		client := other.ClientAddr
		if other.ID == m.cfg.ID {
			client = m.ClientAddr().String()
		}
		c.Members = append(c.Members, admin.ClusterMember{ID: other.ID, PeerAddr: other.PeerAddr(),
			ElectionAddr: net.JoinHostPort(other.Host, strconv.Itoa(other.ElectionPort)), Client: client, Observer: other.Observer})
	}
	return c
}

// Digest implements admin.Member.
func (m adminMember) Digest() (wire.Zxid, uint64) { return m.treeDigest() }

// LastSnapshot implements admin.Member.
func (m adminMember) LastSnapshot() (wire.Zxid, time.Time) { return m.replica.LastSnapshot() }

// TraceMask implements admin.Member.
func (m adminMember) TraceMask() int64 { return m.traceMask.Load() }

// SetTraceMask implements admin.Member.
func (m adminMember) SetTraceMask(mask int64) { m.traceMask.Store(mask) }

// ResetStats implements admin.Member.
func (m adminMember) ResetStats() { m.resetStats() }

// ResetConnectionStats implements admin.Member.
func (m adminMember) ResetConnectionStats() { m.resetConnectionStats() }

// Snapshot implements admin.Member.
func (m adminMember) Snapshot(ctx context.Context) (admin.Snapshot, error) {
	if err := m.sessions.Sync(ctx); err != nil {
		return nil, errors.New("this member has no leader, so it cannot know that its state is complete")
	}
	return m.replica.Freeze(), nil
}

// SaveSnapshot implements admin.Member.
func (m adminMember) SaveSnapshot(ctx context.Context) (wire.Zxid, error) {
	_, err := m.replica.TakeSnapshot(ctx)
	zxid, _ := m.replica.LastSnapshot()
	return zxid, err
}

// spoolPattern names the files of snapshots that are being received, in dataDir.
const spoolPattern = "restore-*.tmp"

// Spool implements admin.Member.
func (m adminMember) Spool() (admin.Spool, error) {
	dir := m.cfg.DataDir
	if m.cfg.Stores != nil {
		dir = "" // the system's own for temporary files
	} else if left, err := filepath.Glob(filepath.Join(dir, spoolPattern)); err == nil {
		for _, file := range left { // by a process that has ended: there is one restore at a time
			_ = os.Remove(file)
		}
	}
	f, err := os.CreateTemp(dir, spoolPattern)
	if err != nil {
		return nil, err
	}
	return spoolFile{f}, nil
}

type spoolFile struct{ *os.File }

// Close implements io.Closer. It removes the file.
func (f spoolFile) Close() error { return errors.Join(f.File.Close(), os.Remove(f.Name())) }

// Restore replaces the state of the whole cluster by a snapshot and returns the zxid at which that
// has happened: see session.Manager.Restore, whose errors it has, and admin.ErrTooLarge.
func (s *Server) Restore(ctx context.Context, sc *znode.SnapshotScanner) (wire.Zxid, error) {
	s.log.Info("the state is to be replaced by a snapshot, as a super user has requested")
	return s.sessions.Restore(ctx, sc, func(size znode.Size) error {
		l := s.cfg.Limits
		if l.Nodes > 0 && size.Nodes > int64(l.Nodes) || l.DataBytes > 0 && size.Bytes > int64(l.DataBytes) {
			return fmt.Errorf("%w: %d nodes, %d bytes", admin.ErrTooLarge, size.Nodes, size.Bytes)
		}
		return nil
	})
}

// ClusterID implements admin.Member.
func (m adminMember) ClusterID() znode.ClusterID { return m.replica.Cluster() }

// Audit implements admin.Member.
func (m adminMember) Audit(r *http.Request, operation string, err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	consoleMember{m.Server}.Audit(r, operation, "/", why, err == nil)
}

// restoreSlackBytes is what a snapshot may have besides the nodes: sessions, and ACLs.
const restoreSlackBytes = 256 << 20

// MaxRestoreBytes implements admin.Member. The bytes of a node in a snapshot are fewer than those
// that count for maxDataBytes.
func (m adminMember) MaxRestoreBytes() int64 {
	if m.cfg.Limits.DataBytes <= 0 {
		return 0
	}
	return int64(m.cfg.Limits.DataBytes) + restoreSlackBytes
}
