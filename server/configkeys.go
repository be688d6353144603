package server

import (
	"math"
	"strconv"
	"strings"

	"lockkeeper/quorum"
)

// keyDef is one key of a zoo.cfg.
type keyDef struct {
	// property keys are those that ZooKeeper reads from Java system properties named zookeeper.<key>. A
	// line in zoo.cfg sets such a property too, so they are taken with and without that prefix.
	property bool
	use      func(*loader, property)
}

// lookupKey finds what a key in a file means, and its name without the prefix.
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
	"server.": {use: useMember},
	"group.":  {use: refuseHierarchy},
	"weight.": {use: refuseHierarchy},
	"authProvider.": {property: true, use: func(l *loader, p property) {
		switch {
		case strings.HasSuffix(p.val, "DigestAuthenticationProvider"), strings.HasSuffix(p.val, "IPAuthenticationProvider"):
			l.ignore(unneeded, p)
			return
		case strings.HasSuffix(p.val, "X509AuthenticationProvider"):
			l.cfg.X509 = true
			l.warn(p, "ACLs may name holders of certificates, but this version has no TLS: nobody can be one")
			return
		case strings.HasSuffix(p.val, "SASLAuthenticationProvider"):
			l.cfg.SASL = true
			l.warn(p, "ACLs may name Kerberos principals, but this version has no SASL: nobody can be one")
			return
		}
		l.warn(p, "lockkeeper cannot load %s: its scheme is unknown here, logins with it fail, and an ACL that names it lets nobody in", p.val)
	}},
	"metricsProvider.": {use: ignored(unneeded)},
}

// knownKeys are all other keys. What is decided about each, and why:
//
//   - A setting that is there gets used.
//   - One that asks for more protection than this version has (TLS, SASL, required authentication, quorums
//     by group) stops the start: going on without it would break a promise that the operator relies on.
//   - One that asks for something that is missing but protects nothing gets a warning of its own.
//   - One that tunes a mechanism which lockkeeper does not have is collected into one line.
var knownKeys = merge(usedKeys, refusedKeys, missingKeys,
	ignoredKeys(unneeded, false, unneededKeys), ignoredKeys(unneeded, true, unneededProperties),
	ignoredKeys(tlsOnly, true, tlsKeys()), ignoredKeys(saslOnly, true, saslKeys))

var usedKeys = map[string]keyDef{
	"clientPort": {use: func(l *loader, p property) {
		if n, ok := l.intValue(p, 1, math.MaxUint16); ok {
			l.port = n
		}
	}},
	"clientPortAddress": {use: func(l *loader, p property) {
		l.portAddr = strings.TrimSuffix(strings.TrimPrefix(p.val, "["), "]")
	}},
	"dataDir":    {use: directory(func(l *loader) *string { return &l.cfg.DataDir })},
	"dataLogDir": {use: directory(func(l *loader) *string { return &l.cfg.DataLogDir })},
	"logStore": {use: func(l *loader, p property) {
		l.cfg.LogStore = quorum.LogKind(p.val)
		if err := l.cfg.LogStore.Validate(); err != nil {
			l.fault(p, "%v", err)
		}
	}},
	"dynamicConfigFile": {use: directory(func(l *loader) *string { return &l.dynamic })},
	"tickTime": {use: func(l *loader, p property) {
		l.cfg.TickTime, _ = l.millis(p, 1)
	}},
	"minSessionTimeout": {use: sessionTimeout(func(l *loader, p property) {
		l.cfg.MinSessionTimeout, _ = l.millis(p, 1)
	})},
	"maxSessionTimeout": {use: sessionTimeout(func(l *loader, p property) {
		l.cfg.MaxSessionTimeout, _ = l.millis(p, 1)
	})},
	"maxClientCnxns": {use: func(l *loader, p property) {
		if n, ok := l.intValue(p, math.MinInt32, math.MaxInt32); ok {
			l.cfg.MaxClientCnxns = n
			if n <= 0 {
				l.cfg.MaxClientCnxns = Unlimited
			}
		}
	}},
	"maxCnxns": {property: true, use: func(l *loader, p property) {
		l.cfg.MaxCnxns, _ = l.intValue(p, 0, math.MaxInt32)
	}},
	"jute.maxbuffer": {property: true, use: func(l *loader, p property) {
		// Java's Integer.decode: 0x and a leading 0 count.
		n, err := strconv.ParseInt(p.val, 0, 32)
		switch {
		case err != nil:
			l.fault(p, "must be a number of bytes, not %q", p.val)
		case n < MinMaxBuffer:
			l.fault(p, "must be at least %d bytes, not %s", MinMaxBuffer, p.val)
		case n > MaxMaxBuffer:
			// Usually meant for long replies, which no server limits.
			l.warn(p, "a request of more than %d bytes is refused, whatever this says; replies have no limit", MaxMaxBuffer)
			l.cfg.MaxBuffer = MaxMaxBuffer
		default:
			l.cfg.MaxBuffer = int(n)
		}
	}},
	"globalOutstandingLimit": {property: true, use: func(l *loader, p property) {
		l.cfg.Limits.Outstanding, _ = l.intValue(p, 1, math.MaxInt32)
	}},
	"request_throttle_max_requests": {property: true, use: limit(func(l *loader) *int { return &l.cfg.Limits.Requests })},
	"requestThrottleLimit":          {property: true, use: limit(func(l *loader) *int { return &l.cfg.Limits.Requests })},
	"throttled_op_wait_time":        {property: true, use: throttledOpWait},
	"throttledOpWaitTime":           {property: true, use: throttledOpWait},
	"largeRequestThreshold":         {property: true, use: limit(func(l *loader) *int { return &l.cfg.Limits.LargeRequest })},
	"largeRequestMaxBytes": {property: true, use: func(l *loader, p property) {
		l.cfg.Limits.LargeBytes, _ = l.intValue(p, 1, math.MaxInt32)
	}},
	"connection_throttle_tokens": {property: true, use: limit(func(l *loader) *int { return &l.cfg.ConnectTokens })},
	"connection_throttle_fill_count": {property: true, use: func(l *loader, p property) {
		l.cfg.ConnectFillCount, _ = l.intValue(p, 1, math.MaxInt32)
	}},
	"connection_throttle_fill_time": {property: true, use: func(l *loader, p property) {
		l.cfg.ConnectFillTime, _ = l.millis(p, 1)
	}},
	"admin.enableServer": {property: true, use: func(l *loader, p property) {
		on, ok := l.boolValue(p)
		l.httpOn, l.httpOff = on, ok && !on
	}},
	"admin.serverPort": {property: true, use: func(l *loader, p property) {
		if n, ok := l.intValue(p, 1, math.MaxUint16); ok {
			l.httpPort = n
		}
	}},
	"admin.serverAddress": {property: true, use: func(l *loader, p property) {
		l.httpAddr = strings.TrimSuffix(strings.TrimPrefix(p.val, "["), "]")
	}},
	"nio.sessionlessCnxnTimeout": {property: true, use: func(l *loader, p property) {
		l.cfg.HandshakeTimeout, _ = l.millis(p, 1)
	}},
	"clientTcpKeepAlive": {property: true, use: boolean(func(l *loader) *bool { return &l.cfg.TCPKeepAlive })},
	"4lw.commands.whitelist": {property: true, use: func(l *loader, p property) {
		l.cfg.FourLetterWords = parseWhitelist(p.val)
		for _, w := range l.cfg.FourLetterWords {
			if w != "*" && !isFourLetterWord(w) {
				l.warn(p, "there is no four-letter word %q", w)
			}
		}
	}},
	"readonlymode.enabled": {property: true, use: boolean(func(l *loader) *bool { return &l.cfg.ReadOnlyMode })},
	"clientPortListenBacklog": {use: func(l *loader, p property) {
		l.cfg.Backlog, _ = l.intValue(p, -1, math.MaxInt32)
	}},
	"snapCount": {property: true, use: func(l *loader, p property) {
		l.cfg.SnapCount, _ = l.intValue(p, 2, math.MaxInt32)
	}},
	"skipACL": {property: true, use: func(l *loader, p property) {
		if l.cfg.SkipACL, _ = l.yesNo(p); l.cfg.SkipACL {
			l.warn(p, "no ACL is checked: every client may do everything")
		}
	}},
	"DigestAuthenticationProvider.superDigest": {property: true, use: func(l *loader, p property) {
		l.cfg.SuperDigest = p.val
		if p.val == "" {
			l.fault(p, "is empty")
		}
	}},
	"DigestAuthenticationProvider.enabled": {property: true, use: func(l *loader, p property) {
		if on, ok := l.boolValue(p); ok {
			l.cfg.NoDigest = !on
		}
	}},
	"DigestAuthenticationProvider.digestAlg": {property: true, use: func(l *loader, p property) {
		if l.cfg.DigestAlgorithm = p.val; digestHash(p.val) == nil {
			l.fault(p, "%q is none of %s", p.val, digestNames())
		}
	}},
	"enforce.auth.enabled": {property: true, use: boolean(func(l *loader) *bool { return &l.enforceAuth })},
	"enforce.auth.schemes": {property: true, use: func(l *loader, p property) {
		l.authSchemes = nil
		for scheme := range strings.SplitSeq(p.val, ",") {
			switch scheme = strings.TrimSpace(scheme); scheme {
			case "digest", "ip":
				l.authSchemes = append(l.authSchemes, scheme)
			default:
				l.fault(p, "this version cannot tell who somebody is by the scheme %q; it has digest and ip", scheme)
			}
		}
	}},
	"enforceQuota":         {property: true, use: boolean(func(l *loader) *bool { return &l.cfg.EnforceQuota })},
	"extendedTypesEnabled": {property: true, use: boolean(func(l *loader) *bool { return &l.cfg.ExtendedTypes })},
	"znode.container.checkIntervalMs": {property: true, use: func(l *loader, p property) {
		l.cfg.ReapInterval, _ = l.millis(p, 1)
	}},
	"znode.container.maxPerMinute": {property: true, use: func(l *loader, p property) {
		l.cfg.ReapPerMinute, _ = l.intValue(p, 1, math.MaxInt32)
	}},
	"znode.container.maxNeverUsedIntervalMs": {property: true, use: func(l *loader, p property) {
		l.cfg.ReapNeverUsed, _ = l.millis(p, 0)
	}},
	"datadir.autocreate": {property: true, use: func(l *loader, p property) {
		if create, ok := l.boolValue(p); ok {
			l.cfg.MustExist = !create
		}
	}},
	"db.autocreate": {property: true, use: func(l *loader, p property) {
		if create, ok := l.boolValue(p); ok {
			l.cfg.MustHoldData = !create
		}
	}},
	"reconfigEnabled":      {use: boolean(func(l *loader) *bool { return &l.cfg.Reconfig })},
	"quorumListenOnAllIPs": {use: boolean(func(l *loader) *bool { return &l.cfg.PeerListenAll })},
	"initLimit": {use: func(l *loader, p property) {
		l.cfg.InitLimit, _ = l.intValue(p, 1, math.MaxInt32)
	}},
	"syncLimit": {use: func(l *loader, p property) {
		l.cfg.SyncLimit, _ = l.intValue(p, 1, math.MaxInt32)
	}},
	"standaloneEnabled": {use: func(l *loader, p property) {
		if on, ok := l.boolValue(p); ok {
			l.standing, l.cfg.LoneVoter = on, !on
		}
	}},
	"peerType": {use: func(l *loader, p property) {
		switch strings.ToLower(p.val) {
		case "participant":
		case "observer":
			l.observer = true
		default:
			l.fault(p, "must be participant or observer, not %q", p.val)
		}
	}},
	"electionAlg": {use: func(l *loader, p property) {
		if p.val != "3" {
			l.fault(p, "ZooKeeper has only 3, and lockkeeper elects in its own way; remove the key")
		}
	}},
}

// refusedKeys ask for protection that is not there.
var refusedKeys = map[string]keyDef{
	"secureClientPort": {use: func(l *loader, p property) {
		l.fault(p, "this version has no TLS, and a port that is meant to be encrypted is not left out in silence; remove the key to serve clients without TLS")
	}},
	"secureClientPortAddress": {use: func(l *loader, p property) {
		l.fault(p, "this version has no TLS; remove the key to serve clients without TLS")
	}},
	"sslQuorum":                      {use: refuseTrue("this version has no TLS between members")},
	"quorum.auth.enableSasl":         {use: refuseTrue("members do not authenticate each other in this version; keep the peer ports on a network of their own")},
	"quorum.auth.learnerRequireSasl": {use: refuseTrue("members do not authenticate each other in this version; keep the peer ports on a network of their own")},
	"quorum.auth.serverRequireSasl":  {use: refuseTrue("members do not authenticate each other in this version; keep the peer ports on a network of their own")},
	"sessionRequireClientSASLAuth":   {property: true, use: refuseTrue("this version has no SASL, so clients cannot be made to authenticate with it")},
}

// missingKeys ask for something that is not there and protects nothing.
var missingKeys = map[string]keyDef{
	"forceSync": {property: true, use: func(l *loader, p property) {
		if on, ok := l.yesNo(p); ok && !on {
			l.warn(p, "every update is on disk before it is answered, whatever this says")
		}
	}},
	"localSessionsEnabled": {use: warnTrue("every session is known to the whole cluster: there are no local sessions")},
	"leaderServes": {property: true, use: func(l *loader, p property) {
		if on, ok := l.yesNo(p); ok && !on {
			l.warn(p, "the leader serves clients like every other member")
		}
	}},
	"portUnification":        {use: warnTrue("this version has no TLS between members: peers that use it are refused")},
	"client.portUnification": {property: true, use: warnTrue("this version has no TLS: clients that use it are refused")},
	"oraclePath":             {use: warning("there is no oracle: with two voters, either one's failure stops the cluster")},
	"audit.enable":           {property: true, use: warnTrue("this version writes no audit log")},
	"metricsProvider.className": {use: func(l *loader, p property) {
		if strings.Contains(p.val, "Prometheus") {
			l.warn(p, "this version has no HTTP port for metrics; mntr on the client port has them")
		}
	}},
}

// unneededKeys tune what lockkeeper does not have or does by itself.
var unneededKeys = strings.Fields(`
	autopurge.purgeInterval autopurge.snapRetainCount connectToLearnerMasterLimit
	jvm.pause.info-threshold.ms jvm.pause.monitor jvm.pause.sleep.time.ms jvm.pause.warn-threshold.ms
	localSessionsUpgradingEnabled
	observerMasterPort quorum.cnxn.threads.size syncEnabled version`)

// unneededProperties are the same for Java system properties.
var unneededProperties = strings.Fields(`
	admin.commandURL admin.forceHttps admin.httpVersion admin.idleTimeout admin.needClientAuth
	admin.portUnification admin.rateLimiterIntervalInMS admin.restore.enabled
	admin.snapshot.enabled 	audit.impl.class bitHashCacheSize closeSessionTxn.enabled cnxTimeout commitLogCount
	commitProcessor.maxCommitBatchSize commitProcessor.maxReadBatchSize commitProcessor.numWorkerThreads
	commitProcessor.shutdownTimeout controllerPort ensembleAuthName
	connection_throttle_decrease_ratio connection_throttle_drop_decrease connection_throttle_drop_increase
	connection_throttle_freeze_time
	connection_throttle_global_session_weight connection_throttle_local_session_weight
	connection_throttle_renew_session_weight connection_throttle_weight_enabled
	digest.enabled electionPortBindRetry emulate353TTLNodes enableEagerACLCheck
	fastleader.maxNotificationInterval fastleader.minNotificationInterval flushDelay
	follower.skipLearnerRequestToNextProcessor forceSnapshotSync
	forward_learner_requests_to_commit_processor_disabled fsync.warningthresholdms
	intBufferStartingSizeBytes
	jmx.log4j.disable jmx.log4j.mbean jute.maxbuffer.extrasize
	leader.ackLoggingFrequency leader.closeSocketAsync leader.maxConcurrentDiffSyncs leader.maxConcurrentSnapSyncs
	leader.maxTimeToWaitForEpoch leaderConnectDelayDuringRetryMs learner.asyncSending learner.closeSocketAsync
	maxBatchSize maxGetChildrenResponseCacheSize maxInProcessingDeadWatchers maxResponseCacheSize
	maxWriteQueuePollTime messageTracker.BufferSize messageTracker.Enabled
	multiAddress.enabled multiAddress.reachabilityCheckEnabled multiAddress.reachabilityCheckTimeoutMs
	netty.advancedFlowControl.enabled nio.directBufferBytes nio.numSelectorThreads nio.numWorkerThreads
	nio.shutdownTimeout observer.election.DelayMs observer.reconnectDelayMs observer.syncEnabled
	observerMaster.sizeLimit pathStats.delay pathStats.enabled pathStats.initialDelay pathStats.maxDepth
	pathStats.sampleRate pathStats.slotCapacity pathStats.slotDuration pathStats.topPathMax preAllocSize
	quorumCnxnTimeoutMs request.timeout request_stale_connection_check request_stale_latency_check
	request_throttle_drop_stale request_throttle_stall_time request_throttler.shutdownTimeout
	serializeLastProcessedZxid.enabled server.principal server.realm serverCnxnFactory snapSizeLimitInKb
	snapshot.compression.method snapshot.trust.empty snapshotSizeFactor tcpKeepAlive testingonly.initialZxid txnLogSizeLimitInKb watchManagerName
	watcherCleanIntervalInSeconds watcherCleanThreadsNum watcherCleanThreshold`)

// saslKeys configure SASL and Kerberos.
var saslKeys = strings.Fields(`
	SASLAuthenticationProvider.superPassword allowSaslFailedClients java.security.auth.login.config
	kerberos.canonicalizeHostNames kerberos.removeHostFromPrincipal kerberos.removeRealmFromPrincipal kinit
	letAnySaslUserDoX quorum.auth.kerberos.servicePrincipal quorum.auth.learner.saslLoginContext
	quorum.auth.server.saslLoginContext requireKerberosConfig sasl.serverconfig security.auth_to_local superUser`)

// tlsKeys configure TLS: each ssl.x for clients has an ssl.quorum.x for peers.
func tlsKeys() []string {
	keys := strings.Fields(`
		X509AuthenticationProvider.superUser client.certReload fips-mode netty.server.earlyDropSecureConnectionHandshakes
		netty.server.outstandingHandshake.limit ssl.authProvider sslQuorumReloadCertFiles`)
	for _, k := range strings.Fields(`
		ciphersuites clientAuth clientHostnameVerification context.supplier.class crl enabledProtocols
		handshakeDetectionTimeoutMillis hostnameVerification keyStore.location keyStore.password
		keyStore.passwordPath keyStore.type ocsp protocol trustStore.location trustStore.password
		trustStore.passwordPath trustStore.type`) {
		keys = append(keys, "ssl."+k, "ssl.quorum."+k)
	}
	return keys
}

func ignoredKeys(c category, property bool, names []string) map[string]keyDef {
	m := map[string]keyDef{}
	for _, name := range names {
		m[name] = keyDef{property: property, use: ignored(c)}
	}
	return m
}

func merge(maps ...map[string]keyDef) map[string]keyDef {
	all := map[string]keyDef{}
	for _, m := range maps {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}
