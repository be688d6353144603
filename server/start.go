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
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"lockkeeper/internal/clock"
	"lockkeeper/internal/loglimit"
	"lockkeeper/quorum"
	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/store"
	"lockkeeper/server/datadir"
	"lockkeeper/server/offline"
	"lockkeeper/server/ops/audit"
	"lockkeeper/server/ops/console"
	"lockkeeper/server/ops/metrics"
	"lockkeeper/server/zoocfg"
	"lockkeeper/session"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Server is one running member.
type Server struct {
	cfg     Config // with defaults
	log     *slog.Logger
	lines   *loglimit.Handler // of log
	auditTo *slog.Logger      // Config.Logger, for lines that must not be suppressed
	// auditFailures bounds the lines of the audit log that everybody can cause.
	auditFailures session.PerMinute
	build         string
	started       time.Time

	dirs     *datadir.Dirs // nil with injected stores
	peerAuth peerAuth
	replica  *quorum.Replica
	sessions *session.Manager
	port     *clientPort
	connects tokenBucket
	// listenTCP opens ports: Config.Listen, or TCP.
	listenTCP func(network, addr string) (net.Listener, error)
	door      *door     // of http and metricsPort
	http      *httpPort // nil unless it is configured
	recorder  *console.Recorder
	console   *console.Console
	// reporting is replica, once what this member tells the others of itself is known.
	reporting atomic.Pointer[quorum.Replica]
	detailed  struct {
		mu   sync.Mutex
		at   time.Time
		term uint64 // as of then
		text []byte
	}
	// metricsPort is for Prometheus; nil unless it is configured.
	metricsPort *httpPort
	clocks      clockWatch
	recents     metrics.Recents // of the quantiles in metrics
	tls         *serverTLS      // nil unless a port for clients or HTTP speaks TLS
	audit       *audit.Log      // nil unless it is configured
	counters    counters

	agreed atomic.Pointer[membership] // nil until this member has learned of one

	traceMask   atomic.Int64 // of gtmk and stmk
	reports     memberReports
	stopAnswers stopAnswers
	stopping    chan struct{} // closed when the member begins to stop
	leaving     atomic.Bool   // it moves its clients to others, and stops then
	// listings holds one element for each listing that is being made or sent.
	listings chan struct{}
	// fences holds an element for the fence that looks at many contenders.
	fences     chan struct{}
	pace       *pace
	reportPace *pace // of the reports on the client port

	cancel   context.CancelFunc // ends handshakes that wait, and watchers
	watchers sync.WaitGroup
	stop     func() error // stopOnce, once

	failOnce sync.Once
	failed   chan struct{}
	err      atomic.Pointer[error] // set before failed is closed
}

// counters are what the client port counts; mntr shows them under the names of ZooKeeper.
type counters struct {
	wordsReceived      atomic.Int64 // four-letter words: they count as packets
	wordsSent          atomic.Int64
	connectRequests    atomic.Int64
	refusedHandshakes  atomic.Int64 // no leader, or the client has seen later state
	badHandshakes      atomic.Int64 // first frames that were no connect request
	sessionlessExpired atomic.Int64 // connections whose first request did not arrive in time
	drops              atomic.Int64 // connections that clients ended without closing the session
	badLengths         atomic.Int64 // frames that were too long, or not as long as nothing
	bytesReceived      atomic.Int64
	lockStrangers      atomic.Int64 // nodes of locks beside those of another library
}

func (c *counters) reset() {
	for _, n := range []*atomic.Int64{&c.wordsReceived, &c.wordsSent, &c.connectRequests, &c.refusedHandshakes,
		&c.badHandshakes, &c.sessionlessExpired, &c.badLengths, &c.bytesReceived, &c.drops, &c.lockStrangers} {
		n.Store(0)
	}
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
		cfg:     cfg,
		log:     cfg.Logger,
		lines:   lines,
		auditTo: unbounded,
		build:   BuildInfo().zooKeeperLine(),
		started: time.Now(),
		failed:  make(chan struct{}),
		reports: newMemberReports(), stopAnswers: stopAnswers{turn: make(chan struct{}, 1)}, stopping: make(chan struct{}),
		listings: make(chan struct{}, listingsAtOnce), fences: make(chan struct{}, 1), pace: newPace(1), reportPace: newPace(3),
	}
	s.clocks = clockWatch{now: cfg.Now, log: loglimit.New(cfg.Logger)}
	if s.clocks.now == nil {
		s.clocks.now = time.Now
	}
	s.traceMask.Store(defaultTraceMask)
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
	s.connects = tokenBucket{max: s.cfg.ConnectTokens, fill: s.cfg.ConnectFillCount, every: s.cfg.ConnectFillTime}
	if err := s.openAudit(&opened); err != nil {
		return nil, err
	}
	s.port = newClientPort(s.clientTLS(ports.clients, s.cfg.ClientTLS), &s.cfg, s.serveConn)
	if ports.secure != nil {
		s.port.secure = s.clientTLS(ports.secure, zoocfg.TLSOnly)
	}
	s.sessions = session.NewManager(s.sessionConfig())
	s.recorder = s.newRecorder()
	s.replica, err = quorum.Open(s.quorumConfig(stores, ports.peers))
	if err != nil {
		return nil, datadir.Advice(&s.cfg, err)
	}
	s.console = s.newConsole()
	s.sessions.Start(s.replica)
	handshakes, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.stop = sync.OnceValue(s.stopOnce)
	s.door = &door{s: s}
	if ports.http != nil {
		s.startHTTP(ports.http) // before there are clients: mntr shows its figures
	}
	if ports.metrics != nil {
		s.startMetrics(ports.metrics)
	}
	s.reporting.Store(s.replica) // the ports that it tells of are there
	s.watchers.Go(func() { s.clocks.loop(handshakes) })
	s.auditMember("serverStart", session.AuditSuccess)
	s.port.start(handshakes)
	s.log.Info("member started", "clients", ports.clients.Addr(), "mode", s.startMode(), "version", s.build)
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
		Report:        s.report,
	}
	if s.audit != nil {
		c.Audit = s.audit
	}
	if s.cfg.QuotaExceeded {
		c.QuotaError = wire.CodeQuotaExceeded
	}
	return c
}

// openAudit opens the audit log, if there is to be one.
func (s *Server) openAudit(opened *[]func()) (err error) {
	if !s.cfg.Audit {
		return nil
	}
	s.audit, err = audit.Open(audit.Config{
		File: s.cfg.AuditFile, FileBytes: s.cfg.AuditFileBytes, Files: s.cfg.AuditFiles,
		QueueBytes: s.cfg.AuditQueueBytes, User: processUser(), Logger: s.auditTo, Now: s.cfg.Now,
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
		ReportConfig: quorum.ReportConfig{ClientAddr: func() string { return s.ClientAddr().String() }, Details: s.details,
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
		Listener:       listener{s.sessions, s.recorder, &foreignLocks{log: s.log, client: s.sessions.ClientAddr, now: s.clocks.now, met: &s.counters.lockStrangers}},
		Logger:         s.log,
		MembersChanged: s.membersChanged,
		Fatal:          s.fail,
		MayTransfer:    s.mayTransfer,
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
	s.http.stop()
	s.metricsPort.stop()
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
