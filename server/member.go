package server

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"lockkeeper/quorum"
	"lockkeeper/server/datadir"
	"lockkeeper/server/ops"
	"lockkeeper/server/ops/metrics"
	"lockkeeper/server/zoocfg"
	"lockkeeper/session"
	"lockkeeper/znode"
)

// member is a Server as package ops shows it: it implements ops.Member.
type member struct {
	s       *Server
	build   Build
	started time.Time
	recents metrics.Recents // of the distributions in Figures
	reports *ops.Reports
	stops   *ops.StopAnswers
}

var _ ops.Member = (*member)(nil)

func newMember(s *Server) *member {
	m := &member{s: s, build: BuildInfo(), started: time.Now()}
	m.reports, m.stops = ops.NewReports(m), ops.NewStopAnswers(m)
	return m
}

// Config implements ops.Member.
func (m *member) Config() *zoocfg.Config { return &m.s.cfg }

// View implements ops.Member.
func (m *member) View(f func(*znode.Store)) { m.s.replica.View(f) }

// Sessions implements ops.Member.
func (m *member) Sessions() *session.Manager { return m.s.sessions }

// Replica implements ops.Member.
func (m *member) Replica() *quorum.Replica { return m.s.replica }

// Cluster implements ops.Member.
func (m *member) Cluster() *ops.Cluster { return m.reports.Cluster() }

// Connections implements ops.Member.
func (m *member) Connections() []ops.Connection { return m.s.port.connections() }

// Stoppable implements ops.Member.
func (m *member) Stoppable(ctx context.Context, reserve bool) ops.Stoppable {
	return m.stops.Ask(ctx, reserve, ops.Stoppable{Member: m.s.cfg.Cluster.ID,
		Sessions: m.s.sessions.Stats().Connections})
}

// ResetStats implements ops.Member.
func (m *member) ResetStats() {
	m.s.sessions.ResetStats()
	m.s.port.counters.reset()
	m.s.replica.Measures().Reset()
	m.s.clocks.pauses.Reset()
}

// Standing implements ops.Member.
func (m *member) Standing() ops.Standing {
	s := m.s
	st := ops.Standing{Serving: s.sessions.Serving(), ReadOnly: s.sessions.ReadOnly()}
	st.Since, st.LeaderSeen = s.replica.LeaderKnown()
	st.Ready, st.NotReady = s.Ready()
	if id := s.replica.Leader(); id != quorum.NoMember && !s.cfg.Standalone() {
		st.Leader = int(id)
	}
	return st
}

// Figures implements ops.Member.
func (m *member) Figures() *ops.Figures {
	s := m.s
	f := &ops.Figures{
		Program: ops.Program{ID: s.cfg.Cluster.ID, Alone: s.cfg.Standalone(), Version: m.build.Version,
			Build:  m.build.zooKeeperLine(),
			Uptime: time.Since(m.started)},
		Standing: m.Standing(),
		ReplicaFigures: ops.ReplicaFigures{Replica: s.replica.Status(), Membership: m.membership(),
			OfLog: s.replica.Measures(),
			Peers: s.replica.PeerStats(), PeerAuth: s.peerAuth.kind(), PeerPort: s.peerAuth.metrics,
			CommonVersion: s.replica.CommonVersion()},
		ClientFigures: ops.ClientFigures{ClientAddr: s.ClientAddr().String(), Port: s.port.counts(),
			Connections: s.port.count(),
			Work:        s.sessions.Stats(), OfWork: s.sessions.Measures()},
		IndexRefused: s.surfaces.console.IndexRefused(), LinesDropped: s.lines.Suppressed(),
		LockStrangers: s.port.counters.lockStrangers.Load(),
		DiskFullStops: s.cfg.Data.DiskFullStops, Failures: s.cfg.Data.DiskFullStops,
		Pauses: &s.clocks.pauses, Recents: &m.recents,
	}
	f.ClientPort, f.SecurePort = s.port.ports()
	s.replica.View(func(store *znode.Store) { f.State, f.Zxid = store.Counts(), store.Zxid() })
	if s.Err() != nil {
		f.Failures++
	}
	if addr := s.HTTPAddr(); addr != nil {
		f.HTTPAddr = addr.String()
	}
	if counts, ok := s.surfaces.shared.Door.Counts(); ok {
		f.HTTP = &counts
	}
	if s.HTTPAddr() != nil && !s.cfg.HTTP.NoLocks {
		counts := s.surfaces.locks.Counts()
		f.Locks = &counts
	}
	if s.audit != nil {
		lines := s.audit.Stats()
		f.Audit = &lines
	}
	if s.tls != nil {
		f.TLS = s.tls.metrics
	}
	return f
}

// membership returns the members in the applied state, which members.list follows a moment later.
// While the state has none, it returns members.list.
func (m *member) membership() ops.Membership {
	if list, version := m.s.replica.Members(); len(list) > 0 && !m.s.cfg.Standalone() {
		return ops.Membership{Members: list, Version: version}
	}
	return m.s.members.list()
}

// Usage implements ops.Member.
func (m *member) Usage() ops.Usage {
	cfg := &m.s.cfg
	u := ops.Usage{FreeBytes: -1}
	u.OpenFiles, u.MaxFiles = fileDescriptors()
	if cfg.Machine.Stores != nil {
		return u
	}
	u.DataBytes, u.LogBytes = datadir.Size(cfg.Data.Dir), datadir.Size(cfg.Data.LogDir)
	u.DataDir, u.DataLogDir = absolute(cfg.Data.Dir), absolute(cfg.Data.LogDir)
	if free, ok := datadir.FreeBytes(cfg.Data.LogDir); ok {
		u.FreeBytes = free
	}
	for _, pattern := range []string{"raft.wal/*", "raft.db"} {
		for _, info := range filesAt(filepath.Join(cfg.Data.LogDir, pattern)) {
			u.RaftBytes += info.Size()
		}
	}
	for _, info := range filesAt(filepath.Join(cfg.Data.Dir, "snapshots", "*")) {
		if at := info.ModTime().UTC(); u.SnapshotAt == nil || at.After(*u.SnapshotAt) {
			u.SnapshotAt = &at
		}
	}
	return u
}

func absolute(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		return abs
	}
	return dir
}

// filesAt describes the files that match a pattern.
func filesAt(pattern string) (list []os.FileInfo) {
	files, _ := filepath.Glob(pattern) // the pattern is right
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			list = append(list, info)
		}
	}
	return list
}
