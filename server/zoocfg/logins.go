package zoocfg

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"

	"lockkeeper/session/sasl"
)

// loginKeys are about who clients are, and what they may do before that is known.
var loginKeys = map[string]keyDef{
	"enforce.auth.enabled": {property: true, value: boolean(func(l *loader) *bool { return &l.logins.enforceAuth }),
		def:    "false",
		effect: "A client must have proved an identity of one of enforce.auth.schemes before any other request."},
	"enforce.auth.schemes": {property: true, value: value{kind: "some of digest, ip, key, sasl, x509, with commas",
		use: useAuthSchemes}, def: "(none)",
		effect: "The schemes that satisfy enforce.auth.enabled. Anybody can log in with digest, under a name of his " +
			"own, and everybody has an address (ip): only sasl and x509 say who somebody is."},
	jaasKey: {property: true, zooKeeper: jaasKey,
		value: text("path", func(l *loader) *string { return &l.logins.jaasFile }), def: "(none)",
		effect: "A JAAS file, whose section Server names the users who may log in with SASL (DIGEST-MD5): " +
			"DigestLoginModule with user_NAME=\"password\". Kerberos stops the start. In ZooKeeper it is an option " +
			"of the JVM."},
	"sasl.serverconfig": {property: true, value: text("name of a section",
		func(l *loader) *string { return &l.logins.jaasSection }), def: "Server",
		effect: "The section of the JAAS file that has the users."},
	usersKey: {own: true, value: text("path", func(l *loader) *string { return &l.logins.usersFile }), def: "(none)",
		effect: "A file that names users who may log in with SASL without their passwords in clear: a line for each, " +
			"as 'lockkeeper digest -sasl USER' prints it. It may stand beside a JAAS file."},
	superPasswordKey: {property: true, value: text("password",
		func(l *loader) *string { return &l.logins.superPassword }), def: "(none)",
		effect: "The password of the SASL user super, whatever the files of users say. That alone makes nobody a " +
			"super user: see superUser."},
	"superUser": {property: true, value: value{kind: "name", use: useSuperUser}, def: "(none)",
		effect: "The SASL user whom no ACL stops."},
	"letAnySaslUserDoX": {property: true, value: text("name",
		func(l *loader) *string { return &l.cfg.Auth.AnySASLUser }), def: "(none)",
		effect: "A name that stands for everybody who has logged in with SASL: what an ACL gives to sasl:NAME, they " +
			"all have."},
	"allowSaslFailedClients": {property: true,
		value: boolean(func(l *loader) *bool { return &l.cfg.Auth.SASLOptional }), def: "false",
		effect: "With true a client whose login with SASL fails goes on without it, unless SASL is required."},
	"sessionRequireClientSASLAuth": {property: true,
		value: boolean(func(l *loader) *bool { return &l.logins.requireSASL }), def: "false",
		effect: "A client must have logged in with SASL before any other request. It comes before " +
			"enforce.auth.schemes."},
	"ensembleAuthName": {property: true, value: value{kind: "names with commas", use: useEnsembleNames}, def: "(none)",
		effect: "The names of this cluster for clients that say which cluster they expect (scheme ensemble): with " +
			"another name their connection is closed. It proves nothing, and clients that say nothing are served."},
	"requireClientAuthScheme": {class: KeyMissing,
		value:  value{kind: "sasl", use: func(l *loader, p property) { l.warn(p, "%s", noRequireClientAuthScheme) }},
		def:    "(none)",
		effect: "Without effect: " + noRequireClientAuthScheme + "."},
}

const noRequireClientAuthScheme = "ZooKeeper reads no such key, whatever guides say, and nobody has to log in " +
	"because of it; sessionRequireClientSASLAuth=true requires SASL"

const noKerberos = "this version has no Kerberos (GSSAPI)"

// kerberosKeys are about logins with Kerberos, which are missing, too.
var kerberosKeys = map[string]keyDef{
	"requireKerberosConfig":             refuseTrue(noKerberos).asProperty(),
	"kerberos.canonicalizeHostNames":    refuseTrue(noKerberos).asProperty(),
	"kerberos.removeHostFromPrincipal":  refuseTrue(noKerberos).asProperty(),
	"kerberos.removeRealmFromPrincipal": refuseTrue(noKerberos).asProperty(),
	"kinit": {class: KeyRefused, property: true, value: refuse("path", noKerberos+"; remove the key to start without"),
		def: "(none)", effect: "Stops the start: " + noKerberos + "."},
	"security.auth_to_local": {class: KeyRefused, property: true,
		value: refuse("rules", noKerberos+"; remove the key to start without"),
		def:   "(none)", effect: "Stops the start: " + noKerberos + "."},
}

// javaProviders is the package of ZooKeeper's providers.
const javaProviders = "org.apache.zookeeper.server.auth."

// authProviders are ZooKeeper's providers of authentication schemes, by class, and what naming one
// does.
var authProviders = map[string]func(*loader, property){
	"DigestAuthenticationProvider": func(l *loader, p property) { l.ignore(unneeded, p) },
	"IPAuthenticationProvider":     func(l *loader, p property) { l.ignore(unneeded, p) },
	"SASLAuthenticationProvider": func(l *loader, p property) {
		l.cfg.Auth.SASLACLs, l.logins.provider = true,
			p.key
	},
	"EnsembleAuthenticationProvider": func(l *loader, p property) { l.loadEnsemble() },
	"KeyAuthenticationProvider":      func(l *loader, p property) { l.cfg.Auth.KeyScheme = true },
	"X509AuthenticationProvider":     func(l *loader, p property) { l.tls.x509 = p },
}

// authProvider refuses providers that are missing: without them nobody has the identities of an ACL
// with their scheme, and clients that they would refuse are served.
func authProvider(l *loader, p property) {
	if use, ok := authProviders[strings.TrimPrefix(p.val, javaProviders)]; ok {
		use(l, p)
		return
	}
	l.fault(p, "lockkeeper cannot load %s, so nobody can log in with its scheme; remove the key to start without",
		p.val)
}

// loadEnsemble makes the scheme ensemble known.
func (l *loader) loadEnsemble() {
	if l.cfg.Auth.Ensembles == nil {
		l.cfg.Auth.Ensembles = []string{}
	}
}

func useEnsembleNames(l *loader, p property) {
	l.loadEnsemble()
	for name := range strings.SplitSeq(p.val, ",") {
		if name = strings.TrimSpace(name); name == "" {
			l.fault(p, "has an empty name")
			return
		}
		l.cfg.Auth.Ensembles = append(l.cfg.Auth.Ensembles, name)
	}
}

// enforceable are the schemes of enforce.auth.schemes. For each it says what is missing without
// which nobody could log in with it, "" if nothing is.
var enforceable = map[string]func(*Config) string{
	"digest": func(c *Config) string {
		if c.Auth.NoDigest {
			return "DigestAuthenticationProvider.enabled=false switches it off"
		}
		return ""
	},
	"ip": func(*Config) string { return "" },
	"key": func(c *Config) string {
		if !c.Auth.KeyScheme {
			return "authProvider.N=" + javaProviders + "KeyAuthenticationProvider is missing"
		}
		return ""
	},
	"sasl": func(c *Config) string {
		if len(c.Auth.SASLUsers) == 0 {
			return "there are no users: java.security.auth.login.config or saslUsersFile has to name a file with them"
		}
		return ""
	},
	"x509": func(*Config) string { return "" }, // finishTLS says what is missing
}

func enforceableNames() string { return strings.Join(slices.Sorted(maps.Keys(enforceable)), ", ") }

func useAuthSchemes(l *loader, p property) {
	l.logins.authSchemes = nil
	for scheme := range strings.SplitSeq(p.val, ",") {
		scheme = strings.TrimSpace(scheme)
		if enforceable[scheme] == nil {
			l.fault(p, "this version cannot tell who somebody is by the scheme %q; it has %s", scheme,
				enforceableNames())
			continue
		}
		l.logins.authSchemes = append(l.logins.authSchemes, scheme)
	}
}

// loginLoader collects what several keys decide together.
type loginLoader struct {
	enforceAuth bool     // enforce.auth.enabled
	authSchemes []string // enforce.auth.schemes
	requireSASL bool     // sessionRequireClientSASLAuth

	jaasFile, jaasSection string            // java.security.auth.login.config, sasl.serverconfig
	usersFile             string            // saslUsersFile
	superPassword         string            // SASLAuthenticationProvider.superPassword
	provider              string            // the key that has named the provider of SASL
	superUserKeys         map[string]string // the keys that have made them super users, by user
	faulty                bool              // a file of users is wrong
}

// requireSchemes decides which schemes a client has to log in with.
func (l *loader) requireSchemes() {
	key := "enforce.auth.schemes"
	switch {
	case l.logins.requireSASL: // and no other, as in ZooKeeper
		key, l.logins.authSchemes = "sessionRequireClientSASLAuth", []string{"sasl"}
	case !l.logins.enforceAuth:
		return
	case len(l.logins.authSchemes) == 0:
		if !l.faulty(key) {
			l.fault(l.at("enforce.auth.enabled"), "needs enforce.auth.schemes, which says which schemes will do: "+
				"some of %s",
				enforceableNames())
		}
		return
	}
	l.cfg.Auth.RequiredSchemes = l.logins.authSchemes
	for _, scheme := range l.logins.authSchemes {
		if missing := enforceable[scheme](&l.cfg); missing != "" && !l.logins.faulty {
			l.fault(l.at(key), "nobody could log in with %s: %s", scheme, missing)
		}
	}
}

// The keys that name the users of SASL.
const (
	jaasKey          = "java.security.auth.login.config"
	usersKey         = "saslUsersFile"
	superPasswordKey = "SASLAuthenticationProvider.superPassword"
)

// loadUsers reads who may log in with SASL.
func (l *loader) loadUsers() {
	if text, ok := l.readUsers(jaasKey, strings.TrimPrefix(l.logins.jaasFile, "file:")); ok {
		users, found, err := sasl.ParseJAAS(text, l.logins.jaasSection)
		if err == nil && !found {
			l.warn(l.at(jaasKey), "%s has no section %s: nobody can log in with SASL", l.logins.jaasFile,
				l.logins.jaasSection)
		} else {
			l.addUsers(jaasKey, l.logins.jaasFile, users, err)
		}
	}
	if text, ok := l.readUsers(usersKey, l.logins.usersFile); ok {
		users, err := sasl.ParseUsers(text)
		l.addUsers(usersKey, l.logins.usersFile, users, err)
	}
	if l.logins.superPassword != "" {
		l.setUsers(sasl.Users{"super": sasl.NewHA1("super", l.logins.superPassword)})
	}
	if l.cfg.Auth.SASLACLs && l.cfg.Auth.SASLUsers == nil && !l.logins.faulty {
		l.notices = append(l.notices, l.cfg.Warning(l.logins.provider,
			"no file names the users of SASL (%s, %s): ACLs may name them, and nobody can log in", jaasKey, usersKey))
	}
	for _, user := range l.cfg.Auth.SuperUsers {
		if _, ok := l.cfg.Auth.SASLUsers[user]; !ok && !l.logins.faulty {
			l.notices = append(l.notices, l.cfg.Warning(l.logins.superUserKeys[user], "there is no SASL user %q", user))
		}
	}
}

// SASLEntry is the line of saslUsersFile for a user with a password; see sasl.Entry.
func SASLEntry(user, password string) (string, error) { return sasl.Entry(user, password) }

// readUsers reads the file that a key names. ok is false without one.
func (l *loader) readUsers(key, file string) (text string, ok bool) {
	if file == "" {
		return "", false
	}
	b, err := os.ReadFile(file)
	if err != nil {
		l.logins.faulty = true
		l.fault(l.at(key), "%s: %v", file, errors.Unwrap(err))
		return "", false
	}
	l.warnIfReadable(l.at(key), file)
	return string(b), true
}

// warnOfReadableSecrets warns if everybody on the machine can read a file that has secrets: this
// one, or one that it names.
func (l *loader) warnOfReadableSecrets(props []property) {
	seen := map[string]bool{}
	for _, p := range props {
		file := p.file
		switch key := strings.ToLower(p.key); {
		case p.val == "", strings.Contains(key, "truststore"): // that has certificates only
			continue
		case isSecret(p.key):
		case strings.HasSuffix(key, "passwordpath"), strings.HasSuffix(key, "keystore.location"), key == "tls.key":
			file = p.val
		default:
			continue
		}
		if !seen[file] && file != "" {
			seen[file] = true
			l.warnIfReadable(p, file)
		}
	}
}

// addUsers adds the users of the file that a key names, or reports what is wrong with it.
func (l *loader) addUsers(key, file string, users sasl.Users, err error) {
	if err != nil {
		l.logins.faulty = true
		at, syntax := property{file: file, key: key}, (*sasl.SyntaxError)(nil)
		if errors.As(err, &syntax) {
			at.line = syntax.Line
			l.fault(at, "%s", syntax.Reason)
		}
		return
	}
	for _, user := range slices.Sorted(maps.Keys(users)) {
		if _, twice := l.cfg.Auth.SASLUsers[user]; twice {
			l.fault(l.at(key), "%s: user %q is in the file of %s, too", file, user, jaasKey)
		}
	}
	l.setUsers(users)
}

func (l *loader) setUsers(users sasl.Users) {
	if l.cfg.Auth.SASLUsers == nil {
		l.cfg.Auth.SASLUsers = sasl.Users{}
	}
	maps.Copy(l.cfg.Auth.SASLUsers, users)
}

func useSuperUser(l *loader, p property) {
	if p.val == "" {
		l.fault(p, "is empty")
		return
	}
	l.cfg.Auth.SuperUsers = append(l.cfg.Auth.SuperUsers, p.val)
	if l.logins.superUserKeys == nil {
		l.logins.superUserKeys = map[string]string{}
	}
	l.logins.superUserKeys[p.val] = p.key
}
