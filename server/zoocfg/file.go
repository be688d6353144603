package zoocfg

import (
	"cmp"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lockkeeper/znode"
)

// Option changes how Load reads a file.
type Option func(*loader)

// AllowUnknownKeys makes a key that looks like a misspelt one a warning instead of a fault.
func AllowUnknownKeys(l *loader) { l.allowUnknown = true }

// MyID is the number of the member if dataDir/myid is missing, which the start then writes. A file
// with another number is a fault.
func MyID(id uint8) Option { return func(l *loader) { l.myID = &id } }

// AnyMember reads no myid: the Config is that of the first member. It is for programs that need
// what the members have in common, on any machine.
func AnyMember(l *loader) { l.anyMember = true }

// Load reads a zoo.cfg, the dynamic file that it names, and dataDir/myid. The error is Faults with
// everything that is wrong, unless the file itself cannot be read; the Config then has nothing but
// its Notices, which do not stop a start.
func Load(file string, options ...Option) (Config, error) {
	l := newLoader(file)
	for _, option := range options {
		option(l)
	}
	props, faults, err := readProperties(file)
	if err != nil {
		return Config{}, err
	}
	l.faults = faults
	for _, p := range props {
		l.take(p)
	}
	l.takeMisspelt()
	l.loadDynamic()
	l.finish()
	l.warnOfReadableSecrets(props)
	if err := l.cfg.Validate(); err != nil {
		var more Faults
		if !errors.As(err, &more) {
			return Config{}, err
		}
		for _, f := range more {
			if !l.faulty(f.Key) && !l.follows(f) { // otherwise it may be no more than a consequence
				l.faults = append(l.faults, f)
			}
		}
	}
	if len(l.faults) > 0 {
		// Faults of the same line stay in the order in which they were found.
		slices.SortStableFunc(l.faults, func(a, b Fault) int {
			if a.File != b.File {
				return 0
			}
			return a.Line - b.Line
		})
		return Config{File: file, notices: l.notices}, l.faults
	}
	l.cfg.notices = l.notices
	return l.cfg, nil
}

// loader reads a file: it applies one property after the other, and finish then decides by several
// keys together.
type loader struct {
	report
	cfg Config

	client, http, metrics endpoint
	observer              bool   // peerType=observer
	standalone            bool   // standaloneEnabled
	httpOn, httpOff       bool   // admin.enableServer=true, =false
	metricsOn             bool   // metricsProvider.className
	requireLogin          bool   // admin.requireLogin
	dynamic               string // dynamicConfigFile

	members     []Member
	rateQuotas  []numberedQuota
	tls         tlsLoader
	logins      loginLoader
	ineffective [len(categories)][]string

	allowUnknown bool       // see AllowUnknownKeys
	myID         *uint8     // see MyID
	anyMember    bool       // see AnyMember
	misspelt     []property // under the keys that were probably meant
}

// endpoint is the address of a port, of which two keys have a part each.
type endpoint struct {
	port int // 0 = not set
	host string
}

func (e endpoint) addr() string { return net.JoinHostPort(e.host, strconv.Itoa(e.port)) }

func newLoader(file string) *loader {
	l := &loader{report: report{file: file, origin: map[string]property{}}, standalone: true}
	l.cfg = Config{File: file, origin: l.origin}
	l.logins.jaasSection = "Server"
	return l
}

// Keys that are accepted without effect are collected and reported in one line for each category.
type category int

const (
	unneeded category = iota
	saslOnly
)

var categories = [...]struct {
	level  slog.Level
	text   string
	effect string // of each key, for the reference
}{
	unneeded: {slog.LevelInfo, "ZooKeeper has these settings and lockkeeper does not need them: ignored",
		"Without effect: it tunes a mechanism that lockkeeper does not have or does not need."},
	saslOnly: {slog.LevelWarn, "these settings describe uses of SASL that this version does not have: without effect",
		"Without effect: it describes a use of SASL that this version does not have."},
}

// take looks up the key of a property and applies the value.
func (l *loader) take(p property) {
	def, name := lookupKey(p.key)
	if def == nil {
		l.unknown(p)
		return
	}
	p.key = name
	if first, ok := l.origin[name]; ok {
		if first.val == p.val {
			l.warn(p, "is set twice, to the same value: line %d", first.line)
			return
		}
		l.fault(p, "is set twice: line %d has another value", first.line)
		second := newLoader(p.file) // whichever of the two is to stay, both have to be right
		def.value.use(second, p)
		l.faults = append(l.faults, second.faults...)
		return
	}
	l.origin[name] = p
	def.value.use(l, p)
}

// unknown reports a key that neither ZooKeeper nor lockkeeper has. ZooKeeper ignores such a key,
// since another program may read it. But one that is a typing error away from a known key sets
// nothing although its writer believes that it does.
func (l *loader) unknown(p property) {
	meant, ok := misspeltKey(p.key)
	switch {
	case ok && !l.allowUnknown:
		l.fault(p, "there is no such key; %s is probably meant (-allow-unknown-keys ignores keys like this one)", meant)
		l.misspelt = append(l.misspelt, property{p.file, p.line, meant, p.val})
	case ok:
		l.warn(p, "neither ZooKeeper nor lockkeeper knows this key; ignored, though it looks like %s", meant)
	default:
		nearest, _ := NearestKey(p.key)
		l.warn(p, "neither ZooKeeper nor lockkeeper knows this key; ignored. The nearest known key is %s", nearest)
	}
}

// takeMisspelt applies the values of misspelt keys to the keys that were probably meant. The file
// is refused anyway; this reports what is wrong with these values too, and does not report as
// missing what is only misspelt.
func (l *loader) takeMisspelt() {
	for _, p := range l.misspelt {
		if !l.has(p.key) {
			l.take(p)
		}
	}
}

// follows reports whether f compares a value with another one that is itself wrong.
func (l *loader) follows(f Fault) bool {
	switch f.Key {
	case "minSessionTimeout":
		return l.faulty("maxSessionTimeout") || l.faulty("tickTime")
	case "myid":
		return l.faulty("dataDir") || l.wrongMemberLines()
	}
	return false
}

// loadDynamic reads the file that dynamicConfigFile names: ZooKeeper moves the server lines there
// when reconfigEnabled is set. Without them a member of a cluster would start alone.
func (l *loader) loadDynamic() {
	if l.dynamic == "" {
		return
	}
	for key, p := range l.origin {
		if isClusterKey(key) {
			l.fault(p, "must stand in the file that dynamicConfigFile names, as all server lines")
		}
	}
	props, faults, err := readProperties(l.dynamic)
	if err != nil {
		l.fault(l.at("dynamicConfigFile"), "%v", errors.Unwrap(err))
		return
	}
	l.faults = append(l.faults, faults...)
	for _, p := range props {
		if !isClusterKey(p.key) {
			l.fault(p, "does not belong in a dynamic configuration file, which has server lines only")
			continue
		}
		l.take(p)
	}
}

func isClusterKey(key string) bool {
	return strings.HasPrefix(key, "server.") || strings.HasPrefix(key, "group.") || strings.HasPrefix(key, "weight.")
}

// finish decides what depends on more than one key.
func (l *loader) finish() {
	if !l.has("dataDir") && !l.faulty("dataDir") {
		l.fault(l.at("dataDir"), "is not set")
	}
	l.checkDirs()
	l.loadUsers()
	l.requireSchemes()
	l.sortRateQuotas()
	l.startMode()
	l.secureClientAddr()
	l.clientAddr()
	l.httpAddress()
	l.metricsAddress()
	l.finishTLS()
	l.finishLogin()
	if l.isTrue("localSessionsEnabled") && !l.isTrue("localSessionsUpgradingEnabled") {
		l.fault(l.at("localSessionsEnabled"), "there are no local sessions: every session is known to the whole "+
			"cluster, and may create "+
			"ephemeral nodes, which a local one of ZooKeeper may not; remove the key, or set "+
			"localSessionsUpgradingEnabled=true as well")
	}
	for i, keys := range l.ineffective {
		if len(keys) > 0 {
			slices.Sort(keys)
			l.notices = append(l.notices, Notice{Level: categories[i].level, File: l.cfg.File,
				Text: categories[i].text + ": " + strings.Join(keys, ", ")})
		}
	}
}

// checkDirs refuses directories that are something else.
func (l *loader) checkDirs() {
	for key, dir := range map[string]string{"dataDir": l.cfg.Data.Dir, "dataLogDir": l.cfg.Data.LogDir} {
		if dir == "" {
			continue
		}
		st, err := os.Stat(dir)
		switch {
		case err == nil && !st.IsDir():
			l.fault(l.at(key), "%s is not a directory", dir)
		case errors.Is(err, fs.ErrNotExist) && l.cfg.Data.MustExist:
			l.fault(l.at(key), "%s does not exist, and datadir.autocreate=false forbids to create it", dir)
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			l.fault(l.at(key), "%v", err)
		}
	}
}

// startMode decides whether the member is alone or belongs to a cluster, by ZooKeeper's rules.
func (l *loader) startMode() {
	voters := znode.Voters(l.members)
	observers := len(l.members) - voters
	switch {
	case l.wrongMemberLines():
		// How many voters there are to be is not known.
	case len(l.members) == 0:
		if !l.standalone {
			l.fault(l.at("standaloneEnabled"), "is false, and there is no server line: a cluster needs at least one "+
				"participant")
		} else if l.dynamic != "" && !l.faulty("dynamicConfigFile") {
			l.fault(l.at("dynamicConfigFile"), "%s has no server line", l.dynamic)
		}
		if l.observer {
			l.fault(l.at("peerType"), "is observer, and there is no server line: there is nobody to observe")
		}
		return
	case voters == 0:
		// Validate reports it.
	case voters == 1 && l.standalone && observers > 0:
		l.fault(l.at("standaloneEnabled"), "one participant stands alone unless standaloneEnabled=false, "+
			"and then its %d observers could not follow it", observers)
	case voters == 1 && l.standalone:
		only := l.members[0]
		l.warn(l.at(only.Key()), "is the only server line: this member stands alone and ignores it "+
			"(standaloneEnabled=false would make it a cluster of one)")
		l.cfg.Cluster.Members, l.cfg.Cluster.ID = nil, 0
		return
	}
	l.cfg.Cluster.Members = znode.SortMembers(l.members)
	if l.anyMember {
		l.cfg.Cluster.ID = l.cfg.Cluster.Members[0].ID
	} else {
		l.readMyID()
	}
	if self := l.cfg.Self(); l.has("peerType") && self != (Member{}) && self.Observer != l.observer {
		l.warn(l.at("peerType"), "differs from the role in the line of %s, which counts", self.Key())
	}
}

// memberLines counts the server lines, wrong ones included.
func (l *loader) memberLines() (n int) {
	for key := range l.origin {
		if strings.HasPrefix(key, "server.") {
			n++
		}
	}
	return n
}

func (l *loader) wrongMemberLines() bool { return len(l.members) < l.memberLines() }

// mayHaveClientPart reports whether a server line has a client address, or cannot be read.
func (l *loader) mayHaveClientPart() bool {
	return l.wrongMemberLines() || slices.ContainsFunc(l.members, func(m Member) bool { return m.ClientAddr != "" })
}

// readMyID reads dataDir/myid: one line with a number and nothing else.
func (l *loader) readMyID() {
	if l.cfg.Data.Dir == "" || l.faulty("dataDir") {
		return
	}
	path := filepath.Join(l.cfg.Data.Dir, "myid")
	at := property{file: path, line: 1, key: "myid"}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && l.myID != nil {
		l.origin["myid"] = at
		l.cfg.Cluster.ID, l.cfg.Cluster.WriteMyID = *l.myID, true
		return
	}
	if errors.Is(err, fs.ErrNotExist) {
		at.line = 0
		l.fault(at, "the file is missing; a member of a cluster needs it: one line with the N of its server.N line")
		return
	}
	if err != nil {
		at.line = 0
		l.fault(at, "%v", errors.Unwrap(err))
		return
	}
	line, _, _ := strings.Cut(string(text), "\n")
	line = strings.TrimSuffix(line, "\r")
	id, err := strconv.ParseUint(line, 10, 8)
	if err != nil {
		l.fault(at, "%q is not a number from 0 to %d", line, znode.MaxMemberID)
		return
	}
	if l.myID != nil && uint8(id) != *l.myID {
		l.fault(at, "the data is that of member %d, and the member is to be number %d", id, *l.myID)
		return
	}
	l.origin["myid"] = at
	l.cfg.Cluster.ID = uint8(id)
}

// clientAddr decides where clients connect: clientPort in the static file, or the client part of
// this member's own server line. The two must not contradict each other.
func (l *loader) clientAddr() {
	own := l.cfg.Self()
	switch {
	case l.cfg.Standalone() && len(l.members) == 1:
		own = l.members[0]
	case l.faulty("myid"):
		own = Member{} // the number is not known, and 0 is a valid one
	}
	if l.client.port == 0 {
		switch {
		case own.ClientAddr != "":
			l.cfg.Client.Addr = own.ClientAddr
			l.origin["clientPort"] = l.at(own.Key())
		case l.has("clientPort") || l.faulty("clientPort") || own.Host == "" && l.mayHaveClientPart():
			// There is a fault already: of the port, or of what identifies this member.
		case l.tls.secure.port != 0:
			l.cfg.Client.Addr, l.cfg.Client.SecureAddr, l.cfg.Client.TLS = l.cfg.Client.SecureAddr, "", TLSOnly
			l.origin["clientPort"] = l.at("secureClientPort")
		default:
			l.fault(l.at("clientPort"), "is not set: there would be no port for clients")
		}
		if l.client.host != "" && own.ClientAddr == "" {
			l.fault(l.at("clientPortAddress"), "is set, but clientPort is not")
		}
		return
	}
	l.cfg.Client.Addr = l.client.addr()
	if own.ClientAddr == "" {
		return
	}
	host, port, err := SplitHostPort(own.ClientAddr)
	sameHost := l.client.host == "" || isWildcard(l.client.host) || l.client.host == host
	if err != nil || port != l.client.port || !sameHost {
		l.fault(l.at("clientPort"), "says %s, but %s says %s", l.cfg.Client.Addr, own.Key(), own.ClientAddr)
		return
	}
	l.cfg.Client.Addr = own.ClientAddr
}

func isWildcard(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsUnspecified()
}

// defaultHTTPPort is that of ZooKeeper's admin server.
const defaultHTTPPort = 8080

// httpAddress decides where HTTP is served: nowhere, unless the file enables it or has a port or an
// address. (ZooKeeper serves it by default, at every address.)
func (l *loader) httpAddress() {
	if l.httpOff || !l.httpOn && l.http.port == 0 && l.http.host == "" {
		return
	}
	l.http.port = cmp.Or(l.http.port, defaultHTTPPort)
	l.cfg.HTTP.Addr = l.http.addr()
}

// finishLogin decides at which ports reading needs a login.
func (l *loader) finishLogin() {
	c := &l.cfg
	needs := func(addr string) bool {
		if addr == "" || l.has("admin.requireLogin") {
			return addr != "" && l.requireLogin
		}
		return !IsLoopback(addr) && (c.ClientsSpeakTLS() || c.Auth.SASLUsers != nil)
	}
	c.HTTP.Login, c.Metrics.Login = needs(c.HTTP.Addr), needs(c.Metrics.Addr)
	certificates := c.TLS.Clients.TrustStore.File != ""
	byWord := c.Metrics.Login && !(c.Metrics.TLS && certificates) || c.HTTP.Login &&
		!(c.HTTP.TLS != TLSOff && certificates)
	if byWord && c.Auth.SuperDigest == "" && c.HTTP.ViewerDigest == "" {
		l.warn(l.at("admin.requireLogin"), "nobody can read there: admin.viewerDigest is missing")
	}
}

// IsLoopback reports whether a host:port is reached from this machine only.
func IsLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// defaultMetricsPort is that of ZooKeeper's Prometheus provider.
const defaultMetricsPort = 7000

// metricsAddress decides where Prometheus finds metrics: nowhere, unless the file names the
// provider.
func (l *loader) metricsAddress() {
	if !l.metricsOn {
		for _, key := range []string{"metricsProvider.httpPort", "metricsProvider.httpHost",
			"metricsProvider.exportJvmInfo", "metricsProvider.forceHttps"} {
			if l.has(key) {
				l.warn(l.at(key), "without effect: metricsProvider.className=%s is missing", prometheusProvider)
			}
		}
		l.cfg.Metrics.TLS = false
		return
	}
	l.metrics.port = cmp.Or(l.metrics.port, defaultMetricsPort)
	l.cfg.Metrics.Addr = l.metrics.addr()
}
