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

	// MaxHTTPConns is how many connections the HTTP port may have.
	MaxHTTPConns = 32

	// Unlimited turns MaxClientCnxns, MaxCnxns, and those of Limits off that may be off: Nodes,
	// DataBytes, Sessions, SessionsPerAddr, MultiReadOps and MultiReadBytes.
	Unlimited = -1

	// MaxMaxBuffer is the largest MaxBuffer. A request travels in one log entry, and 64 of
	// them in one request between members, for which there is a time limit and a largest size.
	MaxMaxBuffer = 4 << 20

	// The ranges of Limits.Response, Limits.Memory and Limits.WatchBytes.
	minResponse, maxResponse  = 1 << 10, 1 << 30
	minMemory, minWatchMemory = 16 << 20, 8 << 20

	// handshakeBytes is the length of the first request of a client that sends a password of 16
	// bytes and says whether it accepts a read-only server, as ZooKeeper's own do.
	handshakeBytes = 45
)

// Config is everything that can be configured about a member. The zero value is a member that is
// alone, listens on port 2181 of every address, and keeps its data in ./lockkeeper-data. Load fills
// one from a zoo.cfg. Each field names its key, which keys.go and docs/configuration.md describe; a
// number that is 0 and a text that is empty mean the key's default.
type Config struct {
	File string // the configuration file, for messages; set by Load

	// ClientAddr is the host:port where clients connect (clientPort, clientPortAddress, or the part
	// after the ';' of this member's server line). An empty host means every address, port 0 one
	// that the system chooses.
	ClientAddr string
	// ClientTLS says how ClientAddr speaks TLS: client.portUnification, or TLSOnly when
	// secureClientPort is the only port for clients.
	ClientTLS TLSMode
	// SecureClientAddr is the host:port where clients connect with TLS (secureClientPort,
	// secureClientPortAddress). Empty means that there is none beside ClientAddr.
	SecureClientAddr string
	// TLS is for clients and HTTP (ssl.*, tls.*), PeerTLS between members (ssl.quorum.*, tls.*).
	TLS, PeerTLS secure.Settings
	// TLSDetectTimeout and PeerTLSDetectTimeout are ssl.handshakeDetectionTimeoutMillis and
	// ssl.quorum.handshakeDetectionTimeoutMillis.
	TLSDetectTimeout, PeerTLSDetectTimeout time.Duration
	MaxHandshakes                          int           // netty.server.outstandingHandshake.limit
	X509SuperUser                          string        // X509AuthenticationProvider.superUser
	X509Naming                             secure.Naming // ssl.x509.*
	HTTPTLS                                TLSMode       // admin.forceHttps, admin.portUnification
	HTTPNeedCert                           bool          // admin.needClientAuth
	MetricsTLS                             bool          // metricsProvider.forceHttps

	// HTTPAddr is the host:port of the HTTP port (admin.serverAddress, admin.serverPort). Empty
	// means that there is none.
	HTTPAddr string
	// HTTPLogin and MetricsLogin say that reading at these ports needs a certificate, or the login
	// of the super user or of ViewerDigest (admin.requireLogin, admin.viewerDigest).
	HTTPLogin, MetricsLogin     bool
	ViewerDigest                string
	HTTPConns, HTTPConnsPerAddr int           // admin.maxCnxns, admin.maxCnxnsPerAddress
	HTTPRequestTimeout          time.Duration // admin.requestTimeout
	HTTPIdleTimeout             time.Duration // admin.idleTimeout
	AdminBase                   string        // admin.commandURL
	SnapshotInterval            time.Duration // admin.rateLimiterIntervalInMS
	// NoSnapshotCommand and NoRestoreCommand are admin.snapshot.enabled=false and
	// admin.restore.enabled=false.
	NoSnapshotCommand, NoRestoreCommand bool

	// MetricsAddr is the host:port where Prometheus finds metrics (metricsProvider.*). Empty means
	// that there is none. Its connections are bounded like those of HTTPAddr.
	MetricsAddr      string
	NoProcessMetrics bool          // metricsProvider.exportJvmInfo=false
	SlowFsync        time.Duration // fsync.warningthresholdms

	IndexBytes      int      // console.indexBytes
	HistoryBytes    int      // console.historyBytes; Unlimited: there is none
	ConsoleWatchers int      // console.watchers
	ConsoleHosts    []string // console.hosts

	DataDir      string        // dataDir
	DataLogDir   string        // dataLogDir
	LogStore     store.LogKind // logStore
	SnapCount    int           // snapCount
	MustExist    bool          // datadir.autocreate=false
	MustHoldData bool          // db.autocreate=false
	// Import has a member that has no data yet take over those of ZooKeeper in its directories.
	Import bool
	// IgnoreZooKeeperData lets a member that has no data yet start beside data of ZooKeeper, which
	// it leaves alone. Otherwise it refuses.
	IgnoreZooKeeperData bool
	// KeepDisks leaves it to the operator to replace a disk that is lost or damaged
	// (replaceDisks=false).
	KeepDisks bool
	// Without are members that have never worked, and do not run, with which a first start does not
	// wait: see quorum.Config.
	Without []int
	// DiskFullStops is how often this member has stopped because its disk was full, for mntr: see
	// datadir.ErrDiskFull.
	DiskFullStops int

	TickTime                             time.Duration // tickTime
	MinSessionTimeout, MaxSessionTimeout time.Duration // minSessionTimeout, maxSessionTimeout

	MaxClientCnxns   int           // maxClientCnxns; Unlimited or any negative number: no limit
	MaxCnxns         int           // maxCnxns; Unlimited or any negative number: no limit
	MaxSilentCnxns   int           // maxSessionlessCnxns
	MaxMemory        int           // maxMemory
	MaxBuffer        int           // jute.maxbuffer
	HandshakeTimeout time.Duration // nio.sessionlessCnxnTimeout
	TCPKeepAlive     bool          // clientTcpKeepAlive
	Backlog          int           // clientPortListenBacklog
	ReadOnlyMode     bool          // readonlymode.enabled
	// FourLetterWords are those of 4lw.commands.whitelist; see AllowsWord.
	FourLetterWords []string
	// ConnectTokens, ConnectFillCount and ConnectFillTime are connection_throttle_tokens,
	// connection_throttle_fill_count and connection_throttle_fill_time.
	ConnectTokens, ConnectFillCount int
	ConnectFillTime                 time.Duration
	// Limits bound requests, answers, what a client can make a member keep, and the state: the keys
	// from globalOutstandingLimit to maxSessionsPerAddress.
	Limits session.Limits

	// ZooKeeperPasswords is sessionPasswords=zookeeper.
	ZooKeeperPasswords bool

	SkipACL         bool                // skipACL=yes
	SuperDigest     string              // DigestAuthenticationProvider.superDigest; empty: none
	DigestAlgorithm string              // DigestAuthenticationProvider.digestAlg
	NoDigest        bool                // DigestAuthenticationProvider.enabled=false
	Audit           bool                // audit.enable
	AuditFile       string              // audit.file; empty: Logger
	AuditFileBytes  int                 // audit.fileMaxBytes
	AuditFiles      int                 // audit.maxFiles
	AuditQueueBytes int                 // audit.queueBytes
	EnforceQuota    bool                // enforceQuota
	KeepQuotas      bool                // keepQuotas
	QuotaExceeded   bool                // quotaError=QuotaExceeded
	RateQuotas      []session.RateQuota // rateQuota.N, in the order of N
	ExtendedTypes   bool                // extendedTypesEnabled

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
	Ensembles []string
	KeyScheme bool // authProvider.N with KeyAuthenticationProvider

	ReapInterval  time.Duration // znode.container.checkIntervalMs
	ReapPerMinute int           // znode.container.maxPerMinute
	ReapNeverUsed time.Duration // znode.container.maxNeverUsedIntervalMs

	// Members are the members of the cluster, this one included (server.N). nil means that this
	// member is alone. With Reconfig they are only those of the first start.
	Members []Member
	// ID says which of Members this is (dataDir/myid), 0 to 255. It is ignored when the member is
	// alone.
	ID                   uint8
	WriteMyID            bool // dataDir/myid is missing; the start writes ID into it
	Reconfig             bool // reconfigEnabled
	LoneVoter            bool // standaloneEnabled=false
	PeerListenAll        bool // quorumListenOnAllIPs
	AnyPeerAddr          bool // peerAddressCheck=false
	MaxPeerCnxns         int  // maxPeerCnxns
	PeerFrameBytes       int  // peerFrameMaxBytes
	InitLimit, SyncLimit int  // initLimit, syncLimit
	// PeerSecretFile is the file of the secret by which members know each other (peer.secretFile);
	// empty: there is none. PeerSecretOptional is peer.secretOptional.
	PeerSecretFile     string
	PeerSecretOptional bool
	// PeerTLSOn and PeerTLSAlso are sslQuorum and portUnification: whether members are dialled with
	// TLS, and whether connections with and without it are accepted.
	PeerTLSOn, PeerTLSAlso bool

	// Logger gets what an operator should know. nil means slog.Default.
	Logger *slog.Logger
	// Listen opens the client port and the peer port, Dial connects to peers. nil means TCP.
	Listen func(network, addr string) (net.Listener, error)
	Dial   func(ctx context.Context, network, addr string) (net.Conn, error)
	// Stores replaces the files on disk. With it, DataDir is never touched; the Server closes it.
	Stores *store.Stores
	// Lost says that Stores replace others that were set aside: no cluster begins with them.
	Lost bool
	// TrailingEntries stay in the log behind a snapshot; 0: as quorum.Config says. It is for tests.
	TrailingEntries uint64
	// Now is the wall clock that stamps nodes. nil means time.Now.
	Now func() time.Time
	// Clock is the clock of the machine, by which leases count; nil means clock.System. It is for
	// simulations.
	Clock *clock.Clock
	// Yield is quorum.Config.Yield. It is for simulations.
	Yield func()
	// ObserveView is quorum.Config.ObserveView. It is for tests.
	ObserveView func(view func())
	// ObserveRaft is raftnet.Config.Observe. It is for simulations.
	ObserveRaft func(request any) (answered func(answer any))

	origin  map[string]property // where each key is in the file
	notices []Notice
}

// Member is one machine of the cluster, as a server.N line of the configuration describes it.
type Member = znode.Member

// Standalone reports whether the member is alone and not part of a cluster. A cluster may consist
// of one member, too (standaloneEnabled=false).
func (c *Config) Standalone() bool { return len(c.Members) == 0 }

// Self is this member's own entry in Members; zero when it is alone.
func (c *Config) Self() Member {
	for _, m := range c.Members {
		if m.ID == c.ID {
			return m
		}
	}
	return Member{}
}

// ConfigText is the content of /zookeeper/config at the first start, empty for a member that is
// alone.
func (c *Config) ConfigText() string { return znode.ConfigText(c.Members, 0) }

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
	address("clientPort", c.ClientAddr)
	address("secureClientPort", c.SecureClientAddr)
	address("admin.serverPort", c.HTTPAddr)
	address("metricsProvider.httpPort", c.MetricsAddr)
	l := loader{cfg: *c}
	for _, key := range slices.Sorted(maps.Keys(knownKeys)) {
		if v := knownKeys[key].value; v.check != nil {
			reason := v.check(&l)
			check(reason == "", key, "%s", reason)
		}
	}
	d := c.WithDefaults()
	check(d.MinSessionTimeout <= d.MaxSessionTimeout, "minSessionTimeout",
		"%d ms is more than maxSessionTimeout, %d ms", d.MinSessionTimeout.Milliseconds(), d.MaxSessionTimeout.Milliseconds())
	check(d.MaxBuffer >= 1 && d.MaxBuffer <= MaxMaxBuffer, "jute.maxbuffer",
		"must be between 1 and %d bytes", MaxMaxBuffer)
	check(d.Limits.Memory >= 2*d.Limits.Response, "maxClientMemory",
		"%d bytes are less than two answers of maxResponseBytes, %d, take", d.Limits.Memory, d.Limits.Response)
	largest := d.largestCommand()
	check(largest <= quorum.MaxCommandBytes, "maxIdentityBytes",
		"a request of %d bytes (jute.maxbuffer) with %d identities of %d bytes (maxIdentities, maxIdentityBytes) "+
			"is a command of up to %d bytes, and members exchange commands of at most %d",
		d.MaxBuffer, d.Limits.Identities, d.Limits.IdentityBytes, largest, quorum.MaxCommandBytes)
	check(d.PeerSecretFile != "" || !d.PeerSecretOptional, "peer.secretOptional", "there is no secret: peer.secretFile is not set")
	badLog := d.LogStore.Validate()
	check(badLog == nil, "logStore", "%v", badLog)
	newHash := DigestHash(d.DigestAlgorithm)
	check(newHash != nil, "DigestAuthenticationProvider.digestAlg", "%q is none of %s", c.DigestAlgorithm, digestNames())
	check(c.SuperDigest == "" || newHash == nil || validDigest(c.SuperDigest, newHash().Size()),
		"DigestAuthenticationProvider.superDigest",
		"must be user:BASE64(%s(user:password)), not a password in clear", d.DigestAlgorithm)
	faults = append(faults, c.memberFaults()...)
	return faults.Err()
}

// largestCommand is the largest size of the command of a client's request, in bytes.
func (c *Config) largestCommand() int {
	const aroundRequest, aroundIdentity = 256, 2 * binary.MaxVarintLen32
	return c.MaxBuffer + aroundRequest + c.Limits.IdentityBytes + aroundIdentity*c.Limits.Identities
}

func (c *Config) memberFaults() (faults Faults) {
	if c.Standalone() {
		return nil
	}
	byAddr := map[string]Member{}
	byID := map[uint8]bool{}
	for _, m := range c.Members {
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
	if znode.Voters(c.Members) == 0 {
		faults = append(faults, c.Fault(c.Members[0].Key(), "observers without a participant: nobody could elect a leader"))
	}
	if !byID[c.ID] {
		faults = append(faults, c.Fault("myid", "%d is not the number of a member: there is no server.%d", c.ID, c.ID))
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
	c.ClientAddr = cmp.Or(c.ClientAddr, net.JoinHostPort("", strconv.Itoa(DefaultClientPort)))
	c.DataDir = filepath.Clean(cmp.Or(c.DataDir, DefaultDataDir))
	c.DataLogDir = filepath.Clean(cmp.Or(c.DataLogDir, c.DataDir))
	c.LogStore = cmp.Or(c.LogStore, store.LogWAL)
	c.MinSessionTimeout = cmp.Or(c.MinSessionTimeout, 2*c.TickTime)
	c.MaxSessionTimeout = cmp.Or(c.MaxSessionTimeout, 20*c.TickTime)
	c.MaxBuffer = cmp.Or(c.MaxBuffer, wire.DefaultMaxBuffer)
	c.settleMemory()
	c.DigestAlgorithm = cmp.Or(c.DigestAlgorithm, defaultDigest)
	c.AdminBase = cmp.Or(c.AdminBase, defaultAdminBase)
	if c.Standalone() {
		c.ID = 1 // as in ZooKeeper's session ids
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
	if word == "srvr" || word == "mbrs" || word == "mays" || word == "isro" && c.ReadOnlyMode {
		return true
	}
	return slices.Contains(c.FourLetterWords, word) || slices.Contains(c.FourLetterWords, "*")
}

// QuorumMembers are the members as package quorum takes them.
func (c *Config) QuorumMembers() (list []quorum.Member) {
	if c.Standalone() {
		return []quorum.Member{{ID: quorum.MemberID(c.ID)}}
	}
	for _, m := range c.Members {
		list = append(list, quorum.Member{ID: quorum.MemberID(m.ID), Addr: m.PeerAddr(), Observer: m.Observer})
	}
	return list
}
