package zoocfg

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/store"
	"lockkeeper/session"
)

// writeConfig puts a zoo.cfg with dataDir=<dir>/data, and a myid unless it is empty, into a new
// directory. %D in the text stands for that directory.
func writeConfig(t *testing.T, text, myid string) (file, dir string) {
	t.Helper()
	dir = t.TempDir()
	file = filepath.Join(dir, "zoo.cfg")
	writeFile(t, file, strings.ReplaceAll(text, "%D", dir))
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	if myid != "" {
		writeFile(t, filepath.Join(dir, "data", "myid"), myid)
	}
	return file, dir
}

func writeFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const (
	base  = "clientPort=2181\ndataDir=%D/data\n" // two lines
	three = "server.1=a:2888:3888\nserver.2=b:2888:3888\nserver.3=c:2888:3888\n"
)

// load loads a configuration that must be right, and returns its notices as text.
func load(t *testing.T, text, myid string) (Config, []string) {
	t.Helper()
	file, dir := writeConfig(t, text, myid)
	cfg, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return cfg, notices(cfg, dir)
}

func notices(cfg Config, dir string) (texts []string) {
	for _, n := range cfg.Notices() {
		at := filepath.Base(n.File)
		if n.Line > 0 {
			at += fmt.Sprintf(":%d", n.Line)
		}
		texts = append(texts, strings.ReplaceAll(fmt.Sprintf("%v %s %s: %s", n.Level, at, n.Key, n.Text), dir, "%D"))
	}
	return texts
}

const everySetting = `# a cluster member with every setting that has an effect
clientPort=2181
clientPortAddress=192.0.2.1
dataDir=%D/data
dataLogDir=%D/log
tickTime=2000
minSessionTimeout=3000
maxSessionTimeout=50000
maxClientCnxns=7
maxCnxns=100
jute.maxbuffer=0x200000
nio.sessionlessCnxnTimeout=5000
clientTcpKeepAlive=true
4lw.commands.whitelist=ruok, srvr ,mntr
clientPortListenBacklog=99
snapCount=5000
logStore=bolt
skipACL=no
DigestAuthenticationProvider.superDigest=super:DyNYQEQvajljsxlhf5uS4PJ9R28=
enforceQuota=true
extendedTypesEnabled=TRUE
quorumListenOnAllIPs=true
initLimit=11
syncLimit=6
server.1=zoo1:2888:3888
server.2=[2001:db8::2]:2889:3889:PARTICIPANT;2182
server.3=zoo3:2888:3888:observer;[::1]:2183
server.10=zoo4:2888:3888
server.4=zoo5:2888:3888
`

func TestLoadEverything(t *testing.T) {
	cfg, got := load(t, everySetting, "10\n")
	dir := filepath.Dir(cfg.Data.Dir)
	want := Config{
		File:     filepath.Join(dir, "zoo.cfg"),
		Client:   Client{Addr: "192.0.2.1:2181", MaxCnxnsPerAddr: 7, MaxCnxns: 100, MaxBuffer: 2 << 20, HandshakeTimeout: 5 * time.Second, KeepAlive: true, FourLetterWords: []string{"ruok", "srvr", "mntr"}, Backlog: 99},
		Data:     Data{Dir: filepath.Join(dir, "data"), LogDir: filepath.Join(dir, "log"), SnapCount: 5000, LogStore: store.LogBolt},
		Sessions: Sessions{TickTime: 2 * time.Second, MinTimeout: 3 * time.Second, MaxTimeout: 50 * time.Second},
		Auth:     Auth{SuperDigest: "super:DyNYQEQvajljsxlhf5uS4PJ9R28="},
		Quotas:   Quotas{Enforce: true},
		Reap:     Reap{ExtendedTypes: true},
		Cluster: Cluster{ListenAll: true, InitLimit: 11, SyncLimit: 6, ID: 10, Members: []Member{
			{ID: 1, Host: "zoo1", PeerPort: 2888, ElectionPort: 3888},
			{ID: 2, Host: "2001:db8::2", PeerPort: 2889, ElectionPort: 3889, ClientAddr: "0.0.0.0:2182"},
			{ID: 3, Host: "zoo3", PeerPort: 2888, ElectionPort: 3888, Observer: true, ClientAddr: "[::1]:2183"},
			{ID: 4, Host: "zoo5", PeerPort: 2888, ElectionPort: 3888},
			{ID: 10, Host: "zoo4", PeerPort: 2888, ElectionPort: 3888},
		}},
	}
	cfg.origin = nil
	warned := cfg.Notices()
	cfg.notices = nil
	if !reflect.DeepEqual(cfg, want) {
		t.Errorf("got  %+v\nwant %+v", cfg, want)
	}
	if len(warned) != 1 || !strings.Contains(warned[0].Text, "4 voters tolerate") {
		t.Errorf("notices: %q", got)
	}
	if got, want := cfg.ConfigText(), "server.1=zoo1:2888:3888:participant\n"+
		"server.2=[2001:db8:0:0:0:0:0:2]:2889:3889:participant;0.0.0.0:2182\n"+
		"server.3=zoo3:2888:3888:observer;[0:0:0:0:0:0:0:1]:2183\n"+
		"server.4=zoo5:2888:3888:participant\n"+
		"server.10=zoo4:2888:3888:participant\n"+
		"version=0"; got != want {
		t.Errorf("/zookeeper/config:\n%s\nwant:\n%s", got, want)
	}
}

func TestDefaults(t *testing.T) {
	var zero Config
	if err := zero.Validate(); err != nil {
		t.Fatal(err)
	}
	zero.MaxMemory = 4 << 30 // as it is by default where the machine has 8 GiB
	got := zero.WithDefaults()
	got.Logger = nil
	want := Config{
		Client:    Client{Addr: ":2181", MaxCnxnsPerAddr: 60, MaxCnxns: 16384, MaxSilentCnxns: 2000, MaxBuffer: 1048575, ConnectFillCount: 1, ConnectFillTime: time.Millisecond, HandshakeTimeout: 10 * time.Second, Backlog: -1},
		Data:      Data{Dir: "lockkeeper-data", LogDir: "lockkeeper-data", SlowFsync: time.Second, LogStore: store.LogWAL},
		Sessions:  Sessions{TickTime: 3 * time.Second, MinTimeout: 6 * time.Second, MaxTimeout: time.Minute},
		MaxMemory: 4 << 30,
		Limits: session.Limits{Outstanding: 1000, LargeBytes: 100 << 20, Identities: 100, IdentityBytes: 16 << 10,
			Response: 64 << 20, MultiReadOps: 1000, MultiReadBytes: 64 << 20, Memory: 256 << 20, WatchBytes: 256 << 20,
			Nodes: Unlimited, DataBytes: (4 << 30) / 5, Sessions: 131072, SessionsPerAddr: 1200,
			ACLEntries: 1000, ACLBytes: 64 << 10, Cost: 30 * time.Millisecond, Ephemerals: 15_000},
		Auth:    Auth{DigestAlgorithm: "SHA1"},
		HTTP:    HTTP{Conns: 32, ConnsPerAddr: 8, Locks: 100, LocksPerAddr: 50, LocksPerUser: 50, RequestTimeout: 2 * time.Second, IdleTimeout: 30 * time.Second, AdminBase: "/commands", SnapshotInterval: 5 * time.Minute},
		Console: Console{IndexBytes: 4 << 30 / 24, HistoryBytes: 8 << 20, Watchers: 16},
		Audit:   Audit{FileBytes: 10 << 20, Files: 10, QueueBytes: 16 << 20},
		TLS:     TLS{MaxHandshakes: 250, DetectTimeout: 5 * time.Second, PeerDetectTimeout: 5 * time.Second},
		Cluster: Cluster{FrameBytes: peer.DefaultFrameBytes, InitLimit: 10, SyncLimit: 5, ID: 1},
		Reap:    Reap{Interval: time.Minute, PerMinute: 10_000},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if !zero.Standalone() || zero.ConfigText() != "" {
		t.Errorf("the zero Config: standalone %v, config text %q", zero.Standalone(), zero.ConfigText())
	}

	small, got2 := load(t, base, "")
	small = small.WithDefaults()
	if small.Client.Addr != ":2181" || small.Client.MaxCnxnsPerAddr != 60 || len(got2) != 0 {
		t.Errorf("the smallest file: %+v, notices %q", small, got2)
	}
	unlimited, _ := load(t, base+"maxClientCnxns=0\nminSessionTimeout=-1\nmaxSessionTimeout=-1", "")
	unlimited = unlimited.WithDefaults()
	if unlimited.Client.MaxCnxnsPerAddr != Unlimited || unlimited.Sessions.MinTimeout != 6*time.Second {
		t.Errorf("maxClientCnxns=0 and minSessionTimeout=-1: %+v", unlimited)
	}
}

// TestConfigFaults has every reason not to start, as the operator reads it. %D is the directory of
// zoo.cfg.
func TestConfigFaults(t *testing.T) {
	const (
		voters  = "server.1=a:1:2\nserver.2=b:1:2\nserver.3=c:1:2\n"
		noTLS   = "this version has no TLS"
		noCert  = "nobody can prove to be the holder of a certificate: that takes secureClientPort or client.portUnification, and ssl.clientAuth other than none"
		secure  = base + "secureClientPort=2182\n"
		peers   = "members do not authenticate each other with SASL; peer.secretFile has them do it with a secret; set it to false to start without"
		members = "quorums by group and weight are not supported: a majority here is more than half of all participants, each counting once"
		form    = "must be host:peerPort:electionPort[:participant|observer][;[address:]clientPort]"
	)
	for name, c := range map[string]struct {
		text, myid string
		want       []string
	}{
		"nothing": {"", "", []string{"dataDir: is not set", "clientPort: is not set: there would be no port for clients"}},
		"several at once": {"clientPort=x\ndataDir=%D/data\ntickTime=0\nmaxClientCnxns=many\n", "", []string{
			`1: clientPort: must be a number, not "x"`,
			"3: tickTime: must be at least 1, not 0",
			`4: maxClientCnxns: must be a number, not "many"`}},
		"port range":        {"dataDir=%D/data\nclientPort=65536", "", []string{"2: clientPort: must be between 1 and 65535, not 65536"}},
		"port zero":         {"dataDir=%D/data\nclientPort=0", "", []string{"2: clientPort: must be between 1 and 65535, not 0"}},
		"port empty":        {"dataDir=%D/data\nclientPort=", "", []string{`2: clientPort: must be a number, not ""`}},
		"address, no port":  {"dataDir=%D/data\nclientPortAddress=::1", "", []string{"clientPort: is not set: there would be no port for clients", "2: clientPortAddress: is set, but clientPort is not"}},
		"no data directory": {"clientPort=1", "", []string{"dataDir: is not set"}},
		"empty directory":   {"clientPort=1\ndataDir=", "", []string{"2: dataDir: is empty"}},
		"a file":            {"clientPort=1\ndataDir=%D/zoo.cfg", "", []string{"2: dataDir: %D/zoo.cfg is not a directory"}},
		"log in a file":     {base + "dataLogDir=%D/zoo.cfg", "", []string{"3: dataLogDir: %D/zoo.cfg is not a directory"}},
		"must exist":        {"clientPort=1\ndatadir.autocreate=false\ndataDir=%D/x", "", []string{"3: dataDir: %D/x does not exist, and datadir.autocreate=false forbids to create it"}},
		"tick":              {base + "tickTime=2s", "", []string{`3: tickTime: must be a number, not "2s"`}},
		"tick overflow":     {base + "tickTime=99999999999", "", []string{"3: tickTime: must be at most 2147483647, not 99999999999"}},
		"min > max":         {base + "minSessionTimeout=9000\nmaxSessionTimeout=8000", "", []string{"3: minSessionTimeout: 9000 ms is more than maxSessionTimeout, 8000 ms"}},
		"min > default max": {base + "minSessionTimeout=90000", "", []string{"3: minSessionTimeout: 90000 ms is more than maxSessionTimeout, 60000 ms"}},
		"session timeout":   {base + "maxSessionTimeout=0", "", []string{"3: maxSessionTimeout: must be at least 1, not 0"}},
		"frames of peers":   {base + "peerFrameMaxBytes=150994943", "", []string{"3: peerFrameMaxBytes: must be at least 150994944, not 150994943"}},
		"maxMemory":         {base + "maxMemory=1000", "", []string{"3: maxMemory: must be at least 268435456, not 1000"}},
		"buffer":            {base + "jute.maxbuffer=1M", "", []string{`3: jute.maxbuffer: must be a number of bytes, not "1M"`}},
		"buffer range":      {base + "zookeeper.jute.maxbuffer=0x100000000", "", []string{`3: jute.maxbuffer: must be a number of bytes, not "0x100000000"`}},
		"identities":        {base + "maxIdentities=0\nmaxIdentityBytes=x", "", []string{"3: maxIdentities: must be between 1 and 4194304, not 0", `4: maxIdentityBytes: must be a number, not "x"`}},
		"memory": {base + "maxResponseBytes=100000000\nmaxClientMemory=150000000\nmaxWatchMemory=1", "", []string{
			"4: maxClientMemory: 150000000 bytes are less than two answers of maxResponseBytes, 100000000, take", "5: maxWatchMemory: must be at least 8388608, not 1"}},
		"two answers": {base + "maxResponseBytes=100000000\nmaxClientMemory=150000000", "", []string{"4: maxClientMemory: 150000000 bytes are less than two answers of maxResponseBytes, 100000000, take"}},
		"no frame is so long": {base + "jute.maxbuffer=4194304\nmaxIdentityBytes=1000000", "", []string{
			"4: maxIdentityBytes: a request of 4194304 bytes (jute.maxbuffer) with 100 identities of 1000000 bytes (maxIdentities, maxIdentityBytes) is a command of up to 5195560 bytes, and members exchange commands of at most 5177344"}},
		"handshake timeout":  {base + "nio.sessionlessCnxnTimeout=0", "", []string{"3: nio.sessionlessCnxnTimeout: must be at least 1, not 0"}},
		"boolean":            {base + "clientTcpKeepAlive=yes", "", []string{`3: clientTcpKeepAlive: must be true or false, not "yes"`}},
		"yes or no":          {base + "skipACL=true", "", []string{`3: skipACL: must be yes or no, not "true"`}},
		"logStore":           {base + "logStore=boltdb", "", []string{`3: logStore: must be wal or bolt, not "boltdb"`}},
		"empty logStore":     {base + "logStore=", "", []string{`3: logStore: must be wal or bolt, not ""`}},
		"snapCount":          {base + "snapCount=1", "", []string{"3: snapCount: must be at least 2, not 1"}},
		"initLimit":          {base + "initLimit=0", "", []string{"3: initLimit: must be at least 1, not 0"}},
		"syncLimit":          {base + "syncLimit=x", "", []string{`3: syncLimit: must be a number, not "x"`}},
		"backlog":            {base + "clientPortListenBacklog=-2", "", []string{"3: clientPortListenBacklog: must be at least -1, not -2"}},
		"peerType":           {base + "peerType=leader", "", []string{`3: peerType: must be participant or observer, not "leader"`}},
		"electionAlg":        {base + "electionAlg=0", "", []string{"3: electionAlg: ZooKeeper has only 3, and lockkeeper elects in its own way; remove the key"}},
		"superDigest":        {base + "DigestAuthenticationProvider.superDigest=super:secret", "", []string{"3: DigestAuthenticationProvider.superDigest: must be user:BASE64(SHA1(user:password)), not a password in clear"}},
		"superDigest, empty": {base + "zookeeper.DigestAuthenticationProvider.superDigest=", "", []string{"3: DigestAuthenticationProvider.superDigest: is empty"}},
		"twice":              {base + "tickTime=2000\ntickTime=3000", "", []string{"4: tickTime: is set twice: line 3 has another value"}},
		"twice, prefixed":    {base + "skipACL=no\nzookeeper.skipACL=yes", "", []string{"4: skipACL: is set twice: line 3 has another value"}},
		"syntax":             {base + `tickTime=\u20`, "", []string{`3: tickTime: \u needs four hexadecimal digits`}},

		"TLS port, no certificate": {"dataDir=%D/data\nsecureClientPort=2182", "", []string{"2: secureClientPort: needs the certificate of this server: tls.cert, or ssl.keyStore.location"}},
		"TLS address, no port":     {base + "secureClientPortAddress=::1", "", []string{"3: secureClientPortAddress: is set, but secureClientPort is not"}},
		"TLS for peers": {base + "sslQuorum=true", "", []string{
			"3: sslQuorum: needs the certificate of this server: tls.cert, or ssl.quorum.keyStore.location",
			"3: sslQuorum: needs the certificate authorities of the members: tls.ca, or ssl.quorum.trustStore.location"}},
		"SASL for peers":           {base + "quorum.auth.enableSasl=true\nquorum.auth.learnerRequireSasl=true\nquorum.auth.serverRequireSasl=true", "", []string{"3: quorum.auth.enableSasl: " + peers, "4: quorum.auth.learnerRequireSasl: " + peers, "5: quorum.auth.serverRequireSasl: " + peers}},
		"auth enforced":            {base + "zookeeper.enforce.auth.enabled=true\nenforce.auth.schemes=digest,x508", "", []string{"4: enforce.auth.schemes: this version cannot tell who somebody is by the scheme \"x508\"; it has digest, ip, key, sasl, x509"}},
		"auth enforced by nothing": {base + "enforce.auth.enabled=true", "", []string{"3: enforce.auth.enabled: needs enforce.auth.schemes, which says which schemes will do: some of digest, ip, key, sasl, x509"}},
		"limits":                   {base + "globalOutstandingLimit=0\nlargeRequestThreshold=x\nconnection_throttle_fill_time=0", "", []string{"3: globalOutstandingLimit: must be at least 1, not 0", "4: largeRequestThreshold: must be a number, not \"x\"", "5: connection_throttle_fill_time: must be at least 1, not 0"}},
		"SASL required":            {base + "sessionRequireClientSASLAuth=true", "", []string{"3: sessionRequireClientSASLAuth: nobody could log in with sasl: there are no users: java.security.auth.login.config or saslUsersFile has to name a file with them"}},
		"digest CRC":               {base + "DigestAuthenticationProvider.digestAlg=CRC", "", []string{"3: DigestAuthenticationProvider.digestAlg: \"CRC\" is none of MD5, SHA, SHA-1, SHA-224, SHA-256, SHA-384, SHA-512, SHA-512/224, SHA-512/256, SHA1, SHA3-224, SHA3-256, SHA3-384, SHA3-512"}},
		"unknown providers": {base + "authProvider.1=com.example.SASLAuthenticationProvider\nauthProvider.x=org.apache.zookeeper.server.auth.X509AuthenticationProvider\nauthProvider.3=com.example.Mine", "", []string{
			"3: authProvider.1: lockkeeper cannot load com.example.SASLAuthenticationProvider, so nobody can log in with its scheme; remove the key to start without",
			"4: authProvider.x: " + noCert,
			"5: authProvider.3: lockkeeper cannot load com.example.Mine, so nobody can log in with its scheme; remove the key to start without"}},
		"TLS on the plain ports": {base + "client.portUnification=true\nportUnification=true", "", []string{
			"3: client.portUnification: needs the certificate of this server: tls.cert, or ssl.keyStore.location",
			"4: portUnification: needs the certificate of this server: tls.cert, or ssl.quorum.keyStore.location",
			"4: portUnification: needs the certificate authorities of the members: tls.ca, or ssl.quorum.trustStore.location"}},
		"certificates at a port without TLS": {base + "admin.needClientAuth=true\nenforce.auth.enabled=true\nenforce.auth.schemes=x509", "", []string{
			"3: admin.needClientAuth: needs admin.forceHttps, admin.portUnification or metricsProvider.forceHttps: without TLS nobody shows a certificate",
			"5: enforce.auth.schemes: " + noCert}},
		"no authorities": {secure + "tls.cert=/c", "", []string{"ssl.clientAuth: is need (the default), and there are no certificate authorities: " +
			"set tls.ca or ssl.trustStore.location, or ssl.clientAuth=none to serve clients without certificates"}},
		"revocation": {secure + "tls.cert=/c\ntls.ca=/c\nssl.crl=true\nssl.ocsp=true\nssl.crlFile=", "", []string{
			"6: ssl.crl: needs ssl.crlFile or tls.crl: lockkeeper downloads no revocation lists",
			"7: ssl.ocsp: lockkeeper asks no OCSP responder; use ssl.crlFile; set it to false to start without",
			"8: ssl.crlFile: is empty"}},
		"old TLS": {secure + "tls.cert=/c\ntls.ca=/c\nssl.protocol=TLSv1.1\nssl.enabledProtocols=TLSv1,SSLv3\nssl.quorum.enabledProtocols=TLSv1.4", "", []string{
			`6: ssl.protocol: must be TLSv1.2, TLSv1.3 or TLS, not "TLSv1.1": nothing older is spoken`,
			"7: ssl.enabledProtocols: has neither TLSv1.2 nor TLSv1.3: nothing older is spoken, whatever the file says",
			`8: ssl.quorum.enabledProtocols: "TLSv1.4" is no protocol: TLSv1.2 and TLSv1.3 are spoken`}},
		"cipher suites": {secure + "tls.cert=/c\ntls.ca=/c\nssl.ciphersuites=TLS_AES_128_GCM_SHA256\nssl.protocol=TLSv1.2", "", []string{
			"6: ssl.ciphersuites: has no cipher suite for the versions that ssl.enabledProtocols and ssl.protocol allow"}},
		"stores": {secure + "ssl.keyStore.location=/k\nssl.keyStore.type=BCFKS\nssl.trustStore.location=/t\nssl.trustStore.type=DER\nssl.authProvider=x\nssl.context.supplier.class=X", "", []string{
			"5: ssl.keyStore.type: BCFKS cannot be read; convert it to PEM, PKCS12 or JKS (keytool -importkeystore)",
			`7: ssl.trustStore.type: must be PEM, PKCS12 or JKS, not "DER"`,
			`8: ssl.authProvider: must be x509, not "x": there is no other provider for the holders of certificates`,
			"9: ssl.context.supplier.class: lockkeeper can load no class; remove the key, and name stores with ssl.keyStore.location"}},
		"names of holders": {secure + "tls.cert=/c\ntls.ca=/c\nssl.x509.clientCertIdType=SAN\nssl.x509.clientCertIdSanMatchType=4\nssl.x509.clientCertIdSanMatchRegex=(\nssl.x509.clientCertIdSanExtractMatcherGroupIndex=1", "", []string{
			"7: ssl.x509.clientCertIdSanMatchType: must be 1 (e-mail address), 2 (DNS name), 6 (URI) or 7 (IP address), not 4",
			"8: ssl.x509.clientCertIdSanMatchRegex: error parsing regexp: missing closing ): `(`",
			"9: ssl.x509.clientCertIdSanExtractMatcherGroupIndex: is 1, and the expression has 0 groups"}},
		"one port for both": {base + "secureClientPort=2181\ntls.cert=/c\ntls.ca=/c", "", []string{"3: secureClientPort: is the same as clientPort; client.portUnification=true has one port for both"}},
		"certificates, no TLS": {base + "ssl.clientAuth=need", "", []string{`3: ssl.clientAuth: is need, and no port for clients speaks TLS (secureClientPort, client.portUnification): ` +
			`clients would come in without a certificate; remove the key to start without TLS`}},
		"certificates, odd": {base + "ssl.clientAuth=yes", "", []string{`3: ssl.clientAuth: must be need, want or none, not "yes"`}},
		"audit":             {base + "audit.enable=true\naudit.impl.class=x.Mine", "", []string{"4: audit.impl.class: lockkeeper cannot load x.Mine; remove the key to have the lines of org.apache.zookeeper.audit.Slf4jAuditLogger"}},
		"ensemble name":     {base + "ensembleAuthName=prod,", "", []string{"3: ensembleAuthName: has an empty name"}},
		"Kerberos": {base + "kerberos.removeRealmFromPrincipal=true\nsecurity.auth_to_local=DEFAULT\nrequireKerberosConfig=true", "", []string{
			"3: kerberos.removeRealmFromPrincipal: " + noKerberos + "; set it to false to start without",
			"4: security.auth_to_local: " + noKerberos + "; remove the key to start without",
			"5: requireKerberosConfig: " + noKerberos + "; set it to false to start without"}},
		"no such users": {base + "java.security.auth.login.config=%D/none\nsaslUsersFile=\nsuperUser=", "", []string{"3: java.security.auth.login.config: %D/none: no such file or directory", "4: saslUsersFile: is empty", "5: superUser: is empty"}},
		"rate quotas": {base + "rateQuota.01=writes=1 for ip:*\nrateQuota.1=writes=1\nrateQuota.2=reads=1 for ip:*\nrateQuota.3=writes=0 for ip:*\nrateQuota.4=writes=x for ip:*\nrateQuota.5=writes=1 writes=1 for ip:*\n" +
			"rateQuota.6=sessions=1 for /a\nrateQuota.7=writes=1 for world:anyone\nrateQuota.8=writes=1 for /a/*/b\nrateQuota.9=writes=1 for ip:host\nrateQuota.10=writes=1 for /", "", []string{
			"3: rateQuota.01: the number of a rate quota must be between 0 and 65535, without leading zeros",
			`4: rateQuota.1: must be bounds, "for" and a tenant, as in "writes=100 for ip:*", not "writes=1"`,
			`5: rateQuota.2: "reads" is none of bytes, requests, sessions, watches and writes`,
			"6: rateQuota.3: writes: must be at least 1, not 0",
			`7: rateQuota.4: writes must be a number, not "x"`,
			"8: rateQuota.5: writes is there twice",
			"9: rateQuota.6: the quota of a subtree has no bound for sessions: only one of an identity has",
			`10: rateQuota.7: "world:anyone" is neither a path nor an identity: a scheme (digest, ip, sasl, x509), a colon, and an id or *`,
			`11: rateQuota.8: "/a/*/b" is neither the path of a subtree nor one with /* behind it`,
			`12: rateQuota.9: "host" is no IP address`,
			`13: rateQuota.10: "/" is neither the path of a subtree nor one with /* behind it`}},
		"schemes without": {base + "enforce.auth.enabled=true\nenforce.auth.schemes=key,digest\nDigestAuthenticationProvider.enabled=false", "", []string{"4: enforce.auth.schemes: nobody could log in with key: authProvider.N=org.apache.zookeeper.server.auth.KeyAuthenticationProvider is missing", "4: enforce.auth.schemes: nobody could log in with digest: DigestAuthenticationProvider.enabled=false switches it off"}},

		"misspelt":           {base + "tikcTime=2000", "", []string{"3: tikcTime: there is no such key; tickTime is probably meant (-allow-unknown-keys ignores keys like this one)"}},
		"misspelt, case":     {base + "maxclientcnxns=7", "", []string{"3: maxclientcnxns: there is no such key; maxClientCnxns is probably meant (-allow-unknown-keys ignores keys like this one)"}},
		"misspelt, prefixed": {base + "zookeeper.tickTime=1", "", []string{"3: zookeeper.tickTime: there is no such key; tickTime is probably meant (-allow-unknown-keys ignores keys like this one)"}},
		"misspelt, its value is wrong too": {"clientport=x\ndataDri=%D/zoo.cfg\n", "", []string{
			"1: clientport: there is no such key; clientPort is probably meant (-allow-unknown-keys ignores keys like this one)",
			`1: clientPort: must be a number, not "x"`,
			"2: dataDri: there is no such key; dataDir is probably meant (-allow-unknown-keys ignores keys like this one)",
			"2: dataDir: %D/zoo.cfg is not a directory"}},
		"misspelt beside the right one": {base + "ticktime=1\ntickTime=2000", "", []string{"3: ticktime: there is no such key; tickTime is probably meant (-allow-unknown-keys ignores keys like this one)"}},
		"misspelt server line": {base + "server1=a:1:2\nserver.2=b:1:2\nserver.3=c:1\n", "1", []string{
			"3: server1: there is no such key; server.1 is probably meant (-allow-unknown-keys ignores keys like this one)",
			"5: server.3: " + form}},
		"twice, both wrong": {base + "tickTime=a\ntickTime=b", "", []string{`3: tickTime: must be a number, not "a"`, "4: tickTime: is set twice: line 3 has another value", `4: tickTime: must be a number, not "b"`}},
		"server lines and myid wrong": {base + "server.1=a\nserver.2=b\n", "x", []string{
			"3: server.1: " + form, "4: server.2: " + form, `%D/data/myid:1: myid: "x" is not a number from 0 to 255`}},
		"no port, no directory": {"tickTime=2000\n" + voters, "1", []string{"dataDir: is not set", "clientPort: is not set: there would be no port for clients"}},
		"no port, no myid": {"dataDir=%D/data\n" + voters, "", []string{"%D/data/myid: myid: the file is missing; a member of a cluster needs it: one line with the N of its server.N line",
			"clientPort: is not set: there would be no port for clients"}},
		"min > max, max wrong": {base + "minSessionTimeout=90000\nmaxSessionTimeout=x", "", []string{`4: maxSessionTimeout: must be a number, not "x"`}},
		"everything": {"clientPrt=2181\ndataDir=%D/zoo.cfg\ntickTime=0\nsecureClientPort=2182\nssl.clientAuth=need\nserver.1=a:1:2\nserver.2=b:7:7\nserver.3=c:1:2:voter\ngroup.1=1:2\nsyncLimit=\\u12\n", "1", []string{
			"1: clientPrt: there is no such key; clientPort is probably meant (-allow-unknown-keys ignores keys like this one)",
			"2: dataDir: %D/zoo.cfg is not a directory",
			"3: tickTime: must be at least 1, not 0",
			"4: secureClientPort: needs the certificate of this server: tls.cert, or ssl.keyStore.location",
			"7: server.2: peer port and election port must differ",
			`8: server.3: role must be participant or observer, not "voter"`,
			"9: group.1: " + members,
			`10: syncLimit: \u needs four hexadecimal digits`}},
		"hierarchy": {base + three + "group.1=1:2:3\nweight.1=2", "1", []string{"6: group.1: " + members, "7: weight.1: " + members}},

		"myid missing":      {base + three, "", []string{"%D/data/myid: myid: the file is missing; a member of a cluster needs it: one line with the N of its server.N line"}},
		"myid empty":        {base + three, "\n", []string{`%D/data/myid:1: myid: "" is not a number from 0 to 255`}},
		"myid blank":        {base + three, "1 \n", []string{`%D/data/myid:1: myid: "1 " is not a number from 0 to 255`}},
		"myid too big":      {base + three, "256", []string{`%D/data/myid:1: myid: "256" is not a number from 0 to 255`}},
		"myid not a member": {base + three, "4", []string{"%D/data/myid:1: myid: 4 is not the number of a member: there is no server.4"}},

		"member number":        {base + three + "server.256=d:1:2", "1", []string{"6: server.256: the number of a member must be between 0 and 255, without leading zeros"}},
		"member number, zeros": {base + three + "server.01=d:1:2", "1", []string{"6: server.01: the number of a member must be between 0 and 255, without leading zeros"}},
		"member name":          {base + three + "server.x=d:1:2", "1", []string{"6: server.x: the number of a member must be between 0 and 255, without leading zeros"}},
		"member twice":         {base + three + "server.1=d:1:2", "1", []string{"6: server.1: is set twice: line 3 has another value"}},
		"member form":          {base + voters + "server.4=d:1", "1", []string{"6: server.4: " + form}},
		"member form, more":    {base + voters + "server.4=d:1:2:observer:x", "1", []string{"6: server.4: " + form}},
		"member host":          {base + voters + "server.4=:1:2", "1", []string{"6: server.4: the host is missing"}},
		"member host, odd":     {base + voters + "server.4=a b:1:2", "1", []string{`6: server.4: "a b" is no host`}},
		"member IPv6":          {base + voters + "server.4=::1:1:2", "1", []string{"6: server.4: the host is missing"}},
		"member IPv6, open":    {base + voters + "server.4=[::1:1:2", "1", []string{"6: server.4: the bracket around the IPv6 address must be closed and followed by ':'"}},
		"member IPv6, wrong":   {base + voters + "server.4=[::x]:1:2", "1", []string{`6: server.4: "::x" is no IPv6 address`}},
		"member peer port":     {base + voters + "server.4=d:0:2", "1", []string{`6: server.4: peer port: "0" is no port number (1 to 65535)`}},
		"member election port": {base + voters + "server.4=d:1:2x", "1", []string{`6: server.4: election port: "2x" is no port number (1 to 65535)`}},
		"member, one port":     {base + voters + "server.4=d:7:7", "1", []string{"6: server.4: peer port and election port must differ"}},
		"member role":          {base + voters + "server.4=d:1:2:voter", "1", []string{`6: server.4: role must be participant or observer, not "voter"`}},
		"member client port":   {base + voters + "server.4=d:1:2;x", "1", []string{`6: server.4: client part: "x" is no port number (1 to 65535)`}},
		"member client addr":   {base + voters + "server.4=d:1:2;[::1:9", "1", []string{"6: server.4: client part: the bracket around the IPv6 address must be closed and followed by ':'"}},
		"member, secure port":  {base + voters + "server.4=d:1:2;;2281", "1", []string{"6: server.4: a port for TLS after a second ';' is not supported: set secureClientPort in the zoo.cfg of the member, and leave the part out"}},
		"member, both ports":   {base + voters + "server.4=d:1:2;2181;h:2281", "1", []string{"6: server.4: a port for TLS after a second ';' is not supported: set secureClientPort in the zoo.cfg of the member, and leave the part out"}},
		"local sessions":       {base + "localSessionsEnabled=true", "", []string{"3: localSessionsEnabled: there are no local sessions: every session is known to the whole cluster, and may create ephemeral nodes, which a local one of ZooKeeper may not; remove the key, or set localSessionsUpgradingEnabled=true as well"}},
		"local sessions, no":   {base + "localSessionsEnabled=true\nlocalSessionsUpgradingEnabled=false", "", []string{"3: localSessionsEnabled: there are no local sessions: every session is known to the whole cluster, and may create ephemeral nodes, which a local one of ZooKeeper may not; remove the key, or set localSessionsUpgradingEnabled=true as well"}},
		"member, addresses":    {base + voters + "server.4=d:1:2|e:1:2", "1", []string{"6: server.4: several addresses for one member (multiAddress) are not supported; give the one that its peers should use"}},
		"one address":          {base + voters + "server.4=b:1:3", "1", []string{"6: server.4: has the same address and peer port as server.2"}},

		"client port contradicts": {base + "server.1=a:1:2;2182\nserver.2=b:1:2\nserver.3=c:1:2", "1", []string{"1: clientPort: says :2181, but server.1 says 0.0.0.0:2182"}},
		"client addr contradicts": {base + "clientPortAddress=192.0.2.1\nserver.1=a:1:2;2181\nserver.2=b:1:2\nserver.3=c:1:2", "1", []string{"1: clientPort: says 192.0.2.1:2181, but server.1 says 0.0.0.0:2181"}},
		"no client port":          {"dataDir=%D/data\n" + voters, "1", []string{"clientPort: is not set: there would be no port for clients"}},

		"no members, not standalone": {base + "standaloneEnabled=false", "", []string{"3: standaloneEnabled: is false, and there is no server line: a cluster needs at least one participant"}},
		"observer alone":             {base + "peerType=observer", "", []string{"3: peerType: is observer, and there is no server line: there is nobody to observe"}},
		"observers only":             {base + "server.1=a:1:2:observer\nserver.2=b:1:2:observer", "1", []string{"3: server.1: observers without a participant: nobody could elect a leader"}},
		"observers of one":           {base + "server.1=a:1:2\nserver.2=b:1:2:observer", "1", []string{"standaloneEnabled: one participant stands alone unless standaloneEnabled=false, and then its 1 observers could not follow it"}},
		"standaloneEnabled":          {base + "standaloneEnabled=no", "", []string{`3: standaloneEnabled: must be true or false, not "no"`}},

		"dynamic file missing": {base + "dynamicConfigFile=%D/dyn", "", []string{"3: dynamicConfigFile: no such file or directory"}},
		"dynamic and static":   {base + "dynamicConfigFile=%D/zoo.cfg\nserver.1=a:1:2", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			file, dir := writeConfig(t, c.text, c.myid)
			cfg, err := Load(file)
			if err == nil {
				t.Fatalf("no fault; %+v", cfg)
			}
			if c.want == nil {
				return // its own test has the texts
			}
			var want []string
			for _, w := range c.want {
				switch {
				case strings.HasPrefix(w, "%D"):
				case w[0] >= '0' && w[0] <= '9':
					w = "%D/zoo.cfg:" + w
				default:
					w = "%D/zoo.cfg: " + w
				}
				want = append(want, strings.ReplaceAll(w, "%D", dir))
			}
			if got := strings.Split(err.Error(), "\n"); !slices.Equal(got, want) {
				t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			var faults Faults
			if !errors.As(err, &faults) {
				t.Errorf("the error is a %T", err)
			}
		})
	}
}

func TestConfigFileMissing(t *testing.T) {
	_, err := Load("/nonexistent/zoo.cfg")
	if want := "server: read configuration /nonexistent/zoo.cfg: no such file or directory"; err == nil || err.Error() != want || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestDynamicConfigFile(t *testing.T) {
	file, dir := writeConfig(t, "dataDir=%D/data\nstandaloneEnabled=false\nreconfigEnabled=false\ndynamicConfigFile=%D/zoo.cfg.dynamic\n", "2")
	dynamic := filepath.Join(dir, "zoo.cfg.dynamic")
	writeFile(t, dynamic, "server.1=a:1:2:participant;2181\nserver.2=b:1:2:participant;0.0.0.0:2182\nserver.3=c:1:2:participant;2183")
	cfg, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Cluster.Members) != 3 || cfg.Cluster.ID != 2 || cfg.Client.Addr != "0.0.0.0:2182" {
		t.Errorf("got %+v", cfg)
	}

	writeFile(t, dynamic, "server.1=a:1:2\nversion=100000000\nserver.2=b:1\n")
	_, err = Load(file)
	want := dynamic + ":2: version: does not belong in a dynamic configuration file, which has server lines only\n" +
		dynamic + ":3: server.2: must be host:peerPort:electionPort[:participant|observer][;[address:]clientPort]"
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}

	writeFile(t, dynamic, "# nothing\n")
	writeFile(t, file, "clientPort=1\ndataDir="+dir+"/data\ndynamicConfigFile="+dynamic)
	_, err = Load(file)
	if want := file + ":3: dynamicConfigFile: " + dynamic + " has no server line"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}

	writeFile(t, file, "clientPort=1\ndataDir="+dir+"/data\nserver.1=a:1:2\ndynamicConfigFile="+dynamic)
	_, err = Load(file)
	if want := file + ":3: server.1: must stand in the file that dynamicConfigFile names, as all server lines"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestConfigNotices has what an operator is told about a configuration that works.
func TestConfigNotices(t *testing.T) {
	const (
		secure   = base + "secureClientPort=2182\n"
		unneeded = "INFO zoo.cfg : ZooKeeper has these settings and lockkeeper does not need them: ignored: "
		noTLS    = "WARN zoo.cfg : no port for clients speaks TLS (secureClientPort, client.portUnification): without effect: "
		noSASL   = "WARN zoo.cfg : these settings describe uses of SASL that this version does not have: without effect: "
	)
	two := "server.1=a:1:2\nserver.2=b:1:2\n"
	for name, c := range map[string]struct {
		text, myid string
		want       []string
	}{
		"unneeded": {base + "preAllocSize=1\nautopurge.purgeInterval=24\nzookeeper.admin.httpVersion=11\n", "", []string{unneeded + "admin.httpVersion, autopurge.purgeInterval, preAllocSize"}},
		"metrics":  {base + "metricsProvider.httpPort=7000", "", []string{"WARN zoo.cfg:3 metricsProvider.httpPort: without effect: metricsProvider.className=" + prometheusProvider + " is missing"}},
		"TLS":      {base + "ssl.keyStore.location=/k\nssl.quorum.trustStore.password=x\nssl.clientAuth=want\nfips-mode=false", "", []string{noTLS + "ssl.clientAuth, ssl.keyStore.location"}},
		"old TLS": {secure + "tls.cert=/c\ntls.ca=/c\nssl.enabledProtocols=TLSv1.1,TLSv1.2\nssl.ciphersuites=TLS_RSA_WITH_AES_128_CBC_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "", []string{
			"WARN zoo.cfg:6 ssl.enabledProtocols: TLSv1.1: not spoken, whatever this says; TLSv1.2 and TLSv1.3 are",
			"WARN zoo.cfg:7 ssl.ciphersuites: TLS_RSA_WITH_AES_128_CBC_SHA256: not there, or not secure: ignored"}},
		"HTTPS without HTTP":               {base + "admin.forceHttps=true", "", []string{"WARN zoo.cfg admin.enableServer: is not true: there is no HTTP port, and nothing to have TLS"}},
		"SASL":                             {base + "quorum.auth.learner.saslLoginContext=x\nkerberos.removeRealmFromPrincipal=false", "", []string{noSASL + "quorum.auth.learner.saslLoginContext"}},
		"SASL by a key that means nothing": {base + "requireClientAuthScheme=sasl", "", []string{"WARN zoo.cfg:3 requireClientAuthScheme: " + noRequireClientAuthScheme}},
		"SASL without users": {base + "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\nsuperUser=x", "", []string{
			"WARN zoo.cfg:3 authProvider.1: no file names the users of SASL (java.security.auth.login.config, saslUsersFile): ACLs may name them, and nobody can log in",
			`WARN zoo.cfg:4 superUser: there is no SASL user "x"`}},
		"off":                   {base + "sslQuorum=false\nreconfigEnabled=false\nforceSync=yes\nlocalSessionsEnabled=false\nenforce.auth.enabled=false\nlargeRequestThreshold=-1\noraclePath=x", "", []string{"WARN zoo.cfg:9 oraclePath: there is no oracle: with two voters, either one's failure stops the cluster"}},
		"unknown":               {base + "tickTimeMs=2000", "", []string{"WARN zoo.cfg:3 tickTimeMs: neither ZooKeeper nor lockkeeper knows this key; ignored. The nearest known key is tickTime"}},
		"twice":                 {base + "tickTime=1\ntickTime=1", "", []string{"WARN zoo.cfg:4 tickTime: is set twice, to the same value: line 3"}},
		"forceSync":             {base + "forceSync=no", "", []string{"WARN zoo.cfg:3 forceSync: every update is on disk before it is answered, whatever this says"}},
		"local":                 {base + "localSessionsEnabled=true\nlocalSessionsUpgradingEnabled=true", "", nil},
		"leader":                {base + "leaderServes=no", "", []string{"WARN zoo.cfg:3 leaderServes: the leader serves clients like every other member"}},
		"admin":                 {base + "admin.enableServer=true", "", nil},
		"admin off":             {base + "admin.enableServer=false", "", nil},
		"metrics in Prometheus": {base + "metricsProvider.className=" + prometheusProvider, "", nil},
		"metrics elsewhere": {base + "metricsProvider.className=org.example.Metrics", "", []string{
			"WARN zoo.cfg:3 metricsProvider.className: lockkeeper loads no Java classes, and knows " + prometheusProvider + "; the four-letter word mntr has the metrics"}},
		"auth providers": {base + "authProvider.2=org.apache.zookeeper.server.auth.DigestAuthenticationProvider", "", []string{unneeded + "authProvider.2"}},
		"skipACL":        {base + "skipACL=yes", "", []string{"WARN zoo.cfg:3 skipACL: no ACL is checked: every client may do everything"}},
		"whitelist":      {base + "4lw.commands.whitelist=ruok,rouk,*", "", []string{`WARN zoo.cfg:3 4lw.commands.whitelist: there is no four-letter word "rouk"`}},
		"buffer":         {base + "jute.maxbuffer=0x3200000", "", []string{"WARN zoo.cfg:3 jute.maxbuffer: a request of more than 4194304 bytes is refused, whatever this says; replies have another limit, maxResponseBytes"}},
		"small buffer":   {base + "jute.maxbuffer=0x3ff", "", nil},
		"no buffer":      {base + "jute.maxbuffer=-1", "", []string{"WARN zoo.cfg:3 jute.maxbuffer: no client can connect: the first request alone has 45 bytes"}},
		"three":          {base + three, "1", nil},
		"peerType":       {base + three + "server.4=d:1:2:observer\npeerType=observer", "1", []string{"WARN zoo.cfg:7 peerType: differs from the role in the line of server.1, which counts"}},
		"one":            {base + "server.1=a:1:2", "", []string{"WARN zoo.cfg:3 server.1: is the only server line: this member stands alone and ignores it (standaloneEnabled=false would make it a cluster of one)"}},
		"one cluster":    {base + "server.1=a:1:2\nstandaloneEnabled=false", "1", nil},
		"two": {base + two, "1", []string{"WARN zoo.cfg : 2 voters tolerate the failure of 0, no more than 1 voters do: a side may act only if it holds more than half (set.size > 2/2), " +
			"so a split into two halves stops both"}},
		"two and an observer": {base + two + "server.3=c:1:2:observer", "1", []string{"WARN zoo.cfg : 2 voters tolerate the failure of 0, no more than 1 voters do: a side may act only if it holds more than half (set.size > 2/2), " +
			"so a split into two halves stops both"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, got := load(t, c.text, c.myid)
			if !slices.Equal(got, c.want) {
				t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// TestAllowUnknownKeys: for those whose files have keys that look like ours and are not.
func TestAllowUnknownKeys(t *testing.T) {
	file, _ := writeConfig(t, base+"ticktime=1\nserver1=x\n", "")
	cfg, err := Load(file, AllowUnknownKeys)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Sessions.TickTime != 0 || len(cfg.Cluster.Members) != 0 {
		t.Errorf("the unknown keys have an effect: %+v", cfg)
	}
	var got []string
	for _, n := range cfg.Notices() {
		got = append(got, strings.TrimPrefix(n.String(), file))
	}
	want := []string{
		":3: ticktime: warning: neither ZooKeeper nor lockkeeper knows this key; ignored, though it looks like tickTime",
		":4: server1: warning: neither ZooKeeper nor lockkeeper knows this key; ignored, though it looks like server.1"}
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestNoticesBesideFaults: what a refused file has only warnings for is told as well.
func TestNoticesBesideFaults(t *testing.T) {
	file, _ := writeConfig(t, base+"tickTimeMs=1\ntickTime=x\n", "")
	cfg, err := Load(file)
	if err == nil || len(cfg.Notices()) != 1 || !strings.Contains(cfg.Notices()[0].String(), ":3: tickTimeMs: warning: ") {
		t.Errorf("%v, notices %v", err, cfg.Notices())
	}
}

func TestStartModes(t *testing.T) {
	for name, c := range map[string]struct {
		text       string
		standalone bool
		members    int
		client     string
	}{
		"no server line":              {base, true, 0, ":2181"},
		"one":                         {base + "server.1=a:1:2", true, 0, ":2181"},
		"one with a client port":      {"dataDir=%D/data\nserver.1=a:1:2;127.0.0.1:2182", true, 0, "127.0.0.1:2182"},
		"one as a cluster":            {base + "standaloneEnabled=false\nserver.1=a:1:2", false, 1, ":2181"},
		"one, observed":               {base + "standaloneEnabled=false\nserver.1=a:1:2\nserver.2=b:1:2:observer", false, 2, ":2181"},
		"three":                       {base + three, false, 3, ":2181"},
		"client port in both":         {base + "server.1=a:1:2;2181\nserver.2=b:1:2\nserver.3=c:1:2", false, 3, "0.0.0.0:2181"},
		"client address in both":      {base + "clientPortAddress=0.0.0.0\nserver.1=a:1:2;127.0.0.1:2181\nserver.2=b:1:2", false, 2, "127.0.0.1:2181"},
		"client address with bracket": {base + "clientPortAddress=[::1]", true, 0, "[::1]:2181"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, _ := load(t, c.text, "1")
			if cfg.Standalone() != c.standalone || len(cfg.Cluster.Members) != c.members || cfg.Client.Addr != c.client {
				t.Errorf("standalone %v, %d members, clients at %s; want %v, %d, %s",
					cfg.Standalone(), len(cfg.Cluster.Members), cfg.Client.Addr, c.standalone, c.members, c.client)
			}
		})
	}
}

// TestKnownKeys checks that every key of ZooKeeper's own parser and of its list of properties is
// known: it never gets "neither ZooKeeper nor lockkeeper knows this key".
func TestKnownKeys(t *testing.T) {
	text, err := os.ReadFile("testdata/zookeeper-keys.txt")
	if err != nil {
		t.Fatal(err)
	}
	keys := strings.Fields(string(text))
	if len(keys) < 150 {
		t.Fatalf("only %d keys", len(keys))
	}
	for _, key := range keys {
		if def, _ := lookupKey(key); def == nil {
			t.Errorf("%s is unknown", key)
		}
	}
}

func TestValidateByHand(t *testing.T) {
	cfg := Config{Client: Client{Addr: "nowhere", MaxBuffer: MaxMaxBuffer + 1}, Sessions: Sessions{TickTime: time.Microsecond}, Data: Data{SnapCount: 1}, Cluster: Cluster{Members: []Member{
		{ID: 1, Host: "a", PeerPort: 1, ElectionPort: 2}, {ID: 1, Host: "a", PeerPort: 1, ElectionPort: 2}}, ID: 2}}
	want := []string{
		`clientPort: "nowhere" is not host:port: address nowhere: missing port in address`,
		"snapCount: must be at least 2, not 1",
		"tickTime: must be whole milliseconds",
		"jute.maxbuffer: must be between 1 and 4194304 bytes",
		"server.1: two members have this number",
		"server.1: has the same address and peer port as server.1",
		"myid: 2 is not the number of a member: there is no server.2",
	}
	err := cfg.Validate()
	if err == nil || err.Error() != strings.Join(want, "\n") {
		t.Errorf("got:\n%v\nwant:\n%s", err, strings.Join(want, "\n"))
	}
}

func TestNoticeLog(t *testing.T) {
	var b strings.Builder
	l := slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	Notice{slog.LevelWarn, "zoo.cfg", 3, "skipACL", "careful"}.Log(l)
	Notice{Level: slog.LevelInfo, Text: "plain"}.Log(l)
	if want := "level=WARN msg=careful file=zoo.cfg line=3 key=skipACL\nlevel=INFO msg=plain\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

// The port for metrics is there if the file names the provider, with ZooKeeper's defaults.
func TestMetricsPort(t *testing.T) {
	const on = base + "metricsProvider.className=" + prometheusProvider + "\n"
	for text, want := range map[string]string{
		base:                                     "",
		base + "metricsProvider.httpPort=7070\n": "",
		on:                                       ":7000",
		on + "metricsProvider.httpHost=127.0.0.1\nmetricsProvider.httpPort=7070\n": "127.0.0.1:7070",
		on + "metricsProvider.httpHost=[::1]\n":                                    "[::1]:7000",
	} {
		if cfg, _ := load(t, text, ""); cfg.Metrics.Addr != want {
			t.Errorf("%q: metrics at %q, want %q", text, cfg.Metrics.Addr, want)
		}
	}
	if cfg, _ := load(t, on+"metricsProvider.exportJvmInfo=false\nfsync.warningthresholdms=50\n", ""); !cfg.Metrics.NoProcess || cfg.Data.SlowFsync != 50*time.Millisecond {
		t.Errorf("no process metrics %t, slow fsync %v", cfg.Metrics.NoProcess, cfg.Data.SlowFsync)
	}
}

// TestMyID: the number of the command line counts where there is no file, and a file with another
// one is a fault.
func TestMyID(t *testing.T) {
	const voters = "clientPort=2181\ndataDir=%D/data\nserver.1=a:2888:3888\nserver.2=b:2888:3888\n"
	for _, tt := range []struct {
		file  string
		id    uint8
		write bool
		fault string
	}{
		{"", 2, true, ""},
		{"2\n", 2, false, ""},
		{"1\n", 2, false, "myid: the data is that of member 1, and the member is to be number 2"},
		{"", 3, false, "myid: 3 is not the number of a member: there is no server.3"},
	} {
		file, _ := writeConfig(t, voters, tt.file)
		cfg, err := Load(file, MyID(tt.id))
		if tt.fault != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("file %q, number %d: %v, want %q", tt.file, tt.id, err, tt.fault)
			}
			continue
		}
		if err != nil || cfg.Cluster.ID != tt.id || cfg.Cluster.WriteMyID != tt.write {
			t.Errorf("file %q, number %d: member %d, to be written %v, %v", tt.file, tt.id, cfg.Cluster.ID, cfg.Cluster.WriteMyID, err)
		}
	}
}
