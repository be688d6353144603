package server

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"lockkeeper/quorum"
	"lockkeeper/server/ops/console"
	"lockkeeper/server/ops/console/web"
	"lockkeeper/session"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// newRecorder returns what keeps the history of the locks.
func (s *Server) newRecorder() *console.Recorder {
	r := console.NewRecorder(max(0, s.cfg.HistoryBytes))
	r.Granted = s.sessions.Granted
	return r
}

// newConsole returns the console of this member.
func (s *Server) newConsole() *console.Console {
	return console.New(console.Config{
		Member: consoleMember{s}, Recorder: s.recorder, Watchers: s.cfg.ConsoleWatchers, Page: web.Handler(),
		HistoryBytes: max(0, s.cfg.HistoryBytes), IndexBytes: s.cfg.IndexBytes,
	})
}

// reportWait is how long a client's report waits for those of others: meanwhile no other request of
// its session is answered.
const reportWait = time.Second

// report is session.Config.Report.
func (s *Server) report(ctx context.Context, name string, ids []znode.Identity) ([]byte, wire.Code) {
	over, ok := s.reportPace.turn(ctx, reportWait)
	if !ok {
		return nil, wire.CodeThrottledOp
	}
	defer over()
	return s.console.Report(ctx, name, ids)
}

// consoleMember is this member as the console sees it.
type consoleMember struct{ s *Server }

var _ console.Member = consoleMember{}

func (m consoleMember) ID() int                        { return int(m.s.cfg.ID) }
func (m consoleMember) Version() string                { return BuildInfo().Version }
func (m consoleMember) View(f func(*znode.Store))      { m.s.replica.View(f) }
func (m consoleMember) LeaderKnown() (time.Time, bool) { return m.s.replica.LeaderKnown() }
func (m consoleMember) Watches(path string) int        { return m.s.sessions.WatchersOf(path) }
func (m consoleMember) WatchedBy(id wire.SessionID) []string {
	return m.s.sessions.WatchedBy(id)
}
func (m consoleMember) Connections() []session.Connection { return m.s.sessions.Connections() }

// Remotes implements console.Member.
func (m consoleMember) Remotes() map[wire.SessionID]netip.AddrPort {
	remotes := map[wire.SessionID]netip.AddrPort{}
	for _, c := range m.s.port.list() {
		if sess := c.session.Load(); sess != nil && !sess.Ended() {
			remotes[sess.ID()] = c.remote
		}
	}
	return remotes
}

func (m consoleMember) Deadlines() ([]session.Deadline, bool) {
	return m.s.sessions.Deadlines()
}
func (m consoleMember) Identities(r *http.Request) []znode.Identity { return m.s.httpIdentities(r) }

// Leader implements console.Member.
func (m consoleMember) Leader() int {
	if id := m.s.replica.Leader(); id != quorum.NoMember && !m.s.cfg.Standalone() {
		return int(id)
	}
	return 0
}

// Herds implements console.Member.
func (m consoleMember) Herds(n int) (list []console.Herd) {
	paths, sizes := m.s.sessions.Herds()
	for i, path := range paths[:min(len(paths), n)] {
		list = append(list, console.Herd{Path: path, Watches: sizes[i]})
	}
	return list
}

// IsSuper implements console.Member.
func (m consoleMember) IsSuper(ids []znode.Identity) bool {
	return znode.IsSuper(ids)
}

// IsSecure implements console.Member.
func (m consoleMember) IsSecure(r *http.Request) bool {
	if conn, ok := r.Context().Value(httpConnKey{}).(*httpConn); ok {
		if sc, ok := conn.Conn.(*secureConn); ok && sc.tls != nil {
			return true
		}
	}
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && at.Addr().Unmap().IsLoopback()
}

// Hold implements console.Member. All answers together may take a quarter of maxClientMemory.
func (m consoleMember) Hold(n int) bool {
	d := m.s.door
	if d.held.Add(int64(n)) <= int64(m.s.cfg.Limits.Memory/4) && m.s.sessions.Hold(n) {
		return true
	}
	d.held.Add(int64(-n))
	d.memory.Add(1)
	return false
}

// Release implements console.Member.
func (m consoleMember) Release(n int) {
	m.s.door.held.Add(int64(-n))
	m.s.sessions.Release(n)
}

// clientAddr is the address from which a request came.
func clientAddr(r *http.Request) netip.Addr {
	at, _ := netip.ParseAddrPort(r.RemoteAddr)
	return at.Addr().Unmap()
}

// Delete implements console.Member.
func (m consoleMember) Delete(ctx context.Context, r *http.Request, path string, czxid wire.Zxid) (wire.Zxid, error) {
	same := false
	m.View(func(store *znode.Store) {
		st, ok := store.Node(path)
		same = ok && (czxid == 0 || st.Czxid == czxid)
	})
	if !same {
		return 0, fmt.Errorf("the node %s has gone, or is another one now", path)
	}
	return m.s.sessions.DeleteNode(ctx, clientAddr(r), path)
}

// EndSession implements console.Member.
func (m consoleMember) EndSession(ctx context.Context, r *http.Request, id wire.SessionID) (ephemerals int, err error) {
	m.View(func(store *znode.Store) { ephemerals = store.EphemeralCount(id) })
	_, err = m.s.sessions.EndSession(ctx, clientAddr(r), id)
	return ephemerals, err
}

// Transfer implements console.Member.
func (m consoleMember) Transfer(ctx context.Context, r *http.Request, to int) (int, error) {
	if m.s.cfg.Standalone() {
		return 0, fmt.Errorf("this member stands alone: there is nobody else")
	}
	id := quorum.NoMember
	if to >= 0 {
		id = quorum.MemberID(to)
	}
	if err := m.s.replica.TransferLeadership(ctx, id, m.s.proveTransfer(r)); err != nil {
		return 0, err
	}
	return m.Leader(), nil
}

// TakeSnapshot implements console.Member.
func (m consoleMember) TakeSnapshot(ctx context.Context) (uint64, int64, error) {
	info, err := m.s.replica.TakeSnapshot(ctx)
	return info.Index, info.Bytes, err
}

// Audit implements console.Member. Without an audit log it is a line of the member's own log.
func (m consoleMember) Audit(r *http.Request, operation, target, what string, ok bool) {
	// Refused acts are another message, so that they cannot suppress the lines of others.
	result, msg := session.AuditFailure, "act of an operator failed"
	if ok {
		result, msg = session.AuditSuccess, "act of an operator"
	}
	m.s.log.Info(msg, "operation", operation, "target", target, "remote", r.RemoteAddr,
		"result", result, "why", what)
	m.s.auditHTTP(r, operation, target, result)
}

// details is what this member tells the others of itself, as it was within the last second and in
// the present term: they may ask often, and some of it is read from the disk.
func (s *Server) details() []byte {
	replica := s.reporting.Load()
	if replica == nil {
		return nil // it is being started
	}
	s.detailed.mu.Lock()
	defer s.detailed.mu.Unlock()
	if d, term := &s.detailed, replica.Term(); time.Since(d.at) > reportsKept || d.term != term {
		d.at, d.term, d.text = time.Now(), term, s.newDetails(replica)
	}
	return s.detailed.text
}

func (s *Server) newDetails(replica *quorum.Replica) []byte {
	b, err := json.Marshal(reported{HTTP: s.httpAddress(), Health: s.health(replica)})
	if err != nil || len(b) > 1<<10 {
		return nil
	}
	return b
}

// reported are the details of a Report.
type reported struct {
	HTTP string `json:"http"`
	*console.Health
}

// httpAddress is where this member serves HTTP, as others reach it; empty if it does not.
func (s *Server) httpAddress() string {
	addr := s.HTTPAddr()
	if addr == nil {
		return ""
	}
	if self, ok := s.membership().member(s.cfg.ID); ok {
		return reachable(self, addr.String())
	}
	return addr.String()
}

func (s *Server) health(replica *quorum.Replica) *console.Health {
	status := replica.Status()
	work := s.sessions.Stats()
	h := &console.Health{
		Term: strconv.FormatUint(status.Term, 10), AppliedIndex: status.AppliedIndex, CommitIndex: status.CommitIndex,
		LastIndex: status.LastIndex, StateBytes: work.StateBytes, Connections: work.Connections,
		Outstanding: work.Outstanding, UptimeMs: time.Since(s.started).Milliseconds(), Build: BuildInfo().Version,
		Disk: replica.Disk().String(), Joining: !replica.Counted(), DisksReplaced: replica.Measures().DisksReplaced.Load(),
	}
	if c := replica.Cluster(); c != 0 {
		h.Cluster = c.String()
	}
	replica.View(func(store *znode.Store) {
		h.Zxid = fmt.Sprintf("0x%x", uint64(store.Zxid()))
		h.Nodes = store.Counts().Nodes
	})
	if d := s.recents.Distribution(&replica.Measures().Fsync, inMs, nil); d.Recent.Count > 0 {
		mean, longest := d.Recent.Mean()*inMs, float64(d.Recent.Quantile(1))*inMs
		h.FsyncMs, h.FsyncMaxMs = &mean, &longest
	}
	if silence, follows := replica.LeaderSilence(); follows {
		ms := silence.Milliseconds()
		h.LeaderHeardMs = &ms
	}
	h.PausedPart, h.PauseMaxMs = s.paused()
	if n, leads := s.sessions.Leases(); leads {
		h.Leases = &n
	}
	if info, err := replica.Snapshot(); err == nil && info.Index > 0 {
		h.SnapshotBytes = info.Bytes
	}
	h.LogBytes, h.SnapshotAt = s.onDisk()
	return h
}

// paused is during what part of the last five to ten minutes this process did not run, and the
// longest pause: it, or its machine, was stopped or had no processor. It is not known yet when a
// member has just started.
func (s *Server) paused() (part, longestMs *float64) {
	d := s.recents.Distribution(&s.clocks.pauses, inMs, nil)
	if d.Recent.Count == 0 {
		return nil, nil
	}
	pausedMs, longest := d.Recent.Mean()*inMs*float64(d.Recent.Count), float64(d.Recent.Quantile(1))*inMs
	share := pausedMs / (pausedMs + float64(d.Recent.Count)*float64(clockLook.Milliseconds()))
	share = math.Round(share*1000) / 1000
	return &share, &longest
}

// onDisk is how large the log is, and when the newest snapshot was written; zero with injected
// stores.
func (s *Server) onDisk() (logBytes int64, snapshotAt *time.Time) {
	if s.dirs == nil {
		return 0, nil
	}
	size := func(pattern string, newest bool) {
		files, _ := filepath.Glob(pattern) // the pattern is right
		for _, f := range files {
			info, err := os.Stat(f)
			if err != nil {
				continue
			}
			if !newest {
				logBytes += info.Size()
			} else if at := info.ModTime().UTC(); snapshotAt == nil || at.After(*snapshotAt) {
				snapshotAt = &at
			}
		}
	}
	size(filepath.Join(s.cfg.DataLogDir, "raft.wal", "*"), false)
	size(filepath.Join(s.cfg.DataLogDir, "raft.db"), false)
	size(filepath.Join(s.cfg.DataDir, "snapshots", "*"), true)
	return logBytes, snapshotAt
}

// Cluster implements console.Member.
func (m consoleMember) Cluster() console.Cluster {
	s := m.s
	status := s.replica.Status()
	c := console.Cluster{Standalone: s.cfg.Standalone(), Leader: m.Leader(), Term: strconv.FormatUint(status.Term, 10),
		Members: []console.MemberReport{}, Changes: []console.LeaderChange{}}
	s.replica.View(func(store *znode.Store) {
		counts := store.Counts()
		c.State = console.StateCounts{Nodes: counts.Nodes, Ephemerals: counts.Ephemerals, Sessions: counts.Sessions,
			DataBytes: counts.DataSizeBytes}
	})
	c.Version = fmt.Sprintf("0x%x", uint64(s.present().version))
	list, details := s.memberReports()
	if c.Standalone {
		list = []ListedMember{{ID: s.cfg.ID, Role: "participant", State: status.Role, Clients: s.ClientAddr().String()}}
	}
	var commit uint64
	for _, l := range list {
		r := console.MemberReport{ID: int(l.ID), Self: l.ID == s.cfg.ID, Role: l.Role, State: l.State, Peers: l.Peers,
			Clients: l.Clients, Protocol: int(l.Protocol), PeerAuth: l.PeerAuth, Readiness: l.Readiness}
		r.Up = l.State != noAnswer && l.State != quorum.RoleApart
		if r.Self {
			r.HTTP, r.Health = s.httpAddress(), s.health(s.replica)
		} else if d := details[quorum.MemberID(l.ID)]; d != nil {
			r.HTTP, r.Health = d.HTTP, d.Health
		}
		if r.Health != nil {
			commit = max(commit, r.CommitIndex)
		}
		if l.Role == "participant" {
			c.Voters++
			if r.Up {
				c.VotersUp++
				if l.Readiness == ReadyText || l.Readiness == "" {
					c.VotersReady++
				}
			}
		}
		c.Members = append(c.Members, r)
	}
	for i := range c.Members {
		if h := c.Members[i].Health; h != nil {
			h.LagEntries = commit - min(commit, h.AppliedIndex)
		}
	}
	c.Majority = c.Voters/2 + 1
	// One that is behind can be a part of the majority, and replaces no other one.
	c.MayFail = max(c.VotersReady-c.Majority, min(c.VotersUp-c.Majority, 0))
	for _, l := range s.replica.LeaderChanges() {
		c.Changes = append(c.Changes, console.LeaderChange{At: l.At.UTC(), Term: strconv.FormatUint(l.Term, 10),
			Leader: int(l.Leader), Before: memberNumber(l.Before), Cause: l.Cause, Detail: l.Detail, GapMs: l.Gap.Milliseconds()})
	}
	return c
}

// memberNumber is 0 for no member.
func memberNumber(id quorum.MemberID) int {
	if id == quorum.NoMember {
		return 0
	}
	return int(id)
}
