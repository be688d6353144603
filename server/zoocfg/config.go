package zoocfg

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockkeeper/internal/clock"
	"lockkeeper/quorum"
	"lockkeeper/quorum/store"
	"lockkeeper/server/secure"
	"lockkeeper/session"
	"lockkeeper/session/sasl"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

const (
	DefaultClientPort = 2181
	DefaultDataDir    = "lockkeeper-data" // in the working directory
	defaultDigest     = "SHA1"
	defaultAdminBase  = "/commands"

	// MaxHTTPConns bounds the connections of the HTTP port, and MaxHTTPLocks the locks of a member
	// that are requested over HTTP.
	MaxHTTPConns, MaxHTTPLocks = 1024, 10_000
	DefaultHTTPConns           = 32

	defaultHTTPLocks, defaultHTTPLocksPerAddr, defaultHTTPLocksPerUser = 100, 50, 50

	// Unlimited turns Client.MaxCnxnsPerAddr and Client.MaxCnxns off, and of Limits Nodes,
	// DataBytes, Sessions, SessionsPerAddr, MultiReadOps and MultiReadBytes.
	Unlimited = -1

	// MaxMaxBuffer is the largest Client.MaxBuffer. A request travels in one log entry, and 64 of
	// them in one request between members, for which there is a time limit and a largest size.
	MaxMaxBuffer = 4 << 20

	// The ranges of Limits.Response, Limits.Memory and Limits.WatchBytes.
	minResponse, maxResponse  = 1 << 10, 1 << 30
	minMemory, minWatchMemory = 16 << 20, 8 << 20

	// handshakeBytes is the length of the first request of a client that sends a password of 16
	// bytes and says whether it accepts a read-only server, as ZooKeeper's own do.
	handshakeBytes = 45
)

// Config is everything that can be configured about a member, in sections. The zero value is a
// member that is alone, listens on port 2181 of every address, and keeps its data in
// ./lockkeeper-data. Load fills one from a zoo.cfg. Each field names its key, which keys.go and
// docs/configuration.md describe; a number that is 0 and a text that is empty mean the key's
// default.
type Config struct {
	File string // the configuration file, for messages; set by Load

	Client   Client
	TLS      TLS
	HTTP     HTTP
	Metrics  Metrics
	Console  Console
	Data     Data
	Sessions Sessions
	// MaxMemory is maxMemory, of which several limits are shares by default.
	MaxMemory int
	// Limits bound requests, answers, the memory that a client can take, and the state: the keys
	// from globalOutstandingLimit to maxSessionsPerAddress.
	Limits  session.Limits
	Auth    Auth
	Audit   Audit
	Quotas  Quotas
	Reap    Reap
	Cluster Cluster

	// Logger gets what an operator should know. nil means slog.Default.
	Logger *slog.Logger
	// Machine replaces parts of the machine.
	Machine Machine

	origin  map[string]property // where each key is in the file
	notices []Notice
}

// Client is the part of a Config about the ports for clients.
type Client struct {
	// Addr is the host:port where clients connect (clientPort, clientPortAddress, or the part
	// after the ';' of this member's server line). An empty host means every address, port 0 one
	// that the system chooses.
	Addr string
	// TLS says how Addr speaks TLS: client.portUnification, or TLSOnly when secureClientPort is
	// the only port for clients.
	TLS TLSMode
	// SecureAddr is the host:port where clients connect with TLS (secureClientPort,
	// secureClientPortAddress). Empty means that there is none beside Addr.
	SecureAddr string

	MaxCnxnsPerAddr  int           // maxClientCnxns; Unlimited or any negative number: no limit
	MaxCnxns         int           // maxCnxns; Unlimited or any negative number: no limit
	MaxSilentCnxns   int           // maxSessionlessCnxns
	MaxBuffer        int           // jute.maxbuffer
	HandshakeTimeout time.Duration // nio.sessionlessCnxnTimeout
	KeepAlive        bool          // clientTcpKeepAlive
	Backlog          int           // clientPortListenBacklog
	ReadOnlyMode     bool          // readonlymode.enabled
	// FourLetterWords are those of 4lw.commands.whitelist; see AllowsWord.
	FourLetterWords []string
	// ConnectTokens, ConnectFillCount and ConnectFillTime are connection_throttle_tokens,
	// connection_throttle_fill_count and connection_throttle_fill_time.
	ConnectTokens, ConnectFillCount int
	ConnectFillTime                 time.Duration
}

// TLS is the part of a Config about TLS. Each port has a TLSMode beside its address.
type TLS struct {
	Clients secure.Settings // for clients and HTTP (ssl.*, tls.*)
	Peers   secure.Settings // between members (ssl.quorum.*, tls.*)

	DetectTimeout     time.Duration // ssl.handshakeDetectionTimeoutMillis
	PeerDetectTimeout time.Duration // ssl.quorum.handshakeDetectionTimeoutMillis
	MaxHandshakes     int           // netty.server.outstandingHandshake.limit
}

// HTTP is the part of a Config about the HTTP port.
type HTTP struct {
	// Addr is the host:port of the HTTP port (admin.serverAddress, admin.serverPort). Empty means
	// that there is none.
	Addr string
	// Optional says that nothing has named Addr: if its port is in use, the system chooses one, and
	// if there is none either, the member starts without.
	Optional bool
	TLS      TLSMode // admin.forceHttps, admin.portUnification
	NeedCert bool    // admin.needClientAuth
	// Login says that reading needs a certificate, or the login of the super user or of
	// ViewerDigest (admin.requireLogin, admin.viewerDigest).
	Login        bool
	ViewerDigest string

	Conns, ConnsPerAddr int           // admin.maxCnxns, admin.maxCnxnsPerAddress
	NoLocks             bool          // admin.locks=false
	Locks               int           // admin.maxLocks
	LocksPerAddr        int           // admin.maxLocksPerAddress
	LocksPerUser        int           // admin.maxLocksPerUser
	RequestTimeout      time.Duration // admin.requestTimeout
	IdleTimeout         time.Duration // admin.idleTimeout
	AdminBase           string        // admin.commandURL
	SnapshotInterval    time.Duration // admin.rateLimiterIntervalInMS
	NoSnapshotCommand   bool          // admin.snapshot.enabled=false
	NoRestoreCommand    bool          // admin.restore.enabled=false
}

// Metrics is the part of a Config about the port for Prometheus. Its connections are bounded like
// those of the HTTP port.
type Metrics struct {
	Addr      string // host:port (metricsProvider.*); empty: there is none
	TLS       bool   // metricsProvider.forceHttps
	Login     bool   // as HTTP.Login
	NoProcess bool   // metricsProvider.exportJvmInfo=false
}

// Console is the part of a Config about the console.
type Console struct {
	IndexBytes   int      // console.indexBytes
	HistoryBytes int      // console.historyBytes; Unlimited: there is none
	Watchers     int      // console.watchers
	Hosts        []string // console.hosts
}

// Data is the part of a Config about the files of a member.
type Data struct {
	Dir          string        // dataDir
	LogDir       string        // dataLogDir
	LogStore     store.LogKind // logStore
	SnapCount    int           // snapCount
	SlowFsync    time.Duration // fsync.warningthresholdms
	MustExist    bool          // datadir.autocreate=false
	MustHoldData bool          // db.autocreate=false
	// Import has a member that has no data yet take over those of ZooKeeper in its directories.
	Import bool
	// IgnoreZooKeeper lets a member that has no data yet start beside data of ZooKeeper, which it
	// leaves alone. Otherwise it refuses.
	IgnoreZooKeeper bool
	// KeepDisks leaves it to the operator to replace a disk that is lost or damaged
	// (replaceDisks=false).
	KeepDisks bool
	// DiskFullStops is the number of times that this member has stopped because its disk was full,
	// for mntr: see datadir.ErrDiskFull.
	DiskFullStops int
}

// Sessions is the part of a Config about sessions.
type Sessions struct {
	TickTime               time.Duration // tickTime
	MinTimeout, MaxTimeout time.Duration // minSessionTimeout, maxSessionTimeout
	ZooKeeperPasswords     bool          // sessionPasswords=zookeeper
}

// Auth is the part of a Config about logins and ACLs.
type Auth struct {
	SkipACL         bool   // skipACL=yes
	SuperDigest     string // DigestAuthenticationProvider.superDigest; empty: none
	DigestAlgorithm string // DigestAuthenticationProvider.digestAlg
	NoDigest        bool   // DigestAuthenticationProvider.enabled=false
	// RequiredSchemes are those of enforce.auth.schemes with enforce.auth.enabled, or sasl with
	// sessionRequireClientSASLAuth; nil: none.
	RequiredSchemes []string
	// SASLUsers are those of the files that java.security.auth.login.config and saslUsersFile name;
	// nil: nobody can log in with SASL. SASLACLs lets ACLs name them also when it is nil
	// (authProvider.N). SASLOptional is allowSaslFailedClients.
	SASLUsers              sasl.Users
	SASLACLs, SASLOptional bool
	SuperUsers             []string // of SASL: superUser, superUser.N
	AnySASLUser            string   // letAnySaslUserDoX
	// Ensembles are the names of ensembleAuthName. nil: there is no scheme ensemble; empty: it
	// takes any name.
	Ensembles     []string
	KeyScheme     bool          // authProvider.N with KeyAuthenticationProvider
	X509SuperUser string        // X509AuthenticationProvider.superUser
	X509Naming    secure.Naming // ssl.x509.*
}

// Audit is the part of a Config about the audit log.
type Audit struct {
	On         bool   // audit.enable
	File       string // audit.file; empty: Logger
	FileBytes  int    // audit.fileMaxBytes
	Files      int    // audit.maxFiles
	QueueBytes int    // audit.queueBytes
}

// Quotas is the part of a Config about quotas.
type Quotas struct {
	Enforce  bool                // enforceQuota
	Keep     bool                // keepQuotas
	Exceeded bool                // quotaError=QuotaExceeded
	Rates    []session.RateQuota // rateQuota.N, in the order of N
}

// Reap is the part of a Config about containers and TTL nodes, and the reaper that deletes them.
type Reap struct {
	ExtendedTypes bool          // extendedTypesEnabled
	Interval      time.Duration // znode.container.checkIntervalMs
	PerMinute     int           // znode.container.maxPerMinute
	NeverUsed     time.Duration // znode.container.maxNeverUsedIntervalMs
}

// Cluster is the part of a Config about the members and the port between them.
type Cluster struct {
	// Members are the members of the cluster, this one included (server.N). nil means that this
	// member is alone. With Reconfig they are only those of the first start.
	Members []Member
	// ID says which of Members this is (dataDir/myid), 0 to 255. It is ignored when the member is
	// alone.
	ID        uint8
	WriteMyID bool // dataDir/myid is missing; the start writes ID into it
	Reconfig  bool // reconfigEnabled
	LoneVoter bool // standaloneEnabled=false
	// Without are members that have never worked, and do not run, with which a first start does not
	// wait: see quorum.Config.
	Without []int

	InitLimit, SyncLimit int  // initLimit, syncLimit
	ListenAll            bool // quorumListenOnAllIPs
	AnyPeerAddr          bool // peerAddressCheck=false
	MaxPeerCnxns         int  // maxPeerCnxns
	FrameBytes           int  // peerFrameMaxBytes
	// SecretFile is the file of the secret by which members know each other (peer.secretFile);
	// empty: there is none. SecretOptional is peer.secretOptional.
	SecretFile     string
	SecretOptional bool
	// TLS and TLSAlso are sslQuorum and portUnification: whether members are dialled with TLS, and
	// whether connections with and without it are accepted.
	TLS, TLSAlso bool
}

// Machine replaces parts of the machine that a member runs on, for tests and simulations: its
// network, its disks and its clocks. The zero value is the machine itself.
type Machine struct {
	// Listen opens the client port and the peer port, Dial connects to peers. nil means TCP.
	Listen func(network, addr string) (net.Listener, error)
	Dial   func(ctx context.Context, network, addr string) (net.Conn, error)
	// Stores replaces the files on disk. With it, Data.Dir is never touched; the Server closes it.
	Stores *store.Stores
	// Lost says that Stores replace others that were set aside: no cluster begins with them.
	Lost bool
	// TrailingEntries stay in the log behind a snapshot; 0: as quorum.Config says.
	TrailingEntries uint64
	// Now is the wall clock that stamps nodes. nil means time.Now.
	Now func() time.Time
	// Clock is the clock of the machine, by which leases count; nil means clock.System.
	Clock *clock.Clock
	// Yield is quorum.Config.Yield.
	Yield func()
	// ObserveView is quorum.Config.ObserveView.
	ObserveView func(view func())
	// Recorder gets the acts of the member; nil: they are not recorded.
	Recorder Recorder
}

// Recorder sees the acts of a member, beside its disk. It is the Recorder of package
// quorum/model/trace, which has the rules for its callers.
type Recorder interface {
	Observe(request any) (answered func(answer any))
	Executed(c *znode.Command, res *znode.Result)
	Restored(zxid wire.Zxid)
	Connected(id wire.SessionID, generation uint64, timeout, tick time.Duration) (offer func(b []byte),
		sent func(n int))
	Requested(id wire.SessionID, generation uint64, frame []byte)
}

// Member is one machine of the cluster, as a server.N line of the configuration describes it.
type Member = znode.Member

// Standalone reports whether the member is alone and not part of a cluster. A cluster may consist
// of one member, too (standaloneEnabled=false).
func (c *Config) Standalone() bool { return len(c.Cluster.Members) == 0 }

// Self is this member's own entry in Members; zero when it is alone.
func (c *Config) Self() Member {
	for _, m := range c.Cluster.Members {
		if m.ID == c.Cluster.ID {
			return m
		}
	}
	return Member{}
}

// ConfigText is the content of /zookeeper/config at the first start, empty for a member that is
// alone.
func (c *Config) ConfigText() string { return znode.ConfigText(c.Cluster.Members, 0) }

// Validate reports everything that is wrong with c, as Faults. For a Config from Load they name the
// file and the line.
func (c *Config) Validate() error {
	var faults Faults
	check := func(ok bool, key, format string, args ...any) {
		if !ok {
			faults = append(faults, c.Fault(key, format, args...))
		}
	}
	address := func(key, addr string) {
		if addr != "" {
			_, _, err := SplitHostPort(addr)
			check(err == nil, key, "%q is not host:port: %v", addr, err)
		}
	}
	address("clientPort", c.Client.Addr)
	address("secureClientPort", c.Client.SecureAddr)
	address("admin.serverPort", c.HTTP.Addr)
	address("metricsProvider.httpPort", c.Metrics.Addr)
	l := loader{cfg: *c}
	for _, key := range slices.Sorted(maps.Keys(knownKeys)) {
		if v := knownKeys[key].value; v.check != nil {
			reason := v.check(&l)
			check(reason == "", key, "%s", reason)
		}
	}
	d := c.WithDefaults()
	check(d.Sessions.MinTimeout <= d.Sessions.MaxTimeout, "minSessionTimeout",
		"%d ms is more than maxSessionTimeout, %d ms", d.Sessions.MinTimeout.Milliseconds(),
		d.Sessions.MaxTimeout.Milliseconds())
	check(d.Client.MaxBuffer >= 1 && d.Client.MaxBuffer <= MaxMaxBuffer, "jute.maxbuffer",
		"must be between 1 and %d bytes", MaxMaxBuffer)
	check(d.Limits.Memory >= 2*d.Limits.Response, "maxClientMemory",
		"%d bytes are less than two answers of maxResponseBytes, %d, take", d.Limits.Memory, d.Limits.Response)
	largest := d.largestCommand()
	check(largest <= quorum.MaxCommandBytes, "maxIdentityBytes",
		"a request of %d bytes (jute.maxbuffer) with %d identities of %d bytes (maxIdentities, maxIdentityBytes) "+
			"is a command of up to %d bytes, and members exchange commands of at most %d",
		d.Client.MaxBuffer, d.Limits.Identities, d.Limits.IdentityBytes, largest, quorum.MaxCommandBytes)
	check(d.Cluster.SecretFile != "" || !d.Cluster.SecretOptional, "peer.secretOptional",
		"there is no secret: peer.secretFile is not set")
	badLog := d.Data.LogStore.Validate()
	check(badLog == nil, "logStore", "%v", badLog)
	newHash := DigestHash(d.Auth.DigestAlgorithm)
	check(newHash != nil, "DigestAuthenticationProvider.digestAlg", "%q is none of %s", c.Auth.DigestAlgorithm,
		digestNames())
	check(c.Auth.SuperDigest == "" || newHash == nil || validDigest(c.Auth.SuperDigest, newHash().Size()),
		"DigestAuthenticationProvider.superDigest",
		"must be user:BASE64(%s(user:password)), not a password in clear", d.Auth.DigestAlgorithm)
	faults = append(faults, c.memberFaults()...)
	return faults.Err()
}

// largestCommand is the largest size of the command of a client's request, in bytes.
func (c *Config) largestCommand() int {
	const aroundRequest, aroundIdentity = 256, 2 * binary.MaxVarintLen32
	return c.Client.MaxBuffer + aroundRequest + c.Limits.IdentityBytes + aroundIdentity*c.Limits.Identities
}

func (c *Config) memberFaults() (faults Faults) {
	if c.Standalone() {
		return nil
	}
	byAddr := map[string]Member{}
	byID := map[uint8]bool{}
	for _, m := range c.Cluster.Members {
		fault := func(format string, args ...any) {
			faults = append(faults, c.Fault(m.Key(), format, args...))
		}
		if byID[m.ID] {
			fault("two members have this number")
		}
		byID[m.ID] = true
		if other, taken := byAddr[m.PeerAddr()]; taken {
			fault("has the same address and peer port as %s", other.Key())
		}
		byAddr[m.PeerAddr()] = m
		if m.Host == "" || m.PeerPort <= 0 || m.PeerPort > math.MaxUint16 {
			fault("has no address for its peers")
		}
		if m.ElectionPort == m.PeerPort {
			fault("peer port and election port must differ")
		}
	}
	if znode.Voters(c.Cluster.Members) == 0 {
		faults = append(faults, c.Fault(c.Cluster.Members[0].Key(), "observers without a participant: nobody could "+
			"elect a leader"))
	}
	if !byID[c.Cluster.ID] {
		faults = append(faults, c.Fault("myid", "%d is not the number of a member: there is no server.%d", c.Cluster.ID,
			c.Cluster.ID))
	}
	return faults
}

// WithDefaults is c with every zero that has a meaning replaced by what it means. It leaves the
// seams (Listen, Dial, Stores, Now, Clock) alone.
func (c Config) WithDefaults() Config {
	l := loader{cfg: c}
	for _, def := range knownKeys {
		if def.value.settle != nil {
			def.value.settle(&l)
		}
	}
	c = l.cfg
	c.Client.Addr = cmp.Or(c.Client.Addr, net.JoinHostPort("", strconv.Itoa(DefaultClientPort)))
	c.Data.Dir = filepath.Clean(cmp.Or(c.Data.Dir, DefaultDataDir))
	c.Data.LogDir = filepath.Clean(cmp.Or(c.Data.LogDir, c.Data.Dir))
	c.Data.LogStore = cmp.Or(c.Data.LogStore, store.LogWAL)
	c.Sessions.MinTimeout = cmp.Or(c.Sessions.MinTimeout, 2*c.Sessions.TickTime)
	c.Sessions.MaxTimeout = cmp.Or(c.Sessions.MaxTimeout, 20*c.Sessions.TickTime)
	c.Client.MaxBuffer = cmp.Or(c.Client.MaxBuffer, wire.DefaultMaxBuffer)
	c.settleMemory()
	c.Auth.DigestAlgorithm = cmp.Or(c.Auth.DigestAlgorithm, defaultDigest)
	c.HTTP.AdminBase = cmp.Or(c.HTTP.AdminBase, defaultAdminBase)
	if c.Standalone() {
		c.Cluster.ID = 1 // as in ZooKeeper's session ids
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// SplitHostPort splits host:port; the host may be empty and the port 0.
func SplitHostPort(addr string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q is no port number", p)
	}
	return host, int(n), nil
}

// fourLetterWords are those that ZooKeeper knows, mays and mbrs.
var fourLetterWords = []string{
	"conf", "cons", "crst", "dirs", "dump", "envi", "gtmk", "hash", "isro", "mays", "mbrs", "mntr",
	"ruok", "srst", "srvr", "stat", "stmk", "wchc", "wchp", "wchs",
}

// FourLetterWords are the words that 4lw.commands.whitelist may have, in alphabetical order.
func FourLetterWords() []string { return slices.Clone(fourLetterWords) }

// IsFourLetterWord reports whether there is a four-letter word of that name.
func IsFourLetterWord(w string) bool { return slices.Contains(fourLetterWords, w) }

// parseWhitelist reads the words of 4lw.commands.whitelist. The result is never nil: an empty list
// allows nothing.
func parseWhitelist(s string) []string {
	words := []string{}
	for w := range strings.SplitSeq(s, ",") {
		if w = strings.TrimSpace(w); w != "" {
			words = append(words, w)
		}
	}
	return words
}

// AllowsWord reports whether a four-letter word may be answered. As in ZooKeeper two words are
// always answered: zkServer.sh status needs srvr, and a client that is served read-only looks with
// isro for a server that is not. 'lockkeeper cluster list' needs mbrs, 'lockkeeper status' both and
// mays.
func (c *Config) AllowsWord(word string) bool {
	if word == "srvr" || word == "mbrs" || word == "mays" || word == "isro" && c.Client.ReadOnlyMode {
		return true
	}
	return slices.Contains(c.Client.FourLetterWords, word) || slices.Contains(c.Client.FourLetterWords, "*")
}

// QuorumMembers are the members as package quorum takes them.
func (c *Config) QuorumMembers() (list []quorum.Member) {
	if c.Standalone() {
		return []quorum.Member{{ID: quorum.MemberID(c.Cluster.ID)}}
	}
	for _, m := range c.Cluster.Members {
		list = append(list, quorum.Member{ID: quorum.MemberID(m.ID), Addr: m.PeerAddr(), Observer: m.Observer})
	}
	return list
}
