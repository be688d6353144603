package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"lockkeeper/internal/clock"
	"lockkeeper/internal/connlimit"
	"lockkeeper/internal/loglimit"
	"lockkeeper/quorum"
	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/store"
	"lockkeeper/server/datadir"
	"lockkeeper/server/offline"
	"lockkeeper/server/ops"
	"lockkeeper/server/ops/admin"
	"lockkeeper/server/ops/audit"
	"lockkeeper/server/ops/console"
	"lockkeeper/server/ops/console/web"
	"lockkeeper/server/ops/door"
	"lockkeeper/server/ops/metrics"
	"lockkeeper/server/ops/words"
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
	tls      *serverTLS                     // nil unless a port for clients or HTTP speaks TLS
	audit    *audit.Log                     // nil unless it is configured
	agreed   atomic.Pointer[ops.Membership] // nil until this member has learned of one

	replica  *quorum.Replica
	sessions *session.Manager
	port     *clientPort
	connects *rate.Limiter
	// listenTCP opens ports: Config.Listen, or TCP.
	listenTCP func(network, addr string) (net.Listener, error)
	clocks    clockWatch
	// fences holds an element for the fence that looks at many contenders.
	fences chan struct{}

	member *member
	surfaces

	life
}

// surfaces are what shows the member to people and programs, below package ops.
type surfaces struct {
	door     *door.Door
	words    *words.Words
	recorder *console.Recorder
	console  *console.Console
	// http and metricsPort are nil unless they are configured.
	http, metricsPort *door.Port
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
// there is a leader. Faults say what is wrong with the configuration, and where: also a port that
// is taken, and a data directory that another process has open.
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
	cfg.Logger.Error("this member sets its files aside and starts as one that has lost its disk: it gets the data from the others, and "+
		"its vote with them, while they are a majority", "member", cfg.ID, "files", moved, "err", err)
	return start(ctx, cfg)
}

// start is StartContext with the files that are there.
func start(ctx context.Context, cfg Config) (_ *Server, err error) {
	if cfg.Clock == nil {
		cfg.Clock = clock.System()
	}
	if !cfg.Standalone() {
		cfg.Logger = cfg.Logger.With("member", cfg.ID) // several members on one terminal
	}
	unbounded, lines := cfg.Logger, loglimit.NewHandler(cfg.Logger.Handler())
	cfg.Logger = slog.New(lines)
	for _, n := range cfg.Notices() {
		n.Log(cfg.Logger)
	}
	files := planDescriptors(&cfg)
	warning, err := files.check(&cfg)
	if err != nil && cfg.DiskFullStops == 0 {
		return nil, err
	} else if err != nil {
		warning = err.Error() // the limit was lowered while this member ran: it does what it can
	}
	if warning != "" {
		cfg.Logger.Warn(warning)
	}
	cfg.MaxPeerCnxns = files.peers
	s := &Server{
		cfg: cfg, log: cfg.Logger, lines: lines, fences: make(chan struct{}, 1),
		life: life{failed: make(chan struct{}), stopping: make(chan struct{})},
	}
	s.member = newMember(s)
	s.clocks = clockWatch{now: cfg.Now, log: loglimit.New(cfg.Logger)}
	if s.clocks.now == nil {
		s.clocks.now = time.Now
	}
	// What has been opened is closed again, the last first, when something later fails.
	var opened []func()
	defer func() {
		if err != nil {
			for i := len(opened) - 1; i >= 0; i-- {
				opened[i]()
			}
		}
	}()
	stores, err := s.openStores(ctx, &opened)
	if err != nil {
		return nil, datadir.Advice(&s.cfg, err)
	}
	if err := s.openTLS(); err != nil {
		return nil, err
	}
	opened = append(opened, s.tls.stop)
	ports, err := s.listen(&opened)
	if err := cmp.Or(err, ctx.Err()); err != nil {
		return nil, err
	}
	if s.peerAuth, err = s.openPeerAuth(ports.peers); err != nil {
		return nil, err
	}
	s.connects = connlimit.NewRate(s.cfg.ConnectTokens, s.cfg.ConnectFillCount, s.cfg.ConnectFillTime)
	if err := s.openAudit(unbounded, &opened); err != nil {
		return nil, err
	}
	s.port = newClientPort(s.clientTLS(ports.clients, s.cfg.ClientTLS), &s.cfg, s.serveConn)
	if ports.secure != nil {
		s.port.secure = s.clientTLS(ports.secure, zoocfg.TLSOnly)
	}
	s.sessions = session.NewManager(s.sessionConfig())
	s.recorder = console.NewRecorder(max(0, s.cfg.HistoryBytes))
	s.recorder.Granted = s.sessions.Granted
	s.replica, err = quorum.Open(s.quorumConfig(stores, ports.peers))
	if err != nil {
		return nil, datadir.Advice(&s.cfg, err)
	}
	s.member.stops = ops.NewStopAnswers(s.replica)
	shared := s.openSurfaces()
	s.sessions.Start(s.replica)
	handshakes, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.stop = sync.OnceValue(s.stopOnce)
	s.serveHTTP(shared, ports) // before there are clients: mntr shows its figures
	s.member.reports.Start()   // the ports that it tells of are there
	s.watchers.Go(func() { s.clocks.loop(handshakes) })
	s.auditMember("serverStart", session.AuditSuccess)
	s.port.start(handshakes)
	s.log.Info("member started", "clients", ports.clients.Addr(), "mode", s.startMode(), "version", s.member.build.zooKeeperLine())
	return s, nil
}

// MayReplaceDisk reports whether a member that cannot go on with err may be started again: the
// start sets its files aside, and the others have the data.
func (s *Server) MayReplaceDisk(err error) bool { return datadir.MayReplaceDisk(&s.cfg, err) }

func (s *Server) startMode() string {
	if s.cfg.Standalone() {
		return "standalone"
	}
	return fmt.Sprintf("member %d of %d", s.cfg.ID, len(s.cfg.Members))
}

// openStores opens the files on disk, unless the Config brings stores.
func (s *Server) openStores(ctx context.Context, opened *[]func()) (stores store.Stores, err error) {
	if s.cfg.Stores != nil {
		stores = *s.cfg.Stores
	} else {
		if s.dirs, err = datadir.Open(ctx, &s.cfg); err != nil {
			return stores, err
		}
		*opened = append(*opened, s.dirs.Close)
		if stores, err = offline.OpenStores(ctx, &s.cfg); err != nil {
			return stores, err
		}
		s.warnOfOpenFiles()
	}
	for _, what := range stores.Repaired {
		s.log.Warn("data directory repaired", "what", what)
	}
	if stores.Close != nil {
		*opened = append(*opened, func() { _ = stores.Close() })
	}
	return stores, nil
}

// openSurfaces makes the surfaces that need no port of their own.
func (s *Server) openSurfaces() *ops.Shared {
	s.door = door.New(door.Config{
		Settings: &s.cfg, Sessions: s.sessions, Members: func() []Member { return s.membership().Members },
		Holder: s.certIdentities, UsesTLS: usesTLS, Audit: s.audit, Now: s.clocks.now, Log: s.log,
	})
	shared := ops.NewShared(s.member, s.door)
	s.words = &words.Words{Shared: shared}
	s.console = console.New(shared, s.member.build.Version, s.recorder, web.Handler())
	return shared
}

// serveHTTP opens the HTTP port and the port for metrics, if they are configured.
func (s *Server) serveHTTP(shared *ops.Shared, ports listeners) {
	if ports.http != nil {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /fence", s.serveFence)
		(&ops.Endpoints{Shared: shared, Stopping: s.stopping}).Register(mux)
		commands := admin.New(shared)
		commands.Register(mux)
		s.console.Register(mux)
		s.http = s.door.Open("HTTP port", s.httpTLS(ports.http, s.cfg.HTTPTLS), mux, s.cfg.HTTPLogin, commands.IsRestore)
		s.http.Start()
	}
	if ports.metrics != nil {
		mux, mode := http.NewServeMux(), zoocfg.TLSOff
		if s.cfg.MetricsTLS {
			mode = zoocfg.TLSOnly
		}
		mux.Handle("GET /metrics", metrics.NewHandler(s.prometheusMetrics, !s.cfg.NoProcessMetrics))
		s.metricsPort = s.door.Open("port for metrics", s.httpTLS(ports.metrics, mode), mux, s.cfg.MetricsLogin, nil)
		s.metricsPort.Start()
	}
}

// prometheusMetrics are the metrics of the port for them.
func (s *Server) prometheusMetrics() metrics.List {
	f := s.member.Figures()
	return append(f.Metrics(s.member.Usage()),
		f.LabeledMetrics(console.LockMetrics(s.replica.View, time.Now()), !s.cfg.NoProcessMetrics)...)
}

// listeners are the ports of a member; those that it does not need are nil.
type listeners struct{ clients, secure, peers, http, metrics net.Listener }

// listen opens the ports, so that a port in use stops the start before anything else has begun. It
// reports the faults of all of them.
func (s *Server) listen(opened *[]func()) (ports listeners, err error) {
	listen := s.cfg.Listen
	if listen == nil {
		lc := net.ListenConfig{KeepAlive: -1}
		if s.cfg.TCPKeepAlive {
			lc.KeepAlive = 0
		}
		listen = func(network, addr string) (net.Listener, error) {
			return lc.Listen(context.Background(), network, addr)
		}
	}
	s.listenTCP = listen
	var faults zoocfg.Faults
	open := func(key, addr string) net.Listener {
		l, err := s.listenAt(addr)
		if err != nil {
			faults = append(faults, s.listenFault(key, addr, err))
			return nil
		}
		*opened = append(*opened, func() { _ = l.Close() })
		return l
	}
	ports.clients = open("clientPort", s.cfg.ClientAddr)
	if s.cfg.SecureClientAddr != "" {
		ports.secure = open("secureClientPort", s.cfg.SecureClientAddr)
	}
	if s.cfg.HTTPAddr != "" {
		ports.http = open("admin.serverPort", s.cfg.HTTPAddr)
	}
	if s.cfg.MetricsAddr != "" {
		ports.metrics = open("metricsProvider.httpPort", s.cfg.MetricsAddr)
	}
	if !s.cfg.Standalone() {
		self := s.cfg.Self()
		ports.peers = open(self.Key(), s.peerListenAddr(self.PeerAddr()))
	}
	return ports, faults.Err()
}

func (s *Server) listenAt(addr string) (net.Listener, error) {
	return s.listenTCP("tcp", everywhere(addr))
}

// everywhere turns 0.0.0.0 into the empty host: as in ZooKeeper, it means IPv6 as well.
func everywhere(addr string) string {
	if host, port, err := net.SplitHostPort(addr); err == nil && host == "0.0.0.0" {
		return net.JoinHostPort("", port)
	}
	return addr
}

func (s *Server) listenFault(key, addr string, err error) zoocfg.Fault {
	cause := err
	var op *net.OpError
	if errors.As(err, &op) {
		cause = op.Err
	}
	var call *os.SyscallError
	if errors.As(err, &call) {
		cause = call.Err
	}
	advice := ""
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		advice = "; stop the program that uses the port, or choose another one"
	case errors.Is(err, syscall.EACCES):
		advice = "; ports below 1024 need a privilege"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		advice = "; this machine does not have that address"
		if strings.HasPrefix(key, "server.") {
			advice += " (quorumListenOnAllIPs=true listens on all)"
		}
	}
	f := s.cfg.Fault(key, "cannot listen on %s: %v%s", addr, cause, advice)
	f.Err = err
	return f
}

func (s *Server) sessionConfig() session.Config {
	c := session.Config{
		Member:      s.cfg.ID,
		Tick:        s.cfg.TickTime,
		MinTimeout:  s.cfg.MinSessionTimeout,
		MaxTimeout:  s.cfg.MaxSessionTimeout,
		SuperDigest: s.cfg.SuperDigest,
		ReadOnly:    s.cfg.ReadOnlyMode && !s.cfg.Standalone(),
		SkipACL:     s.cfg.SkipACL,
		KeepQuotas:  s.cfg.KeepQuotas,
		RateQuotas:  s.cfg.RateQuotas,

		ZooKeeperPasswords: s.cfg.ZooKeeperPasswords,

		DigestHash:      zoocfg.DigestHash(s.cfg.DigestAlgorithm),
		NoDigest:        s.cfg.NoDigest,
		RequiredSchemes: s.cfg.RequiredSchemes,
		SASLUsers:       s.cfg.SASLUsers,
		SuperUsers:      s.cfg.SuperUsers,
		SASLOptional:    s.cfg.SASLOptional,
		AnySASLUser:     s.cfg.AnySASLUser,
		Ensembles:       s.cfg.Ensembles,
		KeyScheme:       s.cfg.KeyScheme,
		Limits:          s.limits(),

		ReapInterval:  s.cfg.ReapInterval,
		ReapPerMinute: s.cfg.ReapPerMinute,
		ReapNeverUsed: s.cfg.ReapNeverUsed,
		Logger:        s.log,
		Now:           s.cfg.Now,
		Clock:         s.cfg.Clock,
		Report: func(ctx context.Context, name string, ids []znode.Identity) ([]byte, wire.Code) {
			return s.console.Report(ctx, name, ids)
		},
	}
	if s.audit != nil {
		c.Audit = s.audit
	}
	if s.cfg.QuotaExceeded {
		c.QuotaError = wire.CodeQuotaExceeded
	}
	return c
}

// openAudit opens the audit log, if there is to be one. Its lines must not be suppressed in log.
func (s *Server) openAudit(log *slog.Logger, opened *[]func()) (err error) {
	if !s.cfg.Audit {
		return nil
	}
	s.audit, err = audit.Open(audit.Config{
		File: s.cfg.AuditFile, FileBytes: s.cfg.AuditFileBytes, Files: s.cfg.AuditFiles,
		QueueBytes: s.cfg.AuditQueueBytes, User: processUser(), Logger: log, Now: s.cfg.Now,
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

// auditMember writes to the audit log what this member does itself.
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

// limits are those of this member: as in ZooKeeper, all voters but one share the number of
// outstanding requests.
func (s *Server) limits() session.Limits {
	l := s.cfg.Limits
	if n := s.voters(); n > 2 && l.Outstanding > 0 {
		l.Outstanding = max(1, l.Outstanding/(n-1))
	}
	return l
}

func (s *Server) quorumConfig(stores store.Stores, peers net.Listener) quorum.Config {
	c := quorum.Config{
		SnapshotConfig: quorum.SnapshotConfig{SnapshotCommands: s.cfg.SnapCount, TrailingEntries: s.cfg.TrailingEntries},
		ReportConfig: quorum.ReportConfig{ClientAddr: func() string { return s.ClientAddr().String() }, Details: s.member.reports.Own,
			PeerAuth: s.peerAuth.kind()},
		DiskConfig: quorum.DiskConfig{KeepDisks: s.cfg.KeepDisks,
			Lost: s.cfg.Lost || s.cfg.Stores == nil && datadir.HasAside(&s.cfg)},
		Seams:          quorum.Seams{Now: s.cfg.Now, Clock: s.cfg.Clock, Yield: s.cfg.Yield, ObserveRaft: s.cfg.ObserveRaft, ObserveView: s.cfg.ObserveView},
		ID:             quorum.MemberID(s.cfg.ID),
		Members:        s.cfg.QuorumMembers(),
		Tick:           s.cfg.TickTime,
		SlowFsync:      s.cfg.SlowFsync,
		ConfigText:     s.cfg.ConfigText(),
		Stores:         stores,
		Listener:       listener{s.sessions, s.recorder, &foreignLocks{log: s.log, client: s.sessions.ClientAddr, now: s.clocks.now, met: &s.port.counters.lockStrangers}},
		Logger:         s.log,
		MembersChanged: s.membersChanged,
		Fatal:          s.fail,
		MayTransfer:    func(proof string, occasion []byte) error { return ops.VerifyTransfer(s.member, proof, occasion) },
		Peers: peer.Config{Listen: s.listenPeers(peers), Dial: s.cfg.Dial, AnyAddr: s.cfg.AnyPeerAddr,
			MaxConns: s.cfg.MaxPeerCnxns, FrameBytes: int64(s.cfg.PeerFrameBytes), Auth: s.peerAuth.auth},
		KeepQuotas: s.cfg.KeepQuotas,
	}
	for _, id := range s.cfg.Without {
		c.Without = append(c.Without, quorum.MemberID(id))
	}
	for flag, on := range map[znode.Flags]bool{
		znode.EnforceQuota: s.cfg.EnforceQuota, znode.ExtendedTypes: s.cfg.ExtendedTypes, znode.SkipACL: s.cfg.SkipACL,
		znode.Reconfig: s.cfg.Reconfig, znode.LoneVoter: s.cfg.LoneVoter,
		znode.NoDigest: s.cfg.NoDigest, znode.SASL: s.cfg.SASLACLs || s.cfg.SASLUsers != nil, znode.KeyScheme: s.cfg.KeyScheme,
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
func (s *Server) HTTPAddr() net.Addr { return s.http.Addr() }

// MetricsAddr is where Prometheus finds the metrics, nil if it does not.
func (s *Server) MetricsAddr() net.Addr { return s.metricsPort.Addr() }

// Ready reports whether this member counts: it knows a leader, and has applied what it has been
// told to be committed, as of the last few seconds (quorum.Replica.Ready). If not, why says it.
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

// Status is the state of the replica and what it knows of the cluster.
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
			s.log.Error("disk full: this member closes its client connections and stops until there is room", "err", err)
		} else {
			s.log.Error("this member cannot go on", "err", err)
		}
		s.err.Store(&err)
		close(s.failed)
		s.port.stopAccepting()
		s.port.cut()
	})
}

// Shutdown stops the member: it accepts no more connections, closes those of its clients, which
// keep their sessions and go to other members, transfers the leadership if it has it, and closes
// the log. When ctx ends, it no longer waits for clients to close their side. It returns when
// nothing of the member is left.
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
	s.console.Close()
	s.http.Stop()
	s.metricsPort.Stop()
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
