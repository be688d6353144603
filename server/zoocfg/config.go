package zoocfg

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"lockkeeper/quorum"
	"lockkeeper/quorum/peer"
	"lockkeeper/session"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Defaults and limits of the configuration; the defaults are ZooKeeper's own.
const (
	DefaultClientPort       = 2181
	DefaultDataDir          = "lockkeeper-data" // in the working directory
	DefaultTickTime         = 3 * time.Second   // what ZooKeeper's code has; its sample file says 2 s
	DefaultMaxClientCnxns   = 60                // per client address
	DefaultHandshakeTimeout = 10 * time.Second
	DefaultInitLimit        = 10 // ticks
	DefaultSyncLimit        = 5  // ticks
	DefaultOutstanding      = 1000
	DefaultLargeBytes       = 100 << 20
	DefaultMultiReadOps     = 1000
	DefaultReapInterval     = time.Minute
	DefaultReapPerMinute    = 10_000

	// MaxHTTPConns is how many connections the HTTP port may have.
	MaxHTTPConns              = 32
	DefaultHTTPConnsPerAddr   = 8
	DefaultHTTPRequestTimeout = 2 * time.Second

	// Unlimited turns MaxClientCnxns, Limits.MultiReadOps and Limits.MultiReadBytes off.
	Unlimited = -1

	// MaxMaxBuffer is the largest MaxBuffer. A request travels in one log entry, and 64 of
	// them in one request between members, for which there is a time limit and a largest size.
	MaxMaxBuffer = 4 << 20

	// The ranges of Limits.Response, Limits.Memory and Limits.WatchBytes.
	minResponse, maxResponse  = 1 << 10, 1 << 30
	minMemory, minWatchMemory = 16 << 20, 8 << 20

	// handshakeBytes is the length of the first request of a client that sends a password of 16 bytes and says whether
	// it accepts a read-only server, as ZooKeeper's own do.
	handshakeBytes = 45
)

// Config is everything that a member can be told. The zero value is a member that is alone, listens on
// port 2181 of every address, and keeps its data in ./lockkeeper-data. Load fills one from a zoo.cfg;
// the comments name the keys.
type Config struct {
	// File is the configuration file, for messages. Load sets it.
	File string

	// ClientAddr is the host:port where clients connect (clientPort, clientPortAddress, or the part after
	// the ';' of this member's server line). An empty host means every address, port 0 one that the system
	// chooses, and the empty string port 2181.
	ClientAddr string
	// DataDir holds the snapshots (dataDir). Empty means DefaultDataDir. It is created if missing.
	DataDir string
	// DataLogDir holds the log (dataLogDir). Empty means DataDir.
	DataLogDir string
	// LogStore is how the log is kept on disk (logStore). Empty means quorum.LogWAL.
	LogStore quorum.LogKind
	// DiskFullStops is how often this member has stopped for want of room, for mntr: see ErrDiskFull.
	DiskFullStops int
	// MustExist says that the data directory is not to be created when it is missing
	// (datadir.autocreate=false).
	MustExist bool
	// MustHoldData says that the member must not start on an empty data directory (db.autocreate=false),
	// unless an operator has put a file named "initialize" there, which is used up by that.
	MustHoldData bool
	// IgnoreZooKeeperData lets a member whose own data is not there yet start beside data of ZooKeeper, which it leaves alone.
	// Otherwise it refuses.
	IgnoreZooKeeperData bool

	// HTTPAddr is the host:port where questions over HTTP are answered (admin.serverAddress, admin.serverPort). Empty
	// means nowhere.
	HTTPAddr string
	// HTTPConns and HTTPConnsPerAddr are how many connections the HTTP port has at a time, and how many from one address
	// (admin.maxCnxns, admin.maxCnxnsPerAddress). 0 means MaxHTTPConns and DefaultHTTPConnsPerAddr. HTTPRequestTimeout is how
	// long a request may take to arrive (admin.requestTimeout); 0 means DefaultHTTPRequestTimeout.
	HTTPConns, HTTPConnsPerAddr int
	HTTPRequestTimeout          time.Duration

	// TickTime is the unit of the session timeouts' defaults and of the pace of the cluster (tickTime).
	TickTime time.Duration
	// MinSessionTimeout and MaxSessionTimeout bound what a client may ask for (minSessionTimeout,
	// maxSessionTimeout). 0 means 2 and 20 times TickTime.
	MinSessionTimeout, MaxSessionTimeout time.Duration

	// MaxClientCnxns is how many connections one client address may have (maxClientCnxns). 0 means
	// DefaultMaxClientCnxns, Unlimited (or any negative number) no limit.
	MaxClientCnxns int
	// MaxCnxns is how many connections there may be altogether (maxCnxns). 0 means no limit.
	MaxCnxns int
	// MaxBuffer is how many bytes a request may have (jute.maxbuffer). 0 means wire.DefaultMaxBuffer.
	MaxBuffer int
	// Limits bound the requests that are not answered yet: GlobalOutstandingLimit, the request throttle and
	// the budget of large requests.
	Limits session.Limits
	// ConnectTokens is how many handshakes there may be at once, and ConnectFillCount how many more every
	// ConnectFillTime (connection_throttle_tokens, connection_throttle_fill_count,
	// connection_throttle_fill_time). 0 tokens mean no limit.
	ConnectTokens, ConnectFillCount int
	ConnectFillTime                 time.Duration
	// HandshakeTimeout is how long a connection may take until its first request is complete
	// (nio.sessionlessCnxnTimeout). 0 means DefaultHandshakeTimeout.
	HandshakeTimeout time.Duration
	// TCPKeepAlive turns on keep-alive probes on client connections (clientTcpKeepAlive).
	TCPKeepAlive bool
	// FourLetterWords are the four-letter words that are answered (4lw.commands.whitelist) beside srvr, and isro when
	// ReadOnlyMode is set; "*" stands for all.
	FourLetterWords []string
	// ReadOnlyMode lets a member that has no leader serve clients that accept to be able to read only
	// (readonlymode.enabled).
	ReadOnlyMode bool
	// Backlog is clientPortListenBacklog as configured, for conf; the system's default is used.
	Backlog int

	// SnapCount is the number of updates between snapshots, at most (snapCount). 0 means the quorum room's default, which looks at
	// the state's size, too.
	SnapCount int
	// SkipACL lets every client do everything (skipACL=yes).
	SkipACL bool
	// SuperDigest is user:BASE64(SHA1(user:password)) of the digest identity that no ACL stops
	// (DigestAuthenticationProvider.superDigest). Empty means that there is none.
	SuperDigest string
	// DigestAlgorithm is the hash of digest identities, by its name in Java
	// (DigestAuthenticationProvider.digestAlg). Empty means SHA1.
	DigestAlgorithm string
	// NoDigest switches the scheme digest off (DigestAuthenticationProvider.enabled=false).
	NoDigest bool
	// X509 and SASL allow ACLs with these schemes. Nobody can prove to be named there in this version, and so Load
	// refuses the authProvider.N that asks for them.
	X509, SASL bool
	// RequiredSchemes are those of which a client must have proved one before anything else
	// (enforce.auth.enabled, enforce.auth.schemes). nil means none.
	RequiredSchemes []string
	// EnforceQuota makes quotas a limit instead of a warning (enforceQuota).
	EnforceQuota bool
	// Reconfig allows clients to change the members (reconfigEnabled). From then on those that have been agreed upon count, and
	// Members are only those of the first start.
	Reconfig bool
	// LoneVoter allows a cluster to shrink to one voter (standaloneEnabled=false).
	LoneVoter bool
	// ExtendedTypes allows nodes with a time to live (extendedTypesEnabled).
	ExtendedTypes bool

	// ReapInterval is how often the leader looks for containers and TTL nodes that are to be deleted
	// (znode.container.checkIntervalMs); 0 means DefaultReapInterval. ReapPerMinute bounds how many it deletes
	// (znode.container.maxPerMinute); 0 means DefaultReapPerMinute. ReapNeverUsed is after how long a container that
	// never had a child is deleted too (znode.container.maxNeverUsedIntervalMs); 0 means never.
	ReapInterval  time.Duration
	ReapPerMinute int
	ReapNeverUsed time.Duration

	// Members are the members of the cluster, this one included (server.N). nil means that this member
	// stands alone.
	Members []Member
	// ID says which of Members this is (dataDir/myid), 0 to 255. Ignored when it stands alone.
	ID uint8
	// PeerListenAll makes the member listen for its peers on every address instead of the one in its
	// server line (quorumListenOnAllIPs).
	PeerListenAll bool
	// AnyPeerAddr takes peers in the name of a member from wherever they connect (peerAddressCheck=false).
	AnyPeerAddr bool
	// MaxPeerCnxns is how many connections the peer port takes (maxPeerCnxns); one address may have half of them, one member an
	// eighth. 0 means peer.DefaultMaxConns.
	MaxPeerCnxns int
	// PeerFrameBytes bounds what frames hold in memory that peers have begun to send (peerFrameMaxBytes). 0 means
	// peer.DefaultFrameBytes.
	PeerFrameBytes int
	// InitLimit and SyncLimit are only shown by conf: the time it takes to notice that a leader has gone
	// follows TickTime. 0 means DefaultInitLimit and DefaultSyncLimit.
	InitLimit, SyncLimit int

	// Logger gets what an operator should know. nil means slog.Default.
	Logger *slog.Logger
	// Listen opens the client port and the peer port, Dial connects to peers. nil means TCP.
	Listen func(network, addr string) (net.Listener, error)
	Dial   func(ctx context.Context, network, addr string) (net.Conn, error)
	// Stores replaces the files on disk. With it, DataDir is never touched; the Server closes it.
	Stores *quorum.Stores
	// Now is the wall clock that stamps nodes. nil means time.Now.
	Now func() time.Time

	origin  map[string]property // where each key stands in the file
	notices []Notice
}

// Standalone reports whether the member is alone and not part of a cluster. A cluster may consist of one
// member, too (standaloneEnabled=false).
func (c *Config) Standalone() bool { return len(c.Members) == 0 }

// Self is this member's own entry in Members; zero when it stands alone.
func (c *Config) Self() Member {
	for _, m := range c.Members {
		if m.ID == c.ID {
			return m
		}
	}
	return Member{}
}

// Validate reports everything that is wrong with c, as Faults. For a Config from Load they name the
// file and the line.
func (c *Config) Validate() error {
	var faults Faults
	check := func(ok bool, key, format string, args ...any) {
		if !ok {
			faults = append(faults, c.Fault(key, format, args...))
		}
	}
	if c.ClientAddr != "" {
		_, _, err := SplitHostPort(c.ClientAddr)
		check(err == nil, "clientPort", "%q is not host:port: %v", c.ClientAddr, err)
	}
	if c.HTTPAddr != "" {
		_, _, err := SplitHostPort(c.HTTPAddr)
		check(err == nil, "admin.serverPort", "%q is not host:port: %v", c.HTTPAddr, err)
	}
	check(c.TickTime >= 0, "tickTime", "must be positive")
	check(c.TickTime%time.Millisecond == 0, "tickTime", "must be whole milliseconds")
	for _, t := range []struct {
		key string
		d   time.Duration
	}{{"minSessionTimeout", c.MinSessionTimeout}, {"maxSessionTimeout", c.MaxSessionTimeout}} {
		check(t.d >= 0 && t.d.Milliseconds() <= math.MaxInt32, t.key, "must be between 1 and %d ms", math.MaxInt32)
	}
	d := c.WithDefaults()
	check(d.MinSessionTimeout <= d.MaxSessionTimeout, "minSessionTimeout",
		"%d ms is more than maxSessionTimeout, %d ms", d.MinSessionTimeout.Milliseconds(), d.MaxSessionTimeout.Milliseconds())
	check(d.MaxBuffer >= 1 && d.MaxBuffer <= MaxMaxBuffer, "jute.maxbuffer",
		"must be between 1 and %d bytes", MaxMaxBuffer)
	check(d.HTTPConns > 0 && d.HTTPConns <= MaxHTTPConns, "admin.maxCnxns", "must be between 1 and %d", MaxHTTPConns)
	check(d.HTTPConnsPerAddr > 0 && d.HTTPConnsPerAddr <= MaxHTTPConns, "admin.maxCnxnsPerAddress", "must be between 1 and %d", MaxHTTPConns)
	check(d.HTTPRequestTimeout > 0, "admin.requestTimeout", "must not be negative")
	check(d.Limits.Response >= minResponse && d.Limits.Response <= maxResponse, "maxResponseBytes", "must be between %d and %d bytes", minResponse, maxResponse)
	check(d.Limits.Memory >= minMemory, "maxClientMemory", "must be at least %d bytes", minMemory)
	check(d.Limits.Memory >= 2*d.Limits.Response, "maxClientMemory", "%d bytes are less than two answers of maxResponseBytes, %d, take", d.Limits.Memory, d.Limits.Response)
	check(d.Limits.WatchBytes >= minWatchMemory, "maxWatchMemory", "must be at least %d bytes", minWatchMemory)
	check(d.Limits.Identities > 0 && d.Limits.Identities <= MaxMaxBuffer, "maxIdentities", "must be between 1 and %d", MaxMaxBuffer)
	check(d.Limits.IdentityBytes > 0 && d.Limits.IdentityBytes <= MaxMaxBuffer, "maxIdentityBytes", "must be between 1 and %d", MaxMaxBuffer)
	largest := d.largestCommand()
	check(largest <= quorum.MaxCommandBytes, "maxIdentityBytes",
		"a request of %d bytes (jute.maxbuffer) with %d identities of %d bytes (maxIdentities, maxIdentityBytes) is a command of up to %d bytes, and members exchange commands of at most %d",
		d.MaxBuffer, d.Limits.Identities, d.Limits.IdentityBytes, largest, quorum.MaxCommandBytes)
	check(c.HandshakeTimeout >= 0, "nio.sessionlessCnxnTimeout", "must be positive")
	check(c.MaxCnxns >= 0, "maxCnxns", "must not be negative")
	badLog := cmp.Or(c.LogStore, quorum.LogWAL).Validate()
	check(badLog == nil, "logStore", "%v", badLog)
	check(c.SnapCount == 0 || c.SnapCount >= 2, "snapCount", "must be at least 2")
	newHash := DigestHash(d.DigestAlgorithm)
	check(newHash != nil, "DigestAuthenticationProvider.digestAlg", "%q is none of %s", c.DigestAlgorithm, digestNames())
	check(c.SuperDigest == "" || newHash == nil || validDigest(c.SuperDigest, newHash().Size()), "DigestAuthenticationProvider.superDigest",
		"must be user:BASE64(%s(user:password)), not a password in clear", d.DigestAlgorithm)
	faults = append(faults, c.memberFaults()...)
	return faults.Err()
}

// largestCommand is how many bytes the command of a client's request may have.
func (c *Config) largestCommand() int {
	const aroundRequest, aroundIdentity = 256, 2 * binary.MaxVarintLen32
	return c.MaxBuffer + aroundRequest + c.Limits.IdentityBytes + aroundIdentity*c.Limits.Identities
}

// memberFaults checks the members of a cluster against each other.
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

// WithDefaults is c with every zero that has a meaning replaced by what it means. It leaves the seams alone.
func (c Config) WithDefaults() Config {
	orInt := func(p *int, d int) {
		if *p == 0 {
			*p = d
		}
	}
	orDuration := func(p *time.Duration, d time.Duration) {
		if *p == 0 {
			*p = d
		}
	}
	orInt(&c.PeerFrameBytes, peer.DefaultFrameBytes)
	if c.ClientAddr == "" {
		c.ClientAddr = net.JoinHostPort("", strconv.Itoa(DefaultClientPort))
	}
	if c.DataDir == "" {
		c.DataDir = DefaultDataDir
	}
	c.DataDir = filepath.Clean(c.DataDir)
	if c.DataLogDir == "" {
		c.DataLogDir = c.DataDir
	}
	c.DataLogDir = filepath.Clean(c.DataLogDir)
	orDuration(&c.TickTime, DefaultTickTime)
	orDuration(&c.MinSessionTimeout, 2*c.TickTime)
	orDuration(&c.MaxSessionTimeout, 20*c.TickTime)
	orDuration(&c.HandshakeTimeout, DefaultHandshakeTimeout)
	orInt(&c.MaxClientCnxns, DefaultMaxClientCnxns)
	orInt(&c.MaxBuffer, wire.DefaultMaxBuffer)
	orInt(&c.HTTPConns, MaxHTTPConns)
	orInt(&c.HTTPConnsPerAddr, DefaultHTTPConnsPerAddr)
	orDuration(&c.HTTPRequestTimeout, DefaultHTTPRequestTimeout)
	orInt(&c.Limits.Outstanding, DefaultOutstanding)
	orInt(&c.Limits.LargeBytes, DefaultLargeBytes)
	orInt(&c.Limits.Response, session.DefaultResponse)
	orInt(&c.Limits.MultiReadOps, DefaultMultiReadOps)
	orInt(&c.Limits.MultiReadBytes, session.DefaultResponse)
	orInt(&c.Limits.Memory, session.DefaultMemory)
	orInt(&c.Limits.WatchBytes, session.DefaultWatchBytes)
	orInt(&c.Limits.Identities, session.DefaultIdentities)
	orInt(&c.Limits.IdentityBytes, session.DefaultIdentityBytes)
	orInt(&c.Limits.ACLEntries, session.DefaultACLEntries)
	orInt(&c.Limits.ACLBytes, session.DefaultACLBytes)
	orDuration(&c.Limits.Cost, session.DefaultCost)
	orInt(&c.Limits.Ephemerals, session.DefaultEphemerals)
	orInt(&c.ConnectFillCount, 1)
	orDuration(&c.ConnectFillTime, time.Millisecond)
	if c.DigestAlgorithm == "" {
		c.DigestAlgorithm = "SHA1"
	}
	orInt(&c.InitLimit, DefaultInitLimit)
	orInt(&c.SyncLimit, DefaultSyncLimit)
	orInt(&c.Backlog, -1)
	orDuration(&c.ReapInterval, DefaultReapInterval)
	orInt(&c.ReapPerMinute, DefaultReapPerMinute)
	c.LogStore = cmp.Or(c.LogStore, quorum.LogWAL)
	if c.Standalone() {
		c.ID = 1 // as in ZooKeeper's session ids
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Fault is a fault at the place where key stands, if it stands anywhere.
func (c *Config) Fault(key, format string, args ...any) Fault {
	f := Fault{File: c.File, Key: key, Reason: fmt.Sprintf(format, args...)}
	if at, ok := c.origin[key]; ok {
		f.File, f.Line, f.Key = at.file, at.line, at.key // clientPort may come from a server line
	}
	return f
}
