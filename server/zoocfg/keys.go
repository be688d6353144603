package zoocfg

import (
	"maps"
	"math"
	"path"
	"strings"
	"time"

	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/store"
	"lockkeeper/session/admission"
)

// keyDef is one key of a zoo.cfg: how its value is read, and its description in
// docs/configuration.md and 'lockkeeper help config'. To add a key, add a line to usedKeys with a
// value (the constructors are in values.go), the unit, the default and the effect, and run 'go test
// ./server/zoocfg -run TestConfigurationPage -update'.
type keyDef struct {
	// property keys are those that ZooKeeper reads from Java system properties named
	// zookeeper.<key>. A line in zoo.cfg sets such a property too, so they are accepted with and
	// without that prefix.
	property bool
	class    KeyClass
	// own keys are lockkeeper's: ZooKeeper has no such key.
	own bool
	// zooKeeper is ZooKeeper's name for the key, where it is neither the key itself nor
	// zookeeper.<key>.
	zooKeeper string
	// value reads the text of the value, and has the name of its type.
	value value
	// unit is what a number counts: "ms", "bytes", "ticks". Empty when it has no unit.
	unit string
	// def is the default as it would be in the file, unless the value has one. What is not a value
	// is in parentheses, as "(required)".
	def string
	// effect is what the key does here, in one or a few sentences.
	effect string
}

// lookupKey finds the definition of a key in a file, and its name without the prefix.
func lookupKey(key string) (*keyDef, string) {
	if def := findKey(key); def != nil {
		return def, key
	}
	if bare, ok := strings.CutPrefix(key, "zookeeper."); ok {
		if def := findKey(bare); def != nil && def.property {
			return def, bare
		}
	}
	return nil, key
}

func findKey(key string) *keyDef {
	if def, ok := knownKeys[key]; ok {
		return &def
	}
	if dot := strings.IndexByte(key, '.'); dot > 0 && dot+1 < len(key) {
		if def, ok := keyFamilies[key[:dot+1]]; ok {
			return &def
		}
	}
	return nil
}

// keyFamilies are keys whose second half the operator chooses.
var keyFamilies = map[string]keyDef{
	"server.": {value: value{kind: "host:peerPort:electionPort[:participant|observer][;[address:]clientPort]",
		use: useMember}, def: "(none)",
		effect: "A member of the cluster, this one included; the number behind the dot is the one in the file myid " +
			"of its dataDir. Members connect to each other at the peer port; the election port is read and not used. " +
			"Without any such line, or with one alone, the member stands alone (see standaloneEnabled)."},
	"group.": {class: KeyRefused, value: value{kind: "numbers with ':' between them", use: refuseHierarchy},
		def: "(none)", effect: "Stops the start: " + noHierarchy + "."},
	"weight.": {class: KeyRefused, value: value{kind: "integer", use: refuseHierarchy}, def: "(none)",
		effect: "Stops the start: " + noHierarchy + "."},
	"authProvider.": {property: true, value: value{kind: "name of a Java class", use: authProvider}, def: "(none)",
		effect: "ZooKeeper's providers for digest and ip are always there, so naming them has no effect. The one for " +
			"x509 needs a port where clients show certificates. SASLAuthenticationProvider lets ACLs name users of " +
			"SASL; EnsembleAuthenticationProvider and KeyAuthenticationProvider are there as in ZooKeeper. Any other " +
			"class stops the start: lockkeeper can load none."},
	"superUser.": {property: true, value: value{kind: "name", use: useSuperUser}, def: "(none)",
		effect: "Another superUser, for each N."},
	rateQuotaFamily: {own: true, value: value{kind: "BOUND=number ... for TENANT", use: useRateQuota}, def: "(none)",
		effect: "What a tenant may ask of each member in a second: requests of all kinds, writes (each operation of " +
			"a multi is one), bytes of requests and replies; and how many watches and sessions it may have at a " +
			"time. A connection of a tenant that exceeds it pauses before its next request, for a sixth of its " +
			"session timeout at most; a watch too many is answered with BadArguments, a session too many is refused. " +
			"The tenant is an identity, as sasl:bob, or each of a scheme, as ip:* (of IPv6 each network of 64 bits); " +
			"of these quotas the one with the lowest number that fits counts, and super users have none. Or it is " +
			"whoever writes to a subtree, as /tenants/a, or to each child of one, as /tenants/*: writes, bytes of " +
			"writes and watches there."},
	"metricsProvider.": {class: KeyIneffective, value: ignored(unneeded), def: "(none)",
		effect: categories[unneeded].effect},
}

// knownKeys are all other keys. How each is treated, and why:
//
//   - A setting that exists here is used.
//   - One that requires more protection than this version has (Kerberos, quorums by group) stops
//     the start: without it, a promise that the operator relies on would be broken.
//   - One that requires something that is missing but protects nothing gets a warning of its own.
//   - One that tunes a mechanism that lockkeeper does not have is collected into one line.
var knownKeys = merge(usedKeys, tlsKeys(), loginKeys, refusedKeys, kerberosKeys, missingKeys,
	ignoredKeys(unneeded, false, unneededKeys), ignoredKeys(unneeded, true, unneededProperties),
	ignoredKeys(saslOnly, true, saslKeys))

var usedKeys = map[string]keyDef{
	// Where clients connect, and where the data is.
	"clientPort": {value: integer(1, math.MaxUint16, 0, func(l *loader) *int { return &l.client.port }),
		def:    "(required)",
		effect: "The TCP port where clients connect. It may stand in this member's server line instead."},
	"clientPortAddress": {value: host(func(l *loader) *string { return &l.client.host }), def: "(every address)",
		effect: "The address at which the client port listens."},
	"clientPortListenBacklog": {value: integer(-1, math.MaxInt32, -1,
		func(l *loader) *int { return &l.cfg.Client.Backlog }), unit: "connections",
		effect: "Shown by the four-letter word conf; the operating system's own backlog is used."},
	"clientTcpKeepAlive": {property: true, value: boolean(func(l *loader) *bool { return &l.cfg.Client.KeepAlive }),
		def:    "false",
		effect: "Turns on TCP keep-alive probes on client connections."},
	"dataDir": {value: directory(func(l *loader) *string { return &l.cfg.Data.Dir }), def: "(required)",
		effect: "The directory of the snapshots and of the file myid, and of the log unless dataLogDir is set. It is " +
			"created if it is missing."},
	"dataLogDir": {value: directory(func(l *loader) *string { return &l.cfg.Data.LogDir }), def: "(dataDir)",
		effect: "The directory of the write-ahead log."},
	"datadir.autocreate": {property: true, value: booleanNot(func(l *loader) *bool { return &l.cfg.Data.MustExist }),
		def:    "true",
		effect: "With false the member does not start when its directories do not exist."},
	"db.autocreate": {property: true, value: booleanNot(func(l *loader) *bool { return &l.cfg.Data.MustHoldData }),
		def: "true",
		effect: "With false the member does not start on an empty data directory, unless there is a file named " +
			"initialize in it; the start removes that file."},
	"import": {own: true, value: value{kind: "auto or no", use: func(l *loader, p property) {
		switch p.val {
		case "auto", "no":
			l.cfg.Data.Import = p.val == "auto"
		default:
			l.fault(p, "%q is neither auto nor no", p.val)
		}
	}}, def: "no", effect: "With auto a member that has no data yet takes over those of ZooKeeper in its " +
		"directories, as 'serve -import' does, and does not start without any. See docs/migrate.md."},
	"replaceDisks": {own: true, value: booleanNot(func(l *loader) *bool { return &l.cfg.Data.KeepDisks }), def: "true",
		effect: "With true the members of a cluster replace a disk that is lost, without an operator: a member that " +
			"finds its files damaged sets them aside, in a directory aside-TIME, and a member that comes back " +
			"without data gets them from the others and its vote with them, while the others are a majority. With " +
			"false the member does not start, and one that has lost its disk is removed from the cluster and added " +
			"again by hand. See docs/operations.md."},
	"logStore": {own: true, value: value{kind: "wal or bolt", use: func(l *loader, p property) {
		l.cfg.Data.LogStore = store.LogKind(p.val)
		if err := l.cfg.Data.LogStore.Validate(); err != nil {
			l.fault(p, "%v", err)
		}
	}}, def: "wal", effect: "How the write-ahead log is kept: wal, in segments, with one sync for each write; or " +
		"bolt, in one file, with two. See docs/operations.md."},
	"snapCount": {property: true, value: integer(2, math.MaxInt32, 0,
		func(l *loader) *int { return &l.cfg.Data.SnapCount }), unit: "updates",
		def: "(100000, more when the state is large)",
		effect: "A snapshot is written after this many updates at most; each time a number between half of it and " +
			"all of it is drawn."},

	// Sessions and connections.
	"tickTime": {value: millis(1, 3000, func(l *loader) *time.Duration { return &l.cfg.Sessions.TickTime }), unit: "ms",
		effect: "The unit for the defaults of the session timeouts, and of the time after which a leader that is " +
			"silent is replaced."},
	"minSessionTimeout": {value: sessionTimeout(func(l *loader) *time.Duration { return &l.cfg.Sessions.MinTimeout }),
		unit: "ms", def: "-1",
		effect: "The shortest session timeout that a client gets. -1 means 2 ticks."},
	"maxSessionTimeout": {value: sessionTimeout(func(l *loader) *time.Duration { return &l.cfg.Sessions.MaxTimeout }),
		unit: "ms", def: "-1",
		effect: "The longest session timeout that a client gets. -1 means 20 ticks."},
	"maxClientCnxns": {value: orUnlimited(60, func(l *loader) *int { return &l.cfg.Client.MaxCnxnsPerAddr }),
		unit:   "connections",
		effect: "How many connections one client address may have. 0 and less mean no limit."},
	"maxCnxns": {property: true, value: orUnlimited(0, func(l *loader) *int { return &l.cfg.Client.MaxCnxns }),
		unit: "connections", def: "(an eighth of maxMemory at 32 KiB each)",
		effect: "How many client connections there may be altogether. 0 and less mean no limit but that of the file " +
			"descriptors; in ZooKeeper that is the default."},
	"maxSessionlessCnxns": {own: true, value: integer(1, math.MaxInt32, 0,
		func(l *loader) *int { return &l.cfg.Client.MaxSilentCnxns }), unit: "connections", def: "(2000, but at most " +
		"half of the connections that the file descriptors allow)",
		effect: "How many client connections there may be whose first request is not complete. One more takes the " +
			"place of the oldest of them."},
	"maxMemory": {own: true, value: integer(minMaxMemory, math.MaxInt, 0,
		func(l *loader) *int { return &l.cfg.MaxMemory }), unit: "bytes", def: "(half of the machine's memory, all " +
		"of GOMEMLIMIT or of the control group's limit; at most 4294967296)",
		effect: "How much memory clients may make the member take. The defaults of maxDataBytes, maxSessions, " +
			"maxCnxns, maxWatchMemory, maxClientMemory and maxResponseBytes are shares of it, and the garbage " +
			"collector keeps to it where it can. It should be the same on all members."},
	"maxNodes": {own: true, value: orUnlimited(0, func(l *loader) *int { return &l.cfg.Limits.Nodes }), unit: "nodes",
		def: "0",
		effect: "How many nodes the cluster may have. A request that may make more is refused with BadArguments by " +
			"the member that gets it, and does not enter the log. 0 and less mean no limit but maxDataBytes."},
	"maxDataBytes": {own: true, value: orUnlimited(0, func(l *loader) *int { return &l.cfg.Limits.DataBytes }),
		unit: "bytes", def: "(a fifth of maxMemory)",
		effect: "How large the nodes of the cluster may be together: data, path and 512 bytes of each, and the " +
			"memory of each different ACL. A request that may make them larger is refused in the same way. 0 and " +
			"less mean no limit."},
	"maxSessions": {own: true, value: orUnlimited(0, func(l *loader) *int { return &l.cfg.Limits.Sessions }),
		unit: "sessions", def: "(one for each 32 KiB of maxMemory)",
		effect: "How many sessions the cluster may have. A client that would get one more has its connection closed. " +
			"0 and less mean no limit."},
	"maxSessionsPerAddress": {own: true, value: orUnlimited(0,
		func(l *loader) *int { return &l.cfg.Limits.SessionsPerAddr }), unit: "sessions",
		def: "(20 times maxClientCnxns)",
		effect: "How many sessions there may be whose newest connection came from one client address, in the same " +
			"way: those count, too, whose clients have vanished and that have not expired yet. 0 and less mean " +
			"no limit."},
	"nio.sessionlessCnxnTimeout": {property: true,
		value: millis(1, 10000, func(l *loader) *time.Duration { return &l.cfg.Client.HandshakeTimeout }), unit: "ms",
		effect: "How long a connection may take until its first request is complete."},
	"readonlymode.enabled": {property: true, zooKeeper: "readonlymode.enabled",
		value: boolean(func(l *loader) *bool { return &l.cfg.Client.ReadOnlyMode }), def: "false",
		effect: "Lets a member without a leader answer reads of clients that accept a read-only server."},
	"connection_throttle_tokens": {property: true,
		value: limit(func(l *loader) *int { return &l.cfg.Client.ConnectTokens }), unit: "handshakes",
		effect: "How many handshakes are accepted at once; others are refused until connection_throttle_fill_time " +
			"has brought more. Below 1 there is no limit."},
	"connection_throttle_fill_count": {property: true,
		value:  integer(1, math.MaxInt32, 1, func(l *loader) *int { return &l.cfg.Client.ConnectFillCount }),
		unit:   "handshakes",
		effect: "How many handshakes are allowed again each connection_throttle_fill_time."},
	"connection_throttle_fill_time": {property: true,
		value: millis(1, 1, func(l *loader) *time.Duration { return &l.cfg.Client.ConnectFillTime }), unit: "ms",
		effect: "The time between two additions of connection_throttle_fill_count."},

	// Requests.
	"jute.maxbuffer": {property: true, zooKeeper: "jute.maxbuffer",
		value: value{kind: "integer; 0x and a leading 0 as in Java", use: useMaxBuffer}, unit: "bytes", def: "1048575",
		effect: "The largest request. A connection that sends more is closed. More than 4 MiB is taken as 4 MiB. A " +
			"number that leaves no room for a client's first request is taken, too, as in ZooKeeper: nobody can " +
			"connect then. Replies have another limit, maxResponseBytes."},
	"globalOutstandingLimit": {property: true,
		value: integer(1, math.MaxInt32, 1000, func(l *loader) *int { return &l.cfg.Limits.Outstanding }),
		unit:  "requests",
		effect: "How many requests the clients of all members may have outstanding, shared among the members. Beyond " +
			"that a member reads nothing more from the clients that wait for an answer."},
	"request_throttle_max_requests": {property: true,
		value: limit(func(l *loader) *int { return &l.cfg.Limits.Requests }), unit: "requests",
		effect: "How many requests a member works on at a time; others wait. Below 1 there is no limit."},
	"requestThrottleLimit": {property: true, zooKeeper: "zookeeper.request_throttle_max_requests",
		value: limit(func(l *loader) *int { return &l.cfg.Limits.Requests }), unit: "requests",
		effect: "Another name of request_throttle_max_requests."},
	"throttled_op_wait_time": {property: true,
		value: millis(0, 0, func(l *loader) *time.Duration { return &l.cfg.Limits.Wait }), unit: "ms",
		effect: "A request that has waited for longer because of request_throttle_max_requests is refused with " +
			"ThrottledOp. 0 means never."},
	"throttledOpWaitTime": {property: true, zooKeeper: "zookeeper.throttled_op_wait_time",
		value: millis(0, 0, func(l *loader) *time.Duration { return &l.cfg.Limits.Wait }), unit: "ms",
		effect: "Another name of throttled_op_wait_time."},
	"largeRequestThreshold": {property: true, value: limit(func(l *loader) *int { return &l.cfg.Limits.LargeRequest }),
		unit:   "bytes",
		effect: "Requests that are larger count for largeRequestMaxBytes. Below 1 none does."},
	"largeRequestMaxBytes": {property: true,
		value: integer(1, math.MaxInt32, 100<<20, func(l *loader) *int { return &l.cfg.Limits.LargeBytes }),
		unit:  "bytes",
		effect: "How many bytes large requests may have together while they are not answered. A connection whose " +
			"request does not fit is closed."},
	"maxResponseBytes": {own: true, value: integer(minResponse, maxResponse, 0,
		func(l *loader) *int { return &l.cfg.Limits.Response }), unit: "bytes",
		def: "(a 64th of maxMemory, from 8388608 to 67108864)",
		effect: "The longest answer to one request; a name of a child counts 48 bytes more than it has, so a million " +
			"names of 15 bytes are the most by default. A longer one is not made: the answer is BadArguments. A " +
			"connection with more than twice as much that its client has not taken is closed."},
	"multiRead.maxOps": {property: true, value: orUnlimited(1000,
		func(l *loader) *int { return &l.cfg.Limits.MultiReadOps }), unit: "reads",
		effect: "How many reads a multiRead may have. One with more is answered with BadArguments. Below 1 there is " +
			"no limit."},
	"multiRead.maxResponseBytes": {property: true,
		value:  orUnlimited(admission.DefaultResponse, func(l *loader) *int { return &l.cfg.Limits.MultiReadBytes }),
		unit:   "bytes",
		effect: "The longest answer to a multiRead, if maxResponseBytes does not say less. Below 1 only that counts."},
	"maxClientMemory": {own: true, value: integer(minMemory, math.MaxInt32, 0,
		func(l *loader) *int { return &l.cfg.Limits.Memory }), unit: "bytes", def: "(a 16th of maxMemory)",
		effect: "How much a member holds of answers and events that clients have not taken and of requests that " +
			"wait. Beyond a half, connections that hold anything are not read until it is less; beyond three " +
			"quarters, those whose clients do not read are closed, the ones that hold the most first."},
	"maxWatchMemory": {own: true, value: integer(minWatchMemory, math.MaxInt32, 0,
		func(l *loader) *int { return &l.cfg.Limits.WatchBytes }), unit: "bytes", def: "(a 16th of maxMemory)",
		effect: "How much memory the watches of a member's clients may take: the path and 400 bytes for each path " +
			"that a connection watches. One connection may have a quarter of it. A read that would set one more is " +
			"answered with BadArguments. Each connection may have 1 MiB in any case, or less if that were more than " +
			"a quarter of all together."},
	"maxIdentities": {own: true, value: integer(1, MaxMaxBuffer, admission.DefaultIdentities,
		func(l *loader) *int { return &l.cfg.Limits.Identities }), unit: "identities",
		effect: "How many identities a connection may show (auth) besides its address. One more is answered with " +
			"AuthFailed, and the connection is closed."},
	"maxIdentityBytes": {own: true, value: integer(64, MaxMaxBuffer, admission.DefaultIdentityBytes,
		func(l *loader) *int { return &l.cfg.Limits.IdentityBytes }), unit: "bytes",
		effect: "How many bytes the schemes and ids of these identities may have together. More is answered in the " +
			"same way. A request of jute.maxbuffer bytes with all of them must fit into a frame between members."},
	"maxACLEntries": {own: true, value: integer(1, 1<<16, admission.DefaultACLEntries,
		func(l *loader) *int { return &l.cfg.Limits.ACLEntries }), unit: "entries",
		effect: "How many entries a request may give to the ACL of a node; one of scheme auth counts once for each " +
			"identity of the connection. More is refused with InvalidACL, and does not enter the log."},
	"maxACLBytes": {own: true, value: integer(64, MaxMaxBuffer, admission.DefaultACLBytes,
		func(l *loader) *int { return &l.cfg.Limits.ACLBytes }), unit: "bytes",
		effect: "How many bytes the schemes and ids of these entries may have together. More is refused in the " +
			"same way."},
	"maxRequestCost": {own: true, value: millis(1, int(admission.DefaultCost.Milliseconds()),
		func(l *loader) *time.Duration { return &l.cfg.Limits.Cost }), unit: "ms",
		effect: "How long applying a request may hold up the members, by the estimate in znode/cost.go: a multi may " +
			"have 2000 creates or deletes, or 2300 setData. More is refused with BadArguments, and does not " +
			"enter the log."},
	"maxSessionEphemerals": {own: true, value: integer(1, math.MaxInt32, admission.DefaultEphemerals,
		func(l *loader) *int { return &l.cfg.Limits.Ephemerals }), unit: "nodes",
		effect: "How many ephemeral nodes a session may have: they are deleted at once, when it ends. A request that " +
			"would create more is refused with BadArguments."},
	"enforceQuota": {property: true, value: boolean(func(l *loader) *bool { return &l.cfg.Quotas.Enforce }),
		def: "false",
		effect: "Makes hard quotas a limit: what exceeds one is refused with BadArguments, see quotaError. Otherwise " +
			"quotas are counted, and limit nothing."},
	"quotaError": {own: true, value: value{kind: "BadArguments or QuotaExceeded", use: func(l *loader, p property) {
		switch p.val {
		case "BadArguments":
		case "QuotaExceeded":
			l.cfg.Quotas.Exceeded = true
		default:
			l.fault(p, "%q is neither BadArguments nor QuotaExceeded", p.val)
		}
	}}, def: "BadArguments",
		effect: "The error for requests that exceed a quota. ZooKeeper's is QuotaExceeded, which kazoo and libraries " +
			"older than ZooKeeper 3.7 do not know: the connection thread of kazoo ends, and its program goes on to " +
			"believe that it holds its locks."},
	"keepQuotas": {own: true, value: boolean(func(l *loader) *bool { return &l.cfg.Quotas.Keep }), def: "false",
		effect: "Keeps /zookeeper/quota for super users. Others can neither set a quota nor lift one (NoAuth), and " +
			"read limits and usage only of nodes that they may read. Otherwise every client can do that for every " +
			"path, as with ZooKeeper. To be set on all members."},
	"extendedTypesEnabled": {property: true, value: boolean(func(l *loader) *bool { return &l.cfg.Reap.ExtendedTypes }),
		def:    "false",
		effect: "Allows nodes with a time to live."},
	"znode.container.checkIntervalMs": {property: true, zooKeeper: "znode.container.checkIntervalMs",
		value: millis(1, 60000, func(l *loader) *time.Duration { return &l.cfg.Reap.Interval }), unit: "ms",
		effect: "How often the leader looks for container nodes and nodes with a time to live that are to be deleted."},
	"znode.container.maxPerMinute": {property: true, zooKeeper: "znode.container.maxPerMinute",
		value:  integer(1, math.MaxInt32, 10000, func(l *loader) *int { return &l.cfg.Reap.PerMinute }),
		unit:   "nodes a minute",
		effect: "How many of them it deletes at most."},
	"znode.container.maxNeverUsedIntervalMs": {property: true, zooKeeper: "znode.container.maxNeverUsedIntervalMs",
		value: millis(0, 0, func(l *loader) *time.Duration { return &l.cfg.Reap.NeverUsed }), unit: "ms",
		effect: "After which time a container that has never had a child is deleted. 0 means never."},

	// Who may do what.
	"sessionPasswords": {own: true, value: value{kind: "random or zookeeper", use: func(l *loader, p property) {
		switch p.val {
		case "random":
		case "zookeeper":
			l.cfg.Sessions.ZooKeeperPasswords = true
			l.warn(p, "whoever knows the id of a session knows its password, and can take the session over")
		default:
			l.fault(p, "%q is neither random nor zookeeper", p.val)
		}
	}}, def: "random", effect: "How new sessions get their password. With zookeeper it is computed of the session's " +
		"id as in ZooKeeper, which accepts no other: for those who want to be able to go back with locks held " +
		"(docs/migrate.md). Whoever knows the id of a session, which four-letter words and the log show, can take it " +
		"over then."},
	"skipACL": {property: true, value: value{kind: kindYesNo, use: func(l *loader, p property) {
		if l.cfg.Auth.SkipACL, _ = l.yesNo(p); l.cfg.Auth.SkipACL {
			l.warn(p, "no ACL is checked: every client may do everything")
		}
	}}, def: "no", effect: "With yes no ACL is checked: every client may do everything."},
	"DigestAuthenticationProvider.superDigest": {property: true,
		value: value{kind: "user:BASE64(hash(user:password))", use: func(l *loader, p property) {
			l.cfg.Auth.SuperDigest = p.val
			if p.val == "" {
				l.fault(p, "is empty")
			}
		}}, def: "(none)", effect: "The digest identity that no ACL stops. 'lockkeeper digest USER' makes one from a " +
			"password."},
	"DigestAuthenticationProvider.enabled": {property: true,
		value: booleanNot(func(l *loader) *bool { return &l.cfg.Auth.NoDigest }), def: "true",
		effect: "With false there is no scheme digest: logins with it fail, and ACLs cannot name it."},
	"DigestAuthenticationProvider.digestAlg": {property: true,
		value: value{kind: "one of " + digestNames(), use: func(l *loader, p property) {
			if l.cfg.Auth.DigestAlgorithm = p.val; DigestHash(p.val) == nil {
				l.fault(p, "%q is none of %s", p.val, digestNames())
			}
		}}, def: "SHA1", effect: "The hash of digest identities and of superDigest. All members need the same " +
			"one, and " +
			"ACLs keep what they were made with."},

	"audit.enable": {property: true, value: boolean(func(l *loader) *bool { return &l.cfg.Audit.On }), def: "false",
		effect: "Writes a line to the audit log for each request that creates, changes or deletes something or tries " +
			"to (docs/audit.md)."},
	"audit.impl.class": {property: true, value: value{kind: "name of a Java class", use: useAuditClass},
		def:    defaultAuditClass,
		effect: "The format of the audit log. Only the default is there; any other class stops the start."},
	"audit.file": {own: true, value: directory(func(l *loader) *string { return &l.cfg.Audit.File }), def: "(none)",
		effect: "The file of the audit log. Without it the lines go to the member's own log."},
	"audit.fileMaxBytes": {own: true, value: integer(1<<20, math.MaxInt32, 10<<20,
		func(l *loader) *int { return &l.cfg.Audit.FileBytes }), unit: "bytes",
		effect: "A line that would make audit.file longer begins a new file. The old one gets the suffix .1, the one " +
			"before .2, and so on."},
	"audit.maxFiles": {own: true, value: integer(1, 10_000, 10, func(l *loader) *int { return &l.cfg.Audit.Files }),
		unit:   "files",
		effect: "How many old files of the audit log are kept."},
	"audit.queueBytes": {own: true, value: integer(1<<20, math.MaxInt32, 16<<20,
		func(l *loader) *int { return &l.cfg.Audit.QueueBytes }), unit: "bytes",
		effect: "How much memory lines of the audit log may take that are not written yet, because the disk is full " +
			"or slow. Requests do not wait: lines beyond it are lost, and counted in the log and in " +
			"audit_lines_lost of mntr."},

	// Looking at a member.
	"4lw.commands.whitelist": {property: true, value: value{kind: "four-letter words with commas, or *",
		use: func(l *loader, p property) {
			l.cfg.Client.FourLetterWords = parseWhitelist(p.val)
			for _, w := range l.cfg.Client.FourLetterWords {
				if w != "*" && !IsFourLetterWord(w) {
					l.warn(p, "there is no four-letter word %q", w)
				}
			}
		}}, def: "(none)", effect: "The four-letter words that the client port answers; srvr, mbrs and mays " +
		"are always " +
		"among them, and isro is with readonlymode.enabled=true."},
	"admin.enableServer": {property: true, value: value{kind: kindBoolean, use: func(l *loader, p property) {
		on, ok := l.boolValue(p)
		l.httpOn, l.httpOff = on, ok && !on
	}}, def: "(true if admin.serverPort or admin.serverAddress is set)",
		effect: "Whether the HTTP port is open, which has the commands of ZooKeeper's AdminServer " +
			"(docs/admin.md) and the console (docs/api.md), and answers GET /fence, /members, /live, /ready and " +
			"/stoppable, POST /leader, and requests for locks (docs/http-locks.md). In ZooKeeper it is open by " +
			"default."},
	"admin.serverPort": {property: true, value: integer(1, math.MaxUint16, defaultHTTPPort,
		func(l *loader) *int { return &l.http.port }),
		effect: "The TCP port for HTTP. Setting it opens the port, unless admin.enableServer=false."},
	"admin.serverAddress": {property: true, value: host(func(l *loader) *string { return &l.http.host }),
		def: "(every address)", effect: "The address at which the HTTP port listens. Setting it opens the " +
			"port, unless admin.enableServer=false."},

	"console.indexBytes": {own: true, value: integer(minMemory, math.MaxInt32, 0,
		func(l *loader) *int { return &l.cfg.Console.IndexBytes }), unit: "bytes", def: "(a 24th of maxMemory)",
		effect: "How much memory the console's index of the locks may take: about 2300 bytes for a lock with its " +
			"holder, and 700 for each waiter. With more locks the console answers 503. There is no index while " +
			"nobody looks."},
	"console.historyBytes": {own: true, value: orUnlimited(8<<20,
		func(l *loader) *int { return &l.cfg.Console.HistoryBytes }), unit: "bytes",
		effect: "How much memory the history of the locks may take: who held which, from when to when, and how it " +
			"ended (docs/api.md). The oldest is overwritten. 0 or less means that there is no history. A taken and " +
			"released lock takes about 700 bytes."},
	"console.watchers": {own: true, value: integer(1, MaxHTTPConns, 16,
		func(l *loader) *int { return &l.cfg.Console.Watchers }), unit: "connections",
		effect: "How many may watch this member with the console at a time. One more is refused."},
	"console.hosts": {own: true, value: value{kind: "host names with commas", use: func(l *loader, p property) {
		l.cfg.Console.Hosts = strings.Split(strings.ToLower(p.val), ",")
	}}, def: "(none)", effect: "Names, beside this machine's own and those of the server lines, by which browsers " +
		"may reach the console, such as that of a reverse proxy. Addresses and localhost need not be listed."},
	"admin.commandURL": {property: true, value: value{kind: "path", use: func(l *loader, p property) {
		l.cfg.HTTP.AdminBase = strings.TrimSuffix(p.val, "/")
		if path.Clean(p.val) != l.cfg.HTTP.AdminBase || !strings.HasPrefix(p.val, "/") || l.cfg.HTTP.AdminBase == "" {
			l.fault(p, "must be an absolute path other than /")
		}
	}}, def: defaultAdminBase, effect: "The path below which the HTTP port has the commands."},
	"admin.idleTimeout": {property: true, value: millis(1, 30000,
		func(l *loader) *time.Duration { return &l.cfg.HTTP.IdleTimeout }), unit: "ms",
		effect: "How long a connection of the HTTP port may be without a request."},
	"admin.rateLimiterIntervalInMS": {property: true,
		value: millis(1, 300000, func(l *loader) *time.Duration { return &l.cfg.HTTP.SnapshotInterval }), unit: "ms",
		effect: "How long after the commands snapshot and restore the same one is refused, with status 429; each has " +
			"an interval of its own, which begins when it has succeeded."},
	"admin.snapshot.enabled": {property: true,
		value: booleanNot(func(l *loader) *bool { return &l.cfg.HTTP.NoSnapshotCommand }), def: "true",
		effect: "Whether a super user may download the state with the command snapshot."},
	"admin.restore.enabled": {property: true,
		value: booleanNot(func(l *loader) *bool { return &l.cfg.HTTP.NoRestoreCommand }), def: "true",
		effect: "Whether a super user may replace the state of the cluster with the command restore."},
	"admin.requireLogin": {own: true, value: value{kind: kindBoolean, use: func(l *loader, p property) {
		l.requireLogin, _ = l.boolValue(p)
	}}, def: "(true at an address other than loopback, if clients have TLS or SASL)", effect: "Whether reading at " +
		"the HTTP port and at the port for metrics needs a certificate that this member trusts, or a login: that of " +
		"the super user or of admin.viewerDigest. The probes /live, /ready and /stoppable, /fence and the files of " +
		"the console's page need none."},
	"admin.viewerDigest": {own: true, value: value{kind: "user:BASE64(hash(user:password))",
		use: func(l *loader, p property) {
			if l.cfg.HTTP.ViewerDigest = p.val; !strings.Contains(p.val, ":") {
				l.fault(p, "is no user:BASE64(hash(user:password))")
			}
		}}, def: "(none)", effect: "A login for monitors and for people who may look: Authorization: digest " +
		"user:password. ACLs hold for it. 'lockkeeper digest USER' makes one from a password."},
	"admin.maxCnxns": {own: true, value: integer(1, MaxHTTPConns, DefaultHTTPConns,
		func(l *loader) *int { return &l.cfg.HTTP.Conns }), unit: "connections",
		effect: "How many connections the HTTP port has at a time. One more takes the place of the oldest that is " +
			"not being served, or is closed. At most half of them wait for locks or hold some (docs/http-locks.md)."},
	"admin.maxLocks": {own: true, value: integer(1, MaxHTTPLocks, defaultHTTPLocks,
		func(l *loader) *int { return &l.cfg.HTTP.Locks }), unit: "locks",
		effect: "How many locks this member takes for requests over HTTP at a time, held and awaited together " +
			"(docs/http-locks.md). A request for one more is answered with status 429."},
	"admin.locks": {own: true, value: booleanNot(func(l *loader) *bool { return &l.cfg.HTTP.NoLocks }), def: "true",
		effect: "Whether the HTTP port, if it is open, takes and releases locks: PUT, POST and DELETE of " +
			"/v1/locks/PATH (docs/http-locks.md)."},
	"admin.maxLocksPerAddress": {own: true, value: integer(1, MaxHTTPLocks, defaultHTTPLocksPerAddr,
		func(l *loader) *int { return &l.cfg.HTTP.LocksPerAddr }), unit: "locks",
		effect: "As admin.maxLocks, for one address; for IPv6, of a network of 64 bits."},
	"admin.maxLocksPerUser": {own: true, value: integer(1, MaxHTTPLocks, defaultHTTPLocksPerUser,
		func(l *loader) *int { return &l.cfg.HTTP.LocksPerUser }), unit: "locks",
		effect: "As admin.maxLocks, for one identity: a certificate, or a user and password."},
	"admin.maxCnxnsPerAddress": {own: true,
		value:  integer(1, MaxHTTPConns, 8, func(l *loader) *int { return &l.cfg.HTTP.ConnsPerAddr }),
		unit:   "connections",
		effect: "How many connections the HTTP port has from one address at a time, in the same way."},
	"metricsProvider.className": {value: value{kind: "name of a Java class", use: func(l *loader, p property) {
		switch p.val {
		case prometheusProvider:
			l.metricsOn = true
		case "", "org.apache.zookeeper.metrics.impl.DefaultMetricsProvider",
			"org.apache.zookeeper.metrics.impl.NullMetricsProvider":
		default:
			l.warn(p, "lockkeeper loads no Java classes, and knows %s; the four-letter word mntr has the metrics",
				prometheusProvider)
		}
	}}, def: "(none)", effect: "With " + prometheusProvider + " there is a port where Prometheus finds the metrics, " +
		"at /metrics (docs/metrics.md). The four-letter word mntr always has them."},
	"metricsProvider.httpPort": {value: integer(1, math.MaxUint16, defaultMetricsPort,
		func(l *loader) *int { return &l.metrics.port }),
		effect: "The TCP port for metrics. It has as many connections as admin.maxCnxns and admin.maxCnxnsPerAddress " +
			"allow the HTTP port."},
	"metricsProvider.httpHost": {value: host(func(l *loader) *string { return &l.metrics.host }),
		def: "(every address)", effect: "The address at which the port for metrics listens."},
	"metricsProvider.exportJvmInfo": {value: booleanNot(func(l *loader) *bool { return &l.cfg.Metrics.NoProcess }),
		def:    "true",
		effect: "Whether the port for metrics also has those of the process (process_*) and of the Go runtime (go_*)."},
	"fsync.warningthresholdms": {property: true,
		value: millis(1, 1000, func(l *loader) *time.Duration { return &l.cfg.Data.SlowFsync }), unit: "ms",
		effect: "From which time on a write to the log, with its fsync, is counted as slow (slow_fsyncs) and logged, " +
			"once a minute."},
	"admin.requestTimeout": {own: true, value: millis(1, 2000,
		func(l *loader) *time.Duration { return &l.cfg.HTTP.RequestTimeout }), unit: "ms",
		effect: "How long a request to the HTTP port may take to arrive, with its headers and its body."},

	// The members of a cluster.
	"dynamicConfigFile": {value: directory(func(l *loader) *string { return &l.dynamic }), def: "(none)",
		effect: "A file with the server lines, which then must not stand in zoo.cfg. It is read and never written."},
	"standaloneEnabled": {value: value{kind: kindBoolean, use: func(l *loader, p property) {
		if on, ok := l.boolValue(p); ok {
			l.standalone, l.cfg.Cluster.LoneVoter = on, !on
		}
	}}, def: "true", effect: "With true a member whose file has one server line for a participant stands alone. With " +
		"false it is a cluster of one, and a cluster may shrink to one voter."},
	"peerType": {value: value{kind: "participant or observer", use: func(l *loader, p property) {
		switch strings.ToLower(p.val) {
		case "participant":
		case "observer":
			l.observer = true
		default:
			l.fault(p, "must be participant or observer, not %q", p.val)
		}
	}}, def: "participant", effect: "Without effect: the role in this member's server line counts. A contradiction " +
		"is logged."},
	"reconfigEnabled": {value: boolean(func(l *loader) *bool { return &l.cfg.Cluster.Reconfig }), def: "false",
		effect: "Allows clients to change the members. From then on the members that were agreed upon count, and no " +
			"longer the server lines, also when it is taken out again. Without it the members follow the server " +
			"lines of a majority (docs/cluster.md)."},
	"quorumListenOnAllIPs": {value: boolean(func(l *loader) *bool { return &l.cfg.Cluster.ListenAll }), def: "false",
		effect: "The peer port listens at every address, and not only at the one of this member's server line."},
	"peerAddressCheck": {own: true, value: booleanNot(func(l *loader) *bool { return &l.cfg.Cluster.AnyPeerAddr }),
		def: "true",
		effect: "A connection in the name of a member must come from an address at which this member would look for " +
			"it. false is for networks that change source addresses."},
	"peer.secretFile": {own: true, value: directory(func(l *loader) *string { return &l.cfg.Cluster.SecretFile }),
		def: "(none)",
		effect: "A file with the secret of the cluster, the same on all members and at least 32 bytes long, by which " +
			"members prove to each other who they are before anything else. It may have two, each in a line: the " +
			"first is used, both are accepted. It is read again when it changes. Only its owner, and a group that " +
			"may not write, may have access. See docs/security.md."},
	"peer.secretOptional": {own: true, value: boolean(func(l *loader) *bool { return &l.cfg.Cluster.SecretOptional }),
		def: "false",
		effect: "Lets members without the secret take part, and strangers too, while the members of a running " +
			"cluster are given one by one the peer.secretFile. Then it has to be removed."},
	"maxPeerCnxns": {own: true, value: integer(32, math.MaxInt32, 0,
		func(l *loader) *int { return &l.cfg.Cluster.MaxPeerCnxns }), unit: "connections", def: "(256, but at most " +
		"an eighth of ulimit -n, and at least 32)",
		effect: "How many connections the peer port takes: half of them from one address, an eighth in the name of " +
			"one member, a quarter before they have said, and proved, who they are, an eighth of these from " +
			"one address."},
	"peerFrameMaxBytes": {own: true, value: integer(peer.DefaultFrameBytes, math.MaxInt32, peer.DefaultFrameBytes,
		func(l *loader) *int { return &l.cfg.Cluster.FrameBytes }), unit: "bytes",
		effect: "How many bytes frames above 64 KiB may hold together while they arrive at the peer port. A stream " +
			"is closed when a frame does not fit. Less than the default could refuse the largest requests, and with " +
			"them a member that has to catch up."},
	"initLimit": {value: integer(1, math.MaxInt32, 10, func(l *loader) *int { return &l.cfg.Cluster.InitLimit }),
		unit:   "ticks",
		effect: "Shown by the four-letter word conf. A follower may take as long as it needs to catch up."},
	"syncLimit": {value: integer(1, math.MaxInt32, 5, func(l *loader) *int { return &l.cfg.Cluster.SyncLimit }),
		unit: "ticks",
		effect: "Shown by the four-letter word conf. How soon a silent leader or follower is noticed follows from " +
			"tickTime."},
	"electionAlg": {value: value{kind: "3", use: func(l *loader, p property) {
		if p.val != "3" {
			l.fault(p, "ZooKeeper has only 3, and lockkeeper elects in its own way; remove the key")
		}
	}}, def: "3", effect: "Without effect: leaders are elected by Raft. Any other value stops the start."},
}

// defaultAuditClass writes the lines that this version writes.
const defaultAuditClass = "org.apache.zookeeper.audit.Slf4jAuditLogger"

const (
	noTLS       = "this version has no TLS"
	noPeerAuth  = "members do not authenticate each other with SASL; peer.secretFile has them do it with a secret"
	noHierarchy = "quorums by group and weight are not supported: a majority here is more than half of all " +
		"participants, each counting once"
)

// refusedKeys require protection that is missing.
var refusedKeys = map[string]keyDef{
	"quorum.auth.enableSasl":         refuseTrue(noPeerAuth),
	"quorum.auth.learnerRequireSasl": refuseTrue(noPeerAuth),
	"quorum.auth.serverRequireSasl":  refuseTrue(noPeerAuth),
	"fips-mode":                      refuseTrue("the TLS of this version is not validated for FIPS").asProperty(),
}

// missingKeys require something that is missing and protects nothing.
var missingKeys = map[string]keyDef{
	"forceSync": warnNo("every update is on disk before it is answered, whatever this says"),
	"localSessionsEnabled": {class: KeyMissing,
		value: value{kind: kindBoolean, use: func(l *loader, p property) { _, _ = l.boolValue(p) }}, def: "false",
		effect: "There are no local sessions: every session is known to the whole cluster. true needs " +
			"localSessionsUpgradingEnabled=true, with which clients see no difference, or it stops the start."},
	"localSessionsUpgradingEnabled": {class: KeyMissing,
		value: value{kind: kindBoolean, use: func(l *loader, p property) { _, _ = l.boolValue(p) }}, def: "false",
		effect: "Every session may create ephemeral nodes, whatever this says. In ZooKeeper a local session becomes " +
			"one of the cluster then."},
	"leaderServes": warnNo("the leader serves clients like every other member"),
	"oraclePath": {class: KeyMissing, value: value{kind: "path",
		use: func(l *loader, p property) { l.warn(p, "%s", noOracle) }}, def: "(none)",
		effect: "Without effect: " + noOracle + "."},
}

// prometheusProvider is the class with which ZooKeeper has a port for Prometheus.
const prometheusProvider = "org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider"

const noOracle = "there is no oracle: with two voters, either one's failure stops the cluster"

// unneededKeys tune what lockkeeper does not have or does by itself.
var unneededKeys = strings.Fields(`
	autopurge.purgeInterval autopurge.snapRetainCount connectToLearnerMasterLimit
	jvm.pause.info-threshold.ms jvm.pause.monitor jvm.pause.sleep.time.ms jvm.pause.warn-threshold.ms
	observerMasterPort quorum.cnxn.threads.size syncEnabled version`)

// unneededProperties are the same for Java system properties.
var unneededProperties = strings.Fields(`
	admin.httpVersion bitHashCacheSize closeSessionTxn.enabled cnxTimeout commitLogCount
	commitProcessor.maxCommitBatchSize commitProcessor.maxReadBatchSize commitProcessor.numWorkerThreads
	commitProcessor.shutdownTimeout controllerPort
	connection_throttle_decrease_ratio connection_throttle_drop_decrease connection_throttle_drop_increase
	connection_throttle_freeze_time
	connection_throttle_global_session_weight connection_throttle_local_session_weight
	connection_throttle_renew_session_weight connection_throttle_weight_enabled
	digest.enabled electionPortBindRetry emulate353TTLNodes enableEagerACLCheck
	fastleader.maxNotificationInterval fastleader.minNotificationInterval flushDelay
	follower.skipLearnerRequestToNextProcessor forceSnapshotSync
	forward_learner_requests_to_commit_processor_disabled
	intBufferStartingSizeBytes
	jmx.log4j.disable jmx.log4j.mbean jute.maxbuffer.extrasize
	leader.ackLoggingFrequency leader.closeSocketAsync leader.maxConcurrentDiffSyncs leader.maxConcurrentSnapSyncs
	leader.maxTimeToWaitForEpoch leaderConnectDelayDuringRetryMs learner.asyncSending learner.closeSocketAsync
	maxBatchSize maxGetChildrenResponseCacheSize maxInProcessingDeadWatchers maxResponseCacheSize
	maxWriteQueuePollTime messageTracker.BufferSize messageTracker.Enabled
	multiAddress.enabled multiAddress.reachabilityCheckEnabled multiAddress.reachabilityCheckTimeoutMs
	netty.advancedFlowControl.enabled netty.server.earlyDropSecureConnectionHandshakes
	nio.directBufferBytes nio.numSelectorThreads nio.numWorkerThreads
	nio.shutdownTimeout observer.election.DelayMs observer.reconnectDelayMs observer.syncEnabled
	observerMaster.sizeLimit pathStats.delay pathStats.enabled pathStats.initialDelay pathStats.maxDepth
	pathStats.sampleRate pathStats.slotCapacity pathStats.slotDuration pathStats.topPathMax preAllocSize
	quorumCnxnTimeoutMs request.timeout request_stale_connection_check request_stale_latency_check
	request_throttle_drop_stale request_throttle_stall_time request_throttler.shutdownTimeout
	serializeLastProcessedZxid.enabled server.principal server.realm serverCnxnFactory snapSizeLimitInKb
	snapshot.compression.method snapshot.trust.empty snapshotSizeFactor tcpKeepAlive testingonly.initialZxid
	txnLogSizeLimitInKb watchManagerName
	watcherCleanIntervalInSeconds watcherCleanThreadsNum watcherCleanThreshold`)

var saslKeys = strings.Fields(`
	quorum.auth.kerberos.servicePrincipal quorum.auth.learner.saslLoginContext
	quorum.auth.server.saslLoginContext`)

func ignoredKeys(c category, property bool, names []string) map[string]keyDef {
	m := map[string]keyDef{}
	for _, name := range names {
		m[name] = keyDef{class: KeyIneffective, property: property, value: ignored(c), def: "(not used)",
			effect: categories[c].effect}
	}
	return m
}

func merge(tables ...map[string]keyDef) map[string]keyDef {
	all := map[string]keyDef{}
	for _, t := range tables {
		maps.Copy(all, t)
	}
	return all
}
