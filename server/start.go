package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/user"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/internal/clock"
	"lockkeeper/internal/loglimit"
	"lockkeeper/quorum"
	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/store"
	"lockkeeper/server/datadir"
	"lockkeeper/server/offline"
	"lockkeeper/server/ops"
	"lockkeeper/server/ops/audit"
	"lockkeeper/server/ops/door"
	"lockkeeper/server/zoocfg"
	"lockkeeper/session"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Server is one running member; see the package comment for how its parts are put together.
type Server struct {
	cfg   Config // with defaults
	log   *slog.Logger
	lines *loglimit.Handler // of log

	dirs     *datadir.Dirs // nil with injected stores
	peerAuth peerAuth
	tls      *serverTLS // nil unless a port for clients or HTTP speaks TLS
	audit    *audit.Log // nil unless it is configured

	replica  *quorum.Replica
	sessions *session.Manager
	port     *clientPort
	members  members
	opener   *opener
	clocks   clockWatch

	member   *member // as package ops shows it
	surfaces *surfaces

	life
}

// life is the end of a member: told to stop, or failed.
type life struct {
	stopping chan struct{}      // closed when the member begins to stop
	leaving  atomic.Bool        // it moves its clients to others, and stops then
	cancel   context.CancelFunc // ends handshakes that wait, and watchers
	watchers sync.WaitGroup
	stop     func() error // stopOnce, once

	failOnce sync.Once
	failed   chan struct{}
	err      atomic.Pointer[error] // set before failed is closed
}

// Start starts a member. When it returns, clients can connect; in a cluster they are served once
// there is a leader. Faults are the faults of the configuration, with their places: also a port
// that is taken, and a data directory that another process has open.
func Start(cfg Config) (*Server, error) { return StartContext(context.Background(), cfg) }

// StartContext is Start; the end of ctx ends a start that waits for its data directory, or that has
// not opened the state yet. A member that has been started does not depend on ctx.
//
// A member of a cluster that finds its files damaged sets them aside, unless the Config keeps it
// from that, and starts with an empty disk, for which the others have the data.
func StartContext(ctx context.Context, cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	s, err := start(ctx, cfg)
	if err == nil || !datadir.MayReplaceDisk(&cfg, err) {
		return s, err
	}
	moved, errAside := datadir.SetAside(ctx, &cfg, time.Now())
	if errAside != nil {
		return nil, errors.Join(err, errAside)
	}
	cfg.Logger.Error("this member sets its files aside and starts as one that has lost its disk: it gets the data "+
		"from the others, and "+
		"its vote with them, while they are a majority", "member", cfg.Cluster.ID, "files", moved, "err", err)
	return start(ctx, cfg)
}

// start is StartContext with the files that are there.
func start(ctx context.Context, cfg Config) (*Server, error) {
	original, lines, err := prepare(&cfg)
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, log: cfg.Logger, lines: lines,
		life: life{failed: make(chan struct{}), stopping: make(chan struct{})},
	}
	s.members.cfg, s.opener, s.member = &s.cfg, newOpener(&s.cfg), newMember(s)
	s.clocks = clockWatch{now: cfg.Machine.Now, log: loglimit.New(cfg.Logger)}
	if s.clocks.now == nil {
		s.clocks.now = time.Now
	}
	// When something fails, the parts that are open are closed, the last first.
	var opened []func()
	if err := s.open(ctx, original, &opened); err != nil {
		for i := len(opened) - 1; i >= 0; i-- {
			opened[i]()
		}
		return nil, err
	}
	return s, nil
}

// prepare completes a configuration: its clock, its logger, and the file descriptors of its peers.
// It logs the notices of the configuration. The original logger is the one without limits.
func prepare(cfg *Config) (original *slog.Logger, lines *loglimit.Handler, err error) {
	if cfg.Machine.Clock == nil {
		cfg.Machine.Clock = clock.System()
	}
	if !cfg.Standalone() {
		cfg.Logger = cfg.Logger.With("member", cfg.Cluster.ID) // several members on one terminal
	}
	original, lines = cfg.Logger, loglimit.NewHandler(cfg.Logger.Handler())
	cfg.Logger = slog.New(lines)
	for _, n := range cfg.Notices() {
		n.Log(cfg.Logger)
	}
	files := planDescriptors(cfg)
	warning, err := files.check(cfg)
	if err != nil && cfg.Data.DiskFullStops == 0 {
		return nil, nil, err
	} else if err != nil {
		warning = err.Error() // the limit was lowered meanwhile: go on with fewer clients
	}
	if warning != "" {
		cfg.Logger.Warn(warning)
	}
	cfg.Cluster.MaxPeerCnxns = files.peers
	return original, lines, nil
}

// open puts the member together, from the disk up to the ports; see the package comment. opened
// gets the functions that close its parts again if a later step fails.
func (s *Server) open(ctx context.Context, original *slog.Logger, opened *[]func()) error {
	// The disk, the certificates and the ports: a fault of the configuration is found here, before
	// anything has begun.
	stores, err := s.openStores(ctx, opened)
	if err != nil {
		return datadir.Advice(&s.cfg, err)
	}
	if s.tls, err = openTLS(&s.cfg); err != nil {
		return err
	}
	*opened = append(*opened, s.tls.stop)
	ports, err := s.opener.listen(opened)
	if err := cmp.Or(err, ctx.Err()); err != nil {
		return err
	}
	if s.peerAuth, err = openPeerAuth(&s.cfg, ports.peers); err != nil {
		return err
	}
	if err := s.openAudit(original, opened); err != nil {
		return err
	}
	// The parts, without a connection yet. The sessions and the surfaces are made before the
	// replica that they read, because the replica tells them of all that it applies from its first
	// entry on.
	s.sessions = session.NewManager(s.sessionConfig())
	s.surfaces = newSurfaces(s.member, door.New(door.Config{
		Settings: &s.cfg, Sessions: s.sessions, Members: func() []Member { return s.members.list().Members },
		Holder: s.tls.certIdentities, UsesTLS: usesTLS, Audit: s.audit, Now: s.clocks.now, Log: s.log,
	}))
	*opened = append(*opened, s.surfaces.console.Close)
	s.port = newClientPort(ports, &s.cfg, s.tls, s.sessions, s.surfaces.words)
	s.replica, err = quorum.Open(s.quorumConfig(stores, ports.peers))
	if err != nil {
		return datadir.Advice(&s.cfg, err)
	}
	// Nothing fails from here on. HTTP comes before the clients, because mntr shows its figures,
	// and the report to other members after it, because it names the port.
	s.sessions.Start(s.replica)
	handshakes, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.stop = sync.OnceValue(s.stopOnce)
	s.surfaces.serve(ports, s.tls, s.stopping)
	s.member.reports.Start()
	s.watchers.Go(func() { s.clocks.loop(handshakes) })
	s.auditMember("serverStart", session.AuditSuccess)
	s.port.start(handshakes)
	s.log.Info("member started", "clients", ports.clients.Addr(), "mode", s.startMode(), "version",
		s.member.build.zooKeeperLine())
	return nil
}

// MayReplaceDisk reports whether a member that cannot go on with err may be started again: the
// start sets its files aside, and the others have the data.
func (s *Server) MayReplaceDisk(err error) bool { return datadir.MayReplaceDisk(&s.cfg, err) }

func (s *Server) startMode() string {
	if s.cfg.Standalone() {
		return "standalone"
	}
	return fmt.Sprintf("member %d of %d", s.cfg.Cluster.ID, len(s.cfg.Cluster.Members))
}

// openStores opens the files on disk, unless the Config brings stores.
func (s *Server) openStores(ctx context.Context, opened *[]func()) (stores store.Stores, err error) {
	if s.cfg.Machine.Stores != nil {
		stores = *s.cfg.Machine.Stores
	} else {
		if s.dirs, err = datadir.Open(ctx, &s.cfg); err != nil {
			return stores, err
		}
		*opened = append(*opened, s.dirs.Close)
		if stores, err = offline.OpenStores(ctx, &s.cfg); err != nil {
			return stores, err
		}
		warnOfOpenFiles(&s.cfg)
	}
	for _, what := range stores.Repaired {
		s.log.Warn("data directory repaired", "what", what)
	}
	if stores.Close != nil {
		*opened = append(*opened, func() { _ = stores.Close() })
	}
	return stores, s.record(&stores)
}

func (s *Server) sessionConfig() session.Config {
	c := session.Config{
		Member:     s.cfg.Cluster.ID,
		Tick:       s.cfg.Sessions.TickTime,
		MinTimeout: s.cfg.Sessions.MinTimeout,
		MaxTimeout: s.cfg.Sessions.MaxTimeout,
		ReadOnly:   s.cfg.Client.ReadOnlyMode && !s.cfg.Standalone(),
		KeepQuotas: s.cfg.Quotas.Keep,
		RateQuotas: s.cfg.Quotas.Rates,

		ZooKeeperPasswords: s.cfg.Sessions.ZooKeeperPasswords,

		Auth: session.Auth{
			SuperDigest:     s.cfg.Auth.SuperDigest,
			SkipACL:         s.cfg.Auth.SkipACL,
			DigestHash:      zoocfg.DigestHash(s.cfg.Auth.DigestAlgorithm),
			NoDigest:        s.cfg.Auth.NoDigest,
			SASLUsers:       s.cfg.Auth.SASLUsers,
			SuperUsers:      s.cfg.Auth.SuperUsers,
			SASLOptional:    s.cfg.Auth.SASLOptional,
			AnySASLUser:     s.cfg.Auth.AnySASLUser,
			Ensembles:       s.cfg.Auth.Ensembles,
			KeyScheme:       s.cfg.Auth.KeyScheme,
			RequiredSchemes: s.cfg.Auth.RequiredSchemes,
		},
		Reap: session.Reap{Interval: s.cfg.Reap.Interval, PerMinute: s.cfg.Reap.PerMinute,
			NeverUsed: s.cfg.Reap.NeverUsed},
		Limits: limitsOf(&s.cfg, s.members.voters()),
		Logger: s.log,
		Now:    s.cfg.Machine.Now,
		Clock:  s.cfg.Machine.Clock,
		Report: func(ctx context.Context, name string, ids []znode.Identity) ([]byte, wire.Code) {
			return s.surfaces.console.Report(ctx, name, ids)
		},
	}
	if s.audit != nil {
		c.Audit = s.audit
	}
	if s.cfg.Quotas.Exceeded {
		c.QuotaError = wire.CodeQuotaExceeded
	}
	return c
}

// openAudit opens the audit log, if there is to be one. Its lines must not be suppressed in log.
func (s *Server) openAudit(log *slog.Logger, opened *[]func()) (err error) {
	if !s.cfg.Audit.On {
		return nil
	}
	s.audit, err = audit.Open(audit.Config{
		File: s.cfg.Audit.File, FileBytes: s.cfg.Audit.FileBytes, Files: s.cfg.Audit.Files,
		QueueBytes: s.cfg.Audit.QueueBytes, User: processUser(), Logger: log, Now: s.cfg.Machine.Now,
	})
	if err != nil {
		f := s.cfg.Fault("audit.file", "%v", err)
		f.Err = err
		return zoocfg.Faults{f}
	}
	*opened = append(*opened, s.closeAudit)
	return nil
}

func (s *Server) closeAudit() {
	if s.audit == nil {
		return
	}
	if err := s.audit.Close(); err != nil {
		s.log.Error("audit log", "err", err)
	}
}

// auditMember writes an operation of this member itself to the audit log.
func (s *Server) auditMember(operation string, result session.AuditResult) {
	if s.audit != nil {
		s.audit.Audit(&session.AuditRecord{Operation: operation, Result: result})
	}
}

// processUser is the name of the user that this process belongs to, or the number without a name.
func processUser() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return strconv.Itoa(os.Getuid())
}

// limitsOf are the limits of a member: as in ZooKeeper, all voters but one share the number of
// outstanding requests.
func limitsOf(cfg *Config, voters int) session.Limits {
	l := cfg.Limits
	if voters > 2 && l.Outstanding > 0 {
		l.Outstanding = max(1, l.Outstanding/(voters-1))
	}
	return l
}

func (s *Server) quorumConfig(stores store.Stores, peers net.Listener) quorum.Config {
	machine, cluster, auth := &s.cfg.Machine, &s.cfg.Cluster, &s.cfg.Auth
	c := quorum.Config{
		SnapshotConfig: quorum.SnapshotConfig{SnapshotCommands: s.cfg.Data.SnapCount,
			TrailingEntries: machine.TrailingEntries},
		DiskConfig: quorum.DiskConfig{KeepDisks: s.cfg.Data.KeepDisks,
			Lost: machine.Lost || machine.Stores == nil && datadir.HasAside(&s.cfg)},
		Seams: quorum.Seams{Now: machine.Now, Clock: machine.Clock, Yield: machine.Yield,
			ObserveView: machine.ObserveView},
		ID:         quorum.MemberID(cluster.ID),
		Members:    s.cfg.QuorumMembers(),
		Tick:       s.cfg.Sessions.TickTime,
		SlowFsync:  s.cfg.Data.SlowFsync,
		ConfigText: s.cfg.ConfigText(),
		Stores:     stores,
		Listener: listener{s.sessions, s,
			&foreignLocks{log: s.log, client: s.sessions.ClientAddr, now: s.clocks.now,
				met: &s.port.counters.lockStrangers}},
		Logger: s.log,
		Peers: peer.Config{Listen: s.opener.listenPeers(peers), Dial: machine.Dial, AnyAddr: cluster.AnyPeerAddr,
			MaxConns: cluster.MaxPeerCnxns, FrameBytes: int64(cluster.FrameBytes), Auth: s.peerAuth.auth},
		KeepQuotas: s.cfg.Quotas.Keep,
	}
	if r := machine.Recorder; r != nil {
		c.ObserveRaft, c.Listener = r.Observe, recordedListener{c.Listener, r}
	}
	for _, id := range cluster.Without {
		c.Without = append(c.Without, quorum.MemberID(id))
	}
	for flag, on := range map[znode.Flags]bool{
		znode.EnforceQuota: s.cfg.Quotas.Enforce, znode.ExtendedTypes: s.cfg.Reap.ExtendedTypes,
		znode.Reconfig: cluster.Reconfig, znode.LoneVoter: cluster.LoneVoter,
		znode.SkipACL: auth.SkipACL, znode.NoDigest: auth.NoDigest, znode.KeyScheme: auth.KeyScheme,
		znode.SASL: auth.SASLACLs || auth.SASLUsers != nil,
		znode.X509: s.cfg.ProvesX509(),
	} {
		if on {
			c.Flags |= flag
		}
	}
	return c
}

// ClientAddr is where clients connect, with the port that the system chose if the Config left it
// open.
func (s *Server) ClientAddr() net.Addr { return s.port.addr() }

// SecureClientAddr is where clients connect with TLS, nil if there is no such port of its own.
func (s *Server) SecureClientAddr() net.Addr {
	if s.port.secure == nil {
		return nil
	}
	return s.port.secure.Addr()
}

// HTTPAddr is where HTTP is served, nil if it is not.
func (s *Server) HTTPAddr() net.Addr { return s.surfaces.http.Addr() }

// MetricsAddr is where Prometheus finds the metrics, nil if it does not.
func (s *Server) MetricsAddr() net.Addr { return s.surfaces.metrics.Addr() }

// Ready reports whether this member counts: it knows a leader, and has applied up to the leader's
// commit index of the last few seconds (quorum.Replica.Ready). If not, why has the reason.
func (s *Server) Ready() (ok bool, why string) {
	if s.leaving.Load() {
		return false, "it is about to stop"
	}
	return s.replica.Ready()
}

// Ops returns this member as package ops shows it, for tests and tools.
func (s *Server) Ops() ops.Member { return s.member }

// Serving reports whether clients are served: the member knows a leader, and has caught up with one
// since it started.
func (s *Server) Serving() bool { return s.sessions.Serving() }

// Status is the state of the replica and its view of the cluster.
func (s *Server) Status() quorum.Status { return s.replica.Status() }

// View calls f with the state of this replica as it is after some entry. f must not keep it, nor
// call the Server. It is for tests and tools, for example Check and Digest.
func (s *Server) View(f func(*znode.Store)) { s.replica.View(f) }

// Failed is closed when the member cannot go on, for example because its log cannot be written. It
// has then closed its client connections. Err says why: with datadir.ErrDiskFull it can be started
// again after datadir.AwaitRoom. It must still be closed.
func (s *Server) Failed() <-chan struct{} { return s.failed }

// Err is why the member failed; nil while it has not.
func (s *Server) Err() error {
	if err := s.err.Load(); err != nil {
		return *err
	}
	return nil
}

// fail closes all client connections: another member can serve them. It is called from where the
// failure happens, so it must not block.
func (s *Server) fail(err error) {
	s.failOnce.Do(func() {
		if store.IsStarved(err) {
			s.log.Error("no file descriptor left for the log: this member closes its client connections "+
				"and stops until there is one", "err", err)
		} else if errors.Is(err, datadir.ErrDiskFull) {
			s.log.Error("disk full: this member closes its client connections and stops until there is room", "err",
				err)
		} else {
			s.log.Error("this member cannot go on", "err", err)
		}
		s.err.Store(&err)
		close(s.failed)
		s.port.stopAccepting()
		s.port.cut()
	})
}

// Shutdown stops the member: it accepts no more connections, closes its clients' connections (they
// keep their sessions and go to other members), transfers the leadership if it has it, and closes
// the log. When ctx ends, it no longer waits for clients to close their side. It returns when all
// parts of the member have ended.
func (s *Server) Shutdown(ctx context.Context) error {
	stopped := make(chan struct{})
	var err error
	go func() {
		defer close(stopped)
		err = s.stop()
	}()
	select {
	case <-stopped:
	case <-ctx.Done():
		s.port.cut()
		<-stopped
	}
	return err
}

// Close stops the member as Shutdown does, without waiting for clients to close their side.
func (s *Server) Close() error {
	s.port.stopAccepting()
	s.port.cut()
	return s.stop()
}

func (s *Server) stopOnce() error {
	close(s.stopping)
	s.auditMember("serverStop", session.AuditInvoked)
	defer s.closeAudit()
	s.port.stopAccepting()
	s.surfaces.stop()
	s.tls.stop()
	// Order: handshakes give up before the sessions end, so that none comes to a session
	// afterwards.
	s.cancel()
	s.watchers.Wait()
	s.sessions.Close()
	s.port.cutSilent()
	s.port.wait()
	err := s.replica.Close()
	if s.dirs != nil {
		s.dirs.Close()
	}
	if err != nil {
		return fmt.Errorf("server: stop: %w", err)
	}
	s.log.Info("member stopped")
	s.lines.Flush()
	return nil
}
